/* SPDX-License-Identifier: Apache-2.0 */
/* seccomp notifications, with the behaviour of kernel/seccomp.c. */
#include "fuzz/tenant/tenant.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <sys/syscall.h>

void t_call_make(struct t_thread *th, const struct seccomp_data *d)
{
    th->data = *d;
    if (!th->process->listener) {
        t_call_end(th, -ENOSYS);
        return;
    }
    th->call = T_QUEUED;
    th->id = ++t.notification;
    th->process->listener->ups++;
}

void t_call_end(struct t_thread *th, int64_t result)
{
    th->call = T_IDLE;
    th->again = false;
    th->result = result;
    if (th->stub)
        t_stub_answer(th, result);
    else if (result >= 0)
        t_totals.answered++;
    else
        t_totals.refused++;
}

void t_call_take_back(struct t_thread *th)
{
    if (th->call == T_IDLE || (th->call == T_SENT && th->process->listener && th->process->listener->killable))
        return;
    th->call = T_IDLE;
    th->again = true;
}

T_UNSEEN struct t_thread *t_call_waiting(const struct t_file *listener)
{
    struct t_thread *first = NULL;
    for (unsigned i = 0; i < T_THREADS; i++) {
        struct t_thread *th = &t.thread[i];
        if (th->used && !th->zombie && th->call == T_QUEUED && th->process->listener == listener &&
            (!first || th->id < first->id))
            first = th;
    }
    return first;
}

T_UNSEEN static struct t_thread *by_id(const struct t_file *listener, uint64_t id)
{
    for (unsigned i = 0; i < T_THREADS; i++) {
        struct t_thread *th = &t.thread[i];
        if (th->used && !th->zombie && th->call != T_IDLE && th->id == id && th->process->listener == listener)
            return th;
    }
    return NULL;
}

static int receive(struct t_file *f, struct seccomp_notif *n)
{
    T_HOLDS(f->ups > 0, "it waits for a notification, and there was none");
    f->ups--;
    struct t_thread *th = t_call_waiting(f);
    if (!th)
        return -ENOENT;
    th->call = T_SENT;
    *n = (struct seccomp_notif){.id = th->id, .pid = f->foreign ? 0 : (uint32_t)th->tid, .data = th->data};
    t.call_serial = th->serial;
    t.read_other = t.raced = false;
    t.call_file = th->stub ? NULL : t_table_get(th->table, (int32_t)th->data.args[0]);
    T_SAY("broker receives %llx of thread %d (%u%s): call %d, fd %lld, %s", (unsigned long long)th->id, (int)th->tid,
          th->serial, th->stub ? ", a stub" : "", th->data.nr, (long long)th->data.args[0],
          th->asked ? th->asked->name : "");
    return 0;
}

/* In an honest run, checks that a program received the number of its new object. */
static void check_result(struct t_thread *th)
{
    const struct vb_command *c = th->asked;
    uint64_t number = 0;
    uint32_t narrow = 0;
    if (!t.honest || th->data.nr != SYS_ioctl || !c || !c->made.place || c->makes == VB_CHANNEL ||
        c->makes == VB_CONTEXT || c->makes == VB_ASYNC)
        return;
    const uint8_t *base = th->process->mm->byte + (th->data.args[2] & 0xfffff);
    struct vb_header h;
    memcpy(&h, base, sizeof h);
    for (unsigned i = 0; i < h.num_attrs; i++) {
        struct ib_uverbs_attr a;
        memcpy(&a, base + sizeof h + i * sizeof a, sizeof a);
        if (c->made.place == VB_ATTR && a.attr_id == c->made.at)
            number = a.data;
        if (c->made.place == VB_CORE_OUT && a.attr_id == UVERBS_ATTR_CORE_OUT) {
            T_HOLDS(a.flags & UVERBS_ATTR_F_VALID_OUTPUT, "a result is not marked as one");
            memcpy(&narrow, th->process->mm->byte + (a.data & 0xfffff) + c->made.at, sizeof narrow);
            number = narrow;
        }
    }
    const struct t_file *device = t_table_get(th->table, (int64_t)th->data.args[0]);
    T_HOLDS(device && device->kind == T_DEVICE && number < T_OBJECTS && device->object[number].type == c->makes,
            "%s succeeded, and its number %llu is none", c->name, (unsigned long long)number);
    t_totals.made++;
}

