/* SPDX-License-Identifier: Apache-2.0 */
/* An application's open: is it a device of ours, may it, and then an open of our own, on a node made for it alone. */
#include "verbs/broker_int.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void list(struct vb_broker *b)
{
    int n = b->o->kernel->devices(b->device, VB_DEVICES_MAX);
    if (n < 0)
        hw_log(b->o->log, HAWSER_LOG_ERROR, "verbs: %s: %s", b->container->id, hw_error());
    b->n_devices = n > 0 ? HW_MIN((unsigned)n, VB_DEVICES_MAX) : 0;
    b->listed = b->now;
}

static int clone_mount(const struct vb_broker *b)
{
    int fd = (int)syscall(SYS_open_tree, b->nodes, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
    return fd >= 0 ? fd : hw_fail(-errno, "open_tree of %s: %s", b->o->node_dir, strerror(errno));
}

/* The end of a mount waits for a grace period of RCU (fs/namespace.c, namespace_unlock()). */
void vb_nodes_idle(struct vb_broker *b)
{
    hw_close(&b->spent);
    if (b->mount < 0)
        b->mount = clone_mount(b); /* else the open that needs it says why not */
}

int vb_nodes_open(struct vb_broker *b)
{
    struct stat st;
    list(b); /* the first open finds it */
    b->listed = 0;
    b->nodes = open(b->o->node_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->nodes < 0 || fstat(b->nodes, &st))
        return hw_fail(-errno, "opening %s, where device nodes are made: %s", b->o->node_dir, strerror(errno));
    b->nodes_dev = st.st_dev;
    vb_nodes_idle(b);
    return 0;
}

/* The device that the application's name leads to, in its own root: 0, or -ENOENT for anything else. A name that we
 * cannot follow leads nowhere with us, and natively to a node that nobody can open (on a mount with nodev). */
static int resolve(pid_t tid, int dirfd, const char *name, int flags, dev_t *rdev)
{
    char at[64];
    uint64_t within;
    struct stat st;
    if (name[0] == '/') {
        snprintf(at, sizeof at, "/proc/%d/root", (int)tid);
        within = RESOLVE_IN_ROOT;
    } else {
        if (dirfd == AT_FDCWD)
            snprintf(at, sizeof at, "/proc/%d/cwd", (int)tid);
        else
            snprintf(at, sizeof at, "/proc/%d/fd/%d", (int)tid, dirfd);
        /* Never out of its directory: where ".." leads from there is not known here. */
        within = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    }
    int dir = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -ENOENT;
    int fd = hw_openat2(dir, name, O_PATH | (flags & O_NOFOLLOW), within);
    close(dir);
    if (fd < 0)
        return -ENOENT;
    int rc = fstat(fd, &st);
    close(fd);
    if (rc || !S_ISCHR(st.st_mode))
        return -ENOENT;
    *rdev = st.st_rdev;
    return 0;
}

static const struct vb_device *listed(const struct vb_broker *b, dev_t rdev)
{
    for (unsigned i = 0; i < b->n_devices; i++) {
        if (b->device[i].rdev == rdev)
            return &b->device[i];
    }
    return NULL;
}

/* Programs open many character devices that are none of ours, and a number that is may be another device's since. */
static const struct vb_device *device_by_rdev(struct vb_broker *b, dev_t rdev)
{
    const struct vb_kernel *k = b->o->kernel;
    const struct vb_device *d = listed(b, rdev);
    if (d ? k->still && k->still(d) : b->listed && b->now - b->listed < 1000 * HW_MS)
        return d;
    list(b);
    return listed(b, rdev);
}

static int pkey(void *arg, unsigned port, unsigned index, uint16_t *value)
{
    const struct vb_slot *s = arg;
    return s->kernel->pkey ? s->kernel->pkey(s->device.ibdev, port, index, value) : -EOPNOTSUPP;
}

static int slot_of(struct vb_broker *b, const struct vb_device *d, struct vb_slot **out)
{
    for (unsigned i = 0; i < b->n_slots; i++) {
        if (strcmp(b->slot[i]->device.ibdev, d->ibdev) == 0) {
            b->slot[i]->device = *d;
            *out = b->slot[i];
            return 0;
        }
    }
    if (b->n_slots == VB_DEVICES_MAX)
        return hw_fail(-ENOSPC, "more than %d devices", VB_DEVICES_MAX);
    struct vb_slot *s = calloc(1, sizeof *s);
    if (!s)
        return hw_fail(-ENOMEM, "out of memory for a device");
    s->device = *d;
    const struct vb_container *c = b->container;
    int rc = vb_policy_rules(b->o->policy, c->section[0] ? c->section : NULL, c->annotations, c->n_annotations,
                             d->ibdev, &s->rules);
    if (rc) {
        free(s);
        return rc;
    }
    s->kernel = b->o->kernel;
    s->rules.pkey = pkey;
    s->rules.pkey_arg = s;
    b->slot[b->n_slots++] = s;
    *out = s;
    return 0;
}

/* A node on a mount of its own, which is nodev from before anybody else has the descriptor: who has it cannot open it
 * again by /proc/self/fd, which would be an open natively, that we know nothing of, under the same inode. */
static int open_node(struct vb_broker *b, const struct vb_device *d, int *out)
{
    char name[64];
    struct mount_attr nodev = {.attr_set = MOUNT_ATTR_NODEV};
    int fd = -1;
    snprintf(name, sizeof name, "%d-%llu", (int)b->me, (unsigned long long)b->serial++);
    int mount = b->mount >= 0 ? b->mount : clone_mount(b), rc = 0;
    b->mount = -1;
    if (mount < 0)
        return mount;
    hw_close(&b->spent);
    b->spent = mount;
    if (mknodat(mount, name, S_IFCHR | 0600, d->rdev))
        return hw_fail(-errno, "making a device node in %s: %s", b->o->node_dir, strerror(errno));
    fd = openat(mount, name, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        rc = hw_fail(-errno, "opening %s (%s): %s%s", d->node, d->ibdev, strerror(errno),
                     errno == EACCES ? "; is node_dir mounted nodev?" : "");
    else if (syscall(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &nodev, sizeof nodev))
        rc = hw_fail(-errno, "mount_setattr: %s", strerror(errno));
    unlinkat(mount, name, 0); /* its inode lives with fd, and gets its watch before fd is anybody's */
    if (rc)
        hw_close(&fd);
    *out = fd;
    return rc;
}

/* The lowest of VB_FD_FIRST.. that the thread does not have open; one that it opens meanwhile is replaced, as dup2()
 * of its own would do. */
static int free_number(pid_t tid)
{
    char path[64];
    struct stat st;
    for (int fd = VB_FD_FIRST; fd <= VB_FD_LAST; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)tid, fd);
        if (lstat(path, &st))
            return errno == ENOENT ? fd : -errno;
    }
    return -EMFILE;
}

