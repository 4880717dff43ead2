/* SPDX-License-Identifier: Apache-2.0 */
/* An OCI bundle's config.json, and the file CONFIG.hawser beside it with the notes of hawser's changes to it
 * (oci/note.h). */
#ifndef HW_TOOL_BUNDLE_FILE_H
#define HW_TOOL_BUNDLE_FILE_H

#include <jansson.h>
#include <limits.h>

struct bundle_file {
    char path[PATH_MAX]; /* without symbolic links */
    unsigned mode;
    json_t *config, *notes;
};

/* Reads both; notes is an empty object if there is no file. The caller frees f, also after a failure. */
int bundle_load(struct bundle_file *f, const char *path);
/* Writes the configuration to out (NULL: its old path), and the notes that it names next to it. */
int bundle_save(const struct bundle_file *f, const char *out);
void bundle_free(struct bundle_file *f);

#endif
