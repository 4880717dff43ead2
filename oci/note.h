/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes of hawser's changes to a bundle's config.json. Undo restores what a note says, so a note must not come from a
 * tenant, and tenants write annotations. Notes are kept in an object {NAME: NOTE}, which the caller stores where
 * tenants cannot write (tool/sandbox/bundle_file.h: a file next to the configuration). An annotation holds the NAME,
 * which is derived from the note's content.
 */
#ifndef HW_SANDBOX_NOTE_H
#define HW_SANDBOX_NOTE_H

#include <jansson.h>

/* The annotations that name notes. */
#define SBX_NOTE_SANDBOX "hawser.spec"       /* of oci/spec.c */
#define SBX_NOTE_VERBS   "hawser.verbs.spec" /* of tool/verbs/verbs_spec.c */

/* Returns the name in config's annotation, inside config; NULL: none. */
const char *sbx_note_name(const json_t *config, const char *annotation);
/* Finds the note that config's annotation names, inside notes. 1: found; 0: config has no such annotation, *out is
 * NULL; -EINVAL: notes has no such note, so the annotation was written by a tenant. */
int sbx_note_find(json_t **out, const json_t *config, const char *annotation, const json_t *notes);
/* Adds note to notes, and its name to config's annotation. config must have annotations. */
int sbx_note_put(json_t *config, const char *annotation, json_t *notes, json_t *note);
/* Reports that the note named by config's annotation belongs to another command. -EINVAL. */
int sbx_note_foreign(const json_t *config, const char *annotation);

#endif
