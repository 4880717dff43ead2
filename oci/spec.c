/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes a bundle's config.json for a plan. Each change is of one of three kinds and is recorded in a note: {"added":
 * [[PATH, ELEMENT]...], "replaced": [[PATH, NEW, OLD]...], "made": [PATH...]}. A PATH ("linux/devices") leads to an
 * array or, in "made", to an array or object that did not exist before.
 *
 * `hawser verbs spec` removes the nodes of RDMA devices and their cgroup rules from the container and keeps them in a
 * separate note. Undoing the change restores them. Until then, none of these entries may be in the lists, because the
 * container could otherwise open the devices without the broker. New entries for RDMA devices therefore go into the
 * broker's note, and are also looked up there.
 */
#include "oci/spec.h"

#include "oci/note.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define UNLIMITED "18446744073709551615" /* RLIM_INFINITY in the form that runc and crun write */

json_t *sbx_spec_strings(const char *first, ...)
{
    json_t *a = json_array();
    va_list ap;
    va_start(ap, first);
    for (const char *s = first; s; s = va_arg(ap, const char *))
        json_array_append_new(a, json_string(s));
    va_end(ap);
    return a;
}

/* ---- changes, and back --------------------------------------------------------------------------- */

struct edit {
    json_t *config, *added, *replaced, *made;
    json_t *broker; /* copy of the broker's note, or NULL */
    int rc;
};

/* Returns the object or array at path, or NULL if it is missing. If make is true, creates missing members and records
 * them. If a member has the wrong type, returns NULL and sets e->rc. */
static json_t *resolve_spec_path(struct edit *e, const char *path, bool array, bool make)
{
    json_t *at = e->config;
    for (const char *p = path, *end; *p && at; p = *end ? end + 1 : end) {
        char key[64];
        end = strchrnul(p, '/');
        snprintf(key, sizeof(key), "%.*s", (int)(end - p), p);
        json_t *next = json_object_get(at, key);
        bool last = !*end;
        if (!next || json_is_null(next)) {
            if (!make)
                return NULL;
            next = last && array ? json_array() : json_object();
            json_object_set_new(at, key, next);
            json_array_append_new(e->made, json_stringn(path, (size_t)(end - path)));
        } else if (!(last && array ? json_is_array(next) : json_is_object(next))) {
            e->rc = hw_fail(-EINVAL, "not an OCI configuration: %.*s is not an %s", (int)(end - path), path,
                            last && array ? "array" : "object");
            return NULL;
        }
        at = next;
    }
    return at;
}

/* Copies the broker's note, so that the original note stays unchanged if the configuration is not changed. */
static int broker_load(struct edit *e, const json_t *notes)
{
    json_t *note;
    int rc = sbx_note_find(&note, e->config, SBX_NOTE_VERBS, notes);
    if (rc <= 0)
        return rc;
    if (!json_is_array(json_object_get(note, "devices")) || !json_is_array(json_object_get(note, "rules")) ||
        !json_is_array(json_object_get(note, "mounts")))
        return sbx_note_foreign(e->config, SBX_NOTE_VERBS);
    e->broker = json_deep_copy(note);
    return e->broker ? 0 : hw_no_memory("the configuration");
}

static int broker_save(struct edit *e, json_t *notes)
{
    int rc = e->broker ? sbx_note_put(e->config, SBX_NOTE_VERBS, notes, e->broker) : 0;
    json_decref(e->broker);
    e->broker = NULL;
    return rc;
}

/* Returns the elements that the broker's note holds for the list at path, as [[PLACE, ELEMENT]...], or NULL. */
static json_t *get_kept_list(const struct edit *e, const char *path)
{
    return json_object_get(e->broker, strcmp(path, "linux/devices") == 0             ? "devices"
                                      : strcmp(path, "linux/resources/devices") == 0 ? "rules"
                                                                                     : "");
}

/* Inserts element at position `at`, or at the end if `at` is SIZE_MAX. Takes ownership of element. */
static void add_spec_element(struct edit *e, const char *path, size_t at, json_t *element)
{
    json_t *a = e->rc < 0 ? NULL : resolve_spec_path(e, path, true, true);
    if (a && (json_array_insert(a, HW_MIN(at, json_array_size(a)), element) < 0 ||
              json_array_append_new(e->added, json_pack("[sO]", path, element)) < 0))
        e->rc = hw_no_memory("the configuration");
    json_decref(element);
}

