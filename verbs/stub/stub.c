/* SPDX-License-Identifier: Apache-2.0 */
/* Contains the machine code of the stub, creates the memory of the window, and controls the stub for the broker. */
#include "verbs/stub/inject_int.h"
#include "verbs/stub/lookup.h"
#include "verbs/stub/notify.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* From include/uapi/linux/memfd.h of Linux 6.3. With vm.memfd_noexec = 2 the kernel refuses memfds without this flag.
 * The flag affects execve() only: pages can still be mapped executable, because mm/mmap.c only checks the mount for
 * noexec. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define FIXED_SIZE   (VB_REPLY_AT + VB_REPLY_SIZE)
#define RESULTS_SIZE (VB_WINDOW_SIZE - VB_WINDOW_SPLIT)

#ifdef __x86_64__
_Static_assert(RDMA_VERBS_IOCTL == 0xc0181b01 && VB_WINDOW_HEADER == 15972 && SYS_prctl == 157 && PR_SET_NAME == 15,
               "must equal the numbers in the stub's code");
_Static_assert(VB_STUB_FILE == 99 && VB_COPIES_AT == 1024 && sizeof(struct vb_copy) == 24 && SYS_pread64 == 17 &&
                   VB_STUB_COPY == 0x40000100 && VB_STUB_DROP == 0x40000200 && SYS_capset == 126 &&
                   VB_COPIES_MAX < 256 && VB_COPIES_AT + VB_COPIES_MAX * sizeof(struct vb_copy) <= VB_WINDOW_CODE,
               "must equal the numbers in the stub's code");
/*
 * Registers of the stub, which a system call preserves except for rax, rcx and r11:
 *   r9        result of the previous call; the broker reads it as the sixth argument
 *   r8        number of the call, the fifth argument; if it does not change, the call was restarted
 *   ebx       number of consecutive calls that failed with ENOSYS
 *   r12, r13  number of remaining copies, and address of the next copy in the list
 * Two consecutive ENOSYS results mean that the listener no longer exists. A single ENOSYS may come from a driver.
 *
 * Constants: 157 is prctl, 15 PR_SET_NAME, 0x40000000 VB_STUB_QUIT, 0x400001 VB_STUB_COPY without its count, -38
 * ENOSYS, 16 ioctl, 17 pread64, 60 exit (of the stub's thread), 126 capset, 0x40000200 VB_STUB_DROP, 0x20080522
 * _LINUX_CAPABILITY_VERSION_3, 100 VB_STUB_FD, 99 VB_STUB_FILE, 1024 VB_COPIES_AT, 15972 VB_WINDOW_HEADER.
 */
__asm__(".pushsection .rodata\n"
        ".balign 16\n"
        ".global vb_stub_code, vb_stub_after, vb_stub_end_of_code\n"
        ".hidden vb_stub_code, vb_stub_after, vb_stub_end_of_code\n"
        "vb_stub_code:\n"
        "    movl $15, %edi\n"
        "    leaq vb_stub_name(%rip), %rsi\n"
        "    movl $157, %eax\n"
        "    syscall\n"
        "    xorl %r8d, %r8d\n"
        "    xorl %r9d, %r9d\n"
        "1:  xorl %ebx, %ebx\n"
        "2:  incq %r8\n"
        "    movl $100, %edi\n"
        "    movl $0xc0181b01, %esi\n"
        "    leaq vb_stub_code + 15972(%rip), %rdx\n"
        "    xorl %r10d, %r10d\n"
        "    movl $16, %eax\n"
        "    syscall\n"
        "vb_stub_after:\n"
        "    movq %rax, %r9\n"
        "    cmpq $0x40000000, %rax\n"
        "    je 3f\n"
        "    movq %rax, %r12\n"
        "    shrq $8, %r12\n"
        "    cmpq $0x400001, %r12\n"
        "    je 4f\n"
        "    cmpq $0x40000200, %rax\n"
        "    je 7f\n"
        "    cmpq $-38, %rax\n"
        "    jne 1b\n"
        "    incl %ebx\n"
        "    cmpl $2, %ebx\n"
        "    jne 2b\n"
        "3:  xorl %edi, %edi\n"
        "    movl $60, %eax\n"
        "    syscall\n"
        "    ud2\n"
        "4:  movzbl %al, %r12d\n"
        "    leaq vb_stub_code + 1024(%rip), %r13\n"
        "    xorl %r9d, %r9d\n"
        "5:  testl %r12d, %r12d\n"
        "    je 1b\n"
        "    movl $99, %edi\n"
        "    movq (%r13), %rsi\n"
        "    movq 8(%r13), %rdx\n"
        "    movq 16(%r13), %r10\n"
        "    movl $17, %eax\n"
        "    syscall\n"
        "    cmpq 8(%r13), %rax\n"
        "    jne 6f\n"
        "    addq $24, %r13\n"
        "    decl %r12d\n"
        "    jmp 5b\n"
        "6:  movl $1, %r9d\n"
        "    jmp 1b\n"
        "7:  leaq vb_stub_capabilities(%rip), %rdi\n"
        "    leaq 8(%rdi), %rsi\n"
        "    movl $126, %eax\n"
        "    syscall\n"
        "    jmp 1b\n"
        ".balign 8\n"
        "vb_stub_capabilities: .long 0x20080522, 0, 0, 0, 0, 0, 0, 0\n"
        "vb_stub_name: .asciz \"hawser-verbs\"\n"
        "vb_stub_end_of_code:\n"
        ".popsection\n");
