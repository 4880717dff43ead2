/* SPDX-License-Identifier: Apache-2.0 */
/* Replacements for the broker's calls, redirected by the linker's --wrap (fuzz/meson.build). Calls on file descriptors
 * below T_FD_FIRST, and all calls while no broker is serving, go to the real functions. */
#include "fuzz/tenant/wrap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
T_WRAPS_BEGIN

#define CALLS_MAX  20000 /* maximum number of calls between two waits for events */
#define EVENTS_MAX 5000  /* maximum number of waits that return events while no program acts */

void t_tick(void)
{
    t.calls++;
    t_totals.calls++;
    T_HOLDS(t.calls - t.calls_at < CALLS_MAX, "it has made %d calls without looking for events", CALLS_MAX);
    if (!t.race_steps || t.racing || t.race_at-- > 0)
        return;
    t.racing = t.raced = true;
    for (; t.race_steps && !t.over; t.race_steps--) {
        t_step();
        t_totals.races++;
    }
    t.race_steps = 0;
    t.racing = false;
}

/* Returns true if the input requests a failure of the kernel: too many files, or no memory. */
static bool fails(void)
{
    if (!t.fail_call)
        return false;
    errno = t.fail_call;
    t.fail_call = 0;
    return true;
}

/* ---- descriptors -------------------------------------------------------------------------------------- */

WRAP(int, close, int fd)
{
    if (!played(fd))
        return __real_close(fd);
    struct t_file *f = t_broker_file(fd);
    T_HOLDS(f, "it closes descriptor %d, which is not open", fd - T_FD_FIRST);
    t.broker[fd - T_FD_FIRST].file = NULL;
    t_file_put(f);
    t_tick();
    return 0;
}

WRAP(int, epoll_create1, int flags)
{
    return t.playing ? t_broker_fd(t_file_new(T_EPOLL)) : __real_epoll_create1(flags);
}

WRAP(int, inotify_init1, int flags)
{
    return t.playing ? t_broker_fd(t_file_new(T_INOTIFY)) : __real_inotify_init1(flags);
}

WRAP(int, eventfd, unsigned value, int flags)
{
    return t.playing ? t_broker_fd(t_file_new(T_EVENT)) : __real_eventfd(value, flags);
}

static int duplicate(int fd)
{
    struct t_file *f = t_broker_file(fd);
    t_tick();
    if (!f || fails())
        return -1;
    f->refs++;
    return t_broker_fd(f);
}

int __real_fcntl(int fd, int op, ...);
int __wrap_fcntl(int fd, int op, ...);
int __real_fcntl64(int fd, int op, ...);
int __wrap_fcntl64(int fd, int op, ...);
int __wrap_fcntl(int fd, int op, ...)
{
    va_list ap;
    va_start(ap, op);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return played(fd) && op == F_DUPFD_CLOEXEC ? duplicate(fd) : __real_fcntl(fd, op, arg);
}

int __wrap_fcntl64(int fd, int op, ...)
{
    va_list ap;
    va_start(ap, op);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    return played(fd) && op == F_DUPFD_CLOEXEC ? duplicate(fd) : __real_fcntl64(fd, op, arg);
}

static int look_at(int fd, struct stat *st)
{
    const struct t_file *f = t_broker_file(fd);
    t_tick();
    if (!f)
        return -1;
    memset(st, 0, sizeof *st);
    st->st_mode = f->kind == T_DEVICE ? S_IFCHR | 0600 : S_IFREG | 0600;
    st->st_dev = f->kind == T_DEVICE && !f->stranger ? T_NODES_DEV : T_NODES_DEV + 1;
    st->st_ino = f->kind == T_DEVICE ? f->ino : 1;
    return 0;
}

WRAP(int, fstat, int fd, struct stat *st)
{
    return played(fd) ? look_at(fd, st) : __real_fstat(fd, st);
}

WRAP(int, fstat64, int fd, struct stat *st)
{
    return played(fd) ? look_at(fd, st) : __real_fstat64(fd, st);
}

