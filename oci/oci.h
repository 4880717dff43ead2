/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hook for OCI runtimes (crun, runc, containerd, podman) that moves NICs into a container when the container is
 * created, and restores them after the container has ended. On request, the hook mounts the rebuilt sysfs on the
 * container's /sys.
 *
 * Both inputs are untrusted: the state that the runtime writes to the hook's standard input (OCI runtime specification,
 * runtime.md), and the bundle's config.json.
 */
#ifndef HW_SANDBOX_OCI_H
#define HW_SANDBOX_OCI_H

#include "sandbox/move/move.h"
#include "sandbox/plan/plan.h"
#include "sys/files.h"

#include <jansson.h>

/* ---- settings ----------------------------------------------------------------------------------- */

/* Settings are taken from the hook's arguments (nics=rdma0). A container's annotations (hawser.nics), which a tenant
 * may write, can set some of them, and can only choose among the NICs that the arguments offer. */
enum sbx_key {
    SBX_KEY_NICS,
    /* NICs from which the annotation hawser.nics may choose; without the annotation, the container gets no NICs */
    SBX_KEY_OFFER,
    SBX_KEY_GPUS,
    SBX_KEY_EXCLUDE,
    SBX_KEY_PEER_NICS,
    SBX_KEY_BOOTSTRAP,
    SBX_KEY_REQUIRE_IPV4,
    SBX_KEY_FORCE,
    SBX_KEY_ALL_NICS,
    SBX_KEY_SYSFS,
    SBX_KEY_RDMA,
    SBX_KEY_ARP,
    SBX_KEY_ID,
    SBX_KEY_JOURNAL_DIR,
    SBX_KEYS
};

struct sbx_settings {
    char *value[SBX_KEYS]; /* NULL if not set */
    char *only;            /* value of the annotation hawser.nics; NULL if not set */
    char *only_gpus;       /* value of the annotation hawser.gpus; NULL if not set */
};

/* Sets a setting unless it is already set, so that arguments, which come first, override annotations. Fails with
 * -EINVAL for an unknown name or an invalid value, with -EPERM for an annotation that only arguments may set, or with
 * -ENOMEM. */
int sbx_setting(struct sbx_settings *s, const char *name, const char *value, bool annotation);
void sbx_settings_free(struct sbx_settings *s);
/* Returns 1 if a plan is needed, or 0 if nothing is requested. Fails with -EPERM if an annotation requests NICs and the
 * arguments offer none, and with -EINVAL if the arguments set both nics and offer. */
int sbx_settings_ask(const struct sbx_settings *s);
/* Returns the settings as a request for a plan. The result points into s. */
struct sbx_want sbx_settings_want(const struct sbx_settings *s);
bool sbx_settings_yes(const struct sbx_settings *s, enum sbx_key key);

/* ---- the runtime's data --------------------------------------------------------------------------- */

struct sbx_oci {
    char *id, *bundle; /* bundle is NULL if the state has none */
    pid_t pid;         /* 0 if there is no process, or it has exited */
    uint64_t start;    /* start time of process pid, because a PID may be reused */
    char *root;        /* the config's root.path, made absolute with the bundle's path; NULL if unknown */
    struct sbx_settings set;
    bool no_annotations;         /* ignore annotations, which are not needed to restore NICs */
    const struct hw_logger *log; /* for the hooks' warnings; may be NULL */
};

void sbx_oci_free(struct sbx_oci *o);
/* Parses the state, and turns its annotations into settings. Fails with -EINVAL, -EPERM (see sbx_setting()) or
 * -ENOMEM. */
int sbx_oci_state(struct sbx_oci *o, const char *text, size_t len);
/* Parses a config.json. Uses its root and its annotations, and fails if ociVersion is missing. */
int sbx_oci_config(struct sbx_oci *o, const char *text, size_t len);

/*
 * Warns about a configuration that grants CAP_NET_ADMIN without a user namespace. The kernel then treats the container
 * as an administrator of every network namespace that the container can refer to. If the container's namespace has an
 * ID for the host's namespace, the container can refer to the host's namespace. A veth or macvlan device from the host
 * is sufficient for this (IFLA_TARGET_NETNSID, rtnl_get_net_ns_capable() in net/core/rtnetlink.c). The container can
 * then delete the host's devices.
 */
void sbx_oci_warn(const json_t *config, const struct hw_logger *log);

/* Loads a JSON object that may contain integers above INT64_MAX (RLIM_INFINITY, seccomp's arguments), which jansson
 * cannot represent. Integers of more than 18 digits become strings, and sbx_oci_dump() writes them as numbers again.
 * Returns NULL on failure and sets hw_error(). */
json_t *sbx_oci_load(const char *text, size_t len);
json_t *sbx_oci_big(const char *digits); /* makes such an integer */
char *sbx_oci_dump(const json_t *o);

#define SBX_OCI_STATE_MAX  (1u << 20)
#define SBX_OCI_CONFIG_MAX (16u << 20)

/* ---- the hook ------------------------------------------------------------------------------------ */

/* Moves the NICs into a new container, and mounts its /sys if requested. Reads the state from fd; o->set may already
 * have settings. Returns 0, or -errno after restoring the NICs. Logs a failure to restore them. A second call for the
 * same container does nothing. */
int sbx_hook_create(struct sbx_oci *o, int fd);
/* Restores the NICs after the container has ended. Fails with -EBUSY if the container is still running after 5 s, with
 * -ENODEV if NICs are lost, or with another -errno. May be called any number of times. */
int sbx_hook_stop(struct sbx_oci *o, int fd);

/* Restores the NICs of containers that have ended or whose move was interrupted, so that the NICs can be used again.
 * Logs failures, and leaves NICs that cannot be restored. */
void sbx_heal(const char *journal_dir, const struct hw_logger *log);

/* ---- /sys ---------------------------------------------------------------------------------------- */

struct sbx_tree;
/* Mounts the tree read-only on sys below root, in the caller's mount namespace, which must be the container's. Mounts
 * on sys/fs/cgroup are kept. Requires Linux 5.12. */
int sbx_mount_tree(int root, const struct sbx_tree *t);
/* Do the same with a folder. sbx_mount_open() opens dir in the caller's mount namespace, and sbx_mount_folder() mounts
 * the folder in the container's. */
int sbx_mount_open(const char *dir);
int sbx_mount_folder(int root, int folder);
/* Mounts the tree (or, if t is NULL, the folder) in the mount namespace of process pid. `start` is the start time of
 * the process. The folder `root` in this namespace will become the root of the process. */
int sbx_mount_in(pid_t pid, uint64_t start, const char *root, const struct sbx_tree *t, int folder);

#endif
