/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hawser verbs spec: prepares a bundle's config.json for the broker. A note (oci/note.h) records the changes, so that
 * they can be undone: {"seccomp": old value, "filter": new value, "mounts": [added], "devices" and "rules": [[POSITION,
 * removed element]...] of linux.devices and linux.resources.devices, "limit": old value, "section": true if hawser has
 * set the annotation hawser.verbs.policy}. A later `hawser sandbox spec` adds its devices and rules to the note, and
 * not to the container's lists (oci/spec.c).
 */
#include "oci/note.h"
#include "oci/oci.h"
#include "tool/opts.h"
#include "tool/sandbox/bundle_file.h"
#include "tool/verbs/verbs.h"
#include "verbs/agent/filter.h"
#include "verbs/stub/capability.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define CMD     "verbs spec"
#define NODES   "/dev/infiniband"
#define UVERBS  "uverbs"
#define SECTION "hawser.verbs.policy"
#define NOFILE  "RLIMIT_NOFILE"
#define MEMLOCK "RLIMIT_MEMLOCK"

struct spec_args {
    const char *runtime, *socket, *devices, *container, *dev, *out;
    bool undo;
};

static const char *get_spec_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static void print_spec_warning(const char *fmt, ...) HW_PRINTF(1, 2);
static void print_spec_warning(const char *fmt, ...)
{
    va_list ap;
    fprintf(stderr, "hawser " CMD ": warning: ");
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    putc('\n', stderr);
}

/* Returns the object or array at key, and creates it if missing. Returns NULL if the value has another type. */
static json_t *ensure_spec_member(json_t *o, const char *key, bool array)
{
    json_t *v = json_object_get(o, key);
    if (!v || json_is_null(v)) {
        v = array ? json_array() : json_object();
        json_object_set_new(o, key, v);
    }
    if (!(array ? json_is_array(v) : json_is_object(v))) {
        hw_fail(-EINVAL, "not an OCI configuration: %s is not an %s", key, array ? "array" : "object");
        return NULL;
    }
    return v;
}

/* ---- undoing -------------------------------------------------------------------------------------- */

static void restore_spec_value(json_t *o, const char *key, json_t *was)
{
    if (!was || json_is_null(was))
        json_object_del(o, key);
    else
        json_object_set(o, key, was);
}

static size_t find_json_element(const json_t *array, const json_t *v)
{
    size_t i = 0;
    while (i < json_array_size(array) && !json_equal(json_array_get(array, i), v))
        i++;
    return i;
}

static void drop_if_empty(json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if ((json_is_array(v) && json_array_size(v) == 0) || (json_is_object(v) && json_object_size(v) == 0))
        json_object_del(o, key);
}

static size_t limit_place(const json_t *limits, const char *name)
{
    size_t i = 0;
    while (i < json_array_size(limits) && strcmp(get_spec_text(json_array_get(limits, i), "type"), name) != 0)
        i++;
    return i;
}

/* Inserts the removed elements into o's devices, each at its old position. */
static void restore_spec_devices(json_t *o, const json_t *taken)
{
    for (size_t i = 0; json_is_object(o) && i < json_array_size(taken); i++) {
        const json_t *t = json_array_get(taken, i), *at = json_array_get(t, 0);
        json_t *all = ensure_spec_member(o, "devices", true);
        if (json_is_integer(at) && json_integer_value(at) >= 0)
            json_array_insert(all, HW_MIN((size_t)json_integer_value(at), json_array_size(all)), json_array_get(t, 1));
    }
}

/* Undoes the changes that the note records. Returns 1 if it undid changes, or 0 if there were none. Fails with -EINVAL
 * if the note's filter is not in the configuration. Such a note belongs to an older configuration or comes from a
 * tenant, who can know the note's name. */
