/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As a hook of an OCI runtime (crun, runc, containerd, podman): NICs go into a container when it is created and come
 * back when it is gone; on request its /sys is the rebuilt one.
 *
 * Both texts that are read here, the state that the runtime writes to a hook's standard input (OCI runtime
 * specification, runtime.md) and a bundle's config.json, are a stranger's.
 */
#ifndef HW_SANDBOX_OCI_H
#define HW_SANDBOX_OCI_H

#include "sandbox/move/move.h"
#include "sandbox/plan/plan.h"
#include "sys/files.h"

#include <jansson.h>

/* ---- settings ----------------------------------------------------------------------------------- */

/* "nics" and so on, by a hook's arguments (nics=rdma0). A container's annotations (hawser.nics), which a tenant may
 * write, know some of these, and only choose among what the arguments give. */
enum sbx_key {
    SBX_KEY_NICS,
    SBX_KEY_OFFER, /* what the annotation hawser.nics may choose from; without that annotation, nothing is given */
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
    char *only;            /* the annotation hawser.nics; NULL: not said */
};

/* Takes a setting unless it was said before: arguments come first, so they overrule annotations. -EINVAL no such name,
 * or no such value; -EPERM an annotation of what only the hook's arguments may say; -ENOMEM. */
int sbx_setting(struct sbx_settings *s, const char *name, const char *value, bool annotation);
void sbx_settings_free(struct sbx_settings *s);
/* Returns 1 where a container is to get something, 0 where nothing is asked for, and -errno where an annotation asks
 * for what the arguments do not offer. */
int sbx_settings_ask(const struct sbx_settings *s);
/* Returns what the settings ask of the plan, in s's memory. */
struct sbx_want sbx_settings_want(const struct sbx_settings *s);
bool sbx_settings_yes(const struct sbx_settings *s, enum sbx_key key);

/* ---- what the runtime says ----------------------------------------------------------------------- */

struct sbx_oci {
    char *id, *bundle; /* bundle NULL: not said */
    pid_t pid;         /* 0: none (any more) */
    uint64_t start;    /* when that process began: the PID may be another one's later */
    char *root;        /* the config's root.path, below the bundle where it is relative; NULL: not known */
    struct sbx_settings set;
    bool no_annotations;         /* they are not read: to give NICs back takes none */
    const struct hw_logger *log; /* the hooks' warnings; may be NULL */
};

void sbx_oci_free(struct sbx_oci *o);
/* The state; its annotations become settings. -EINVAL says what is wrong. */
int sbx_oci_state(struct sbx_oci *o, const char *text, size_t len);
/* A config.json, of which only the root and the annotations matter here. */
int sbx_oci_config(struct sbx_oci *o, const char *text, size_t len);

/*
 * Warns of a configuration that gives CAP_NET_ADMIN without a user namespace. The kernel then takes the container for
 * an administrator of every network namespace that it can name, and it can name the host's where its own has a number
 * for it: a veth or macvlan device that came from there is enough (IFLA_TARGET_NETNSID, rtnl_get_net_ns_capable() in
 * net/core/rtnetlink.c). It can delete devices of the host's by that.
 */
void sbx_oci_warn(const json_t *config, const struct hw_logger *log);

/* JSON with whole numbers beyond 64 bits signed (RLIM_INFINITY, seccomp's arguments), which jansson cannot hold: they
 * become strings, and numbers again in sbx_oci_dump(). NULL with hw_error(). */
json_t *sbx_oci_load(const char *text, size_t len);
json_t *sbx_oci_big(const char *digits); /* such a number */
char *sbx_oci_dump(const json_t *o);

#define SBX_OCI_STATE_MAX  (1u << 20)
#define SBX_OCI_CONFIG_MAX (16u << 20)

/* ---- the hook ------------------------------------------------------------------------------------ */

/* Reads the state from fd. o->set may have settings already. 0, or -errno and everything is as it was. A second call
 * for the same container does nothing. */
int sbx_hook_create(struct sbx_oci *o, int fd);
/* Gives everything back, any number of times. */
int sbx_hook_stop(struct sbx_oci *o, int fd);

/* Gives back the NICs of containers that have ended, or whose move died, so that they can be planned anew. What cannot
 * be given back is told to log and stays. */
void sbx_heal(const char *journal_dir, const struct hw_logger *log);

/* ---- /sys ---------------------------------------------------------------------------------------- */

struct sbx_tree;
/* Puts the tree over root's sys, read-only, in the mount namespace of the caller, which must be the container's; what
 * is mounted on sys/fs/cgroup stays. Since Linux 5.12. */
int sbx_mount_tree(int root, const struct sbx_tree *t);
/* The same with the folder dir, opened by sbx_mount_open() wherever that is. */
int sbx_mount_open(const char *dir);
int sbx_mount_folder(int root, int folder);
/* Either, in the mount namespace of process pid, which began at start, and whose root is to be the folder `root` there.
 * t NULL: folder. */
int sbx_mount_in(pid_t pid, uint64_t start, const char *root, const struct sbx_tree *t, int folder);

#endif
