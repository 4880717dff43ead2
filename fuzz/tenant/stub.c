/* SPDX-License-Identifier: Apache-2.0 */
/* The stub as a simulated thread (verbs/stub/stub.c contains the real code), its injection into a program, and the
 * replies of the tracer's process. Replaces verbs/stub/inject.c, tracer.c, lookup.c and guard.c. */
#include "fuzz/tenant/tenant.h"
#include "verbs/stub/guard.h"
#include "verbs/stub/inject_int.h"
#include "verbs/stub/lookup.h"
#include "verbs/stub/notify.h"

#include <errno.h>
#include <linux/audit.h>
#include <rdma/rdma_user_ioctl_cmds.h>

/* ---- the stub's loop ---------------------------------------------------------------------------------- */

#define SPIN_MAX 400 /* after a filter has answered this many calls in a row, the stub counts as spinning */

static void set_registers(struct t_thread *th, int64_t rax)
{
    th->r9 = (uint64_t)rax;
    th->at = T_STUB_CALLS;
    if (rax == VB_STUB_QUIT) {
        t_thread_end(th);
    } else if (rax >> 8 == VB_STUB_COPY >> 8) {
        th->at = T_STUB_COPIES;
        th->copy = 0;
        th->copies = (unsigned)rax & 0xff;
        th->r9 = 0;
        th->nosys = 0;
    } else {
        th->nosys = rax == -ENOSYS ? th->nosys + 1 : 0;
        if (th->nosys == 2)
            t_thread_end(th);
    }
}

void t_stub_answer(struct t_thread *th, int64_t rax)
{
    set_registers(th, rax);
}

void t_stub_call(struct t_thread *th)
{
    struct t_process *p = th->process;
    uint32_t serial = th->serial;
    for (unsigned i = 0; i < SPIN_MAX; i++) {
        th->seq++;
        if (th->seq >= p->filter.from && th->seq < p->filter.to) {
            set_registers(th, -(int64_t)p->filter.err);
            if (!t_thread_serial(serial))
                return;
            continue;
        }
        uint64_t window = t_address(p->mm, T_WINDOW_AT);
        th->at = T_STUB_WAITS;
        t_call_make(th, &(struct seccomp_data){
                            .nr = SYS_ioctl,
                            .arch = AUDIT_ARCH_X86_64,
                            .instruction_pointer = window + VB_STUB_AFTER,
                            .args = {VB_STUB_FD, RDMA_VERBS_IOCTL, window + VB_WINDOW_HEADER, 0, th->seq, th->r9}});
        return;
    }
    th->spins = true;
}

/* Simulates pread(VB_STUB_FILE). Returns 1 on completion, 0 while a page is not yet available, or -1 on failure. */
static int copy_once(struct t_thread *th)
{
    struct vb_copy c;
    struct t_mm *mm = th->process->mm;
    uint32_t tag, at;
    memcpy(&c, mm->window->mine + VB_COPIES_AT + th->copy * sizeof c, sizeof c);
    const struct t_file *file = t_table_get(th->table, VB_STUB_FILE);
    if (th->process->filter.copies || !file || file->kind != T_WINDOW)
        return -1;
    T_HOLDS(c.from >= VB_REPLY_AT && c.from + c.n <= VB_REPLY_AT + VB_REPLY_SIZE, "a copy of what is no result");
    uint8_t *to = t_bytes(mm, c.to, c.n, &tag);
    T_HOLDS(!t_is_tag(tag) || tag == mm->tag, "results of one process are copied into another");
    at = (uint32_t)(c.to & 0xfffff);
    if (!to || (at + c.n > T_READ_ONLY * T_PAGE && at < (T_READ_ONLY + 1) * T_PAGE))
        return -1;
    if (at + c.n > T_DELAYED * T_PAGE && t_byte() & 1 && !t.over)
        return 0;
    memcpy(to, mm->window->mine + VB_WINDOW_SIZE + (c.from - VB_REPLY_AT), c.n);
    t_totals.copies++;
    return 1;
}

static void copy_all(struct t_thread *th)
{
    int rc = 1;
    while (th->copy < th->copies && (rc = copy_once(th)) == 1)
        th->copy++;
    if (rc == 0)
        return;
    th->r9 = rc < 0;
    th->at = T_STUB_CALLS;
}

