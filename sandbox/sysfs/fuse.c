/* SPDX-License-Identifier: Apache-2.0 */
/* Serves the tree over FUSE. Live files are read from the host's sysfs, below a root that was opened earlier. */
#define FUSE_USE_VERSION 35
#include "net/sysfs.h"
#include "sandbox/sysfs/sysfs.h"

#include <fcntl.h>
#include <fuse.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct served {
    const struct sbx_tree *t;
    int host;
    struct timespec start;
};

static struct served *get_served_state(void)
{
    return fuse_get_context()->private_data;
}

static bool is_live(const struct sbx_node *n)
{
    return n->live && get_served_state()->host >= 0;
}

static int on_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    (void)fi;
    const struct sbx_node *n = sbx_tree_find(get_served_state()->t, path);
    if (!n)
        return -ENOENT;
    memset(st, 0, sizeof(*st));
    st->st_mode = n->kind == SBX_DIR ? S_IFDIR | 0555 : n->kind == SBX_LINK ? S_IFLNK | 0777 : S_IFREG | 0444;
    st->st_nlink = n->kind == SBX_DIR ? 2 : 1;
    /* sysfs reports the page size, usually 4096, as the size of its files */
    st->st_size = n->kind == SBX_DIR ? 0 : is_live(n) ? 4096 : (off_t)n->n_data;
    st->st_mtim = st->st_ctim = st->st_atim = get_served_state()->start;
    return 0;
}

static int on_readlink(const char *path, char *buf, size_t cap)
{
    const struct sbx_node *n = sbx_tree_find(get_served_state()->t, path);
    if (!n || n->kind != SBX_LINK)
        return n ? -EINVAL : -ENOENT;
    size_t len = HW_MIN(n->n_data, cap - 1);
    memcpy(buf, n->data, len);
    buf[len] = 0;
    return 0;
}

static int on_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *fi,
                      enum fuse_readdir_flags flags)
{
    (void)at;
    (void)fi;
    (void)flags;
    const struct sbx_node *n = sbx_tree_find(get_served_state()->t, path);
    if (!n || n->kind != SBX_DIR)
        return n ? -ENOTDIR : -ENOENT;
    fill(buf, ".", NULL, 0, 0);
    fill(buf, "..", NULL, 0, 0);
    for (size_t i = 0; i < n->n_child; i++)
        if (fill(buf, n->child[i]->name, NULL, 0, 0) != 0)
            return -ENOMEM;
    return 0;
}

/* An open file. A live file is read through a descriptor of the host's file, and any other file from its node. */
struct handle {
    const struct sbx_node *node;
    int fd;
};

static int on_open(const char *path, struct fuse_file_info *fi)
{
    const struct sbx_node *n = sbx_tree_find(get_served_state()->t, path);
    if (!n || n->kind != SBX_FILE)
        return n ? -EISDIR : -ENOENT;
    if ((fi->flags & O_ACCMODE) != O_RDONLY)
        return -EROFS;
    struct handle *h = malloc(sizeof(*h));
    if (!h)
        return -ENOMEM;
    *h = (struct handle){n, -1};
    if (is_live(n)) {
        /* the tree has each live file at the host's path, so a link there is not followed */
        h->fd = hw_root_fd(get_served_state()->host, O_RDONLY | O_NOFOLLOW, "sys%s", path);
        if (h->fd < 0) {
            int rc = h->fd;
            free(h);
            return rc;
        }
        fi->direct_io = 1; /* never read from a cache */
    } else {
        fi->keep_cache = 1;
    }
    fi->fh = (uint64_t)(uintptr_t)h;
    return 0;
}

static int on_fuse_read(const char *path, char *buf, size_t cap, off_t at, struct fuse_file_info *fi)
{
    (void)path;
    const struct handle *h = (const struct handle *)(uintptr_t)fi->fh;
    if (h->fd >= 0) {
        ssize_t n = pread(h->fd, buf, cap, at);
        return n < 0 ? -errno : (int)n;
    }
    if (at < 0 || (size_t)at >= h->node->n_data)
        return 0;
    size_t n = HW_MIN(cap, h->node->n_data - (size_t)at);
    memcpy(buf, h->node->data + at, n);
    return (int)n;
}

static int on_release(const char *path, struct fuse_file_info *fi)
{
    (void)path;
    struct handle *h = (struct handle *)(uintptr_t)fi->fh;
    hw_close(&h->fd);
    free(h);
    return 0;
}

static void *on_init(struct fuse_conn_info *c, struct fuse_config *cfg)
{
    (void)c;
    /* only the contents of live files change */
    cfg->entry_timeout = cfg->attr_timeout = cfg->negative_timeout = 3600;
    return get_served_state();
}

static const struct fuse_operations operations = {.getattr = on_getattr,
                                                  .readlink = on_readlink,
                                                  .readdir = on_readdir,
                                                  .open = on_open,
                                                  .read = on_fuse_read,
                                                  .release = on_release,
                                                  .init = on_init};

/* Redirects the standard descriptors to /dev/null, because they may refer to a terminal, or to a pipe whose reader
 * waits for end-of-file. Then reports to the waiting process that the tree is mounted. */
static int detach_and_notify(const struct sbx_fuse *f)
{
    int ready = f->ready, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3 && null >= 0; fd++)
        dup2(null, fd);
    if (null > 2)
        hw_close(&null);
    bool told = write(ready, "", 1) == 1;
    hw_close(&ready);
    return told ? 0 : hw_fail(-EPIPE, "the process that was waiting for %s has exited", f->at);
}

int sbx_fuse_serve(const struct sbx_tree *t, const struct sbx_fuse *f)
{
    struct served s = {.t = t, .host = f->host};
    clock_gettime(CLOCK_REALTIME, &s.start);
    /* FUSE treats a container's programs as other users; without /etc/fuse.conf, only root may grant them access */
    char others[] = "ro,nosuid,nodev,fsname=hawser,subtype=sysfs,default_permissions,allow_other";
    char name[] = "hawser", dash_o[] = "-o";
    if (geteuid() != 0)
        *strrchr(others, ',') = 0;
    char *argv[] = {name, dash_o, others, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    struct fuse *fuse = fuse_new(&args, &operations, sizeof(operations), &s);
    fuse_opt_free_args(&args);
    if (!fuse)
        return hw_fail(-EIO, "starting libfuse failed");
    if (fuse_mount(fuse, f->at) != 0) {
        fuse_destroy(fuse);
        return hw_fail(-EIO, "cannot mount a FUSE file system at %s: check /dev/fuse and the permission to mount",
                       f->at);
    }
    int rc =
        fuse_set_signal_handlers(fuse_get_session(fuse)) != 0 ? hw_fail(-EIO, "setting up signal handlers failed") : 0;
    if (rc == 0 && f->ready >= 0)
        rc = detach_and_notify(f);
    /* A single thread serves the tree: a child of fork() has no other threads, and sysfs is fast. It is not an error if
     * a signal ends the loop. */
    int end = rc < 0 ? 0 : fuse_loop(fuse);
    if (end < 0)
        rc = hw_fail(end, "%s: reading the FUSE device: %s", f->at, strerror(-end));
    fuse_remove_signal_handlers(fuse_get_session(fuse));
    fuse_unmount(fuse);
    fuse_destroy(fuse);
    return rc;
}
