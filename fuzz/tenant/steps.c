/* SPDX-License-Identifier: Apache-2.0 */
/* The tenant's steps, which the input's bytes select. */
#include "fuzz/tenant/steps.h"
#include "verbs/stub/inject_int.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/syscall.h>

/* ---- choosing processes, threads and objects ---------------------------------------------------------- */

T_UNSEEN static bool is_tenant(const struct t_thread *th)
{
    return th->used && !th->zombie && !th->stub && !th->process->stranger;
}

/* Continues a stopped program if the next byte of the input requests it. */
static void go_on(struct t_process *p)
{
    p->stopped = p->stopped && t_byte() & 3;
}

T_UNSEEN static struct t_thread *choose_thread(bool idle)
{
    unsigned n = 0, which = t_byte();
    for (unsigned i = 0; i < T_THREADS; i++)
        n += is_tenant(&t.thread[i]);
    for (unsigned i = 0, k = 0; n && i < T_THREADS; i++) {
        struct t_thread *th = &t.thread[i];
        if (!is_tenant(th) || k++ != which % n)
            continue;
        go_on(th->process);
        return idle && (th->call != T_IDLE || th->again || th->process->stopped) ? NULL : th;
    }
    return NULL;
}

T_UNSEEN static int nth(const struct t_thread *th, enum t_kind kind, unsigned which)
{
    unsigned n = 0;
    for (unsigned i = 0; i < T_TABLE; i++)
        n += th->table->fd[i].file && th->table->fd[i].file->kind == kind;
    for (unsigned i = 0, k = 0; n && i < T_TABLE; i++) {
        if (th->table->fd[i].file && th->table->fd[i].file->kind == kind && k++ == which % n)
            return (int)i;
    }
    return -1;
}

int step_device(const struct t_thread *th, uint8_t b)
{
    int fd = (b & 7) < 7 ? nth(th, T_DEVICE, b & 7) : (int)((b >> 3) & 7) - 1;
    return fd >= 0 ? fd : (b & 7) < 7 ? VB_FD_FIRST : fd;
}

int step_fd(const struct t_thread *th, uint8_t b)
{
    static const enum t_kind kinds[] = {T_CHANNEL, T_CHANNEL, T_DMABUF, T_PLAIN, T_DEVICE};
    unsigned k = (b >> 1) & 7;
    int fd = k < HW_ARRAY_LEN(kinds) ? nth(th, kinds[k], b >> 4) : b >> 4;
    return fd >= 0 ? fd : 3;
}

static unsigned free_number(const struct t_table *table)
{
    unsigned at = 3;
    while (at < 90 && table->fd[at].file)
        at++;
    return at;
}

/* ---- programs ------------------------------------------------------------------------------------------ */

static void do_open(struct t_thread *th)
{
    uint8_t b = t_byte();
    char name[] = "/dev/uverbs0";
    name[11] = "00011123"[b & 7];
    memcpy(th->process->mm->byte + 0xe00, name, sizeof name);
    t_call_make(th, &(struct seccomp_data){.nr = SYS_openat,
                                           .arch = AUDIT_ARCH_X86_64,
                                           .args = {(uint64_t)AT_FDCWD, t_address(th->process->mm, 0xe00),
                                                    O_RDWR | (b & 8 ? O_CLOEXEC : 0)}});
}

static void do_request(struct t_thread *th)
{
    if (nth(th, T_DEVICE, 0) < 0 && t_byte() & 15)
        do_open(th);
    else
        step_request(th);
}

/* Repeats the thread's previous ioctl() with the current contents of the thread's memory. */
static void do_repeat(struct t_thread *th)
{
    uint64_t at = t_address(th->process->mm, th->data.args[2] & 0xffff);
    if (th->data.nr == SYS_ioctl)
        t_call_make(th, &(struct seccomp_data){.nr = SYS_ioctl,
                                               .arch = AUDIT_ARCH_X86_64,
                                               .args = {th->data.args[0], th->data.args[1], at}});
}

/* Makes a call that imitates a call of the stub. */
static void do_pose(struct t_thread *th)
{
    uint64_t window = t_address(th->process->mm, T_WINDOW_AT), seq = t_byte(), result = t_byte();
    th->asked = NULL;
    t_call_make(
        th, &(struct seccomp_data){.nr = SYS_ioctl,
                                   .arch = AUDIT_ARCH_X86_64,
                                   .instruction_pointer = window + VB_STUB_AFTER,
                                   .args = {VB_STUB_FD, RDMA_VERBS_IOCTL, window + VB_WINDOW_HEADER, 0, seq, result}});
}

