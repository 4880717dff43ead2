/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/stub/notify.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

int vb_notify_next(int listener, struct seccomp_notif *n)
{
    memset(n, 0, sizeof(*n)); /* required by the kernel */
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, n) == 0)
        return 0;
    /* ENOENT means that a signal interrupted the call after the wake-up (seccomp_notify_recv() in kernel/seccomp.c). */
    if (errno == ENOENT || errno == EINTR || errno == EAGAIN)
        return -EAGAIN;
    return hw_fail(-errno, "cannot receive a seccomp notification: %s", strerror(errno));
}

bool vb_notify_valid(int listener, uint64_t id)
{
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* Converts an errno value to the result of an operation on a notification. Also returns -ENOENT for EINPROGRESS, which
 * means that the call was answered and the thread has not run since, and for ESRCH, which means that a signal
 * interrupted the call while a descriptor was being added (seccomp_do_user_notification() in kernel/seccomp.c). */
static int gone_or(int err)
{
    return err == ENOENT || err == EINPROGRESS || err == ESRCH ? -ENOENT : -err;
}

static int send_notify_response(int listener, const struct seccomp_notif_resp *r)
{
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, r) == 0)
        return 0;
    int rc = gone_or(errno);
    return hw_fail(rc, "cannot answer a seccomp notification: %s",
                   rc == -ENOENT ? "the call has ended" : strerror(-rc));
}

int vb_notify_answer(int listener, uint64_t id, int64_t value, int rc)
{
    struct seccomp_notif_resp r = {.id = id, .val = rc ? 0 : value, .error = rc > 0 ? -rc : rc};
    return send_notify_response(listener, &r);
}

int vb_notify_continue(int listener, uint64_t id)
{
    struct seccomp_notif_resp r = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    return send_notify_response(listener, &r);
}

int vb_notify_give(int listener, uint64_t id, int fd, int at, bool cloexec, bool answer)
{
    struct seccomp_notif_addfd a = {
        .id = id,
        .flags = (at >= 0 ? SECCOMP_ADDFD_FLAG_SETFD : 0) | (answer ? SECCOMP_ADDFD_FLAG_SEND : 0),
        .srcfd = (uint32_t)fd,
        .newfd = at >= 0 ? (uint32_t)at : 0,
        .newfd_flags = cloexec ? O_CLOEXEC : 0,
    };
    int got = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &a);
    if (got >= 0)
        return got;
    int rc = gone_or(errno);
    const char *why = strerror(-rc);
    if (rc == -ENOENT)
        why = "the call has ended";
    else if (rc == -EBADF && at >= 0)
        why = "the program's limit of open files is too low for this number";
    return at >= 0 ? hw_fail(rc, "cannot install descriptor %d in a program: %s", at, why)
                   : hw_fail(rc, "cannot install a descriptor in a program: %s", why);
}

int vb_notify_sync(int listener)
{
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, (unsigned long)SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) == 0)
        return 0;
    return hw_fail(-errno, "cannot enable synchronous wake-up of a seccomp listener (needs Linux 6.6): %s",
                   strerror(errno));
}

int vb_mem_read(pid_t tid, uint64_t address, void *dst, size_t n)
{
    struct iovec mine = {dst, n}, theirs = {(void *)(uintptr_t)address, n};
    ssize_t read = n ? process_vm_readv(tid, &mine, 1, &theirs, 1, 0) : 0;
    if (read >= 0 && (size_t)read == n)
        return 0;
    int rc = read >= 0 ? -EFAULT : -errno; /* the kernel reads as much as possible and returns the number of bytes */
    return hw_fail(rc, "cannot read %zu bytes at 0x%llx of thread %d: %s", n, (unsigned long long)address, (int)tid,
                   strerror(-rc));
}

int vb_mem_string(pid_t tid, uint64_t address, char *dst, size_t cap)
{
    const size_t page = 4096; /* the smallest page size; a read never extends to the next page, which may be unmapped */
    size_t at = 0;
    while (at < cap) {
        size_t n = HW_MIN(cap - at, page - (size_t)((address + at) % page));
        int rc = vb_mem_read(tid, address + at, dst + at, n);
        if (rc)
            return rc;
        if (memchr(dst + at, 0, n))
            return 0;
        at += n;
    }
    return hw_fail(-ENAMETOOLONG, "a string of thread %d at 0x%llx is longer than %zu bytes", (int)tid,
                   (unsigned long long)address, cap ? cap - 1 : 0);
}

pid_t vb_process_of(pid_t tid)
{
    char path[32], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    hw_close(&fd);
    text[HW_MAX(n, 0)] = 0;
    const char *line = strstr(text, "\nTgid:"); /* follows Name, in which newlines are escaped (proc(5)) */
    return line ? (pid_t)strtol(line + 6, NULL, 10) : 0;
}
