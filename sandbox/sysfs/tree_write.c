/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the tree to a folder next to its destination, and then moves the folder there with one rename, so that no
 * process sees a partial tree. */
#include "sandbox/sysfs/sysfs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK SBX_SYSFS_MARK

/* A list of files with distinct contents. Thousands of files have identical contents, mainly the files of unused GIDs.
 * Each later file with the same contents becomes a hard link to the first, which takes one system call instead of
 * three. */
struct same {
    const struct sbx_node *node;
    struct same *next;
};
enum { BUCKETS = 4096 };

struct write {
    int root;
    const char *dir; /* path for error messages */
    struct same **bucket;
    struct same *pool;
    size_t used;
};

static const struct sbx_node *find_or_add_content(struct write *w, const struct sbx_node *n)
{
    struct same **b = &w->bucket[hw_hash(HW_HASH_START, n->data, n->n_data) % BUCKETS];
    for (struct same *s = *b; s; s = s->next)
        if (s->node->n_data == n->n_data && memcmp(s->node->data, n->data, n->n_data) == 0)
            return s->node;
    struct same *s = &w->pool[w->used++];
    *s = (struct same){n, *b};
    *b = s;
    return NULL;
}

/* Writes the path of a node below the root. */
static bool build_node_path(const struct sbx_node *n, char *out, size_t cap)
{
    char *p = out + cap - 1;
    *p = 0;
    for (; n->up; n = n->up) {
        size_t len = strlen(n->name);
        if ((size_t)(p - out) < len + 1)
            return false;
        p -= len;
        memcpy(p, n->name, len);
        *--p = '/';
    }
    memmove(out, p + 1, (size_t)(out + cap - p - 1));
    return true;
}

