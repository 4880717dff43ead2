/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/inspect.h"
#include "wire/helper.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* One message of exactly that size, with one descriptor at most; *fd is -1 where none came. Returns its size. */
static ssize_t receive_message(int sock, void *buf, size_t size, int *fd, bool *many)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec iov = {.iov_base = buf, .iov_len = size};
    /* CMSG_LEN and not CMSG_SPACE, whose padding the kernel would fill with a second descriptor */
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = CMSG_LEN(sizeof(int))};
    ssize_t n;
    *fd = -1;
    do {
        n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    *many = n >= 0 && m.msg_flags & MSG_CTRUNC;
    struct cmsghdr *h = n < 0 ? NULL : CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(h), sizeof(*fd));
    return n;
}

void hd_inspect(const struct hd_kernel *k, uint16_t type, int fd, struct hd_facts *out)
{
    memset(out, 0, sizeof(*out));
    out->rc = type == HW_H_STEER ? k->connection(k->arg, fd, &out->conn) : k->dmabuf_size(k->arg, fd, &out->bytes);
    if (out->rc)
        snprintf(out->why, sizeof(out->why), "%s", hw_error());
}

struct task {
    const struct hd_kernel *k;
    uint16_t type;
    int client;
};

static void inspect_message(int pair, void *arg)
{
    const struct task *t = arg;
    struct hd_facts facts = {0};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = &facts, .iov_len = sizeof(facts)};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    uint8_t buf[HW_HELPER_REQUEST];
    bool many;
    int fd;
    (void)receive_message(t->client, buf, sizeof(buf), &fd, &many);
    if (fd >= 0 && !many)
        hd_inspect(t->k, t->type, fd, &facts);
    facts.many = many;
    if (fd >= 0 && !many && facts.rc == 0 && t->type != HW_H_STEER) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_LEN(sizeof(int));
        control.head =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    }
    if (fd >= 0)
        (void)sendmsg(pair, &m, MSG_NOSIGNAL);
}

int hd_inspect_start(const struct hd_kernel *k, uint16_t type, int client, int *pair)
{
    struct task t = {.k = k, .type = type, .client = client};
    return hd_child_start(&client, 1, inspect_message, &t, pair);
}

int hd_inspect_answer(int pair, struct hd_facts *out, int *fd)
{
    bool many;
    ssize_t n = receive_message(pair, out, sizeof(*out), fd, &many);
    if (n == (ssize_t)sizeof(*out) && !many)
        return 0;
    hw_close(fd);
    return hw_fail(-ECHILD, "the process that looked at the descriptor ended without an answer");
}