/* Handles fstatat() of "stat" in a thread's folder of /proc. */
static int look_in(int fd)
{
    const struct t_file *f = t_broker_file(fd);
    t_tick();
    return f ? result(t_thread_serial(f->serial) ? 0 : -ESRCH) : -1;
}

WRAP(int, fstatat, int fd, const char *path, struct stat *st, int flags)
{
    return played(fd) ? look_in(fd) : __real_fstatat(fd, path, st, flags);
}

WRAP(int, fstatat64, int fd, const char *path, struct stat *st, int flags)
{
    return played(fd) ? look_in(fd) : __real_fstatat64(fd, path, st, flags);
}

WRAP(int, munmap, void *at, size_t n)
{
    if (!t.playing || n != VB_MINE_SIZE)
        return __real_munmap(at, n);
    /* new_window() has stored the pointer to the window directly before the mapping. */
    struct t_window *w;
    memcpy(&w, (uint8_t *)at - sizeof w, sizeof w);
    t_window_put(w);
    t_tick();
    return 0;
}

/* ---- events ------------------------------------------------------------------------------------------- */

static bool process_lives(uint32_t serial)
{
    for (const struct t_process *p = t.processes; p; p = p->next) {
        if (p->serial == serial)
            return true;
    }
    return false;
}

static uint32_t events_of(const struct t_file *f)
{
    switch (f->kind) {
    case T_LISTENER:
        return (t_call_waiting(f) ? EPOLLIN : 0) | (t_listener_users(f) ? 0 : EPOLLHUP);
    case T_INOTIFY:
        return t.n_ended ? EPOLLIN : 0;
    case T_EVENT:
        return f->readable ? EPOLLIN : 0;
    case T_PIDFD:
        return (f->process ? process_lives(f->serial) : t_thread_serial(f->serial) != NULL) ? 0 : EPOLLIN;
    case T_JOIN:
        return t.joining.words ? EPOLLIN : 0;
    case T_STATUS:
        return t.asks_status ? EPOLLIN : 0;
    default:
        return 0;
    }
}

WRAP(int, poll, struct pollfd *p, nfds_t n, int ms)
{
    if (n != 1 || !played(p->fd))
        return __real_poll(p, n, ms);
    T_HOLDS(ms == 0, "it waits in poll()");
    const struct t_file *f = t_broker_file(p->fd);
    t_tick();
    p->revents = (short)(f ? events_of(f) & ((unsigned)p->events | EPOLLHUP) : POLLNVAL);
    return p->revents != 0;
}

WRAP(int, epoll_ctl, int epoll, int op, int fd, struct epoll_event *e)
{
    if (!played(epoll))
        return __real_epoll_ctl(epoll, op, fd, e);
    struct t_file *f = t_broker_file(fd);
    t_tick();
    if (!f)
        return -1;
    for (unsigned i = 0; i < t.n_watched; i++) {
        if (t.watched[i].file != f || t.watched[i].fd != fd)
            continue;
        if (op == EPOLL_CTL_DEL)
            t.watched[i] = t.watched[--t.n_watched];
        return op == EPOLL_CTL_DEL ? 0 : result(-EEXIST);
    }
    if (op == EPOLL_CTL_DEL)
        return result(-ENOENT);
    if (t.n_watched == T_FDS)
        return result(-ENOSPC);
    t.watched[t.n_watched].file = f;
    t.watched[t.n_watched++].fd = fd;
    return 0;
}

static int ready(struct epoll_event *e, int most)
{
    int n = 0;
    for (unsigned i = 0; i < t.n_watched && n < most; i++) {
        uint32_t events = events_of(t.watched[i].file);
        if (events)
            e[n++] = (struct epoll_event){.events = events, .data.fd = t.watched[i].fd};
    }
    return n;
}

