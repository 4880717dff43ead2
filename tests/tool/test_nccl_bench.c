/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the parts of `hawser nccl bench` that need no NCCL: NIC counters, messages between launched processes, and the
 * processes' GPUs. */
#include "sys/pass.h"
#include "tests/tap.h"
#include "tool/nccl/bench/nccl_launch.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)

/* Sends BYTES bytes to this process over loopback. */
static bool send_to_self(void)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    static char buf[16384];
    int l = socket(AF_INET, SOCK_STREAM, 0), a = socket(AF_INET, SOCK_STREAM, 0);
    bool good = bind(l, (struct sockaddr *)&addr, len) == 0 && listen(l, 1) == 0 &&
                getsockname(l, (struct sockaddr *)&addr, &len) == 0 && connect(a, (struct sockaddr *)&addr, len) == 0;
    int b = good ? accept(l, NULL, NULL) : -1;
    for (size_t at = 0; at < BYTES && b >= 0; at += sizeof buf) {
        good = good && write(a, buf, sizeof buf) == sizeof buf;
        good = good && recv(b, buf, sizeof buf, MSG_WAITALL) == sizeof buf;
    }
    close(l);
    close(a);
    close(b);
    return good && b >= 0;
}

static void test_counters(void)
{
    struct nb_counts before, after;
    nb_count(&before);
    bool sent = send_to_self();
    nb_count(&after);
    const bool same = before.node == after.node && before.node == nb_node_id();
    nb_count_since(&after, &before);
    const struct nb_nic *lo = NULL;
    for (uint32_t i = 0; i < after.n; i++)
        lo = strcmp(after.nic[i].name, "lo") == 0 ? &after.nic[i] : lo;
    if (!lo)
        tap_skip("the loopback's counters", "there is no lo");
    else
        ok(sent && same && lo->sent >= BYTES && lo->received >= BYTES, "the loopback has carried 1 MiB: %llu, %llu",
           (unsigned long long)lo->sent, (unsigned long long)lo->received);
}

/* Tests two ranks on one node and a third rank on another node. */
static void test_sums(void)
{
    struct nb_crew *c = calloc(1, sizeof *c);
    struct nb_counted_list l = {0};
    static const uint64_t node[] = {7, 7, 9};
    int rc = 0;
    for (unsigned i = 0; i < 3; i++) {
        c->m[i].host = i < 2 ? "a" : "b";
        c->m[i].reply.counts = (struct nb_counts){.node = node[i], .n = 1, .nic = {{"eth0", 100 + i, 200, 3, 1 + i}}};
        rc = rc < 0 ? rc : nb_counted_add(&l, c, i);
    }
    ok(rc == 0 && l.n == 2 && l.at[0].nic.sent == 100 && l.at[0].nic.received == 200 && l.at[0].nic.dropped == 3 &&
           l.at[0].nic.retransmits == 3 && strcmp(l.at[1].host, "b") == 0 && l.at[1].nic.sent == 102 &&
           l.at[1].nic.retransmits == 3,
       "a node's NIC counts once, the retransmits of all its ranks");
    free(l.at);
    free(c);
}

static bool passes(const struct nb_tube *m)
{
    static struct nb_tube back;
    uint8_t buf[NB_TUBE_MOST];
    int n = nb_tube_encode(m, buf);
    return n > 0 && nb_tube_decode(buf, (size_t)n, &back) == 0 && back.type == m->type && back.id == m->id &&
           back.value == m->value && memcmp(&back.hello, &m->hello, sizeof m->hello) == 0 && back.len == m->len &&
           memcmp(back.data, m->data, m->len) == 0 && nb_tube_decode(buf, (size_t)n - 1, &back) == -EPROTO;
}

