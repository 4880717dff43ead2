/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of folders, files and links in memory. */
#ifndef HW_SANDBOX_TREE_H
#define HW_SANDBOX_TREE_H

#include "base/base.h"

enum sbx_kind { SBX_DIR, SBX_FILE, SBX_LINK };

struct sbx_node {
    char *name;
    enum sbx_kind kind;
    bool live;  /* FUSE serves the host's file instead of data, unless sbx_fuse.host is -1 */
    char *data; /* contents of a file, or NUL-terminated target of a link */
    size_t n_data;
    struct sbx_node *up;     /* NULL for the root of the tree */
    struct sbx_node **child; /* children of a folder, sorted by name */
    size_t n_child, room;
};

struct sbx_tree {
    struct sbx_node *root;
    size_t n_nodes;
    int rc; /* the first error, after which nothing more is added */
};

/* Creates an empty tree. Returns 0 or -ENOMEM. The additions below report errors in t->rc. */
int sbx_tree_init(struct sbx_tree *t);
void sbx_tree_free(struct sbx_tree *t);
/* Paths are relative, such as "class/net", and have no empty, "." or ".." components. Missing parent folders are
 * created. Existing nodes stay unchanged. An existing node of another kind is an error (-EEXIST). */
void sbx_tree_dir(struct sbx_tree *t, const char *path);
void sbx_tree_file(struct sbx_tree *t, const char *path, const void *data, size_t n, bool live);
/* `to` is a path in the tree, which need not exist. The link's target is relative to the link's folder, as in sysfs. */
void sbx_tree_link(struct sbx_tree *t, const char *path, const char *to);
/* Returns the node at path, or NULL if there is none. Does not follow links, and ignores a leading '/'. */
struct sbx_node *sbx_tree_find(const struct sbx_tree *t, const char *path);

#endif
