/* SPDX-License-Identifier: Apache-2.0 */
/* Identifies an open device file by the inode of its device node. Each open uses a separate node, so no two open files
 * have the same inode. The inode stays the same after dup(), fork() and SCM_RIGHTS. The node is unlinked at once. When
 * the last descriptor is closed, the kernel therefore deletes the inode, and inotify reports this. */
#include "verbs/broker/broker_int.h"
#include "verbs/stub/lookup.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PIDFD_THREAD
#define PIDFD_THREAD O_EXCL /* from include/uapi/linux/pidfd.h of Linux 6.9 */
#endif

int vb_context_new(struct vb_broker *b, int fd, int watch, struct vb_slot *slot, pid_t opener, struct vb_context **out)
{
    struct stat st;
    if (fstat(fd, &st))
        return hw_fail(-errno, "cannot read the status of a device node: %s", strerror(errno));
    struct vb_context *c = calloc(1, sizeof *c);
    if (!c)
        return hw_no_memory("a context");
    c->watch = watch;
    c->objects = vb_objects_new(&slot->usage);
    if (!c->objects) {
        free(c);
        return hw_no_memory("a context's objects");
    }
    c->ino = st.st_ino;
    c->slot = slot;
    c->opener = opener;
    c->asked = b->now;
    hw_list_append(&b->contexts, &c->link);
    b->n_contexts++;
    *out = c;
    return 0;
}

static void context_free(struct vb_broker *b, struct vb_context *c)
{
    vb_kept_forget(b, c);
    hw_list_remove(&c->link);
    b->n_contexts--;
    vb_objects_free(c->objects);
    free(c);
}

void vb_contexts_ended(struct vb_broker *b)
{
    for (;;) {
        char buf[4096] __attribute__((aligned(8)));
        ssize_t n = read(b->inotify, buf, sizeof buf);
        if (n <= 0)
            return;
        struct inotify_event e;
        for (char *p = buf; p < buf + n; p += sizeof e + e.len) {
            memcpy(&e, p, sizeof e);
            if (e.mask & IN_Q_OVERFLOW)
                hw_log(b->o->log, HAWSER_LOG_ERROR,
                       "verbs: %s: inotify lost events, so devices that were closed may stay counted; raise "
                       "fs.inotify.max_queued_events",
                       b->container->id);
            if (!(e.mask & IN_IGNORED))
                continue;
            hw_list_each(i, next, &b->contexts)
            {
                struct vb_context *c = hw_container_of(i, struct vb_context, link);
                if (c->watch == e.wd)
                    context_free(b, c);
            }
        }
    }
}

void vb_contexts_free(struct vb_broker *b)
{
    vb_cache_sweep(b, true, -1);
    hw_list_each(i, next, &b->contexts) context_free(b, hw_container_of(i, struct vb_context, link));
}

struct vb_context *vb_context_of(struct vb_broker *b, int fd)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISCHR(st.st_mode) || st.st_dev != b->nodes_dev)
        return NULL;
    hw_list_each(i, next, &b->contexts)
    {
        struct vb_context *c = hw_container_of(i, struct vb_context, link);
        if (c->ino == st.st_ino)
            return c;
    }
    return NULL;
}

/* Returns a pidfd of a thread, because the threads of a process may have different descriptor tables. Returns -1 and
 * sets errno on failure.
 *
 * Before Linux 6.9 a pidfd refers to a process, and descriptors are fetched from the table of the first thread. Usually
 * all threads share this table. If a thread has a separate table because of unshare(), kcmp() detects that the fetched
 * descriptor refers to a different file, and the thread gets EBADF. */
static int pidfd_of(struct vb_broker *b, pid_t tid)
{
    int fd = -1;
    if (!b->no_thread_pidfds && (fd = (int)syscall(SYS_pidfd_open, tid, PIDFD_THREAD)) < 0 && errno == EINVAL)
        b->no_thread_pidfds = true;
    if (b->no_thread_pidfds) {
        fd = (int)syscall(SYS_pidfd_open, tid, 0);
        const struct vb_lookup q = {.kind = VB_LOOKUP_PROCESS, .tid = tid};
        struct vb_found f;
        if (fd < 0 && errno == EINVAL)
            (void)vb_tracer_ask(&b->tracer, &q, -1, &f, &fd);
    }
    return fd;
}

static int fetch_thread_fd(struct vb_broker *b, pid_t tid, int theirs)
{
    if (theirs < 0)
        return -EBADF;
    int pidfd = pidfd_of(b, tid);
    if (pidfd < 0)
        return -errno;
    int fd = (int)syscall(SYS_pidfd_getfd, pidfd, theirs, 0);
    int rc = fd < 0 ? -errno : fd;
    close(pidfd);
    if (rc >= 0 && syscall(SYS_kcmp, tid, b->me, KCMP_FILE, (unsigned long)theirs, (unsigned long)fd) != 0) {
        close(fd);
        return -EBADF;
    }
    return rc;
}

int vb_fetch_any(struct vb_broker *b, pid_t tid, int theirs)
{
    return fetch_thread_fd(b, tid, theirs);
}

static void cached_drop(struct vb_broker *b, struct vb_cached *e)
{
    if (e->mine < 0)
        return;
    close(e->mine);
    e->mine = -1;
    b->n_cached--;
}

static struct vb_cached *get_cache_entry(struct vb_broker *b, pid_t tid, int theirs)
{
    return &b->cache[((unsigned)tid * 31 + (unsigned)theirs) % VB_CACHE];
}

void vb_cache_put(struct vb_broker *b, pid_t tid, int theirs, int mine, struct vb_context *c)
{
    struct vb_cached *e = get_cache_entry(b, tid, theirs);
    cached_drop(b, e);
    *e = (struct vb_cached){.tid = tid, .theirs = theirs, .mine = mine, .context = c, .used = b->now};
    b->n_cached++;
}

int vb_fetch(struct vb_broker *b, pid_t tid, int theirs, int *fd, struct vb_context **c)
{
    struct vb_cached *e = get_cache_entry(b, tid, theirs);
    if (theirs < 0)
        return -EBADF;
    if (e->mine < 0 || e->tid != tid || e->theirs != theirs ||
        syscall(SYS_kcmp, tid, b->me, KCMP_FILE, (unsigned long)theirs, (unsigned long)e->mine) != 0) {
        cached_drop(b, e);
        int mine = fetch_thread_fd(b, tid, theirs);
        if (mine < 0)
            return mine;
        struct vb_context *of = vb_context_of(b, mine);
        if (!of) {
            close(mine);
            return -ENOTTY;
        }
        vb_cache_put(b, tid, theirs, mine, of);
    }
    e->used = b->now;
    *fd = e->mine;
    *c = e->context;
    return 0;
}

void vb_cache_sweep(struct vb_broker *b, bool all, int but)
{
    vb_workers_clear(b, all);
    for (unsigned i = 0; i < VB_CACHE && b->n_cached; i++) {
        if (b->cache[i].mine != but && (all || b->now - b->cache[i].used >= VB_CACHE_NS))
            cached_drop(b, &b->cache[i]);
    }
}