static void do_close(struct t_thread *th)
{
    uint8_t b = t_byte();
    int fd = b & 1 ? step_fd(th, b) : step_device(th, b >> 1);
    if (fd >= 0)
        t_table_set(th->table, (unsigned)fd, NULL, false);
}

static void do_dup(struct t_thread *th)
{
    uint8_t b = t_byte(), to = t_byte();
    int fd = b & 1 ? step_fd(th, b) : step_device(th, b >> 1);
    struct t_file *f = t_table_get(th->table, fd);
    if (!f)
        return;
    f->refs++;
    t_table_set(th->table, to & 0x80 ? VB_FD_FIRST + (to & 3u) : to & 0x40 ? VB_STUB_FD : 3 + (to & 15u), f, to & 16);
}

/* Opens a file of the program: a dma-buf, or another file. */
static void do_file(struct t_thread *th)
{
    t_table_set(th->table, free_number(th->table), t_file_new(t_byte() & 1 ? T_DMABUF : T_PLAIN), false);
}

/* Passes a file descriptor to another process, as over a socket. */
static void do_pass(struct t_thread *th)
{
    const struct t_thread *to = choose_thread(false);
    struct t_file *f = t_table_get(th->table, step_device(th, t_byte()));
    if (!f || !to)
        return;
    f->refs++;
    t_table_set(to->table, free_number(to->table), f, false);
}

static void do_thread(struct t_thread *th)
{
    uint8_t b = t_byte();
    struct t_thread *more = t_thread_new(th->process, b & 3 ? th->table : NULL);
    if (more && !(b & 3)) {
        t_table_put(more->table);
        more->table = t_table_copy(th->table, false);
    }
}

static void do_fork(struct t_thread *th)
{
    struct t_process *p = th->process;
    bool shared = t_byte() % 4 == 0; /* clone(CLONE_VM) */
    struct t_process *child = t_process_new(shared ? p->mm : NULL, p->listener, false);
    child->filter = p->filter;
    struct t_thread *more = t_thread_new(child, NULL);
    if (!more) {
        t_process_drop(child);
        return;
    }
    t_table_put(more->table);
    more->table = t_table_copy(th->table, false);
    more->nofile = th->nofile;
}

static void do_exec(struct t_thread *th)
{
    struct t_process *p = th->process;
    for (unsigned i = 0; i < T_THREADS; i++) {
        struct t_thread *other = &t.thread[i];
        if (other != th && other->used && !other->zombie && other->process == p)
            t_thread_end(other);
    }
    if (th->tid != p->tgid) { /* the thread takes over the main thread's ID */
        struct t_thread *first = &t.thread[p->tgid - 2];
        pid_t tid = first->tid;
        uint32_t serial = first->serial;
        *first = *th;
        first->tid = tid;
        first->serial = serial;
        first->zombie = false;
        th->used = false;
        th = first;
    }
    t_mm_put(p->mm);
    p->mm = t_mm_new();
    struct t_table *table = t_table_copy(th->table, true);
    t_table_put(th->table);
    th->table = table;
}

/* Returns true for the last program, which remains until the input ends. */
static bool is_last(const struct t_process *p)
{
    unsigned n = 0;
    for (const struct t_process *other = t.processes; other; other = other->next)
        n += !other->stranger && other != p;
    return n == 0;
}

static void do_exit(struct t_thread *th)
{
    if (th->process->threads > 1 || !is_last(th->process))
        t_thread_end(th);
}

static void do_kill(struct t_thread *th)
{
    if (!is_last(th->process))
        t_process_end(th->process);
}

static void do_signal(struct t_thread *th)
{
    t_call_take_back(th);
    if (th->again && t_byte() & 1) { /* the call returns EINTR */
        th->again = false;
        th->result = -EINTR;
    }
}

static void do_stop(struct t_thread *th)
{
    struct t_process *p = th->process;
    p->stopped = true;
    for (unsigned i = 0; i < T_THREADS; i++) {
        if (t.thread[i].used && !t.thread[i].zombie && t.thread[i].process == p)
            t_call_take_back(&t.thread[i]);
    }
}

