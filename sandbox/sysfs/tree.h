/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of folders, files and links in memory. */
#ifndef HW_SANDBOX_TREE_H
#define HW_SANDBOX_TREE_H

#include "base/base.h"

enum sbx_kind { SBX_DIR, SBX_FILE, SBX_LINK };

struct sbx_node {
    char *name;
    enum sbx_kind kind;
    bool live;  /* FUSE reads the file from the host each time */
    char *data; /* a file's contents, or a link's target with a NUL */
    size_t n_data;
    struct sbx_node *up;     /* NULL: the root of the tree */
    struct sbx_node **child; /* of a folder, sorted by name */
    size_t n_child, room;
};

struct sbx_tree {
    struct sbx_node *root;
    size_t n_nodes;
    int rc; /* first error; nothing more is added after it */
};

/* Errors of all additions are collected in t->rc, the first one. */
int sbx_tree_init(struct sbx_tree *t);
void sbx_tree_free(struct sbx_tree *t);
/* Paths are relative, "class/net", without ".", ".." and empty parts. Missing parent folders are made. Existing nodes
 * stay unchanged, but a file or link in the place of a folder, or vice versa, is -EEXIST. */
void sbx_tree_dir(struct sbx_tree *t, const char *path);
void sbx_tree_file(struct sbx_tree *t, const char *path, const void *data, size_t n, bool live);
/* to: a path of the tree, existing or not; the link's target is relative to its own folder, as in sysfs. */
void sbx_tree_link(struct sbx_tree *t, const char *path, const char *to);
/* Returns NULL if there is none. Does not follow links; ignores a leading '/'. */
struct sbx_node *sbx_tree_find(const struct sbx_tree *t, const char *path);

#endif