#else
const uint8_t vb_stub_code[1], vb_stub_after[1], vb_stub_end_of_code[1];
#endif

static int create_window_memfd(const char *name, size_t size)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return hw_fail(-errno, "cannot create a memfd for the stub's window: %s", strerror(errno));
    if (ftruncate(fd, (off_t)size) == 0)
        return fd;
    int rc = hw_fail(-errno, "cannot set the size of the stub's window: %s", strerror(errno));
    close(fd);
    return rc;
}

/* Maps the parts of the window and the space for results to copy, consecutively and writable, and seals the memfds.
 * Afterwards no process can create a writable mapping of the fixed part, write() to it, or remove pages from it. */
static int map_and_seal(struct vb_window *w, int fixed)
{
    w->mine = mmap(NULL, VB_MINE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w->mine == MAP_FAILED) {
        w->mine = NULL;
        return hw_fail(-errno, "cannot reserve addresses for the stub's window: %s", strerror(errno));
    }
    const int rw = PROT_READ | PROT_WRITE, shared = MAP_SHARED | MAP_FIXED;
    if (mmap(w->mine, VB_WINDOW_SPLIT, rw, shared, fixed, 0) == MAP_FAILED ||
        mmap(w->mine + VB_WINDOW_SPLIT, RESULTS_SIZE, rw, shared, w->results, 0) == MAP_FAILED ||
        mmap(w->mine + VB_WINDOW_SIZE, VB_REPLY_SIZE, rw, shared, fixed, VB_REPLY_AT) == MAP_FAILED)
        return hw_fail(-errno, "cannot map the stub's window: %s", strerror(errno));
    size_t n = (size_t)(vb_stub_end_of_code - vb_stub_code);
    memset(w->mine, 0xcc, VB_WINDOW_CODE); /* unused bytes are int3 instructions */
    memcpy(w->mine, vb_stub_code, n);
    if (fcntl(fixed, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) ||
        fcntl(w->results, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL))
        return hw_fail(-errno, "cannot seal the stub's window: %s", strerror(errno));
    return 0;
}

static int fill_window(struct vb_tracer *t, struct vb_window *w)
{
    HW_AUTO_CLOSE int fixed = create_window_memfd("hawser-verbs", FIXED_SIZE);
    if (fixed < 0)
        return fixed;
    w->results = create_window_memfd("hawser-verbs-results", RESULTS_SIZE);
    if (w->results < 0)
        return w->results;
    int rc = map_and_seal(w, fixed);
    if (rc)
        return rc;
    /* The application gets a read-only descriptor: shared mappings of such a descriptor can never be made writable,
     * whatever the seals are. */
    const struct vb_lookup q = {.kind = VB_LOOKUP_REOPEN};
    struct vb_found f;
    rc = vb_tracer_ask(t, &q, fixed, &f, &w->fixed);
    if (rc)
        return rc;
    struct stat a, b;
    if (fstat(fixed, &a) || fstat(w->results, &b))
        return hw_fail(-errno, "cannot read the status of the stub's window: %s", strerror(errno));
    w->dev = a.st_dev;
    w->fixed_ino = a.st_ino;
    w->results_ino = b.st_ino;
    return 0;
}

