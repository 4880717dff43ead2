/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hook of an OCI runtime (crun, runc, containerd, podman): moves NICs into a container when it is created and
 * restores them when it is gone; on request mounts the rebuilt sysfs on its /sys.
 *
 * Both texts that are read here are untrusted: the state that the runtime writes to a hook's standard input (OCI
 * runtime specification, runtime.md), and a bundle's config.json.
 */
#ifndef HW_SANDBOX_OCI_H
#define HW_SANDBOX_OCI_H

#include "sandbox/move/move.h"
#include "sandbox/plan/plan.h"
#include "sys/files.h"

#include <jansson.h>

/* ---- settings ----------------------------------------------------------------------------------- */

/* "nics" and so on, from a hook's arguments (nics=rdma0). A container's annotations (hawser.nics), which a tenant may
 * write, can set some of these, and only choose among what the arguments offer. */
enum sbx_key {
    SBX_KEY_NICS,
    SBX_KEY_OFFER, /* NICs from which the annotation hawser.nics may choose; without that annotation, none are given */
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
    char *value[SBX_KEYS]; /* NULL: not said */
    char *only;            /* the annotation hawser.nics; NULL: not set */
};

/* Sets a setting unless it is already set: arguments come first, so they override annotations. -EINVAL: no such name,
 * or an invalid value; -EPERM: an annotation for a setting that only arguments may set; -ENOMEM. */
int sbx_setting(struct sbx_settings *s, const char *name, const char *value, bool annotation);
void sbx_settings_free(struct sbx_settings *s);
/* Returns 1 if a container is to get something, 0 if nothing is requested, and -errno if an annotation requests what
 * the arguments do not offer. */
int sbx_settings_ask(const struct sbx_settings *s);
/* Returns the settings as wishes for the plan, in s's memory. */
struct sbx_want sbx_settings_want(const struct sbx_settings *s);
bool sbx_settings_yes(const struct sbx_settings *s, enum sbx_key key);

/* ---- the runtime's data --------------------------------------------------------------------------- */

struct sbx_oci {
    char *id, *bundle; /* bundle NULL: not given */
    pid_t pid;         /* 0: none (any more) */
    uint64_t start;    /* start time of that process, because the PID may be reused */
    char *root;        /* the config's root.path, relative to the bundle if relative; NULL: unknown */
    struct sbx_settings set;
    bool no_annotations;         /* ignore annotations: restoring NICs needs none */
    const struct hw_logger *log; /* the hooks' warnings; may be NULL */
};

void sbx_oci_free(struct sbx_oci *o);
/* Parses the state; its annotations become settings. -EINVAL says what is wrong. */
int sbx_oci_state(struct sbx_oci *o, const char *text, size_t len);
/* Parses a config.json, of which only the root and the annotations are used. */
int sbx_oci_config(struct sbx_oci *o, const char *text, size_t len);

/*
 * Warns of a configuration that grants CAP_NET_ADMIN without a user namespace. The kernel then treats the container as
 * an administrator of every network namespace that it can name, and it can name the host's if its own has an id for it:
 * a veth or macvlan device from there suffices (IFLA_TARGET_NETNSID, rtnl_get_net_ns_capable() in
 * net/core/rtnetlink.c). It can then delete devices of the host.
 */
void sbx_oci_warn(const json_t *config, const struct hw_logger *log);

/* Loads JSON with integers beyond signed 64 bits (RLIM_INFINITY, seccomp's arguments), which jansson cannot represent:
 * they become strings, and numbers again in sbx_oci_dump(). NULL with hw_error(). */
json_t *sbx_oci_load(const char *text, size_t len);
json_t *sbx_oci_big(const char *digits); /* such a number */
char *sbx_oci_dump(const json_t *o);

#define SBX_OCI_STATE_MAX  (1u << 20)
#define SBX_OCI_CONFIG_MAX (16u << 20)

/* ---- the hook ------------------------------------------------------------------------------------ */

/* Reads the state from fd. o->set may already have settings. 0, or -errno with everything restored. A second call for
 * the same container does nothing. */
int sbx_hook_create(struct sbx_oci *o, int fd);
/* Restores everything, any number of times. */
int sbx_hook_stop(struct sbx_oci *o, int fd);

/* Restores the NICs of containers that have ended, or whose move was interrupted, so that they can be used again. Logs
 * what cannot be restored and leaves it. */
void sbx_heal(const char *journal_dir, const struct hw_logger *log);

/* ---- /sys ---------------------------------------------------------------------------------------- */

struct sbx_tree;
/* Mounts the tree on root's sys, read-only, in the caller's mount namespace, which must be the container's; mounts on
 * sys/fs/cgroup are kept. Since Linux 5.12. */
int sbx_mount_tree(int root, const struct sbx_tree *t);
/* The same with the folder dir, opened by sbx_mount_open() in any namespace. */
int sbx_mount_open(const char *dir);
int sbx_mount_folder(int root, int folder);
/* Does either in the mount namespace of process pid, which began at start, and whose root will be the folder `root`
 * there. t NULL: folder. */
int sbx_mount_in(pid_t pid, uint64_t start, const char *root, const struct sbx_tree *t, int folder);

#endif
