/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/pass.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(HW_PASS_MAX * sizeof(int))];
};

int hw_pass_send(int sock, const struct sockaddr_un *to, const void *text, size_t size, const int *fd, unsigned n,
                 int flags)
{
    union control c = {.head = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)text, .iov_len = size};
    struct msghdr m = {
        .msg_name = (void *)(uintptr_t)to, .msg_namelen = to ? sizeof(*to) : 0, .msg_iov = &iov, .msg_iovlen = 1};
    if (n > HW_PASS_MAX)
        return -E2BIG;
    if (n) {
        c.head.cmsg_len = CMSG_LEN(n * sizeof(int));
        m.msg_control = &c;
        m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        memcpy(CMSG_DATA(&c.head), fd, n * sizeof(int));
    }
    ssize_t sent;
    do {
        sent = sendmsg(sock, &m, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent == (ssize_t)size ? 0 : -EMSGSIZE;
}

ssize_t hw_pass_receive(int sock, void *buf, size_t size, int *fd, unsigned cap, int flags, bool *cut)
{
    union control c;
    struct iovec iov = {.iov_base = buf, .iov_len = size};
    /* Uses CMSG_LEN and not CMSG_SPACE, because the kernel would use any padding for one more file descriptor. */
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = &c,
                       .msg_controllen = CMSG_LEN(HW_MIN(cap, HW_PASS_MAX) * sizeof(int))};
    for (unsigned i = 0; i < cap; i++)
        fd[i] = -1;
    ssize_t n;
    do {
        n = recvmsg(sock, &m, flags | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    if (cut)
        *cut = m.msg_flags & MSG_CTRUNC;
    /* The kernel passes all file descriptors in one SCM_RIGHTS header, and no other control messages are enabled. A
     * message without file descriptors has no header. */
    const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(h), h->cmsg_len - CMSG_LEN(0));
    return n;
}
