/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/child/inspect.h"
#include "sys/pass.h"
#include "wire/helper.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

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
    uint8_t buf[HW_HELPER_REQUEST];
    bool many = false;
    int fd;
    (void)hw_pass_receive(t->client, buf, sizeof(buf), &fd, 1, MSG_DONTWAIT, &many);
    if (fd >= 0 && !many)
        hd_inspect(t->k, t->type, fd, &facts);
    facts.many = many;
    bool pass = !many && facts.rc == 0 && t->type != HW_H_STEER;
    if (fd >= 0)
        (void)hw_pass_send(pair, NULL, &facts, sizeof(facts), &fd, pass, 0);
}

int hd_inspect_start(const struct hd_kernel *k, uint16_t type, int client, int *pair)
{
    struct task t = {.k = k, .type = type, .client = client};
    return hd_child_start(&client, 1, inspect_message, &t, pair);
}

int hd_inspect_answer(int pair, struct hd_facts *out, int *fd)
{
    bool many = false;
    ssize_t n = hw_pass_receive(pair, out, sizeof(*out), fd, 1, MSG_DONTWAIT, &many);
    if (n == (ssize_t)sizeof(*out) && !many)
        return 0;
    hw_close(fd);
    return hw_fail(-ECHILD, "the process that inspected the descriptor ended without an answer");
}
