/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

const struct hw_helper_request client_hello = {.type = HW_H_HELLO, .seq = 1};

int client_connect(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, path, strlen(path));
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

int client_send(int fd, const void *buf, size_t len, const int *fds, unsigned n)
{
    char control[CMSG_SPACE(sizeof(int) * 253)] __attribute__((aligned(8))) = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)buf, .iov_len = len};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int) * n), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
    }
    return sendmsg(fd, &m, MSG_NOSIGNAL) == (ssize_t)len ? 0 : -errno;
}

int client_ask(int fd, const struct hw_helper_request *q, const int *fds, unsigned n)
{
    uint8_t buf[HW_HELPER_REQUEST];
    hw_helper_request_encode(buf, q);
    return client_send(fd, buf, sizeof(buf), fds, n);
}

int client_answer_to(int fd, struct hw_helper_reply *r)
{
    uint8_t buf[HW_HELPER_REPLY + 1];
    struct hw_helper_reply own;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    r = r ? r : &own;
    if (poll(&p, 1, MS) != 1)
        return 2;
    ssize_t n = recv(fd, buf, sizeof(buf), 0);
    if (n < 0 && errno == ECONNRESET)
        n = recv(fd, buf, sizeof(buf), 0);
    if (n <= 0)
        return 1;
    return hw_helper_reply_decode(buf, (size_t)n, r) < 0 ? 3 : r->status;
}

int client_answer(int fd)
{
    return client_answer_to(fd, NULL);
}

int client_greeted(const char *path)
{
    int fd = client_connect(path);
    (void)client_ask(fd, &client_hello, NULL, 0);
    return client_answer(fd) == 0 ? fd : -1;
}