static void do_filter(struct t_thread *th)
{
    uint8_t b = t_byte(), err = t_byte();
    struct t_process *p = th->process;
    if (p->filter.to) /* a filter remains */
        return;
    p->filter.from = b & 7;
    p->filter.to = b >> 3 == 31 ? UINT32_MAX : p->filter.from + (b >> 3);
    p->filter.err = err < 0x40 ? 0 : err == 0xff ? ENOSYS : err % 140;
    p->filter.copies = (err & 15) == 1;
}

static void do_poke(struct t_thread *th)
{
    uint32_t at = t_byte() * 4u + (t_byte() & 3u);
    th->process->mm->byte[at] ^= t_byte();
}

/* Overwrites results of the stub's requests in memory that the program can write. */
static void do_forge(struct t_thread *th)
{
    uint8_t at = t_byte(), b = t_byte();
    /* 16 is the position of most numbers */
    uint32_t number = b & 0x40 ? b : b % 4u, place = at & 1 ? 16 : at % 24u * 4;
    if (at & 0x80) { /* replaces the next result, as a waiting thread would */
        t.forge_at = 1 + place;
        t.forge = number;
    } else if (th->process->mm->window) {
        memcpy(th->process->mm->window->mine + VB_WINDOW_SPLIT + place, &number, sizeof number);
    }
}

static void do_nofile(struct t_thread *th)
{
    th->nofile = t_byte() % 8 ? T_TABLE : 64;
}

/* ---- other processes, and the kernel ------------------------------------------------------------------- */

/* Starts a process of another container. */
static void begin_stranger(void)
{
    struct t_process *p = t_process_new(NULL, NULL, true);
    struct t_thread *th = t_thread_new(p, NULL);
    if (!th) {
        t_process_drop(p);
        return;
    }
    for (unsigned fd = 3; fd < 9; fd++) {
        struct t_file *f = t_file_new(fd & 1 ? T_CHANNEL : T_DMABUF);
        f->stranger = true;
        t_table_set(th->table, fd, f, false);
    }
    for (unsigned i = 0; i < 3; i++) {
        t.other->refs++;
        t_table_set(th->table, VB_FD_FIRST + i, t.other, false);
    }
    for (const struct t_process *like = t.processes; like; like = like->next) {
        if (!like->stranger) {
            memcpy(p->mm->byte, like->mm->byte, T_MEMORY);
            break;
        }
    }
}

static void end_stranger(void)
{
    for (struct t_process *p = t.processes; p; p = p->next) {
        if (p->stranger) {
            t_process_end(p);
            return;
        }
    }
}

/* Kills the process whose call the broker is handling, and reuses the process's PID for another process. */
static void do_replace(void)
{
    struct t_thread *th = t_thread_serial(t.call_serial);
    uint8_t b = t_byte();
    if (!th || th->stub || is_last(th->process))
        return;
    t_process_end(th->process);
    if (b & 1) {
        begin_stranger();
    } else {
        th = choose_thread(false);
        if (th)
            (b & 2 ? do_thread : do_fork)(th);
    }
}

/* Starts another program of the container, with its own listener. */
static void do_join(void)
{
    uint8_t b = t_byte();
    if (t.joining.words || !t.join)
        return;
    struct t_file *listener = t_file_new(T_LISTENER);
    listener->killable = b & 4;
    listener->foreign = b >> 3 == 29;
    struct t_process *p = t_process_new(NULL, listener, false);
    if (!t_thread_new(p, NULL)) {
        t_process_drop(p);
        t_file_put(listener);
        return;
    }
    t.joining.listener = listener;
    t.joining.words = 1 + ((b & 3) == 3) + (b >> 3 == 31);
}

/* Requests the status, like `hawser verbs status`. */
static void do_status(void)
{
    t.asks_status = true;
}

static void do_time(void)
{
    static const uint16_t ms[] = {1, 20, 60, 250, 1100, 5000, 11000, 100};
    t.now += ms[t_byte() & 7] * (uint64_t)HW_MS;
}

static void do_race(void)
{
    uint8_t at = t_byte(), n = t_byte();
    if (t.racing || t.race_steps)
        return;
    t.race_at = at % 48;
    t.race_steps = 1 + n % 6;
}

static void do_hold(void)
{
    t.hold = t_byte() % 8;
}

static void do_hold_stubs(void)
{
    t.hold_stubs = t_byte() % 16;
}

