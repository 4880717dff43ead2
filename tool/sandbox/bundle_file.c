/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/sandbox/bundle_file.h"

#include "oci/note.h"
#include "oci/oci.h"
#include "tool/sandbox/sandbox.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_MAX_LEN (PATH_MAX + 16)

static void name_notes(char out[NAME_MAX_LEN], const char *config)
{
    snprintf(out, NAME_MAX_LEN, "%s.hawser", config);
}

/* Reads the file of notes next to a configuration. *out receives an empty object if there are none. */
static int load_notes(json_t **out, const char *config)
{
    char path[NAME_MAX_LEN];
    HW_AUTO_FREE char *text = NULL;
    size_t len;
    name_notes(path, config);
    *out = NULL;
    HW_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
    if (fd < 0 && errno != ENOENT)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    int rc = fd < 0 ? 0 : hw_file_read(fd, SBX_OCI_CONFIG_MAX, path, &text, &len);
    if (rc < 0)
        return rc;
    *out = text ? sbx_oci_load(text, len) : json_object();
    return *out ? 0 : hw_wrap(-EINVAL, "%s", path);
}

int bundle_load(struct bundle_file *f, const char *path)
{
    struct stat st;
    HW_AUTO_FREE char *text = NULL;
    size_t len;
    HW_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0 || !realpath(path, f->path))
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    f->mode = st.st_mode & 07777;
    int rc = hw_file_read(fd, SBX_OCI_CONFIG_MAX, path, &text, &len);
    if (rc < 0)
        return rc;
    f->config = sbx_oci_load(text, len);
    return f->config ? load_notes(&f->notes, f->path) : hw_wrap(-EINVAL, "%s", path);
}

static int write_bundle_json(const json_t *o, const char *path, unsigned mode)
{
    HW_AUTO_FREE char *text = sbx_oci_dump(o);
    return text ? sandbox_write(path, text, mode) : hw_no_memory("JSON");
}

/* Adds the notes to which the configuration refers. */
static int add_named_notes(json_t *out, const struct bundle_file *f)
{
    static const char *const annotation[] = {SBX_NOTE_SANDBOX, SBX_NOTE_VERBS};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < HW_ARRAY_LEN(annotation); i++) {
        json_t *note;
        rc = sbx_note_find(&note, f->config, annotation[i], f->notes);
        if (rc == 1)
            rc = json_object_set(out, sbx_note_name(f->config, annotation[i]), note) < 0 ? hw_no_memory("JSON") : 0;
    }
    return rc;
}

/* Keeps both the old and the new notes on disk while the configuration is replaced, so that after a crash either
 * configuration has its notes. */
int bundle_save(const struct bundle_file *f, const char *out)
{
    const char *to = out ? out : f->path;
    char path[NAME_MAX_LEN];
    json_auto_t *both = NULL, *named = json_object();
    name_notes(path, to);
    int rc = load_notes(&both, to);
    if (rc < 0 || (rc = add_named_notes(named, f)) < 0)
        return rc;
    const bool any = json_object_size(named) > 0;
    if (any && json_object_update(both, named) < 0)
        return hw_no_memory("JSON");
    if (any && (rc = write_bundle_json(both, path, 0600)) < 0)
        return rc;
    rc = write_bundle_json(f->config, to, f->mode);
    if (rc < 0)
        return rc;
    if (any)
        return write_bundle_json(named, path, 0600);
    return unlink(path) < 0 && errno != ENOENT ? hw_fail(-errno, "%s: %s", path, strerror(errno)) : 0;
}

void bundle_free(struct bundle_file *f)
{
    json_decref(f->config);
    json_decref(f->notes);
    f->config = f->notes = NULL;
}
