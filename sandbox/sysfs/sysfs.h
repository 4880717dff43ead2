/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox's sysfs: a tree of folders, files and links that is built from a snapshot and a plan. The tree is then
 * written to a folder, which is mounted read-only, or served over FUSE. */
#ifndef HW_SANDBOX_SYSFS_H
#define HW_SANDBOX_SYSFS_H

#include "sandbox/plan/plan.h"
#include "sandbox/sysfs/tree.h"

/* Builds the tree. If plan is NULL, the tree contains everything in the snapshot. The caller calls sbx_tree_free(),
 * even after a failure. */
int sbx_sysfs_build(struct sbx_tree *out, const struct sbx_snapshot *s, const struct sbx_plan *plan);

/* A file that marks the folders written by hawser. */
#define SBX_SYSFS_MARK ".hawser-sysfs"
/* Writes t to the new folder dir, or replaces an existing folder that is empty or was written by this function. Fails
 * with -EEXIST if dir is anything else. The change is atomic: other processes see either the old folder or the complete
 * new one. No other process may write to the folder. */
int sbx_tree_write(const struct sbx_tree *t, const char *dir);
/* Removes a folder that sbx_tree_write() has written. Succeeds if dir does not exist, and fails with -EINVAL if it is
 * something else. */
int sbx_tree_remove(const char *dir);

struct sbx_fuse {
    const char *at; /* path of the mount point */
    int host;       /* root (hw_root_open()) whose sys/ contains the live files; -1 if there are no live files */
    /* -1, or a file descriptor to which a byte is written, and which is closed, once the tree is mounted. From then on
     * the standard descriptors refer to /dev/null. */
    int ready;
};
/* Mounts t at f->at and serves it until it is unmounted. Unmounts it on SIGTERM, SIGINT, SIGHUP, and after an error. */
int sbx_fuse_serve(const struct sbx_tree *t, const struct sbx_fuse *f);

/* Writes the XML file for NCCL_TOPO_FILE from a snapshot and its plan. */
int sbx_nccl_topo(const struct sbx_snapshot *s, const struct sbx_plan *plan, FILE *out);

#endif