int vb_window_make(struct vb_tracer *t, struct vb_window *w)
{
    *w = (struct vb_window){.fixed = -1, .results = -1};
    int rc = fill_window(t, w);
    if (rc)
        vb_window_drop(w);
    return rc;
}

void vb_window_close(struct vb_window *w)
{
    hw_close(&w->fixed);
    hw_close(&w->results);
}

void vb_window_drop(struct vb_window *w)
{
    vb_window_close(w);
    if (w->mine)
        munmap(w->mine, VB_MINE_SIZE);
    w->mine = NULL;
}

/* A mapping as reported by the kernel. perms has the form of /proc/PID/maps, for example "r-xs". */
struct seen {
    uint64_t from, to, offset, ino;
    dev_t dev;
    const char *perms;
};
enum { PARTS = 3 };

/* Returns the index of the part that mapping s is in a window at address `at`, or PARTS if s is not a part of the
 * window. */
static unsigned part_of(const struct vb_window *w, uint64_t at, const struct seen *s)
{
    const struct seen parts[PARTS] = {
        {at, at + VB_WINDOW_CODE, 0, w->fixed_ino, w->dev, "r-xs"},
        {at + VB_WINDOW_CODE, at + VB_WINDOW_SPLIT, VB_WINDOW_CODE, w->fixed_ino, w->dev, "r--s"},
        {at + VB_WINDOW_SPLIT, at + VB_WINDOW_SIZE, 0, w->results_ino, w->dev, "rw-s"},
    };
    unsigned i = 0;
    while (i < PARTS && (s->from != parts[i].from || s->to != parts[i].to || s->offset != parts[i].offset ||
                         s->ino != parts[i].ino || s->dev != parts[i].dev || strcmp(s->perms, parts[i].perms) != 0))
        i++;
    return i;
}

/* PROCMAP_QUERY of include/uapi/linux/fs.h, since Linux 6.11. Returns a single mapping, so that the text of all
 * mappings need not be read. */
struct map_query {
    uint64_t size, flags, at;
    uint64_t from, to, prot, page_size, offset, inode;
    uint32_t major, minor, name_size, id_size;
    uint64_t name, id;
};
#define MAP_QUERY _IOWR('f', 17, struct map_query)
enum { QUERY_READ = 1, QUERY_WRITE = 2, QUERY_EXEC = 4, QUERY_SHARED = 8 };

/* Verifies the parts of the window with PROCMAP_QUERY. Fails with -EPROTO if a part is wrong, with -ENOTTY if the
 * kernel lacks the query, or with another -errno. */
static int ask_maps(const struct vb_window *w, int maps, uint64_t at)
{
    const uint64_t begin[PARTS] = {at, at + VB_WINDOW_CODE, at + VB_WINDOW_SPLIT};
    for (unsigned i = 0; i < PARTS; i++) {
        struct map_query q = {.size = sizeof(q), .at = begin[i]};
        if (ioctl(maps, MAP_QUERY, &q))
            return errno == ENOENT ? -EPROTO : -errno; /* nothing is mapped there */
        const char perms[] = {q.prot & QUERY_READ ? 'r' : '-', q.prot & QUERY_WRITE ? 'w' : '-',
                              q.prot & QUERY_EXEC ? 'x' : '-', q.prot & QUERY_SHARED ? 's' : 'p', 0};
        const struct seen s = {q.from, q.to, q.offset, q.inode, makedev(q.major, q.minor), perms};
        if (part_of(w, at, &s) != i)
            return -EPROTO;
    }
    return 0;
}

struct look {
    const struct vb_window *w;
    uint64_t at;
    /* Bits for the parts: the part of the current line, parts that were found, and parts that are sealed. */
    unsigned now, right, sealed;
    bool wrong, past;
};

/* Parses a line of /proc/PID/maps or smaps (show_map_vma() in fs/proc/task_mmu.c). The name, which a program can
 * choose, is at the end of the line and is not read. */