static int undo_verbs_spec(json_t *config, const json_t *notes_kept)
{
    json_t *notes = json_object_get(config, "annotations"), *linux_object = json_object_get(config, "linux"),
           *mounts = json_object_get(config, "mounts"),
           *limits = json_object_get(json_object_get(config, "process"), "rlimits");
    json_t *note;
    int rc = sbx_note_find(&note, config, SBX_NOTE_VERBS, notes_kept);
    if (rc <= 0)
        return rc;
    json_t *was = json_object_get(note, "limit");
    const json_t *added = json_object_get(note, "mounts"), *taken = json_object_get(note, "devices"),
                 *rules = json_object_get(note, "rules"), *filter = json_object_get(note, "filter");
    if (!json_is_array(added) || !json_is_array(taken) || !json_is_array(rules) || !json_is_object(filter) ||
        !json_object_get(note, "seccomp"))
        return sbx_note_foreign(config, SBX_NOTE_VERBS);
    if (!json_equal(json_object_get(linux_object, "seccomp"), filter))
        return hw_fail(-EINVAL, "the annotation " SBX_NOTE_VERBS
                                " belongs to a different linux.seccomp: restore that value, or remove the annotation");
    restore_spec_value(linux_object, "seccomp", json_object_get(note, "seccomp"));
    for (size_t i = json_array_size(added); i-- > 0;) {
        size_t at = find_json_element(mounts, json_array_get(added, i));
        if (at < json_array_size(mounts))
            json_array_remove(mounts, at);
    }
    drop_if_empty(config, "mounts");
    restore_spec_devices(linux_object, taken);
    restore_spec_devices(json_object_get(linux_object, "resources"), rules);
    if (json_is_object(was) && limit_place(limits, NOFILE) < json_array_size(limits))
        json_array_set(limits, limit_place(limits, NOFILE), was);
    if (json_is_true(json_object_get(note, "section")))
        json_object_del(notes, SECTION);
    json_object_del(notes, SBX_NOTE_VERBS);
    drop_if_empty(config, "annotations");
    return 1;
}

/* ---- the parts ------------------------------------------------------------------------------------ */

static bool is_below_folder(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static bool has_json_string(const json_t *strings, const char *s)
{
    for (size_t i = 0; i < json_array_size(strings); i++)
        if (json_is_string(json_array_get(strings, i)) && strcmp(json_string_value(json_array_get(strings, i)), s) == 0)
            return true;
    return false;
}

/* Returns true if a bind mount of this host folder would provide device nodes that can be opened. */
static bool brings_nodes(const char *from, const json_t *options)
{
    if (has_json_string(options, "nodev") &&
        !has_json_string(options, "rbind")) /* with rbind, mounts below the folder keep their own options */
        return false;
    return strcmp(from, "/") == 0 || is_below_folder(NODES, from) || is_below_folder(from, NODES);
}

/* Refuses mounts that would hide the device nodes, or that contain nodes that the container could open natively. */
static int check_mounts(const json_t *mounts)
{
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const json_t *m = json_array_get(mounts, i), *o = json_object_get(m, "options");
        const char *to = get_spec_text(m, "destination"), *from = get_spec_text(m, "source");
        bool bind =
            strcmp(get_spec_text(m, "type"), "bind") == 0 || has_json_string(o, "bind") || has_json_string(o, "rbind");
        if (is_below_folder(to, NODES) || (bind && brings_nodes(from, o)))
            return hw_fail(-EINVAL,
                           "the mount of %s at %s would hide the device nodes, or allow access without the broker: "
                           "remove the mount",
                           *from ? from : "a file system", to);
    }
    return 0;
}

