/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the hook's settings, the runtime's state and a bundle's config.json. */
#include "oci/oci.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX "hawser."

/* ---- settings ----------------------------------------------------------------------------------- */

enum form { TEXT, YES_NO, RDMA, SYSFS };
static const struct {
    const char *name;
    enum form form;
    bool annotation; /* a tenant may set it; such a setting must not grant the container more */
} keys[SBX_KEYS] = {
    [SBX_KEY_NICS] = {"nics", TEXT, true}, /* an annotation sets sbx_settings.only instead */
    [SBX_KEY_OFFER] = {"offer", TEXT, false},
    [SBX_KEY_GPUS] = {"gpus", TEXT, true}, /* an annotation sets sbx_settings.only_gpus instead */
    /* "" would include more NICs, and an expression can exhaust the host's memory */
    [SBX_KEY_EXCLUDE] = {"exclude", TEXT, false},
    [SBX_KEY_PEER_NICS] = {"peer-nics", TEXT, true},
    [SBX_KEY_BOOTSTRAP] = {"bootstrap", TEXT, true},
    [SBX_KEY_REQUIRE_IPV4] = {"require-ipv4", YES_NO, true},
    [SBX_KEY_FORCE] = {"force", YES_NO, false},
    [SBX_KEY_ALL_NICS] = {"all-nics", YES_NO, false},
    /* exposes the host's PCI devices or, if set to a folder, another container's */
    [SBX_KEY_SYSFS] = {"sysfs", SYSFS, false},
    [SBX_KEY_RDMA] = {"rdma", RDMA, true},
    [SBX_KEY_ARP] = {"arp", YES_NO, false}, /* "no" lets a NIC answer ARP requests for other NICs' addresses */
    [SBX_KEY_ID] = {"id", TEXT, false},     /* the ID of another container would restore that container's NICs */
    [SBX_KEY_JOURNAL_DIR] = {"journal-dir", TEXT, false},
};

static bool yes_no(const char *v)
{
    return strcmp(v, "yes") == 0 || strcmp(v, "no") == 0;
}

int sbx_setting(struct sbx_settings *s, const char *name, const char *value, bool annotation)
{
    size_t k = 0;
    while (k < SBX_KEYS && strcmp(keys[k].name, name) != 0)
        k++;
    if (k == SBX_KEYS)
        return hw_fail(-EINVAL, "unknown setting %s%.64s", annotation ? PREFIX : "", name);
    if (annotation && !keys[k].annotation)
        return hw_fail(-EPERM,
                       "the annotation " PREFIX
                       "%s is refused: annotations can come from a tenant, so only the hook's arguments can set %s=",
                       name, name);
    if ((keys[k].form == YES_NO && !yes_no(value)) ||
        (keys[k].form == RDMA && !yes_no(value) && strcmp(value, "auto") != 0) ||
        (keys[k].form == SYSFS && !yes_no(value) && *value != '/'))
        return hw_fail(-EINVAL, "%s is '%.64s', but must be %s", name, value,
                       keys[k].form == RDMA    ? "auto, yes or no"
                       : keys[k].form == SYSFS ? "yes, no, or the path of a folder"
                                               : "yes or no");
    char **at = annotation && k == SBX_KEY_NICS   ? &s->only
                : annotation && k == SBX_KEY_GPUS ? &s->only_gpus
                                                  : &s->value[k];
    if (*at)
        return 0;
    *at = strdup(value);
    return *at ? 0 : hw_no_memory("the settings");
}

void sbx_settings_free(struct sbx_settings *s)
{
    for (size_t k = 0; k < SBX_KEYS; k++)
        free(s->value[k]);
    free(s->only);
    free(s->only_gpus);
    *s = (struct sbx_settings){0};
}

static bool is_set_to(const char *value, const char *what)
{
    return value && strcmp(value, what) == 0;
}