WRAP(int, epoll_wait, int epoll, struct epoll_event *e, int most, int ms)
{
    if (!played(epoll))
        return __real_epoll_wait(epoll, e, most, ms);
    uint64_t deadline = t.now + (uint64_t)HW_MAX(ms, 0) * HW_MS;
    t_tick();
    t.calls_at = t.calls;
    t.call_serial = 0;
    t.call_file = NULL;
    t.read_other = false;
    for (unsigned idle = 0;;) {
        if (!t.hold_stubs || t.over)
            t_stubs_run();
        int n = t.hold && !t.over ? 0 : ready(e, most);
        T_HOLDS(!n || ++t.rounds < EVENTS_MAX, "a stub and the broker go on for ever");
        if (n)
            return n;
        if (ms >= 0 && t.now >= deadline)
            return 0;
        if (!t.over) {
            t.hold -= t.hold > 0;
            t.rounds = 0;
            t_step();
            continue;
        }
        t_finish();
        n = ready(e, most);
        if (n)
            return n;
        T_HOLDS(++idle < 200, "it waits for ever, and nobody is there");
        t.now = ms >= 0 ? deadline : t.now + 1000 * HW_MS;
    }
}

WRAP(ssize_t, read, int fd, void *buf, size_t n)
{
    if (!played(fd))
        return __real_read(fd, buf, n);
    const struct t_file *f = t_broker_file(fd);
    size_t done = 0;
    t_tick();
    T_HOLDS(f && f->kind == T_INOTIFY, "it reads of what is no inotify");
    unsigned most = HW_MIN(t.n_ended, (unsigned)(n / sizeof(struct inotify_event)));
    for (unsigned i = 0; i < most; i++, done += sizeof(struct inotify_event)) {
        struct inotify_event event = {.wd = t.ended[i], .mask = IN_IGNORED};
        memcpy((char *)buf + done, &event, sizeof event);
    }
    t.n_ended -= most;
    memmove(t.ended, t.ended + most, t.n_ended * sizeof t.ended[0]);
    return done ? (ssize_t)done : result(-EAGAIN);
}

WRAP(ssize_t, write, int fd, const void *buf, size_t n)
{
    T_HOLDS(!played(fd), "it writes to a descriptor of a program's");
    return __real_write(fd, buf, n);
}

WRAP(int, clock_gettime, clockid_t clock, struct timespec *at)
{
    if (!t.playing)
        return __real_clock_gettime(clock, at);
    at->tv_sec = (time_t)(t.now / 1000000000u);
    at->tv_nsec = (long)(t.now % 1000000000u);
    return 0;
}

/* ---- programs ----------------------------------------------------------------------------------------- */

WRAP(pid_t, getpid, void)
{
    return t.playing ? 1 : __real_getpid();
}

static int set_limit(void)
{
    return 0;
}

WRAP(int, setrlimit, int resource, const struct rlimit *l)
{
    return t.playing ? set_limit() : __real_setrlimit(resource, l);
}

WRAP(int, setrlimit64, int resource, const struct rlimit *l)
{
    return t.playing ? set_limit() : __real_setrlimit64(resource, l);
}

/* Simulates a page that becomes available late: the tenant performs steps in the meantime. */
static void delay(uint64_t address, uint64_t n)
{
    uint64_t at = address & 0xfffff;
    if (at + n <= T_DELAYED * T_PAGE || t.racing)
        return;
    t.race_at = 0;
    t.race_steps = HW_MAX(t.race_steps, 2u);
    t_tick();
}

WRAP(ssize_t, process_vm_readv, pid_t tid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
     unsigned long n_from, unsigned long flags)
{
    if (!t.playing)
        return __real_process_vm_readv(tid, to, n_to, from, n_from, flags);
    uint64_t address = (uintptr_t)from->iov_base, n = from->iov_len;
    uint32_t tag;
    t_tick();
    delay(address, n);
    struct t_thread *th = t_thread_by(tid);
    if (!th)
        return result(-ESRCH);
    if (th->serial != t.call_serial)
        t.read_other = true;
    const uint8_t *bytes = t_bytes(th->process->mm, address, n, &tag);
    if (!bytes)
        return result(-EFAULT);
    if (tag != th->process->mm->tag)
        t.read_other = true;
    memcpy(to->iov_base, bytes, n);
    return (ssize_t)n;
}