static int put_file(struct write *w, int at, const struct sbx_node *n)
{
    char path[PATH_MAX];
    const struct sbx_node *same = find_or_add_content(w, n);
    if (same && build_node_path(same, path, sizeof(path)) && linkat(w->root, path, at, n->name, 0) == 0)
        return 0; /* if the file system allows no more links, or none at all, the contents are written again */
    int fd = openat(at, n->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (fd < 0)
        return hw_fail(-errno, "%s: creating %s: %s", w->dir, n->name, strerror(errno));
    ssize_t done = n->n_data ? write(fd, n->data, n->n_data) : 0;
    int rc =
        done == (ssize_t)n->n_data ? 0 : hw_fail(done < 0 ? -errno : -EIO, "%s: writing %s failed", w->dir, n->name);
    hw_close(&fd);
    return rc;
}

static int put_dir(struct write *w, int at, const struct sbx_node *d)
{
    int rc = 0;
    for (size_t i = 0; i < d->n_child && rc == 0; i++) {
        const struct sbx_node *n = d->child[i];
        if (n->kind == SBX_FILE) {
            rc = put_file(w, at, n);
        } else if (n->kind == SBX_LINK) {
            if (symlinkat(n->data, at, n->name) < 0)
                rc = hw_fail(-errno, "%s: creating the link %s: %s", w->dir, n->name, strerror(errno));
        } else {
            int fd = -1;
            if (mkdirat(at, n->name, 0755) < 0 ||
                (fd = openat(at, n->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
                rc = hw_fail(-errno, "%s: creating the folder %s: %s", w->dir, n->name, strerror(errno));
            else
                rc = put_dir(w, fd, n);
            hw_close(&fd);
        }
    }
    if (rc == 0 && fchmod(at, 0555) < 0)
        rc = hw_fail(-errno, "%s: %s", w->dir, strerror(errno));
    return rc;
}

static int put_all(const struct sbx_tree *t, int root, const char *dir)
{
    struct write w = {.root = root,
                      .dir = dir,
                      .bucket = calloc(BUCKETS, sizeof(struct same *)),
                      .pool = malloc(t->n_nodes * sizeof(struct same))};
    int rc = w.bucket && w.pool ? 0 : hw_no_memory("the files of %s", dir);
    int fd = rc < 0 ? -1 : openat(root, MARK, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (rc == 0 && fd < 0)
        rc = hw_fail(-errno, "%s/" MARK ": %s", dir, strerror(errno));
    hw_close(&fd);
    if (rc == 0)
        rc = put_dir(&w, root, t->root);
    free(w.bucket);
    free(w.pool);
    return rc;
}

/* ---- removing ------------------------------------------------------------------------------- */

static int remove_dir_contents(int at)
{
    DIR *d = fdopendir(at);
    if (!d) {
        hw_close(&at);
        return -errno;
    }
    int rc = fchmod(dirfd(d), 0755) < 0 ? -errno : 0; /* users other than root need this permission */
    for (const struct dirent *e; rc == 0 && (errno = 0, e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) == 0)
            continue;
        int err = errno, fd = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            rc = -err;
        else if ((rc = remove_dir_contents(fd)) == 0 && unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) < 0)
            rc = -errno;
    }
    closedir(d);
    return rc;
}

static int remove_all(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), rc = fd < 0 ? -errno : remove_dir_contents(fd);
    if (rc == 0 && rmdir(dir) < 0)
        rc = -errno;
    return rc < 0 ? hw_fail(rc, "removing %s: %s", dir, strerror(-rc)) : 0;
}

/* Returns 1 if hawser has written dir, 0 if dir is an empty folder or does not exist, -EEXIST if dir is anything else,
 * or another -errno. */
static int check_tree_owner(const char *dir)
{
    struct stat st;
    char mark[PATH_MAX];
    if (lstat(dir, &st) < 0)
        return errno == ENOENT ? 0 : hw_fail(-errno, "%s: %s", dir, strerror(errno));
    if ((size_t)snprintf(mark, sizeof(mark), "%s/" MARK, dir) >= sizeof(mark))
        return hw_fail(-ENAMETOOLONG, "%s: the name is too long", dir);
    if (S_ISDIR(st.st_mode) && access(mark, F_OK) == 0)
        return 1;
    DIR *d = S_ISDIR(st.st_mode) ? opendir(dir) : NULL;
    bool empty = d;
    for (const struct dirent *e; d && empty && (e = readdir(d));)
        empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    if (d)
        closedir(d);
    return empty ? 0 : hw_fail(-EEXIST, "%s exists and is not a sysfs written by hawser: leaving it unchanged", dir);
}

int sbx_tree_remove(const char *dir)
{
    struct stat st;
    if (lstat(dir, &st) < 0 && errno == ENOENT)
        return 0;
    return check_tree_owner(dir) == 1 ? remove_all(dir) : hw_fail(-EINVAL, "%s is not a sysfs written by hawser", dir);
}

/* ---- writing -------------------------------------------------------------------------------- */

int sbx_tree_write(const struct sbx_tree *t, const char *dir)
{
    char part[PATH_MAX];
    size_t len = strlen(dir);
    if (t->rc < 0)
        return t->rc;
    while (len > 1 && dir[len - 1] == '/')
        len--;
    if ((size_t)snprintf(part, sizeof(part), "%.*s.XXXXXX", (int)len, dir) >= sizeof(part))
        return hw_fail(-ENAMETOOLONG, "%s: the name is too long", dir);
    char *place = strndup(dir, len);
    int ours = place ? check_tree_owner(place) : hw_no_memory("the files of %s", dir);
    if (ours < 0 || !mkdtemp(part)) {
        int rc = ours < 0 ? ours : hw_fail(-errno, "%s: %s", part, strerror(errno));
        free(place);
        return rc;
    }
    int root = open(part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = root < 0 ? hw_fail(-errno, "%s: %s", part, strerror(errno)) : put_all(t, root, part);
    hw_close(&root);
    /* If hawser wrote the existing folder, exchange the two folders; the old folder is removed below. Otherwise the
     * folder does not exist, or it is empty and the rename replaces it. */
    if (rc == 0 && renameat2(AT_FDCWD, part, AT_FDCWD, place, ours ? RENAME_EXCHANGE : 0) < 0)
        rc = hw_fail(-errno, "moving the new sysfs to %s: %s", dir, strerror(errno));
    if (rc < 0 || ours) {
        char why[HW_ERR_TEXT];
        snprintf(why, sizeof(why), "%s", hw_error());
        int rc2 = remove_all(part);
        rc = rc < 0 ? hw_fail_copy(rc, why) : rc2;
    }
    free(place);
    return rc;
}