/* Adds element to the note's list for path, and takes ownership of element. */
static void add_kept_element(struct edit *e, const char *path, json_t *element)
{
    json_t *a = e->rc < 0 ? NULL : resolve_spec_path(e, path, true, true), *k = get_kept_list(e, path);
    if (a &&
        (json_array_append_new(k, json_pack("[iO]", (int)(json_array_size(a) + json_array_size(k)), element)) < 0 ||
         json_array_append_new(e->added, json_pack("[sO]", path, element)) < 0))
        e->rc = hw_no_memory("the configuration");
    json_decref(element);
}

static void replace_spec_element(struct edit *e, const char *path, size_t at, json_t *element)
{
    json_t *a = e->rc < 0 ? NULL : resolve_spec_path(e, path, true, false);
    if (a && (json_array_append_new(e->replaced, json_pack("[sOO]", path, element, json_array_get(a, at))) < 0 ||
              json_array_set(a, at, element) < 0))
        e->rc = hw_no_memory("the configuration");
    json_decref(element);
}

/* Returns the index of the last equal element, or the array's size if there is none. */
static size_t find_array_element(const json_t *array, const json_t *element)
{
    size_t n = json_array_size(array), i = n;
    while (i > 0 && !json_equal(json_array_get(array, i - 1), element))
        i--;
    return i ? i - 1 : n;
}

/* Returns the array that contains the element of a note's entry, and the element's index, or NULL if the element was
 * removed. */
static json_t *find_noted_element(struct edit *e, const json_t *entry, size_t *at)
{
    const char *path = json_string_value(json_array_get(entry, 0));
    const json_t *element = json_array_get(entry, 1);
    json_t *a = path ? resolve_spec_path(e, path, true, false) : NULL;
    *at = find_array_element(a, element);
    if (*at < json_array_size(a))
        return a;
    a = path ? get_kept_list(e, path) : NULL;
    for (*at = json_array_size(a); *at > 0; --*at)
        if (json_equal(json_array_get(json_array_get(a, *at - 1), 1), element)) {
            --*at;
            return a;
        }
    return NULL;
}

static void delete_empty_member(json_t *config, const char *path)
{
    const char *slash = strrchr(path, '/');
    struct edit e = {.config = config};
    char above[256];
    snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - path) : 0, path);
    json_t *at = resolve_spec_path(&e, above, false, false);
    const json_t *it = json_object_get(at, slash ? slash + 1 : path);
    if (it && (json_is_array(it) ? json_array_size(it) == 0 : json_object_size(it) == 0))
        json_object_del(at, slash ? slash + 1 : path);
}

int sbx_spec_undo(json_t *config, json_t *notes)
{
    struct edit e = {.config = config};
    json_t *annotations = resolve_spec_path(&e, "annotations", false, false), *entry, *note;
    e.rc = e.rc < 0 ? e.rc : sbx_note_find(&note, config, SBX_NOTE_SANDBOX, notes);
    if (e.rc <= 0)
        return e.rc;
    const json_t *added = json_object_get(note, "added"), *replaced = json_object_get(note, "replaced"),
                 *made = json_object_get(note, "made");
    size_t at;
    if (!json_is_array(added) || !json_is_array(replaced) || !json_is_array(made))
        return sbx_note_foreign(config, SBX_NOTE_SANDBOX);
    e.rc = broker_load(&e, notes);
    if (e.rc < 0)
        return e.rc;
    json_object_del(annotations, SBX_NOTE_SANDBOX);
    for (size_t i = json_array_size(added); i-- > 0;)
        if ((entry = find_noted_element(&e, json_array_get(added, i), &at)))
            json_array_remove(entry, at);
    for (size_t i = json_array_size(replaced); i-- > 0;) {
        json_t *a = find_noted_element(&e, json_array_get(replaced, i), &at),
               *old = json_array_get(json_array_get(replaced, i), 2);
        if (a && old)
            json_array_set(a, at, old);
    }
    for (size_t i = json_array_size(made); i-- > 0;)
        if (json_is_string(json_array_get(made, i)))
            delete_empty_member(config, json_string_value(json_array_get(made, i)));
    int rc = broker_save(&e, notes);
    return e.rc < 0 ? e.rc : rc < 0 ? rc : 1;
}

/* ---- the parts ----------------------------------------------------------------------------------- */

static const char *get_mount_destination(const json_t *mount)
{
    const char *d = json_string_value(json_object_get(mount, "destination"));
    return d ? d : "";
}

/* Adds the mounts of the sysfs folder and of the topology file, if sp has them. Replaces the standard mount of /sys in
 * place, so that mounts below it remain. */
