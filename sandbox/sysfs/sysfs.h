/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's sysfs: a tree of folders, files and links, made of a snapshot and a plan, then written as a folder to be
 * mounted read-only or served by FUSE. */
#ifndef HW_SANDBOX_SYSFS_H
#define HW_SANDBOX_SYSFS_H

#include "sandbox/plan/plan.h"
#include "sandbox/sysfs/tree.h"

/* plan NULL: all that the snapshot has. To be freed with sbx_tree_free(), also after a failure. */
int sbx_sysfs_build(struct sbx_tree *out, const struct sbx_snapshot *s, const struct sbx_plan *plan);

/* A file in the folder below, which tells one of ours from others: those are never touched. */
#define SBX_SYSFS_MARK ".hawser-sysfs"
/* Writes t to the new folder dir, or in the place of one that was written so before; -EEXIST where something else is
 * there. Either all of it is there afterwards or nothing has changed. Nobody may write to it. */
int sbx_tree_write(const struct sbx_tree *t, const char *dir);
/* Removes such a folder; -EINVAL where it is none. Absent: 0. */
int sbx_tree_remove(const char *dir);

struct sbx_fuse {
    const char *at; /* the mount point */
    int host;       /* the root (hw_root_open()) whose sys/ the live files are read from; -1: none are live */
    int ready;      /* -1, or a descriptor that gets a byte and is closed once it is mounted; the standard ones are
                       /dev/null from then on */
};
/* Serves t until it is unmounted or the process gets SIGTERM, SIGINT or SIGHUP; unmounts then. */
int sbx_fuse_serve(const struct sbx_tree *t, const struct sbx_fuse *f);

/* NCCL_TOPO_FILE's XML of the same. */
int sbx_nccl_topo(const struct sbx_snapshot *s, const struct sbx_plan *plan, FILE *out);

#endif