/* Runs the request in the window, as the kernel would. */
static void run(struct t_thread *th)
{
    struct t_file *device = t_table_get(th->table, VB_STUB_FD);
    int64_t rc = -EBADF;
    if (device)
        rc = t_rdma_run(device, th->process->mm->window->mine + VB_WINDOW_HEADER, th);
    if (t.forge_at) {
        memcpy(th->process->mm->window->mine + VB_WINDOW_SPLIT + t.forge_at - 1, &t.forge, sizeof t.forge);
        t.forge_at = 0;
    }
    th->at = T_STUB_CALLS;
    set_registers(th, rc);
}

static void go_on(struct t_thread *th)
{
    uint32_t serial = th->serial;
    if (th->at == T_STUB_RUNS)
        run(th);
    if (!t_thread_serial(serial))
        return;
    if (th->at == T_STUB_COPIES)
        copy_all(th);
    if (th->at == T_STUB_CALLS)
        t_stub_call(th);
}

T_UNSEEN void t_stubs_run(void)
{
    for (unsigned i = 0; i < T_THREADS; i++) {
        struct t_thread *th = &t.thread[i];
        /* a stop or a signal interrupted the call */
        if (th->used && !th->zombie && th->again && !th->process->stopped) {
            th->again = false;
            t_call_make(th, &th->data);
        }
        if (th->used && !th->zombie && th->stub && th->at != T_STUB_WAITS && !th->spins && !th->process->stopped)
            go_on(th);
    }
}

/* ---- injection ----------------------------------------------------------------------------------------- */

int vb_inject_possible(void)
{
    return 0;
}

bool vb_inject_waits(const struct vb_tracer *tracer)
{
    (void)tracer;
    return false;
}

void vb_inject_idle(struct vb_tracer *tracer)
{
    (void)tracer;
}

static struct t_window *new_window(uint8_t **mine)
{
    struct t_window *w = calloc(1, sizeof *w);
    uint8_t *room = calloc(1, 2 * sizeof w + VB_MINE_SIZE);
    if (!w || !room)
        abort();
    w->refs = 2;
    w->mine = room + 2 * sizeof w;
    w->room = room;
    memcpy(w->mine - sizeof w, &w, sizeof w); /* for munmap() */
    *mine = w->mine;
    return w;
}

static int pidfd(const struct t_thread *th, bool process, enum t_kind kind)
{
    struct t_file *f = t_file_new(kind);
    f->process = process;
    f->serial = process ? th->process->serial : th->serial;
    return t_broker_fd(f);
}

static int put_in(struct vb_stub *s, struct t_thread *caller)
{
    struct t_process *p = caller->process;
    if (p->stranger)
        return hw_fail(-ESRCH, "it has died");
    if (p->mm->window && p->mm->window->refs > 1)
        return hw_fail(-EEXIST, "something is where the window would be");
    struct t_thread *th = t_thread_new(p, NULL);
    if (!th)
        return hw_fail(-EAGAIN, "clone: no process ID is free");
    t_window_put(p->mm->window);
    p->mm->window = new_window(&s->mine);
    th->stub = true;
    th->at = T_STUB_CALLS;
    s->tid = th->tid;
    s->tgid = p->tgid;
    s->window = t_address(p->mm, T_WINDOW_AT);
    s->thread_folder = t.no_thread_pidfds;
    s->pidfd = pidfd(th, true, T_PIDFD);
    s->thread = pidfd(th, false, t.no_thread_pidfds ? T_FOLDER : T_PIDFD);
    s->file = t_broker_fd(t_file_new(T_WINDOW));
    t_totals.stubs++;
    return 0;
}

int vb_inject(struct vb_tracer *tracer, struct vb_stub *s, int listener, const struct seccomp_notif *n)
{
    (void)tracer;
    *s = (struct vb_stub){.pidfd = -1, .thread = -1, .file = -1};
    t_tick();
    int rc = t.fail_inject ? hw_fail(-t.fail_inject, "a call for the stub has failed") : 0;
    t.fail_inject = 0;
    struct t_thread *caller = t_thread_by((pid_t)n->pid);
    if (rc == 0 && (!vb_notify_valid(listener, n->id) || !(caller = t_thread_by((pid_t)n->pid)) || caller->id != n->id))
        rc = hw_fail(-ESRCH, "it has died");
    uint32_t serial = caller ? caller->serial : 0;
    if (rc == 0)
        rc = put_in(s, caller);
    t_tick();
    if (rc) {
        vb_notify_answer(listener, n->id, 0, rc);
        return rc;
    }
    caller = t_thread_serial(serial);
    if (caller && caller->call == T_SENT && caller->id == n->id) /* the call is restarted */
        t_call_make(caller, &caller->data);
    return 0;
}