/* Adds a mount of a device node. device is the container's device for that path, or NULL. */
static int add_mount(const struct spec_args *a, const char *name, const json_t *device, json_t *mounts, json_t *added)
{
    const json_t *maj = json_object_get(device, "major"), *min = json_object_get(device, "minor");
    char path[PATH_MAX];
    struct stat st;
    if (!*name || strchr(name, '/') || *name == '.')
        return hw_fail(-EINVAL, "'%s' is not the name of a device node, such as uverbs0", name);
    snprintf(path, sizeof(path), "%s/%s", a->dev, name);
    if (stat(path, &st) < 0)
        return hw_fail(-errno, "%s: %s%s", path, strerror(errno), errno == ENOENT ? ": no such device" : "");
    if (!S_ISCHR(st.st_mode))
        return hw_fail(-EINVAL, "%s is not a device node", path);
    if (device && (json_integer_value(maj) != major(st.st_rdev) || json_integer_value(min) != minor(st.st_rdev)))
        return hw_fail(-EINVAL, "the container's device %s is %lld:%lld, but %s of this machine is %u:%u",
                       get_spec_text(device, "path"), (long long)json_integer_value(maj),
                       (long long)json_integer_value(min), path, major(st.st_rdev), minor(st.st_rdev));
    json_auto_t *m =
        json_pack("{sossss}", "destination", json_sprintf(NODES "/%s", name), "type", "bind", "source", path);
    json_object_set_new(m, "options", json_pack("[sssss]", "bind", "ro", "nosuid", "nodev", "noexec"));
    return m && json_array_append(mounts, m) == 0 && json_array_append(added, m) == 0 ? 0 : hw_no_memory("a mount");
}

static int mount_named(const struct spec_args *a, json_t *mounts, json_t *added)
{
    HW_AUTO_FREE char *list = strdup(a->devices);
    char *rest = list, *name;
    int rc = list ? 0 : hw_no_memory("the devices");
    while (rc == 0 && (name = strsep(&rest, ",")))
        rc = add_mount(a, name, NULL, mounts, added);
    return rc;
}

/* Adds mounts for the uverbs devices that take_devices() removed from the spec. The author of the spec or `hawser
 * sandbox spec` had listed them. */
static int mount_taken(const struct spec_args *a, const json_t *taken, json_t *mounts, json_t *added)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(taken); i++) {
        const json_t *d = json_array_get(json_array_get(taken, i), 1);
        const char *name = strrchr(get_spec_text(d, "path"), '/') + 1; /* the path is below NODES */
        if (strncmp(name, UVERBS, strlen(UVERBS)) == 0)
            rc = add_mount(a, name, d, mounts, added);
    }
    return rc;
}

static int is_uverbs(const struct dirent *e)
{
    return strncmp(e->d_name, UVERBS, strlen(UVERBS)) == 0;
}

static int mount_all(const struct spec_args *a, json_t *mounts, json_t *added)
{
    struct dirent **e = NULL;
    int rc = 0, n = scandir(a->dev, &e, is_uverbs, versionsort);
    for (int i = 0; i < n; i++) {
        if (rc == 0)
            rc = add_mount(a, e[i]->d_name, NULL, mounts, added);
        free(e[i]);
    }
    free(e);
    return n > 0 ? rc
                 : hw_fail(-ENODEV,
                           "no RDMA device was found: no uverbs node in %s (--device none prepares the "
                           "container without one)",
                           a->dev);
}

/* Adds read-only bind mounts with nodev: stat() shows the device, a native open fails with EACCES, and the broker opens
 * its own node. If planned is set, `hawser sandbox spec` has chosen the devices, and only --device may add others. */
static int mount_nodes(const struct spec_args *a, bool planned, const json_t *taken, json_t *mounts, json_t *added)
{
    if (a->devices)
        return strcmp(a->devices, "none") == 0 ? 0 : mount_named(a, mounts, added);
    int rc = mount_taken(a, taken, mounts, added);
    if (rc < 0 || json_array_size(added))
        return rc;
    return planned ? hw_fail(-ENODEV, "`hawser sandbox spec` has planned no RDMA device for the container; specify "
                                      "devices, or none, with --device")
                   : mount_all(a, mounts, added);
}

/* Moves the i-th element of all to taken. place is its position before other elements were removed. */
static int take_spec_element(json_t *all, size_t i, size_t place, json_t *taken)
{
    return json_array_append_new(taken, json_pack("[iO]", (int)place, json_array_get(all, i))) < 0 ||
                   json_array_remove(all, i) < 0
               ? hw_no_memory("the devices")
               : 0;
}