WRAP(ssize_t, process_vm_writev, pid_t tid, const struct iovec *to, unsigned long n_to, const struct iovec *from,
     unsigned long n_from, unsigned long flags)
{
    T_HOLDS(!t.playing, "it writes memory of a program's");
    return __real_process_vm_writev(tid, to, n_to, from, n_from, flags);
}

static int open_pidfd(pid_t tid, unsigned flags)
{
    struct t_thread *th = t_thread_by(tid);
    if ((flags & O_EXCL) && t.no_thread_pidfds)
        return result(-EINVAL);
    if (!th)
        return result(-ESRCH);
    if (!(flags & O_EXCL) && th->tid != th->process->tgid)
        return result(-EINVAL);
    if (fails())
        return -1;
    struct t_file *f = t_file_new(T_PIDFD);
    f->process = !(flags & O_EXCL);
    f->serial = f->process ? th->process->serial : th->serial;
    return t_broker_fd(f);
}

/* Returns the table from which pidfd_getfd() takes a file descriptor. */
static struct t_table *table_of(const struct t_file *pidfd)
{
    if (!pidfd->process) {
        struct t_thread *th = t_thread_serial(pidfd->serial);
        return th ? th->table : NULL;
    }
    for (unsigned i = 0; i < T_THREADS; i++) {
        struct t_thread *th = &t.thread[i];
        if (th->used && !th->zombie && th->process->serial == pidfd->serial && th->tid == th->process->tgid)
            return th->table;
    }
    return NULL;
}

static int fetch_fd(int pidfd, int theirs)
{
    const struct t_file *p = t_broker_file(pidfd);
    T_HOLDS(p && p->kind == T_PIDFD, "pidfd_getfd() of no pidfd");
    struct t_table *table = table_of(p);
    struct t_file *f = table ? t_table_get(table, theirs) : NULL;
    if (!f)
        return result(table ? -EBADF : -ESRCH);
    if (fails())
        return -1;
    f->refs++;
    return t_broker_fd(f);
}

static int compare(pid_t a, pid_t b, int type, unsigned long x, unsigned long y)
{
    const struct t_thread *one = t_thread_by(a), *other = t_thread_by(b);
    if (!one || (b != 1 && !other))
        return result(-ESRCH);
    if (type == KCMP_VM)
        return other && one->process->mm == other->process->mm ? 0 : 1;
    const struct t_file *theirs = t_table_get(one->table, (int64_t)x), *mine = t_broker_file((int)y);
    T_HOLDS(type == KCMP_FILE && b == 1, "kcmp() of type %d", type);
    if (!theirs || !mine)
        return result(-EBADF);
    return theirs == mine ? 0 : 1;
}

long __real_syscall(long nr, ...);
long __wrap_syscall(long nr, ...);
long __wrap_syscall(long nr, ...)
{
    va_list ap;
    long a[6];
    va_start(ap, nr);
    for (unsigned i = 0; i < HW_ARRAY_LEN(a); i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (!t.playing)
        return __real_syscall(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
    t_tick();
    switch (nr) {
    case SYS_pidfd_open:
        return open_pidfd((pid_t)a[0], (unsigned)a[1]);
    case SYS_pidfd_getfd:
        return fetch_fd((int)a[0], (int)a[1]);
    case SYS_kcmp:
        return compare((pid_t)a[0], (pid_t)a[1], (int)a[2], (unsigned long)a[3], (unsigned long)a[4]);
    default:
        T_HOLDS(false, "it makes system call %ld", nr);
        return -1;
    }
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!played(fd))
        return __real_ioctl(fd, request, arg);
    t_tick();
    struct t_file *f = t_broker_file(fd);
    if (!f)
        return -1;
    T_HOLDS(f->kind == T_LISTENER, "an ioctl of a descriptor of kind %d", f->kind);
    return result(t_listener_ioctl(f, request, arg));
}

// NOLINTEND(bugprone-reserved-identifier)

T_WRAPS_END
