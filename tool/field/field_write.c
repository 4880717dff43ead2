/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the JSON file, and replaces names and addresses in the tree from which both files are written. */
#include "sys/json.h"
#include "tool/field/field.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- replacing names --------------------------------------------------------------------------- */

static int mask_value(struct mask *m, json_t *v);

static int mask_string(struct mask *m, json_t *v)
{
    HW_AUTO_FREE char *masked = mask_text(m, json_string_value(v));
    return masked && json_string_set(v, masked) == 0 ? 0 : hw_no_memory("the result");
}

static int mask_members(struct mask *m, json_t *v)
{
    const char *key;
    json_t *item;
    size_t i;
    int rc = 0;
    if (json_is_object(v)) {
        json_object_foreach(v, key, item) rc = rc < 0 ? rc : mask_value(m, item);
    } else {
        json_array_foreach(v, i, item) rc = rc < 0 ? rc : mask_value(m, item);
    }
    return rc;
}

static int mask_value(struct mask *m, json_t *v)
{
    if (json_is_string(v))
        return mask_string(m, v);
    return json_is_object(v) || json_is_array(v) ? mask_members(m, v) : 0;
}

/* Returns true if mask_word() must replace a host name. Empty names and "localhost" stay, and mask_text() replaces IPv6
 * addresses. */
static bool is_secret(const char *name)
{
    return *name && strcmp(name, "localhost") != 0 && strchr(name, ':') == NULL;
}

int field_mask(struct field *f)
{
    char own[256] = "", first[256], peer[256];
    const char *home = getenv("HOME");
    struct mask *m = mask_new();
    if (!m)
        return hw_no_memory("the result");
    (void)gethostname(own, sizeof own - 1);
    snprintf(first, sizeof first, "%.*s", (int)strcspn(own, "."), own);
    snprintf(peer, sizeof peer, "%s", f->host);
    if (strspn(peer, "0123456789.") == strlen(peer))
        peer[0] = 0; /* an IPv4 address, which mask_text() replaces */
    mask_word(m, is_secret(own) ? own : "", "<here>");
    mask_word(m, is_secret(first) ? first : "", "<here>");
    mask_word(m, is_secret(peer) ? peer : "", "<there>");
    peer[strcspn(peer, ".")] = 0;
    mask_word(m, is_secret(peer) ? peer : "", "<there>");
    if (home && strlen(home) > 1 && strcmp(home, "/root") != 0)
        mask_word(m, home, "<home>");
    int rc = mask_value(m, f->doc);
    mask_free(m);
    return rc;
}

/* ---- writing the JSON file ----------------------------------------------------------------------- */

static void write_value(struct hw_json *j, const char *key, const json_t *v)
{
    const char *name;
    json_t *item;
    size_t i;
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        hw_json_object(j, key);
        json_object_foreach((json_t *)v, name, item) write_value(j, name, item);
        hw_json_end(j);
        break;
    case JSON_ARRAY:
        hw_json_array(j, key);
        json_array_foreach(v, i, item) write_value(j, NULL, item);
        hw_json_end(j);
        break;
    case JSON_STRING:
        hw_json_str(j, key, json_string_value(v));
        break;
    case JSON_INTEGER:
        hw_json_i64(j, key, json_integer_value(v));
        break;
    case JSON_REAL:
        hw_json_double(j, key, json_real_value(v));
        break;
    case JSON_NULL:
        hw_json_null(j, key);
        break;
    default:
        hw_json_bool(j, key, json_is_true(v));
    }
}

int field_write_json(const struct field *f, const char *path)
{
    struct hw_json j;
    FILE *out = fopen(path, "we");
    if (!out)
        return hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    hw_json_init(&j, out);
    write_value(&j, NULL, f->doc);
    int rc = hw_json_finish(&j);
    if (fclose(out) != 0 && rc == 0)
        rc = hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    return rc < 0 ? hw_wrap(rc, "%s", path) : 0;
}