static void add_spec_mounts(struct edit *e, const struct sbx_spec *sp)
{
    if (sp->sysfs) {
        json_t *m = json_pack("{ssssssso}", "destination", "/sys", "type", "none", "source", sp->sysfs, "options",
                              sbx_spec_strings("bind", "ro", "nosuid", "nodev", "noexec", NULL));
        const json_t *all = resolve_spec_path(e, "mounts", true, false);
        size_t at = 0, below = SIZE_MAX;
        for (; at < json_array_size(all); at++) {
            const char *d = get_mount_destination(json_array_get(all, at));
            if (strcmp(d, "/sys") == 0 || strcmp(d, "/sys/") == 0)
                break;
            if (strncmp(d, "/sys/", 5) == 0)
                below = HW_MIN(below, at);
        }
        if (at < json_array_size(all))
            replace_spec_element(e, "mounts", at, m);
        else
            add_spec_element(e, "mounts", below, m);
    }
    if (sp->topo)
        add_spec_element(e, "mounts", SIZE_MAX,
                         json_pack("{ssssssso}", "destination", sp->topo_at, "type", "none", "source", sp->topo,
                                   "options", sbx_spec_strings("bind", "ro", "nosuid", "nodev", "noexec", NULL)));
}

static bool has_member_value(const json_t *array, const char *key, const char *value)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const char *v = json_string_value(json_object_get(json_array_get(array, i), key));
        if (v && strcmp(v, value) == 0)
            return true;
    }
    return false;
}

static bool has_kept_device(const json_t *k, const char *path)
{
    for (size_t i = 0; i < json_array_size(k); i++) {
        const char *p = json_string_value(json_object_get(json_array_get(json_array_get(k, i), 1), "path"));
        if (p && strcmp(p, path) == 0)
            return true;
    }
    return false;
}

/* Warns if the RDMA devices in the broker's note differ from the nodes that `hawser verbs spec` has mounted. The two
 * differ if devices were added after that command ran. */
static void tell_broker(const struct edit *e, const struct hw_logger *log)
{
    const json_t *k = get_kept_list(e, "linux/devices"), *m = json_object_get(e->broker, "mounts");
    size_t nodes = 0, bound = 0;
    for (size_t i = 0; i < json_array_size(k); i++) {
        const char *p = json_string_value(json_object_get(json_array_get(json_array_get(k, i), 1), "path"));
        if (p && strncmp(p, "/dev/infiniband/uverbs", 22) == 0) {
            nodes++;
            bound += has_member_value(m, "destination", p);
        }
    }
    if (nodes && (bound < nodes || nodes != json_array_size(m)))
        hw_log(log, HAWSER_LOG_WARN,
               "the container's RDMA devices go through the broker, which has a different set of devices: run `hawser "
               "verbs spec` "
               "again");
}

static void add_spec_devices(struct edit *e, const struct sbx_devs *d, const struct hw_logger *log)
{
    for (size_t i = 0; d && i < d->n; i++) {
        const struct sbx_dev *v = &d->v[i];
        if (has_member_value(resolve_spec_path(e, "linux/devices", true, false), "path", v->path) ||
            has_kept_device(get_kept_list(e, "linux/devices"), v->path))
            continue;
        json_t *node = json_pack("{sssssisisisisi}", "path", v->path, "type", "c", "major", (int)v->major, "minor",
                                 (int)v->minor, "fileMode", 0666, "uid", 0, "gid", 0),
               *rule = json_pack("{sbsssisiss}", "allow", true, "type", "c", "major", (int)v->major, "minor",
                                 (int)v->minor, "access", "rw");
        if (e->broker && strncmp(v->path, "/dev/infiniband/", 16) == 0) {
            add_kept_element(e, "linux/devices", node);
            add_kept_element(e, "linux/resources/devices", rule);
        } else {
            add_spec_element(e, "linux/devices", SIZE_MAX, node);
            /* after the existing rules, the first of which usually denies everything */
            add_spec_element(e, "linux/resources/devices", SIZE_MAX, rule);
        }
    }
    tell_broker(e, log);
}