static void may_open(struct vb_broker *b, const struct vb_slot *s, struct vb_verdict *v)
{
    vb_judge_open(&s->rules, &s->usage, v);
    if (!v->rc && b->n_contexts >= VB_OPENS_MAX) {
        v->rc = -EMFILE;
        snprintf(v->rule, sizeof v->rule, "%d opens of a container", VB_OPENS_MAX);
        snprintf(v->text, sizeof v->text, "it has as many already");
    }
}

static int open_ours(struct vb_broker *b, const struct vb_call *call, const struct vb_device *d, int flags)
{
    const struct seccomp_notif *n = &call->n;
    struct vb_slot *s = NULL;
    struct vb_context *c;
    pid_t tid = (pid_t)n->pid;
    struct vb_verdict v;
    int fd = -1, at;
    int rc = slot_of(b, d, &s);
    if (rc) {
        vb_refused(b, tid, NULL, "open", "", hw_error(), -EACCES);
        return -EACCES;
    }
    may_open(b, s, &v);
    if (v.rc) { /* one that has ended may not be known yet: a descriptor of ours held it */
        vb_cache_sweep(b, true, -1);
        vb_contexts_ended(b);
        may_open(b, s, &v);
    }
    if (v.rc) {
        vb_refused(b, tid, s, "open", v.rule, v.text, v.rc);
        return v.rc;
    }
    at = free_number(tid);
    if (at < 0) {
        vb_refused(b, tid, s, "open", "", "no descriptor of 960 to 1023 is free", at);
        return at;
    }
    rc = open_node(b, d, &fd);
    if (rc) {
        hw_log(b->o->log, HAWSER_LOG_ERROR, "verbs: %s: %s", b->container->id, hw_error());
        return rc;
    }
    vb_contexts_ended(b); /* an inode number may be one of theirs */
    rc = vb_context_new(b, fd, s, tid, &c);
    if (rc) {
        hw_log(b->o->log, HAWSER_LOG_ERROR, "verbs: %s: %s", b->container->id, hw_error());
    } else {
        /* From here on the end of the inode, be it now, ends the context. */
        rc = vb_notify_give(call->listener, n->id, fd, at, flags & O_CLOEXEC, true);
    }
    if (rc >= 0) {
        b->opens++;
        vb_cache_put(b, tid, at, fd, c); /* it will ask for something at once */
    } else {
        close(fd);
    }
    if (rc == -EBADF) { /* fs/file.c, receive_fd_replace(): the number is over its RLIMIT_NOFILE */
        vb_refused(b, tid, s, "open", "", "its RLIMIT_NOFILE is below 1024", -EMFILE);
        rc = -EMFILE;
    }
    return rc == -ENOENT || rc >= 0 ? 0 : rc;
}

void vb_open(struct vb_broker *b, const struct vb_call *call)
{
    const struct seccomp_notif *n = &call->n;
    bool at = n->data.nr == SYS_openat;
#ifdef SYS_open /* some architectures are too young for it */
    bool is_open = at || n->data.nr == SYS_open;
#else
    bool is_open = at;
#endif
    if (!is_open) { /* the filter has sent something else */
        vb_notify_answer(call->listener, n->id, 0, ENOSYS);
        return;
    }
    const __u64 *a = n->data.args + at;
    int flags = (int)a[1], rc;
    char name[4096]; /* PATH_MAX */
    dev_t rdev;
    const struct vb_device *d = NULL;
    if ((flags & O_ACCMODE) == O_RDWR && !(flags & (O_PATH | O_DIRECTORY)) &&
        (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL) &&
        vb_mem_string((pid_t)n->pid, a[0], name, sizeof name) == 0 && vb_notify_valid(call->listener, n->id) &&
        resolve((pid_t)n->pid, at ? (int)n->data.args[0] : AT_FDCWD, name, flags, &rdev) == 0)
        d = device_by_rdev(b, rdev);
    /* Its thread may have died and its number be another's since the name was read: then there is nobody to answer. */
    if (!d) {
        vb_notify_continue(call->listener, n->id);
        return;
    }
    rc = vb_notify_valid(call->listener, n->id) ? open_ours(b, call, d, flags) : 0;
    if (rc)
        vb_notify_answer(call->listener, n->id, 0, -rc);
}