static int take_devices(json_t *linux_object, json_t *taken)
{
    json_t *all = json_object_get(linux_object, "devices");
    for (size_t i = 0, place = 0; i < json_array_size(all); place++) {
        json_t *d = json_array_get(all, i);
        if (!is_below_folder(get_spec_text(d, "path"), NODES)) {
            i++;
            continue;
        }
        print_spec_warning("%s was removed from the container's devices, because it could be opened without the broker",
                           get_spec_text(d, "path"));
        int rc = take_spec_element(all, i, place, taken);
        if (rc < 0)
            return rc;
    }
    drop_if_empty(linux_object, "devices");
    return 0;
}

static bool same_number(const json_t *a, const json_t *b, const char *key)
{
    const json_t *n = json_object_get(a, key);
    return json_is_integer(n) && json_equal(n, json_object_get(b, key));
}

/* Removes rules that allow exactly one of these devices, because such rules would let the container open a node of the
 * device in the container's image. */
static int take_rules(json_t *linux_object, const json_t *devices, json_t *taken)
{
    json_t *all = json_object_get(json_object_get(linux_object, "resources"), "devices");
    for (size_t i = 0, place = 0; i < json_array_size(all); place++) {
        const json_t *r = json_array_get(all, i);
        bool ours = false;
        for (size_t k = 0; k < json_array_size(devices) && !ours; k++) {
            const json_t *d = json_array_get(json_array_get(devices, k), 1);
            ours = json_is_true(json_object_get(r, "allow")) &&
                   strcmp(get_spec_text(r, "type"), get_spec_text(d, "type")) == 0 && same_number(r, d, "major") &&
                   same_number(r, d, "minor");
        }
        int rc = ours ? take_spec_element(all, i, place, taken) : 0;
        if (rc < 0)
            return rc;
        i += !ours;
    }
    return 0;
}

/* Raises the limit on descriptors, because devices use descriptors up to VB_FD_LAST. *was receives the previous limit
 * if it was too low. */
static int raise_nofile_limit(json_t *process, json_t **was)
{
    json_t *all = json_object_get(process, "rlimits"), *l = json_array_get(all, limit_place(all, NOFILE));
    const json_t *soft = json_object_get(l, "soft"), *hard = json_object_get(l, "hard");
    if (!l || !json_is_integer(soft) ||
        json_integer_value(soft) > VB_FD_LAST) /* not an integer if the value is too large for jansson */
        return 0;
    *was = json_deep_copy(l);
    if (!*was || json_object_set_new(l, "soft", json_integer(VB_FD_LAST + 1)) < 0 ||
        (json_is_integer(hard) && json_integer_value(hard) <= VB_FD_LAST &&
         json_object_set_new(l, "hard", json_integer(VB_FD_LAST + 1)) < 0))
        return hw_no_memory("the limits");
    return 0;
}

/* Returns true if the rules forbid opening a node with this device number in the container's image. The last matching
 * rule decides (runtime-spec, config-linux.md, "Allowed Device list"). */
static bool rules_forbid(const json_t *rules, dev_t rdev)
{
    bool forbid = false;
    for (size_t i = 0; i < json_array_size(rules); i++) {
        const json_t *r = json_array_get(rules, i), *maj = json_object_get(r, "major"),
                     *min = json_object_get(r, "minor");
        const char *type = get_spec_text(r, "type"), *access = get_spec_text(r, "access");
        if ((!*type || *type == 'a' || *type == 'c') && (!*access || strpbrk(access, "rw")) &&
            (!maj || json_integer_value(maj) < 0 || json_integer_value(maj) == major(rdev)) &&
            (!min || json_integer_value(min) < 0 || json_integer_value(min) == minor(rdev)))
            forbid = !json_is_true(json_object_get(r, "allow"));
    }
    return forbid;
}