int sbx_settings_ask(const struct sbx_settings *s)
{
    const char *sysfs = s->value[SBX_KEY_SYSFS];
    bool offers = s->value[SBX_KEY_OFFER], gives = s->value[SBX_KEY_NICS];
    if (offers && gives)
        return hw_fail(-EINVAL,
                       "nics= and offer= cannot be combined, because both determine which NICs a container gets");
    if (!offers && !gives && s->only && !is_set_to(s->only, "none"))
        return hw_fail(-EPERM,
                       "the annotation hawser.nics requests '%.64s', but the hook's arguments offer no NIC: add "
                       "offer=NIC[,..] or offer=all to them",
                       s->only);
    if (offers)
        return s->only != NULL;
    /* with nics=none, the plan refuses an annotation that requests NICs */
    bool none = is_set_to(s->value[SBX_KEY_NICS], "none") && (!s->only || is_set_to(s->only, "none"));
    return (gives && !none) || (sysfs && !is_set_to(sysfs, "no"));
}

bool sbx_settings_yes(const struct sbx_settings *s, enum sbx_key key)
{
    return is_set_to(s->value[key], "yes");
}

struct sbx_want sbx_settings_want(const struct sbx_settings *s)
{
    const char *nics = s->value[SBX_KEY_OFFER] ? s->value[SBX_KEY_OFFER] : s->value[SBX_KEY_NICS];
    return (struct sbx_want){.nics = !nics                      ? "none"
                                     : strcmp(nics, "all") == 0 ? NULL
                                                                : nics,
                             .only = s->only,
                             .gpus = s->value[SBX_KEY_GPUS],
                             .only_gpus = s->only_gpus,
                             .exclude = s->value[SBX_KEY_EXCLUDE],
                             .peer_nics = s->value[SBX_KEY_PEER_NICS],
                             .bootstrap = s->value[SBX_KEY_BOOTSTRAP],
                             .require_ipv4 = sbx_settings_yes(s, SBX_KEY_REQUIRE_IPV4),
                             .force = sbx_settings_yes(s, SBX_KEY_FORCE),
                             .keep_nics = sbx_settings_yes(s, SBX_KEY_ALL_NICS)};
}

/* ---- what the runtime says ----------------------------------------------------------------------- */

void sbx_oci_free(struct sbx_oci *o)
{
    free(o->id);
    free(o->bundle);
    free(o->root);
    sbx_settings_free(&o->set);
    *o = (struct sbx_oci){0};
}

static int apply_oci_annotations(struct sbx_oci *o, const json_t *all, const char *whose)
{
    const char *key;
    json_t *v;
    if (!all || json_is_null(all) || o->no_annotations)
        return 0;
    if (!json_is_object(all))
        return hw_fail(-EINVAL, "%s: annotations is not an object", whose);
    json_object_foreach((json_t *)all, key, v) /* NOLINT: only reads */
    {
        if (strncmp(key, PREFIX, sizeof(PREFIX) - 1) != 0 || strcmp(key, PREFIX "spec") == 0 ||
            strncmp(key, PREFIX "verbs.", sizeof(PREFIX "verbs.") - 1) == 0) /* annotations of the verbs broker */
            continue;
        if (!json_is_string(v))
            return hw_fail(-EINVAL, "%s: the annotation %.64s is not a string", whose, key);
        int rc = sbx_setting(&o->set, key + sizeof(PREFIX) - 1, json_string_value(v), true);
        if (rc < 0)
            return hw_wrap(rc, "%s", whose);
    }
    return 0;
}

/* Stores an absolute path in *out. A relative path is taken relative to dir. */
static int make_oci_path(char **out, const char *path, const char *dir, const char *what)
{
    bool relative = *path != '/';
    if (!*path || strlen(path) >= PATH_MAX / 2 || (relative && !dir))
        return hw_fail(-EINVAL, "%s '%.64s' is not a valid path", what, path);
    free(*out);
    if (asprintf(out, "%s%s%s", relative ? dir : "", relative ? "/" : "", path) < 0) {
        *out = NULL;
        return hw_no_memory("a path");
    }
    return 0;
}

