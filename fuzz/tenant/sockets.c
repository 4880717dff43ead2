/* SPDX-License-Identifier: Apache-2.0 */
/* The broker's sockets: other programs of the container join, and the operator requests the status. */
#include "fuzz/tenant/wrap.h"

#include <stdarg.h>
#include <sys/socket.h>

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names
T_WRAPS_BEGIN

/* ---- other programs of the container ------------------------------------------------------------------ */

/* Delivers the message of a program that joins, or a malformed message. The container has no annotations and uses the
 * default section, so the key and the section are empty (join.c). */
WRAP(ssize_t, recvmsg, int fd, struct msghdr *m, int flags)
{
    if (!played(fd))
        return __real_recvmsg(fd, m, flags);
    t_tick();
    unsigned words = t.joining.words;
    if (!words)
        return result(-EAGAIN);
    t.joining.words = 0;
    memcpy(m->msg_iov->iov_base, "\0x\0", 3);
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (words == 3) {
        m->msg_controllen = 0;
        t_file_put(t.joining.listener);
        t.joining.listener = NULL;
        return 2;
    }
    int fds[2] = {t_broker_fd(t.joining.listener), t_broker_fd(t_file_new(T_REPLY))};
    t.joining.listener = NULL;
    *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fds)};
    memcpy(CMSG_DATA(c), fds, sizeof fds);
    if (words == 2)
        return 3;
    memset(m->msg_iov->iov_base, 0, 2);
    return 2;
}

/* ---- the status ---------------------------------------------------------------------------------------- */

/* The broker opens the folder of the state files. */
int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
static int open_state(const char *path)
{
    T_HOLDS(strcmp(path, "/state") == 0, "it opens %s", path);
    return t_broker_fd(t_file_new(T_PLAIN));
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    unsigned mode = va_arg(ap, unsigned);
    va_end(ap);
    return t.playing ? open_state(path) : __real_open(path, flags, mode);
}

int __wrap_open64(const char *path, int flags, ...)
{
    va_list ap;
    va_start(ap, flags);
    unsigned mode = va_arg(ap, unsigned);
    va_end(ap);
    return t.playing ? open_state(path) : __real_open64(path, flags, mode);
}

WRAP(int, socket, int family, int type, int protocol)
{
    return t.playing ? t_broker_fd(t_file_new(T_STATUS)) : __real_socket(family, type, protocol);
}

WRAP(int, bind, int fd, const struct sockaddr *a, socklen_t n)
{
    return played(fd) ? 0 : __real_bind(fd, a, n);
}

WRAP(int, listen, int fd, int n)
{
    return played(fd) ? 0 : __real_listen(fd, n);
}

WRAP(int, chmod, const char *path, mode_t mode)
{
    return t.playing ? 0 : __real_chmod(path, mode);
}

WRAP(int, unlink, const char *path)
{
    return t.playing ? 0 : __real_unlink(path);
}

WRAP(int, accept4, int fd, struct sockaddr *a, socklen_t *n, int flags)
{
    if (!played(fd))
        return __real_accept4(fd, a, n, flags);
    t_tick();
    t.asks_status = false;
    return t_broker_fd(t_file_new(T_REPLY));
}

WRAP(ssize_t, send, int fd, const void *buf, size_t n, int flags)
{
    if (!played(fd))
        return __real_send(fd, buf, n, flags);
    /* this is the status, not the reply to a joining program; a NUL follows the text (open_memstream()) */
    if (n > sizeof(int)) {
        t_rdma_status(buf);
        t_totals.told++;
    }
    t_tick();
    return (ssize_t)n;
}
T_WRAPS_END
// NOLINTEND(bugprone-reserved-identifier)
