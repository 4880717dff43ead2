/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes record hawser's changes to a bundle's config.json. Undo restores the content of a note, so a note must not come
 * from a tenant. Tenants can write annotations. Notes are therefore kept in an object {NAME: NOTE}, which the caller
 * stores where tenants cannot write, namely in a file next to the configuration (tool/sandbox/bundle_file.h). An
 * annotation contains only the NAME, which is derived from the note's content.
 */
#ifndef HW_SANDBOX_NOTE_H
#define HW_SANDBOX_NOTE_H

#include <jansson.h>

/* The annotations that contain the names of notes. */
#define SBX_NOTE_SANDBOX "hawser.spec"       /* for the notes of oci/spec.c */
#define SBX_NOTE_VERBS   "hawser.verbs.spec" /* for the notes of tool/verbs/verbs_spec.c */

/* Returns the name in config's annotation, or NULL if there is none. The string belongs to config. */
const char *sbx_note_name(const json_t *config, const char *annotation);
/* Finds the note that config's annotation refers to; *out belongs to notes. Returns 1 if the note was found. Returns 0
 * and sets *out to NULL if config has no such annotation. Fails with -EINVAL if notes has no such note, because a
 * tenant may have written the annotation. */
int sbx_note_find(json_t **out, const json_t *config, const char *annotation, const json_t *notes);
/* Adds note to notes, and its name to config's annotation. config must have a member annotations. */
int sbx_note_put(json_t *config, const char *annotation, json_t *notes, json_t *note);
/* Reports that hawser has not written the note that config's annotation refers to. Returns -EINVAL. */
int sbx_note_foreign(const json_t *config, const char *annotation);

#endif
