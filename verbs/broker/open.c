/* SPDX-License-Identifier: Apache-2.0 */
/* Handles an application's open(): checks whether the path is an RDMA device and whether the policy allows the open.
 * The tracer process resolves the path and opens the device (lookup.c). */
#include "verbs/broker/broker_int.h"
#include "verbs/stub/lookup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ask_tracer_pkey(void *arg, unsigned port, unsigned index, uint16_t *value)
{
    const struct vb_slot *s = arg;
    struct vb_lookup q = {.kind = VB_LOOKUP_PKEY, .port = port, .index = index};
    struct vb_found f;
    int none;
    memcpy(q.ibdev, s->device.ibdev, sizeof q.ibdev);
    int rc = vb_tracer_ask(s->tracer, &q, -1, &f, &none);
    *value = (uint16_t)f.value;
    return rc;
}

static int get_device_slot(struct vb_broker *b, const struct vb_device *d, struct vb_slot **out)
{
    for (unsigned i = 0; i < b->n_slots; i++) {
        if (strcmp(b->slot[i]->device.ibdev, d->ibdev) == 0) {
            b->slot[i]->device = *d;
            *out = b->slot[i];
            return 0;
        }
    }
    if (b->n_slots == VB_DEVICES_MAX)
        return hw_fail(-ENOSPC, "the container uses more than %d devices", VB_DEVICES_MAX);
    struct vb_slot *s = calloc(1, sizeof *s);
    if (!s)
        return hw_no_memory("a device");
    s->device = *d;
    const struct vb_container *c = b->container;
    int rc = vb_policy_rules(b->o->policy, c->section[0] ? c->section : NULL, c->annotations, c->n_annotations,
                             d->ibdev, &s->rules);
    if (rc) {
        free(s);
        return rc;
    }
    s->tracer = &b->tracer;
    s->rules.pkey = ask_tracer_pkey;
    s->rules.pkey_arg = s;
    b->slot[b->n_slots++] = s;
    *out = s;
    return 0;
}

static void may_open(struct vb_broker *b, const struct vb_slot *s, struct vb_verdict *v)
{
    vb_judge_open(&s->rules, &s->usage, v);
    if (!v->rc && b->n_contexts >= VB_OPENS_MAX) {
        v->rc = -EMFILE;
        snprintf(v->rule, sizeof v->rule, "limit of %d opens", VB_OPENS_MAX);
        snprintf(v->text, sizeof v->text, "the container has reached this limit");
    }
}

/* Gives fd, a descriptor of the opened device, to the application if the policy allows it. On success, the cache owns
 * fd. */
static int open_ours(struct vb_broker *b, const struct vb_call *call, const struct vb_found *f, int fd, int flags)
{
    struct vb_slot *s = NULL;
    struct vb_context *c;
    pid_t tid = (pid_t)call->n.pid;
    struct vb_verdict v;
    int rc = get_device_slot(b, &f->device, &s);
    if (rc) {
        vb_refused(b, tid, NULL, "open", "", hw_error(), -EACCES);
        return -EACCES;
    }
    may_open(b, s, &v);
    if (v.rc) { /* a file that the application has closed may still be counted, because a cached descriptor keeps it
                   open */
        vb_cache_sweep(b, true, -1);
        vb_contexts_ended(b);
        may_open(b, s, &v);
    }
    if (v.rc) {
        vb_refused(b, tid, s, "open", v.rule, v.text, v.rc);
        return v.rc;
    }
    if (f->at < 0) {
        vb_refused(b, tid, s, "open", "",
                   f->at == -EMFILE ? "no descriptor from 960 to 1023 is free"
                                    : "cannot find out which descriptors of the program are free",
                   f->at);
        return f->at;
    }
    vb_contexts_ended(b); /* an ended context may have the new file's inode number */
    rc = vb_context_new(b, fd, f->watch, s, tid, &c);
    if (rc) {
        hw_log(b->o->log, HAWSER_LOG_ERROR, "verbs: %s: %s", b->container->id, hw_error());
        return rc;
    }
    /* From here on, the context is freed when inotify reports that the inode no longer exists. */
    rc = vb_notify_give(call->listener, call->n.id, fd, f->at, flags & O_CLOEXEC, true);
    if (rc >= 0) {
        b->opens++;
        vb_cache_put(b, tid, f->at, fd, c); /* the application will use the device soon */
        return 0;
    }
    if (rc == -EBADF) { /* the number exceeds the program's RLIMIT_NOFILE (receive_fd_replace() in fs/file.c) */
        vb_refused(b, tid, s, "open", "", "the program's RLIMIT_NOFILE is below 1024", -EMFILE);
        rc = -EMFILE;
    }
    return rc;
}

void vb_open(struct vb_broker *b, const struct vb_call *call)
{
    const struct seccomp_notif *n = &call->n;
    bool at = n->data.nr == SYS_openat;
#ifdef SYS_open /* newer architectures do not have this system call */
    bool is_open = at || n->data.nr == SYS_open;
#else
    bool is_open = at;
#endif
    if (!is_open) { /* the filter sent a call that the broker does not handle */
        vb_notify_answer(call->listener, n->id, 0, ENOSYS);
        return;
    }
    const __u64 *a = n->data.args + at;
    int flags = (int)a[1], rc = -ENOENT, fd = -1;
    const struct vb_lookup q = {.kind = VB_LOOKUP_OPEN,
                                .tid = (pid_t)n->pid,
                                .dirfd = at ? (int)n->data.args[0] : AT_FDCWD,
                                .flags = flags,
                                .name = a[0]};
    struct vb_found f;
    if ((flags & O_ACCMODE) == O_RDWR && !(flags & (O_PATH | O_DIRECTORY)) &&
        (flags & (O_CREAT | O_EXCL)) != (O_CREAT | O_EXCL))
        rc = vb_tracer_ask(&b->tracer, &q, -1, &f, &fd);
    if (rc == -ENOENT) {
        vb_notify_continue(call->listener, n->id);
        return;
    }
    /* The thread may have died and its number may have been reused. There is then no call to answer. */
    if (!vb_notify_valid(call->listener, n->id)) {
        hw_close(&fd);
        return;
    }
    if (rc && f.rc)
        vb_refused(b, q.tid, NULL, "open", "", hw_error(), rc);
    else if (rc)
        vb_refused_unnamed(b, q.tid, "open", hw_error(), rc);
    else
        rc = open_ours(b, call, &f, fd, flags);
    if (rc) {
        hw_close(&fd);
        if (rc != -ENOENT)
            vb_notify_answer(call->listener, n->id, 0, -rc);
    }
}