/* ---- the tracer's process ------------------------------------------------------------------------------ */

int vb_lookups_open(struct vb_lookups *l, const struct vb_kernel *kernel, const char *node_dir, uid_t uid, int inotify,
                    dev_t *dev)
{
    (void)node_dir;
    (void)uid;
    *l = (struct vb_lookups){.kernel = kernel, .inotify = inotify};
    *dev = T_NODES_DEV;
    return 0;
}

void vb_lookups_close(struct vb_lookups *l)
{
    (void)l;
}

int vb_tracer_start(struct vb_tracer *tracer, const struct vb_lookups *l, uid_t uid)
{
    (void)l;
    (void)uid;
    tracer->sock = -1;
    return 0;
}

void vb_tracer_end(struct vb_tracer *tracer)
{
    (void)tracer;
}

static int open_node(const struct vb_lookup *q, struct vb_found *f, int *fd)
{
    char name[64];
    if (vb_mem_string(q->tid, q->name, name, sizeof name))
        return -ENOENT;
    const struct t_thread *th = t_thread_by(q->tid);
    if (!th || strncmp(name, "/dev/uverbs", 11) != 0 || name[11] < '0' || name[11] >= '0' + T_DEVICES)
        return -ENOENT;
    unsigned device = (unsigned)(name[11] - '0');
    snprintf(f->device.node, sizeof f->device.node, "uverbs%u", device);
    snprintf(f->device.ibdev, sizeof f->device.ibdev, "fuzz%u", device);
    f->at = VB_FD_FIRST;
    while (f->at <= VB_FD_LAST && th->table->fd[f->at].file)
        f->at++;
    f->at = f->at > VB_FD_LAST ? -EMFILE : f->at;
    struct t_file *node = t_file_new(T_DEVICE);
    node->device = device;
    node->next = t.nodes;
    t.nodes = node;
    while (t.inode[node->ino])
        node->ino++;
    t.inode[node->ino] = true;
    node->watch = f->watch = ++t.watch;
    *fd = t_broker_fd(node);
    return *fd < 0 ? -EMFILE : 0;
}

static bool is_alone(const struct vb_lookup *q)
{
    const struct t_thread *th = t_thread_by(q->tid);
    return th && th->process->tgid == q->tgid && th->process->threads == 1;
}

static int find_thread(const struct vb_lookup *q, struct vb_found *f, int *fd)
{
    const struct t_thread *th = t_thread_by(q->tid);
    if (!th)
        return hw_fail(-ESRCH, "thread %d has gone", (int)q->tid);
    f->tgid = th->process->tgid;
    *fd = pidfd(th, true, T_PIDFD);
    return *fd < 0 ? -EMFILE : 0;
}

int vb_tracer_ask(struct vb_tracer *tracer, const struct vb_lookup *q, int given, struct vb_found *f, int *fd)
{
    (void)tracer;
    (void)given;
    memset(f, 0, sizeof *f);
    *fd = -1;
    t_tick();
    if (t.tracer_dead)
        return f->rc = hw_fail(-EIO, "the tracer has ended");
    if (t.tracer_slow) {
        t.tracer_slow = false;
        t.now += (uint64_t)VB_INJECT_MS * HW_MS;
        return f->rc = hw_fail(-ETIMEDOUT, "the tracer has not answered");
    }
    switch (q->kind) {
    case VB_LOOKUP_OPEN:
        f->rc = open_node(q, f, fd);
        break;
    case VB_LOOKUP_PROCESS:
        f->rc = find_thread(q, f, fd);
        break;
    case VB_LOOKUP_ALONE:
        f->value = is_alone(q);
        break;
    case VB_LOOKUP_NAME:
        snprintf(f->text, sizeof f->text, "tenant");
        break;
    default:
        f->rc = hw_fail(-EOPNOTSUPP, "a question of kind %d", (int)q->kind);
        break;
    }
    t_tick();
    return f->rc;
}

/* ---- the guards of vb_serve(), which do nothing here --------------------------------------------------- */

int vb_guard_as(uid_t uid, int (*fn)(void *), void *arg)
{
    (void)uid;
    return fn(arg);
}

int vb_guard_serving(uid_t uid)
{
    (void)uid;
    return 0;
}

int vb_guard_calls(void)
{
    return 0;
}
