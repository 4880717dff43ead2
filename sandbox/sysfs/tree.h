/* SPDX-License-Identifier: Apache-2.0 */
/* Folders, files and links in memory. */
#ifndef HW_SANDBOX_TREE_H
#define HW_SANDBOX_TREE_H

#include "base/base.h"

enum sbx_kind { SBX_DIR, SBX_FILE, SBX_LINK };

struct sbx_node {
    char *name;
    enum sbx_kind kind;
    bool live;  /* a file that FUSE reads from the host each time */
    char *data; /* a file's contents, a link's target with a NUL behind */
    size_t n_data;
    struct sbx_node *up;     /* NULL: the tree's root */
    struct sbx_node **child; /* of a folder, by name */
    size_t n_child, room;
};

struct sbx_tree {
    struct sbx_node *root;
    size_t n_nodes;
    int rc; /* what failed first; then nothing more is added */
};

/* All that is added, and what failed first, comes out of t->rc at the end. */
int sbx_tree_init(struct sbx_tree *t);
void sbx_tree_free(struct sbx_tree *t);
/* Paths are relative, "class/net", without ".", ".." and empty parts. The folders above are made. What is there already
 * stays as it is, except that a file or link in the place of a folder, or the other way round, is -EEXIST. */
void sbx_tree_dir(struct sbx_tree *t, const char *path);
void sbx_tree_file(struct sbx_tree *t, const char *path, const void *data, size_t n, bool live);
/* to: a path of the tree, there or not; the link tells the way to it from its own folder, as sysfs does. */
void sbx_tree_link(struct sbx_tree *t, const char *path, const char *to);
/* NULL: there is none. Links are not followed; a '/' in front does not matter. */
struct sbx_node *sbx_tree_find(const struct sbx_tree *t, const char *path);

#endif