static void warn_of_rules(const json_t *config, const json_t *mounts)
{
    const json_t *rules = json_object_get(json_object_get(json_object_get(config, "linux"), "resources"), "devices");
    struct stat st;
    for (size_t i = 0; i < json_array_size(mounts); i++) {
        const char *node = get_spec_text(json_array_get(mounts, i), "source");
        if (stat(node, &st) == 0 && !rules_forbid(rules, st.st_rdev)) {
            print_spec_warning("linux.resources.devices does not forbid %s: if the container's image has a node of "
                               "this device, the container can open it without the broker",
                               node);
            return;
        }
    }
}

/* Warns of a finite or missing RLIMIT_MEMLOCK, unless the container has CAP_IPC_LOCK. The kernel charges an
 * application's registrations against this limit, which the broker cannot see. */
static void warn_of_memlock(const json_t *process)
{
    const json_t *all = json_object_get(process, "rlimits");
    const json_t *l = json_array_get(all, limit_place(all, MEMLOCK)), *soft = json_object_get(l, "soft");
    if (has_json_string(json_object_get(json_object_get(process, "capabilities"), "effective"), "CAP_IPC_LOCK"))
        return;
    if (!l)
        print_spec_warning(
            "the container has no " MEMLOCK
            ": it can register no more memory than the process that starts it may lock (ulimit -l), and gets "
            "ENOMEM beyond this, which the audit does not show");
    else if (json_is_integer(soft)) /* otherwise it is unlimited, see raise_nofile_limit() */
        print_spec_warning("the container's " MEMLOCK
                           " is %lld bytes: registering more memory fails with ENOMEM, which the audit does not show",
                           (long long)json_integer_value(soft));
}

/* Warns of capabilities with which the container can bypass the broker, and of the limitations of runc. */
static void warn_of(const json_t *config, const struct spec_args *a)
{
    const struct vb_capability *c;
    const json_t *caps =
        json_object_get(json_object_get(json_object_get(config, "process"), "capabilities"), "bounding");
    for (unsigned i = 0; (c = vb_capability(i)) != NULL; i++)
        if (c->container && has_json_string(caps, c->name))
            print_spec_warning("the container has %s, with which it can bypass the broker: %s", c->name, c->leaves);
    if (strcmp(a->runtime, "runc") == 0)
        print_spec_warning(
            "runc cannot notify the broker of write(), so devices that post with write() (rxe, siw) do not work; nor "
            "can it make a call keep waiting for its answer when a signal arrives, so an answer can be lost: use crun");
}

static int apply_verbs_spec(json_t *config, json_t *notes_kept, const struct spec_args *a)
{
    json_t *linux_object = json_object_get(config, "linux"), *process = json_object_get(config, "process");
    if (!json_is_string(json_object_get(config, "ociVersion")) || !json_is_object(json_object_get(config, "root")))
        return hw_fail(-EINVAL, "not an OCI configuration: it has no ociVersion, or no root");
    if (!json_is_object(linux_object) || !json_is_object(process))
        return hw_fail(-EINVAL, "not a Linux container, or it has no process");
    json_t *mounts = ensure_spec_member(config, "mounts", true),
           *notes = ensure_spec_member(config, "annotations", false);
    if (!mounts || !notes)
        return -EINVAL;
    json_auto_t *added = json_array(), *taken = json_array(), *rules = json_array(), *limit = NULL;
    json_auto_t *was = json_deep_copy(json_object_get(linux_object, "seccomp"));
    bool section = a->container && !json_object_get(notes, SECTION);
    int rc = check_mounts(mounts);
    if (rc < 0)
        return rc;
    if (a->container && !section && strcmp(get_spec_text(notes, SECTION), a->container) != 0)
        return hw_fail(-EINVAL, "the annotation " SECTION " is already '%s'", get_spec_text(notes, SECTION));
    rc = take_devices(linux_object, taken);
    if (rc < 0 || (rc = take_rules(linux_object, taken, rules)) < 0)
        return rc;
    rc = mount_nodes(a, json_object_get(notes, SBX_NOTE_SANDBOX) != NULL, taken, mounts, added);
    if (rc < 0 || (rc = raise_nofile_limit(process, &limit)) < 0)
        return rc;
    rc = vb_filter_spec(linux_object, a->socket, a->runtime);
    if (rc < 0)
        return rc;
    json_auto_t *note = json_pack("{sO?so?sOsOsOsO?sb}", "seccomp", was, "filter",
                                  json_deep_copy(json_object_get(linux_object, "seccomp")), "mounts", added, "devices",
                                  taken, "rules", rules, "limit", limit, "section", section);
    rc = sbx_note_put(config, SBX_NOTE_VERBS, notes_kept, note);
    if (rc < 0)
        return rc;
    if (section && json_object_set_new(notes, SECTION, json_string(a->container)) < 0)
        return hw_no_memory("the configuration");
    warn_of(config, a);
    warn_of_rules(config, added);
    warn_of_memlock(process);
    return 0;
}