static void test_messages(void)
{
    static struct nb_tube m;
    uint8_t buf[NB_TUBE_MOST] = {0};
    m = (struct nb_tube){.type = NB_TUBE_HELLO,
                         .hello = {.rank = 3, .size = 4, .node = 77, .name = "n3", .version = "1"}};
    ok(passes(&m), "HELLO");
    m.hello.rank = 4;
    ok(nb_tube_encode(&m, buf) == -EINVAL, "a rank that is none");
    m = (struct nb_tube){.type = NB_TUBE_ENDED, .id = 9, .value = 3 << 8};
    ok(passes(&m), "ENDED");
    m = (struct nb_tube){.type = NB_TUBE_DATA, .id = 9, .value = 2, .len = 1, .data = "x"};
    int n = nb_tube_encode(&m, buf);
    ok(n > 0 && nb_tube_decode(buf, (size_t)n, &m) == 0 && m.len == 1 && m.data[0] == 'x', "DATA");
    m.value = 3;
    ok(nb_tube_encode(&m, buf) == -EINVAL, "a stream that is none");
    memset(buf, 0, sizeof buf);
    ok(nb_tube_decode(buf, 16, &m) == -EPROTO && nb_tube_decode(buf, 0, &m) == -EPROTO, "zeros, and nothing");
}

static void test_places(void)
{
    struct nb_hosts h = {0};
    const struct nb_seat_row each[] = {{"n1", 1}, {"n2", 2}, {"n3", 3}};
    ok(nb_hosts_launched(&h, each, 3, 5) == 0 && h.per_host == 0 && h.other == 1 && h.node[2] == 2 && h.via == 5 &&
           strcmp(h.label, "n1,n2,n3") == 0,
       "a process on each of three nodes: ranks of all GPUs");
    nb_hosts_free(&h);
    h = (struct nb_hosts){0};
    const struct nb_seat_row two[] = {{"n1", 1}, {"n1", 1}, {"n1", 2}, {"n2", 2}};
    ok(nb_hosts_launched(&h, two, 4, 5) == 0 && h.per_host == 1 && h.other == 2 && h.node[1] == 0 && h.node[3] == 2 &&
           strcmp(h.label, "n1:0,n1:1,n1:2,n2") == 0 && nb_host_of(&h, 3) == 3,
       "two on each of two nodes: a rank each");
    nb_hosts_free(&h);
    h = (struct nb_hosts){0};
    ok(nb_hosts_launched(&h, each, NB_RANKS + 1, 5) == -E2BIG, "too many");
    nb_hosts_free(&h);
}

/* Runs as the supervisor. Returns 0 if the hub closes the descriptors that arrive in incomplete messages. */
static int send_incomplete(void *arg, const struct nb_seat_row *row, uint32_t n, int via)
{
    static const struct {
        size_t bytes;
        unsigned fds;
    } bad[] = {{2, 4}, {4, 2}, {4, 1}, {1, 1}};
    (void)arg;
    (void)row;
    (void)n;
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        const uint32_t seat = 0;
        int end[2];
        if (pipe2(end, O_CLOEXEC) < 0)
            return 10;
        const int fd[] = {end[1], end[1], end[1], end[1]};
        int rc = hw_pass_send(via, NULL, &seat, bad[i].bytes, fd, bad[i].fds, 0);
        struct pollfd p = {.fd = end[0]};
        close(end[1]);
        if (rc < 0 || poll(&p, 1, 10000) != 1)
            return 1 + (int)i;
        close(end[0]);
    }
    return 0;
}

static void test_hub(void)
{
    struct common common = {0};
    struct launch_seat seat = {.size = 1};
    struct nb_launch l = {.common = &common, .seat = &seat, .wait_ms = 20000};
    l.place = (struct launch_place){.n = 1, .port = LAUNCH_PORT, .ports = 400};
    is_int(nb_hub(&l, send_incomplete, NULL), 0, "the hub closes the descriptors of incomplete messages");
}

int main(void)
{
    test_hub();
    test_counters();
    test_sums();
    test_messages();
    test_places();
    return tap_done();
}
