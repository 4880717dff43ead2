/* SPDX-License-Identifier: Apache-2.0 */
/* An OCI bundle's config.json, and the file CONFIG.hawser beside it, which records hawser's changes to the
 * configuration (oci/note.h). */
#ifndef HW_TOOL_BUNDLE_FILE_H
#define HW_TOOL_BUNDLE_FILE_H

#include <jansson.h>
#include <limits.h>

struct bundle_file {
    char path[PATH_MAX]; /* without symbolic links */
    unsigned mode;
    json_t *config, *notes;
};

/* Reads both files; notes is an empty object if there is no file of notes. The caller frees f, even after a failure. */
int bundle_load(struct bundle_file *f, const char *path);
/* Writes the configuration to out, or to its old path if out is NULL. Also writes the notes to which the configuration
 * refers, in the same folder. */
int bundle_save(const struct bundle_file *f, const char *out);
void bundle_free(struct bundle_file *f);

#endif