/* ---- the file ------------------------------------------------------------------------------------- */

static int rewrite_verbs_spec(struct bundle_file *f, const char *path, const struct spec_args *a)
{
    int rc = bundle_load(f, path);
    if (rc < 0)
        return rc;
    const int undone = undo_verbs_spec(f->config, f->notes);
    if (undone < 0)
        return hw_wrap(undone, "%s", path);
    if (a->undo && undone == 0)
        return json_is_string(json_object_get(f->config, "ociVersion"))
                   ? 0
                   : hw_fail(-EINVAL, "%s: not an OCI configuration", path);
    if (!a->undo && (rc = apply_verbs_spec(f->config, f->notes, a)) < 0)
        return hw_wrap(rc, "%s", path);
    return bundle_save(f, a->out);
}

static int edit_config(const char *path, const struct spec_args *a)
{
    struct bundle_file f = {.config = NULL};
    int rc = rewrite_verbs_spec(&f, path, a);
    bundle_free(&f);
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}

/* Requires an absolute path, because runtimes read it from configurations in other folders. */
static int parse_spec_socket(void *args, const char *text)
{
    struct spec_args *a = args;
    a->socket = text;
    return *text == '/' ? 0 : hw_fail(-EINVAL, "'%s' is not an absolute path", text);
}

static const char *const runtimes[] = {"crun", "runc", NULL};

static const struct opt rows[] = {
    OPT_WORD("runtime", 0, "crun|runc", struct spec_args, runtime, runtimes,
             "runtime of the container, crun or runc (default: crun, which supports more)"),
    OPT_CALL("socket", 0, "PATH", parse_spec_socket, "socket of `hawser verbs agent` (default: " VB_AGENT_SOCKET ")"),
    OPT_TEXT("device", 0, "NAME[,..]", struct spec_args, devices,
             "devices for the container, such as uverbs0, or none (default: those that config.json has, or all if it "
             "has none)"),
    OPT_TEXT("container", 0, "NAME", struct spec_args, container,
             "section of the policy for the container, written as the annotation " SECTION),
    OPT_TEXT("dev", 0, "DIR", struct spec_args, dev, "folder of the device nodes (default: " NODES ")"),
    OPT_TEXT("out", 'o', "FILE", struct spec_args, out, "write to FILE instead of replacing config.json"),
    OPT_FLAG("undo", 0, struct spec_args, undo, "remove everything that `hawser verbs spec` has added"),
    {0},
};

int verbs_spec_main(int argc, char **argv)
{
    static const struct opts o = {.cmd = CMD,
                                  .args = "CONFIG [OPTION...]",
                                  .about =
                                      "Adds to an OCI bundle's config.json what its container needs to reach RDMA "
                                      "devices through the broker: the seccomp filter, merged with the container's own "
                                      "filter, and the device nodes, which the container cannot open itself.",
                                  .rows = rows,
                                  .least = 1,
                                  .most = 1,
                                  .too_few = "needs one config.json",
                                  .too_many = "needs one config.json"};
    struct spec_args a = {.runtime = "crun", .socket = VB_AGENT_SOCKET, .dev = NODES};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : edit_config(argv[optind], &a);
}
