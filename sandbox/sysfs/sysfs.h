/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's sysfs: a tree of folders, files and links made from a snapshot and a plan, then written as a folder to be
 * mounted read-only, or served by FUSE. */
#ifndef HW_SANDBOX_SYSFS_H
#define HW_SANDBOX_SYSFS_H

#include "sandbox/plan/plan.h"
#include "sandbox/sysfs/tree.h"

/* Builds the tree. plan NULL: everything in the snapshot. The caller calls sbx_tree_free(), also after a failure. */
int sbx_sysfs_build(struct sbx_tree *out, const struct sbx_snapshot *s, const struct sbx_plan *plan);

/* Marks our folders: others are never touched. */
#define SBX_SYSFS_MARK ".hawser-sysfs"
/* Writes t to the new folder dir, or replaces one written by this function; -EEXIST if something else is there. Atomic:
 * either everything is there afterwards or nothing has changed. Nobody may write to it. */
int sbx_tree_write(const struct sbx_tree *t, const char *dir);
/* Removes such a folder; -EINVAL if it is another one. 0 if it is absent. */
int sbx_tree_remove(const char *dir);

struct sbx_fuse {
    const char *at; /* the mount point */
    int host;       /* the root (hw_root_open()) with the sys/ of the live files; -1: no live files */
    /* -1, or a descriptor that receives a byte and is closed once the tree is mounted; the standard descriptors are
     * /dev/null from then on */
    int ready;
};
/* Serves t until it is unmounted or the process gets SIGTERM, SIGINT or SIGHUP; then unmounts. */
int sbx_fuse_serve(const struct sbx_tree *t, const struct sbx_fuse *f);

/* Writes the XML of NCCL_TOPO_FILE for the same. */
int sbx_nccl_topo(const struct sbx_snapshot *s, const struct sbx_plan *plan, FILE *out);

#endif
