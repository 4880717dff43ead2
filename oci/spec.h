/* SPDX-License-Identifier: Apache-2.0 */
/* What a container runtime has to be told for a plan: hooks, mounts, devices, environment, limits; as changes of an OCI
 * bundle's config.json, which can be taken away again, or as a file of the Container Device Interface. */
#ifndef HW_SANDBOX_SPEC_H
#define HW_SANDBOX_SPEC_H

#include "oci/oci.h"
#include "sandbox/plan/env.h"

struct sbx_dev {
    char path[128]; /* "/dev/nvidia0", in the container too */
    unsigned major, minor;
};
struct sbx_devs {
    struct sbx_dev *v;
    size_t n;
};
/* Those below root (hw_root_open()): of GPUs, where NVIDIA's driver is there, and of RDMA devices. What is planned and
 * not there is told to log. To be freed, also after a failure. */
int sbx_devs_find(struct sbx_devs *out, int root, const struct sbx_snapshot *s, const struct sbx_plan *p,
                  const struct hw_logger *log);
void sbx_devs_free(struct sbx_devs *d);

struct sbx_spec {
    const struct sbx_plan *plan;
    struct sbx_env_want env;     /* its caller is the config's own environment, or for CDI what is said here */
    const char *sysfs;           /* the folder for /sys; NULL: none */
    const char *topo, *topo_at;  /* NCCL_TOPO_FILE: the host's file, and where the container has it; NULL: none */
    const char *program;         /* hawser */
    const char *const *hook_arg; /* "nics=rdma0", NULL at the end */
    const struct sbx_devs *dev;
    bool memlock; /* no limit: RDMA pins what it registers */
    bool no_env;  /* of CDI: the environment is given otherwise */
    const struct hw_logger *log;
};

/*
 * Changes config, and notes what was done (oci/note.h, SBX_NOTE_SANDBOX), so that it can be undone. A config that
 * names a note is first undone, so that a second time changes nothing. -EINVAL where it is none of OCI's, the sandbox
 * cannot be one of it, or it names a note that notes lacks.
 */
int sbx_spec_apply(json_t *config, const struct sbx_spec *sp, json_t *notes);
/* Undoes the change that config names in notes. 0: it names none; 1: done; -EINVAL. */
int sbx_spec_undo(json_t *config, json_t *notes);

#define SBX_CDI_KIND "hawser.dev/sandbox"
/* A specification with one device of that kind, called name. To be freed with json_decref(); NULL with hw_error(). */
json_t *sbx_cdi(const struct sbx_spec *sp, const char *name);

/* Shared by both: the mounts, as OCI has them (CDI's differ in the names of members). */
json_t *sbx_spec_strings(const char *first, ...) __attribute__((sentinel));

#endif