static void parse_maps_line(struct look *l, char *line)
{
    if (strncmp(line, "VmFlags:", 8) == 0) {
        l->sealed |= strstr(line, " sl") ? l->now : 0;
        return;
    }
    struct seen e = {0};
    char *s;
    e.from = strtoull(line, &s, 16);
    if (s == line || *s != '-') /* another line of smaps */
        return;
    e.to = strtoull(s + 1, &s, 16);
    l->now = 0;
    l->past = e.from >= l->at + VB_WINDOW_SIZE;
    if (e.to <= l->at || l->past)
        return;
    e.perms = strtok_r(s, " ", &s);
    e.offset = strtoull(s, &s, 16);
    unsigned long major = strtoul(s, &s, 16), minor = strtoul(s + (*s == ':'), &s, 16);
    e.ino = strtoull(s, &s, 10);
    e.dev = makedev((unsigned)major, (unsigned)minor);
    unsigned part = e.perms ? part_of(l->w, l->at, &e) : PARTS;
    l->now = part < PARTS ? 1u << part : 0;
    l->right |= l->now;
    l->wrong |= !l->now;
}

/* Parses the maps file line by line, up to the first mapping after the window. */
static int read_maps(struct look *l, int fd)
{
    char buf[8192];
    size_t have = 0;
    ssize_t n = 0;
    bool rest = false; /* the buffer begins with the rest of a line that was too long */
    while (!l->past && (n = read(fd, buf + have, sizeof(buf) - 1 - have)) > 0) {
        have += (size_t)n;
        buf[have] = 0;
        char *line = buf;
        for (char *end; (end = memchr(line, '\n', have - (size_t)(line - buf))); line = end + 1) {
            *end = 0;
            if (!rest)
                parse_maps_line(l, line);
            rest = false;
        }
        have -= (size_t)(line - buf);
        memmove(buf, line, have);
        if (have == sizeof(buf) - 1) { /* the line is too long; its beginning has everything needed */
            if (!rest)
                parse_maps_line(l, buf);
            rest = true;
            have = 0;
        }
    }
    return n < 0 ? -errno : 0;
}

int vb_window_verify(const struct vb_window *w, pid_t tid, uint64_t window, bool flags)
{
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, flags ? "smaps" : "maps");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    bool unsealed = false;
    int rc = flags ? -ENOTTY : ask_maps(w, fd, window);
    if (rc == -ENOTTY) {
        struct look l = {.w = w, .at = window};
        rc = read_maps(&l, fd);
        unsealed = rc == 0 && !l.wrong && l.right == 7 && flags && l.sealed != 7;
        if (rc == 0 && (l.wrong || l.right != 7 || unsealed))
            rc = -EPROTO;
    }
    close(fd);
    if (unsealed)
        return hw_fail(rc,
                       "process of thread %d: the mapping at 0x%llx is not sealed: check for a seccomp filter that "
                       "answers mseal()",
                       (int)tid, (unsigned long long)window);
    if (rc == -EPROTO)
        return hw_fail(rc, "process of thread %d: another thread has changed the mapping at 0x%llx", (int)tid,
                       (unsigned long long)window);
    return rc ? hw_fail(rc, "cannot read %s: %s", path, strerror(-rc)) : 0;
}

/* When the thread exits, a PIDFD_THREAD becomes readable. A folder of /proc becomes empty, even if the number is reused
 * (pid_revalidate() in fs/proc/base.c). */
bool vb_stub_gone(const struct vb_stub *s)
{
    struct pollfd p = {.fd = s->thread, .events = POLLIN};
    struct stat st;
    return s->thread_folder ? fstatat(s->thread, "stat", &st, 0) != 0 : poll(&p, 1, 0) != 0;
}

int vb_stub_watch(const struct vb_stub *s)
{
    return s->thread_folder ? s->pidfd : s->thread;
}

bool vb_stub_serves(const struct vb_stub *s, pid_t tid)
{
    /* vb_stub_gone() is called last: if the stub still exists at that time, s->tid was the stub's TID during kcmp(). */
    return !s->dead && syscall(SYS_kcmp, s->tid, tid, KCMP_VM, 0, 0) == 0 && !vb_stub_gone(s);
}

int vb_stub_park(struct vb_stub *s, const struct seccomp_notif *n, int64_t *result)
{
    const struct seccomp_data *d = &n->data;
    if (vb_stub_gone(s)) {
        s->dead = true;
        return hw_fail(-ESRCH, "stub %d has ended, and another thread has its number", (int)s->tid);
    }
    if ((pid_t)n->pid != s->tid || d->arch != AUDIT_ARCH_X86_64 || d->nr != SYS_ioctl ||
        d->instruction_pointer != s->window + VB_STUB_AFTER || d->args[0] != VB_STUB_FD ||
        d->args[1] != RDMA_VERBS_IOCTL || d->args[2] != s->window + VB_WINDOW_HEADER)
        return hw_fail(-EPROTO, "thread %d makes a system call that the stub does not make", (int)n->pid);
    s->parked = n->id;
    if (d->args[4] == s->seq)
        return 0;
    bool next = d->args[4] == s->seq + 1;
    s->seq = d->args[4];
    *result = (int64_t)d->args[5];
    return next ? 1 : 2;
}

