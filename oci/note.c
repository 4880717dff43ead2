/* SPDX-License-Identifier: Apache-2.0 */
#include "oci/note.h"

#include "base/base.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const json_t *find_annotation(const json_t *config, const char *annotation)
{
    return json_object_get(json_object_get(config, "annotations"), annotation);
}

const char *sbx_note_name(const json_t *config, const char *annotation)
{
    return json_string_value(find_annotation(config, annotation));
}

int sbx_note_foreign(const json_t *config, const char *annotation)
{
    const char *name = sbx_note_name(config, annotation);
    if (!name)
        return hw_fail(-EINVAL, "its annotation %s is not a string; remove the annotation", annotation);
    return hw_fail(-EINVAL,
                   "its annotation %s refers to note '%.32s', but hawser has no valid note of this name next to the "
                   "configuration: "
                   "a tenant may have written the annotation, or the configuration was copied; remove the annotation",
                   annotation, name);
}

int sbx_note_find(json_t **out, const json_t *config, const char *annotation, const json_t *notes)
{
    const char *name = sbx_note_name(config, annotation);
    *out = name ? json_object_get(notes, name) : NULL;
    if (*out)
        return 1;
    return find_annotation(config, annotation) ? sbx_note_foreign(config, annotation) : 0;
}

int sbx_note_put(json_t *config, const char *annotation, json_t *notes, json_t *note)
{
    char *text = note ? json_dumps(note, JSON_COMPACT) : NULL, name[20];
    json_t *annotations = json_object_get(config, "annotations");
    const uint64_t hash = hw_hash(HW_HASH_START, text, text ? strlen(text) : 0);
    snprintf(name, sizeof(name), "%016llx", (unsigned long long)hash);
    int rc = text && json_object_set_new(annotations, annotation, json_string(name)) == 0 &&
                     json_object_set(notes, name, note) == 0
                 ? 0
                 : hw_no_memory("the configuration");
    free(text);
    return rc;
}