static int parse_oci_state(struct sbx_oci *o, const json_t *s)
{
    const json_t *id = json_object_get(s, "id"), *pid = json_object_get(s, "pid"), *at = json_object_get(s, "bundle");
    if (!json_is_string(json_object_get(s, "ociVersion")) || !json_is_string(id))
        return hw_fail(-EINVAL, "not the state of a container: it has no ociVersion or no id");
    if (pid && (!json_is_integer(pid) || json_integer_value(pid) < 0 || json_integer_value(pid) > INT_MAX))
        return hw_fail(-EINVAL, "its pid is not a process ID");
    if (at && !json_is_string(at))
        return hw_fail(-EINVAL, "its bundle is not a path");
    o->pid = pid ? (pid_t)json_integer_value(pid) : 0;
    int rc = apply_oci_annotations(o, json_object_get(s, "annotations"), "the state");
    if (rc == 0 && at)
        rc = make_oci_path(&o->bundle, json_string_value(at), NULL, "its bundle");
    if (rc == 0 && !(o->id = strdup(json_string_value(id))))
        rc = hw_no_memory("the state");
    return rc;
}

int sbx_oci_state(struct sbx_oci *o, const char *text, size_t len)
{
    json_auto_t *s = sbx_oci_load(text, len);
    int rc = s ? parse_oci_state(o, s) : -EINVAL;
    return rc < 0 ? hw_wrap(rc, "the state of the container, on standard input") : 0;
}

/* Returns true if array contains an object whose member `key` equals text or, if key is NULL, an element that equals
 * text. */
static bool has_json_text(const json_t *array, const char *key, const char *text)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *e = json_array_get(array, i);
        const char *v = json_string_value(key ? json_object_get(e, key) : e);
        if (v && strcmp(v, text) == 0)
            return true;
    }
    return false;
}

void sbx_oci_warn(const json_t *config, const struct hw_logger *log)
{
    static const char *const sets[] = {"bounding", "effective", "permitted", "inheritable", "ambient"};
    const json_t *caps = json_object_get(json_object_get(config, "process"), "capabilities"),
                 *spaces = json_object_get(json_object_get(config, "linux"), "namespaces");
    bool admin = false;
    for (size_t i = 0; i < HW_ARRAY_LEN(sets); i++)
        admin |= has_json_text(json_object_get(caps, sets[i]), NULL, "CAP_NET_ADMIN");
    if (admin && log && !has_json_text(spaces, "type", "user"))
        hw_log(log, HAWSER_LOG_WARN,
               "the container has CAP_NET_ADMIN but no user namespace, so the kernel lets it change network devices of "
               "the host; give it a user namespace");
}

static int parse_oci_config(struct sbx_oci *o, const json_t *c)
{
    const json_t *root = json_object_get(json_object_get(c, "root"), "path");
    if (!json_is_string(json_object_get(c, "ociVersion")))
        return hw_fail(-EINVAL, "not a container's configuration: it has no ociVersion");
    if (root && !json_is_string(root))
        return hw_fail(-EINVAL, "root.path is not a path");
    int rc = apply_oci_annotations(o, json_object_get(c, "annotations"), "annotations");
    sbx_oci_warn(c, o->log);
    if (rc == 0 && root && (o->bundle || *json_string_value(root) == '/'))
        rc = make_oci_path(&o->root, json_string_value(root), o->bundle, "root.path");
    return rc;
}

int sbx_oci_config(struct sbx_oci *o, const char *text, size_t len)
{
    json_auto_t *c = sbx_oci_load(text, len);
    int rc = c ? parse_oci_config(o, c) : -EINVAL;
    return rc < 0 ? hw_wrap(rc, "config.json") : 0;
}
