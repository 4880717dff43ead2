/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks, mounts, devices, environment and limits that a container runtime needs for a plan. They are written either
 * as reversible changes to an OCI bundle's config.json, or as a file of the Container Device Interface. */
#ifndef HW_SANDBOX_SPEC_H
#define HW_SANDBOX_SPEC_H

#include "oci/oci.h"
#include "sandbox/plan/env.h"

struct sbx_dev {
    char path[128]; /* such as "/dev/nvidia0"; the same path in the container */
    unsigned major, minor;
};
struct sbx_devs {
    struct sbx_dev *v;
    size_t n;
};
/* Finds device files below root (hw_root_open()): the files of GPUs, if NVIDIA's driver is loaded, and of RDMA devices.
 * Logs missing files of the plan's GPUs (nvidiaN) and RDMA devices (uverbsN). The caller frees out, even after a
 * failure. */
int sbx_devs_find(struct sbx_devs *out, int root, const struct sbx_snapshot *s, const struct sbx_plan *p,
                  const struct hw_logger *log);
void sbx_devs_free(struct sbx_devs *d);

struct sbx_spec {
    const struct sbx_plan *plan;
    struct sbx_env_want env;     /* env.caller is used for CDI only; otherwise the config's environment is used */
    const char *sysfs;           /* folder to mount on /sys, or NULL */
    const char *topo, *topo_at;  /* for NCCL_TOPO_FILE: the host's file and its path in the container, or NULL */
    const char *program;         /* path of hawser */
    const char *const *hook_arg; /* NULL-terminated arguments, such as "nics=rdma0" */
    const struct sbx_devs *dev;
    bool memlock; /* remove the limit for locked memory, because RDMA pins registered memory */
    bool no_env;  /* for CDI: leave out the environment, which is set in another way */
    const struct hw_logger *log;
};

/*
 * Changes config and records the changes in notes (oci/note.h, SBX_NOTE_SANDBOX), so that they can be undone. First
 * undoes the changes in the note that config refers to, so a second call with the same sp changes nothing. Fails with
 * -EINVAL if config is not an OCI configuration, cannot become a sandbox, or refers to a note that notes lacks, or with
 * another -errno.
 */
int sbx_spec_apply(json_t *config, const struct sbx_spec *sp, json_t *notes);
/* Undoes the changes in the note that config refers to. Returns 0 if config refers to no note, 1 if the changes were
 * undone, or -errno. */
int sbx_spec_undo(json_t *config, json_t *notes);

#define SBX_CDI_KIND "hawser.dev/sandbox"
/* Returns a specification with one device of kind SBX_CDI_KIND, whose name is `name`. The caller calls json_decref().
 * Returns NULL on failure and sets hw_error(). */
json_t *sbx_cdi(const struct sbx_spec *sp, const char *name);

/* Returns a JSON array of the strings up to NULL. */
json_t *sbx_spec_strings(const char *first, ...) __attribute__((sentinel));

#endif