/* process.env also applies to exec: crun and runc start with process.env, and containerd copies it. */
static void add_spec_environment(struct edit *e, const struct sbx_spec *sp)
{
    const json_t *own = resolve_spec_path(e, "process/env", true, false);
    size_t n = json_array_size(own);
    HW_AUTO_FREE char **caller = calloc(n + 1, sizeof(*caller));
    struct sbx_env_want want = sp->env;
    struct sbx_env env __attribute__((cleanup(sbx_env_free))) = {0};
    for (size_t i = 0, k = 0; caller && i < n; i++)
        if (json_is_string(json_array_get(own, i)))
            caller[k++] = (char *)json_string_value(json_array_get(own, i)); /* NOLINT: only read */
    want.caller = caller;
    if (e->rc == 0)
        e->rc = caller ? sbx_env_make(&env, sp->plan, &want) : hw_no_memory("the environment");
    for (size_t i = 0; i < env.n; i++)
        if (!env.v[i].callers)
            add_spec_element(e, "process/env", SIZE_MAX, json_sprintf("%s=%s", env.v[i].name, env.v[i].value));
}

static void add_memlock_limit(struct edit *e, const struct sbx_spec *sp)
{
    static const char name[] = "RLIMIT_MEMLOCK";
    if (!sp->memlock)
        return;
    if (!has_member_value(resolve_spec_path(e, "process/rlimits", true, false), "type", name))
        add_spec_element(
            e, "process/rlimits", SIZE_MAX,
            json_pack("{sssoso}", "type", name, "hard", sbx_oci_big(UNLIMITED), "soft", sbx_oci_big(UNLIMITED)));
    else
        hw_log(sp->log, HAWSER_LOG_WARN,
               "the container has its own %s, which is kept and must suffice for all memory registered for RDMA", name);
}

static void add_spec_hooks(struct edit *e, const struct sbx_spec *sp)
{
    static const char *const stage[] = {"createRuntime", "poststop"};
    for (size_t i = 0; sp->hook_arg && i < HW_ARRAY_LEN(stage); i++) {
        char path[64];
        json_t *args = sbx_spec_strings("hawser", "oci-hook", stage[i], NULL);
        for (const char *const *a = sp->hook_arg; *a; a++)
            json_array_append_new(args, json_string(*a));
        snprintf(path, sizeof(path), "hooks/%s", stage[i]);
        add_spec_element(e, path, SIZE_MAX, json_pack("{ssso}", "path", sp->program, "args", args));
    }
}

/* Checks that config describes a Linux container that can be given NICs. */
static int check_oci_spec(struct edit *e, const struct sbx_spec *sp)
{
    if (!json_is_string(json_object_get(e->config, "ociVersion")) ||
        !json_is_object(json_object_get(e->config, "root")))
        return hw_fail(-EINVAL, "not an OCI configuration: it has no ociVersion or no root");
    if (!json_is_object(json_object_get(e->config, "process")))
        return hw_fail(-EINVAL, "it has no process, whose environment must be set");
    if (!json_is_object(json_object_get(e->config, "linux")))
        return hw_fail(-EINVAL, "not a Linux container");
    if (sp->hook_arg && !has_member_value(resolve_spec_path(e, "linux/namespaces", true, false), "type", "network"))
        return e->rc < 0
                   ? e->rc
                   : hw_fail(-EINVAL, "it has no network namespace of its own, so the NICs would stay in the host's");
    return e->rc;
}

/* Undoes earlier changes, and makes all changes again. */
static int apply_spec_parts(struct edit *e, const struct sbx_spec *sp, json_t *notes)
{
    int rc = sbx_spec_undo(e->config, notes);
    if (rc < 0 || (rc = broker_load(e, notes)) < 0 || (rc = check_oci_spec(e, sp)) < 0)
        return rc;
    if (sp->hook_arg)
        sbx_oci_warn(e->config, sp->log);
    add_spec_hooks(e, sp);
    add_spec_mounts(e, sp);
    add_spec_devices(e, sp->dev, sp->log);
    add_spec_environment(e, sp);
    add_memlock_limit(e, sp);
    if (e->rc == 0) /* created before the note, so that the note records it */
        (void)resolve_spec_path(e, "annotations", false, true);
    return e->rc;
}

int sbx_spec_apply(json_t *config, const struct sbx_spec *sp, json_t *notes)
{
    struct edit e = {.config = config, .added = json_array(), .replaced = json_array(), .made = json_array()};
    int rc = apply_spec_parts(&e, sp, notes);
    json_auto_t *note = json_pack("{sososo}", "added", e.added, "replaced", e.replaced, "made", e.made);
    if (rc == 0)
        rc = sbx_note_put(config, SBX_NOTE_SANDBOX, notes, note);
    int err = broker_save(&e, notes); /* also after a failure */
    return rc < 0 ? rc : err;
}