/* Returns true if a signal interrupts the call just as the broker answers. */
static bool lose(struct t_thread *th)
{
    if (!t.lose || th->process->listener->killable)
        return false;
    t.lose = false;
    th->call = T_IDLE;
    th->again = true;
    return true;
}

static void go_on(struct t_thread *th)
{
    T_HOLDS(th->stub || th->data.nr != SYS_ioctl, "it lets a program's request through");
    th->call = T_IDLE;
    if (th->stub) {
        th->at = T_STUB_RUNS;
        T_HOLDS(!t.read_other, "the stub runs what was read of another process");
    } else if (th->data.nr == SYS_write) {
        /* a write to a device that another process opened, or to a file that is not a device, has no effect */
        t_call_end(th, -EACCES);
    } else {
        t_call_end(th, -ENOENT); /* a node that cannot be opened, or a different file */
    }
}

static int answer(const struct t_file *f, const struct seccomp_notif_resp *r)
{
    struct t_thread *th = by_id(f, r->id);
    if (!th)
        return -ENOENT;
    if (th->call != T_SENT)
        return -EINPROGRESS;
    if (r->flags & SECCOMP_USER_NOTIF_FLAG_CONTINUE && (r->error || r->val))
        return -EINVAL;
    T_SAY("broker answers %llx: %lld, %d%s", (unsigned long long)r->id, (long long)r->val, r->error,
          r->flags ? ", goes on" : "");
    if (lose(th))
        return 0;
    if (r->flags & SECCOMP_USER_NOTIF_FLAG_CONTINUE) {
        go_on(th);
        return 0;
    }
    if (!r->error && !th->stub)
        check_result(th);
    t_call_end(th, r->error ? r->error : r->val);
    return 0;
}

/* Checks that a program or a stub may receive this file. */
static void check_gift(const struct t_thread *th, const struct t_file *src)
{
    T_HOLDS(!src->stranger, "a program gets a descriptor of a stranger's");
    T_HOLDS(src->kind != T_DEVICE || src->device + 1 < T_DEVICES, "a program gets device %u", src->device);
    if (!th->stub)
        T_HOLDS(src->kind == T_DEVICE || src->kind == T_CHANNEL, "a program gets a descriptor of kind %d", src->kind);
    else
        T_HOLDS(src->kind != T_LISTENER && src->kind != T_EPOLL && src->kind != T_INOTIFY && src->kind != T_JOIN,
                "a stub gets a descriptor of kind %d", src->kind);
}

static int give(struct t_file *f, const struct seccomp_notif_addfd *a)
{
    struct t_thread *th = by_id(f, a->id);
    struct t_file *src = t_broker_file((int)a->srcfd);
    unsigned at = a->newfd;
    if (!src)
        return -EBADF;
    if (!th)
        return -ENOENT;
    if (th->call != T_SENT)
        return -EINPROGRESS;
    T_SAY("broker gives %llx a descriptor of kind %d at %d", (unsigned long long)a->id, (int)src->kind, (int)at);
    check_gift(th, src);
    if (!(a->flags & SECCOMP_ADDFD_FLAG_SETFD))
        for (at = 0; at < T_TABLE && th->table->fd[at].file; at++)
            ;
    if (at >= th->nofile || at >= T_TABLE)
        return a->flags & SECCOMP_ADDFD_FLAG_SETFD ? -EBADF : -EMFILE;
    src->refs++;
    src->given = true;
    t_table_set(th->table, at, src, a->newfd_flags & O_CLOEXEC);
    if (a->flags & SECCOMP_ADDFD_FLAG_SEND) {
        if (src->kind == T_DEVICE)
            t_totals.opens++;
        t_call_end(th, at);
        t_rdma_check();
    }
    return (int)at;
}

int t_listener_ioctl(struct t_file *f, unsigned long request, void *arg)
{
    uint64_t id;
    switch (request) {
    case SECCOMP_IOCTL_NOTIF_RECV:
        return receive(f, arg);
    case SECCOMP_IOCTL_NOTIF_SEND:
        return answer(f, arg);
    case SECCOMP_IOCTL_NOTIF_ADDFD:
        return give(f, arg);
    case SECCOMP_IOCTL_NOTIF_ID_VALID:
        memcpy(&id, arg, sizeof id);
        struct t_thread *th = by_id(f, id);
        return th && th->call == T_SENT ? 0 : -ENOENT;
    default:
        return -EINVAL; /* synchronous wake-ups are not supported */
    }
}
