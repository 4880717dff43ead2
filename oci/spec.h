/* SPDX-License-Identifier: Apache-2.0 */
/* What a container runtime needs for a plan: hooks, mounts, devices, environment, limits; as reversible changes of an
 * OCI bundle's config.json, or as a file of the Container Device Interface. */
#ifndef HW_SANDBOX_SPEC_H
#define HW_SANDBOX_SPEC_H

#include "oci/oci.h"
#include "sandbox/plan/env.h"

struct sbx_dev {
    char path[128]; /* "/dev/nvidia0", also in the container */
    unsigned major, minor;
};
struct sbx_devs {
    struct sbx_dev *v;
    size_t n;
};
/* Finds device files below root (hw_root_open()): of GPUs, if NVIDIA's driver is loaded, and of RDMA devices. Logs
 * planned ones that are missing. The caller frees out, also after a failure. */
int sbx_devs_find(struct sbx_devs *out, int root, const struct sbx_snapshot *s, const struct sbx_plan *p,
                  const struct hw_logger *log);
void sbx_devs_free(struct sbx_devs *d);

struct sbx_spec {
    const struct sbx_plan *plan;
    struct sbx_env_want env;     /* its caller is the config's own environment, or for CDI what is given here */
    const char *sysfs;           /* the folder for /sys; NULL: none */
    const char *topo, *topo_at;  /* NCCL_TOPO_FILE: the host's file, and its path in the container; NULL: none */
    const char *program;         /* hawser */
    const char *const *hook_arg; /* "nics=rdma0", NULL-terminated */
    const struct sbx_devs *dev;
    bool memlock; /* no limit: RDMA pins registered memory */
    bool no_env;  /* CDI: the environment is set another way */
    const struct hw_logger *log;
};

/*
 * Changes config, and notes the changes (oci/note.h, SBX_NOTE_SANDBOX), so that they can be undone. Undoes the change
 * of a note that config already names, so a second call changes nothing. -EINVAL: not an OCI configuration, one that
 * cannot be a sandbox, or it names a note that notes lacks.
 */
int sbx_spec_apply(json_t *config, const struct sbx_spec *sp, json_t *notes);
/* Undoes the change that config names in notes. 0: it names none; 1: done; -EINVAL. */
int sbx_spec_undo(json_t *config, json_t *notes);

#define SBX_CDI_KIND "hawser.dev/sandbox"
/* Returns a specification with one device of that kind, called name. The caller calls json_decref(); NULL with
 * hw_error(). */
json_t *sbx_cdi(const struct sbx_spec *sp, const char *name);

/* Shared by both: the mounts in OCI's form (CDI's members have other names). */
json_t *sbx_spec_strings(const char *first, ...) __attribute__((sentinel));

#endif
