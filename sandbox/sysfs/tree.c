/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/sysfs/tree.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 1000000
#define MAX_DEPTH 64

/* Compares a name that is not NUL-terminated with the name of a node. */
static int name_cmp(const char *name, size_t len, const struct sbx_node *n)
{
    int c = strncmp(name, n->name, len);
    return c ? c : n->name[len] ? -1 : 0;
}

/* Returns the child with that name, or NULL. *at receives its position, or the position at which to insert it. */
static struct sbx_node *child_of(const struct sbx_node *up, const char *name, size_t len, size_t *at)
{
    size_t lo = 0, hi = up->n_child;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        int c = name_cmp(name, len, up->child[mid]);
        if (c == 0) {
            *at = mid;
            return up->child[mid];
        }
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    *at = lo;
    return NULL;
}

static struct sbx_node *alloc_tree_node(struct sbx_tree *t, const char *name, size_t len)
{
    struct sbx_node *n = calloc(1, sizeof(*n));
    if (n && (n->name = strndup(name, len))) {
        t->n_nodes++;
        return n;
    }
    free(n);
    t->rc = hw_no_memory("the sandbox's sysfs");
    return NULL;
}

static void free_subtree(struct sbx_node *n)
{
    for (size_t i = 0; i < n->n_child; i++)
        free_subtree(n->child[i]);
    free(n->child);
    free(n->data);
    free(n->name);
    free(n);
}

int sbx_tree_init(struct sbx_tree *t)
{
    *t = (struct sbx_tree){0};
    t->root = alloc_tree_node(t, "", 0);
    return t->rc;
}

void sbx_tree_free(struct sbx_tree *t)
{
    if (t->root)
        free_subtree(t->root);
    *t = (struct sbx_tree){0};
}

/* Returns the child with that name and kind, and creates it if necessary. Sets *fresh if the child is new. Returns NULL
 * on failure and sets t->rc. */
static struct sbx_node *get_or_add_child(struct sbx_tree *t, struct sbx_node *up, const char *name, size_t len,
                                         enum sbx_kind kind, bool *fresh)
{
    size_t at;
    struct sbx_node *n = child_of(up, name, len, &at);
    *fresh = !n;
    if (n && n->kind == kind)
        return n;
    if (n) {
        t->rc = hw_fail(-EEXIST, "%.*s already exists and is another kind of file", (int)HW_MIN(len, 80u), name);
        return NULL;
    }
    if (t->n_nodes == MAX_NODES) {
        t->rc = hw_fail(-E2BIG, "the sandbox's sysfs would have more than %d files", MAX_NODES);
        return NULL;
    }
    if (up->n_child == up->room) {
        size_t room = HW_MAX(2 * up->room, (size_t)8);
        struct sbx_node **more = realloc(up->child, room * sizeof(struct sbx_node *));
        if (!more) {
            t->rc = hw_no_memory("the sandbox's sysfs");
            return NULL;
        }
        up->child = more;
        up->room = room;
    }
    n = alloc_tree_node(t, name, len);
    if (!n)
        return NULL;
    n->kind = kind;
    n->up = up;
    memmove(&up->child[at + 1], &up->child[at], (up->n_child - at) * sizeof(struct sbx_node *));
    up->child[at] = n;
    up->n_child++;
    return n;
}

static struct sbx_node *add_tree_node(struct sbx_tree *t, const char *path, enum sbx_kind kind, bool *fresh)
{
    struct sbx_node *n = t->root;
    unsigned depth = 0;
    for (const char *p = path; t->rc == 0 && n; p++) {
        size_t len = strcspn(p, "/");
        if (len == 0 || len > NAME_MAX || ++depth > MAX_DEPTH ||
            (p[0] == '.' && (len == 1 || (len == 2 && p[1] == '.'))))
            t->rc = hw_fail(-EINVAL, "'%.120s' is not a valid path in a sandbox's sysfs", path);
        else
            n = get_or_add_child(t, n, p, len, p[len] ? SBX_DIR : kind, fresh);
        p += len;
        if (!*p)
            break;
    }
    return t->rc == 0 ? n : NULL;
}

void sbx_tree_dir(struct sbx_tree *t, const char *path)
{
    bool fresh;
    add_tree_node(t, path, SBX_DIR, &fresh);
}

static void set_node_data(struct sbx_tree *t, struct sbx_node *n, const void *data, size_t len)
{
    n->data = malloc(len + 1);
    if (!n->data) {
        t->rc = hw_no_memory("the sandbox's sysfs");
        return;
    }
    if (len)
        memcpy(n->data, data, len);
    n->data[len] = 0;
    n->n_data = len;
}

void sbx_tree_file(struct sbx_tree *t, const char *path, const void *data, size_t n, bool live)
{
    bool fresh;
    struct sbx_node *f = add_tree_node(t, path, SBX_FILE, &fresh);
    if (!f || !fresh)
        return;
    f->live = live;
    set_node_data(t, f, data, n);
}

void sbx_tree_link(struct sbx_tree *t, const char *path, const char *to)
{
    char target[PATH_MAX];
    bool fresh;
    if (t->rc)
        return;
    /* The target leads up from the link's folder to the deepest folder that both paths share, and then down to `to`. */
    size_t same = 0, at = 0, used = 0;
    for (size_t i = 0; path[i] && path[i] == to[i]; i++)
        if (path[i] == '/')
            same = i + 1;
    for (at = same; path[at]; at++)
        if (path[at] == '/' && used + 4 < sizeof(target))
            used += (size_t)snprintf(target + used, 4, "../");
    if (used + strlen(to + same) + 1 > sizeof(target)) {
        t->rc = hw_fail(-ENAMETOOLONG, "the target of the link '%.120s' is too long", path);
        return;
    }
    snprintf(target + used, sizeof(target) - used, "%s", to + same);
    struct sbx_node *l = add_tree_node(t, path, SBX_LINK, &fresh);
    if (l && fresh)
        set_node_data(t, l, target, strlen(target));
}

struct sbx_node *sbx_tree_find(const struct sbx_tree *t, const char *path)
{
    struct sbx_node *n = t->root;
    for (const char *p = path + strspn(path, "/"); *p && n; p += strspn(p, "/")) {
        size_t len = strcspn(p, "/"), at;
        n = child_of(n, p, len, &at); /* files and links have no children */
        p += len;
    }
    return n;
}