bool vb_stub_is_left(const struct seccomp_notif *n)
{
    const struct seccomp_data *d = &n->data;
    return d->arch == AUDIT_ARCH_X86_64 && d->nr == SYS_ioctl && d->args[0] == VB_STUB_FD &&
           d->args[1] == RDMA_VERBS_IOCTL && d->args[2] == d->instruction_pointer - VB_STUB_AFTER + VB_WINDOW_HEADER;
}

/* Updates s after an operation on the parked call has failed, for example because a stop interrupted the call.
 * Returns rc. */
static int note_lost_call(struct vb_stub *s, int rc)
{
    if (rc == -ENOENT)
        s->parked = 0;
    if (vb_stub_gone(s))
        s->dead = true;
    return rc;
}

int vb_stub_run(struct vb_stub *s, int listener, int device)
{
    if (!s->parked || s->dead)
        return hw_fail(-ENOENT, "stub %d is not waiting for a request", (int)s->tid);
    int rc = vb_notify_give(listener, s->parked, device, VB_STUB_FD, true, false);
    if (rc < 0)
        return note_lost_call(s, rc);
    rc = vb_notify_continue(listener, s->parked);
    if (rc)
        return note_lost_call(s, rc);
    s->parked = 0;
    return 0;
}

int vb_stub_copy(struct vb_stub *s, int listener, unsigned n)
{
    int rc = 0;
    if (!s->parked || s->dead)
        return hw_fail(-ENOENT, "stub %d is not waiting for results to copy", (int)s->tid);
    if (s->file >= 0 && (rc = vb_notify_give(listener, s->parked, s->file, VB_STUB_FILE, true, false)) >= 0)
        hw_close(&s->file);
    if (rc >= 0)
        rc = vb_notify_answer(listener, s->parked, VB_STUB_COPY + (int64_t)n, 0);
    if (rc)
        return note_lost_call(s, rc);
    s->parked = 0;
    return 0;
}

int vb_stub_drop(struct vb_stub *s, int listener)
{
    if (!s->parked || s->dead)
        return hw_fail(-ENOENT, "stub %d is not waiting", (int)s->tid);
    int rc = vb_notify_answer(listener, s->parked, VB_STUB_DROP, 0);
    if (rc)
        return note_lost_call(s, rc);
    s->parked = 0;
    return 0;
}

int vb_stub_locks(struct vb_tracer *t, const struct vb_stub *s, pid_t tid)
{
    struct vb_found f;
    int none;
    const struct vb_lookup q = {.kind = VB_LOOKUP_LOCKS, .tgid = s->tid, .tid = tid ? tid : s->tid, .flags = tid != 0};
    int rc = vb_tracer_ask(t, &q, -1, &f, &none);
    return rc ? rc : f.value;
}

int vb_stub_clear(struct vb_stub *s, int listener)
{
    if (!s->parked || s->dead)
        return hw_fail(-ENOENT, "stub %d is not waiting", (int)s->tid);
    /* Replaces the device with another descriptor, because the broker cannot close descriptors of the stub. */
    int rc = vb_notify_give(listener, s->parked, s->pidfd, VB_STUB_FD, true, false);
    return rc < 0 ? note_lost_call(s, rc) : 0;
}

bool vb_stub_alone(struct vb_tracer *t, const struct vb_stub *s)
{
    struct vb_found f;
    int none;
    if (s->dead || vb_stub_gone(s))
        return false;
    const struct vb_lookup q = {.kind = VB_LOOKUP_ALONE, .tgid = s->tgid, .tid = s->tid};
    return vb_tracer_ask(t, &q, -1, &f, &none) == 0 && f.value;
}

void vb_stub_end(struct vb_stub *s, int listener)
{
    if (s->parked && !s->dead)
        vb_notify_answer(listener, s->parked, VB_STUB_QUIT, 0);
    s->parked = 0;
    s->dead = true;
    if (s->mine)
        munmap(s->mine, VB_MINE_SIZE);
    s->mine = NULL;
    hw_close(&s->file);
    hw_close(&s->thread);
    hw_close(&s->pidfd);
}