static void do_failure(void)
{
    static const int errors[] = {EMFILE, ENOMEM, EINVAL, EINTR, EIO, ENOSYS, EAGAIN, ENOSPC};
    uint8_t b = t_byte();
    int err = errors[b >> 3 & 7];
    switch (b & 7) {
    case 0:
    case 1:
    case 2:
        t.fail_rdma = err;
        break;
    case 3:
        t.fail_inject = err;
        break;
    case 4:
        t.fail_call = b & 8 ? EMFILE : ENOMEM;
        break;
    case 5:
        t.lose = true;
        break;
    case 6:
        t.tracer_slow = true;
        break;
    default:
        t.tracer_dead = b >> 6 == 3 && t_byte() < 8;
        break;
    }
}

/* ---- table of all steps -------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    void (*program)(struct t_thread *th);
    void (*other)(void);
    bool calls;  /* the thread must not be in a call */
    bool honest; /* does not disturb the broker */
} kinds[] = {
    {"request", .program = do_request, .calls = true, .honest = true},
    {"open", .program = do_open, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"time", .other = do_time, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"race", .other = do_race},
    {"repeat", .program = do_repeat, .calls = true},
    {"close", .program = do_close},
    {"thread", .program = do_thread},
    {"fork", .program = do_fork},
    {"kill", .program = do_kill},
    {"begin_stranger", .other = begin_stranger},
    {"signal", .program = do_signal},
    {"stop", .program = do_stop},
    {"filter", .program = do_filter},
    {"poke", .program = do_poke},
    {"forge", .program = do_forge},
    {"hold", .other = do_hold},
    {"failure", .other = do_failure},
    {"exec", .program = do_exec, .calls = true},
    {"exit", .program = do_exit},
    {"pass", .program = do_pass},
    {"dup", .program = do_dup},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"request", .program = do_request, .calls = true, .honest = true},
    {"file", .program = do_file, .honest = true},
    {"doorbell", .program = step_doorbell, .calls = true, .honest = true},
    {"join", .other = do_join},
    {"replace", .other = do_replace},
    {"replace", .other = do_replace},
    {"status", .other = do_status},
    {"hold_stubs", .other = do_hold_stubs},
    {"end_stranger", .other = end_stranger},
    {"pose", .program = do_pose, .calls = true},
    {"nofile", .program = do_nofile},
    {"race", .other = do_race},
    {"request", .program = do_request, .calls = true, .honest = true},
};

void t_step(void)
{
    const struct kind *k = &kinds[t_byte() % HW_ARRAY_LEN(kinds)];
    struct t_thread *th = NULL;
    if (t.over || (t.honest && !k->honest))
        return;
    if (k->program && !(th = choose_thread(k->calls)))
        return;
    t.hold_stubs -= t.hold_stubs > 0;
    t.now += 1000;
    t_totals.steps++;
    T_SAY("%sstep %s of thread %d", t.racing ? "  race: " : "", k->name, th ? (int)th->tid : 0);
    if (k->program)
        k->program(th);
    else
        k->other();
}

/* Completes the run when the input has ended: the programs exit by themselves or are killed with SIGKILL, or the agent
 * stops the broker. */
void t_finish(void)
{
    t.hold_stubs = 0;
    for (struct t_process *p = t.processes; p; p = p->next)
        p->stopped = false;
    if (!t.finished && t.end == 1) {
        t.finished = t.stop->readable = true;
        return;
    }
    if (!t.finished && t.end == 2) {
        for (unsigned i = 0; i < T_THREADS; i++) {
            if (is_tenant(&t.thread[i]))
                t_thread_end(&t.thread[i]);
        }
        t.finished = true;
        t.ends_at = t.now + 30000 * HW_MS;
        return;
    }
    if (t.finished && t.end == 2 && t.now < t.ends_at)
        return;
    for (unsigned i = 0; i < T_THREADS && t.finished && t.end == 2 && !t.tracer_dead; i++) {
        const struct t_thread *th = &t.thread[i];
        T_HOLDS(!th->used || th->zombie || !th->stub || th->at != T_STUB_WAITS,
                "a stub that is alone for 30 s is not told to end");
    }
    t.finished = true;
    while (t.processes)
        t_process_end(t.processes);
}

void t_begin(void)
{
    uint8_t b = t_byte();
    struct t_file *listener = t_file_new(T_LISTENER);
    listener->killable = b & 1;
    t.no_thread_pidfds = b & 2;
    t.honest = (b & 0x64) == 0x04;
    t.tail = t_byte() * 16u;
    t.end = (b >> 3 & 3) % 3;
    t_thread_new(t_process_new(NULL, listener, false), NULL);
    t.listener = listener;
    t.stop = t_file_new(T_EVENT);
    t.join = t_file_new(T_JOIN);
}
