/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes of what hawser has changed in a bundle's config.json. To undo puts back what a note says, so that a note must
 * not be a tenant's, and tenants write annotations. A note is kept in an object {NAME: NOTE}, which its caller keeps
 * where no tenant writes (tool/sandbox/bundle_file.h: a file beside the configuration). An annotation has the NAME,
 * which the note's content decides.
 */
#ifndef HW_SANDBOX_NOTE_H
#define HW_SANDBOX_NOTE_H

#include <jansson.h>

/* The annotations that name notes. */
#define SBX_NOTE_SANDBOX "hawser.spec"       /* of oci/spec.c */
#define SBX_NOTE_VERBS   "hawser.verbs.spec" /* of tool/verbs/verbs_spec.c */

/* Returns the name that config's annotation has, inside config; NULL: none. */
const char *sbx_note_name(const json_t *config, const char *annotation);
/* Finds the note that config's annotation names, inside notes. 1: found; 0: config has no such annotation, *out is
 * NULL; -EINVAL: notes has no such note, which says that the annotation is a tenant's. */
int sbx_note_find(json_t **out, const json_t *config, const char *annotation, const json_t *notes);
/* Puts note into notes, and its name into config's annotation. config has annotations. */
int sbx_note_put(json_t *config, const char *annotation, json_t *notes, json_t *note);
/* Says that the note which config's annotation names is another command's. -EINVAL. */
int sbx_note_foreign(const json_t *config, const char *annotation);

#endif
