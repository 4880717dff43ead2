/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a child that is stopped, or whose shared memory or replies contain invalid values. The parent must detect the
 * fault, must not wait forever, and must not access memory out of bounds. */
#include "netplugin_pair.h"
#include "transport/netplugin/host/host_inner.h"

#include <sys/socket.h>

struct fixture {
    struct np_host *h;
    struct pair p;
};

/* Makes a connection, stops the child, and posts two receives. */
static void start(struct fixture *f, bool list)
{
    f->h = open_host(TCPXLIKE,
                     &(struct np_options){
                         .env = (const char *const[]){"NCCL_DYNAMIC_CHUNK_SIZE=524288", "TCPXLIKE_LOOPBACK=1",
                                                      "TCPXLIKE_UNPACK_HOST=1",
                                                      "NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=0", NULL},
                         .any_env = true,
                         .list = list,
                         .call_ms = 700});
    f->p.event = -1;
    if (pair_make(&f->p, f->h, 0, 1 << 16) < 0) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
    kill(f->h->pid, SIGSTOP);
    usleep(20000);
    for (int i = 0; i < 2; i++)
        if (np_irecv(f->p.recv, f->p.rmr, 0, 1000, 0, HW_NEVER) < 0)
            exit(1);
}

static void stop(struct fixture *f)
{
    int pid = f->h->info.pid;
    pair_unmake(&f->p);
    np_close(f->h);
    is_int(kill(pid, 0) < 0 ? errno : 0, ESRCH, "its process is no more");
}

/* Checks rc, the error text, and that the host and its connection report the error. Then closes the fixture. */
static void check_dead(struct fixture *f, int rc, int want, const char *says)
{
    struct np_result r;
    ok(rc == want && strstr(hw_error(), says), "%s", hw_error());
    is_int(np_health(f->h), want, "the host is dead");
    is_int(np_test(f->p.recv, &r), want, "the connection too");
    stop(f);
}

static void test_counters(void)
{
    struct fixture f;
    struct np_result r;

    start(&f, false);
    atomic_store(&f.p.recv->ring->done, 3);
    check_dead(&f, np_test(f.p.recv, &r), -EPROTO, "must be between 0 and 2");
    start(&f, false);
    atomic_store(&f.p.recv->ring->done, UINT64_MAX);
    check_dead(&f, np_test(f.p.recv, &r), -EPROTO, "violated the protocol");

    start(&f, false);
    atomic_store(&f.p.recv->ring->done, 1);
    is_int(np_test(f.p.recv, &r), 0, "one is over");
    atomic_store(&f.p.recv->ring->done, 0);
    check_dead(&f, np_test(f.p.recv, &r), -EPROTO, "must be between 1 and 2");
}

static void test_entries(void)
{
    struct fixture f;
    struct np_result r;

    start(&f, false);
    f.p.recv->ring->entry[0].size = 1001;
    f.p.recv->ring->entry[0].known = 1;
    atomic_store(&f.p.recv->ring->done, 1);
    check_dead(&f, np_test(f.p.recv, &r), -EPROTO, "1001 bytes");

    start(&f, false);
    f.p.recv->ring->entry[0].frags = NP_FRAGS + 1;
    atomic_store(&f.p.recv->ring->done, 1);
    check_dead(&f, np_test(f.p.recv, &r), -EPROTO, "fragments: 2049");

    start(&f, true);
    static struct hw_frag frags[NP_FRAGS];
    struct np_frag_area *area = (struct np_frag_area *)(uintptr_t)f.p.recv->frags;
    size_t n;
    if (!area)
        exit(1);
    area->list[0][0] = (struct loadMeta){.src_off = UINT32_MAX, .len = 500, .dst_off = 0};
    area->list[0][1] = (struct loadMeta){.src_off = 0, .len = 500, .dst_off = 501};
    f.p.recv->ring->entry[0].frags = 2;
    atomic_store(&f.p.recv->ring->done, 1);
    is_int(np_test(f.p.recv, &r), 0, "one is over");
    f.p.recv->ring->entry[0].frags = 2000; /* too late: the parent has already read the value */
    check_dead(&f, np_fragments(f.p.recv, frags, NP_FRAGS, &n), -EPROTO, "exceeds the 1000 bytes");
}

/* Tests that a failure report with invalid contents becomes an errno and a message of one line. */
static void test_failure(void)
{
    struct fixture f;
    struct np_result r;
    start(&f, false);
    f.p.recv->ring->rc = 1 << 30;
    memset(f.p.recv->ring->text, '\n', sizeof(f.p.recv->ring->text));
    atomic_store(&f.p.recv->ring->state, NP_FAILED);
    is_int(np_test(f.p.recv, &r), -EIO, "a failure with no errno and no end to its text");
    ok(!strchr(hw_error(), '\n') && strlen(hw_error()) < HW_ERR_TEXT, "is one line");
    is_int(np_health(f.h), 0, "the host has no part in it");
    stop(&f);
}

static int answer_with(struct fixture *f, size_t len, uint32_t seq, uint32_t devices_op)
{
    struct np_reply raw;
    struct np_props props;
    int pair[2], mine = f->h->socket;
    memset(&raw, 0xff, sizeof(raw));
    raw.seq = f->h->seq + seq;
    raw.rc = (int32_t)devices_op;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0 || send(pair[1], &raw, len, 0) < 0)
        exit(1);
    f->h->socket = pair[0];
    f->h->known[0] = false; /* cached values are not requested again */
    int rc = np_props(f->h, 0, &props);
    f->h->socket = mine;
    close(pair[0]);
    close(pair[1]);
    return rc;
}

static void test_replies(void)
{
    struct fixture f;
    start(&f, false);
    check_dead(&f, answer_with(&f, sizeof(struct np_reply), 2, 0), -EPROTO, "a reply to message");
    start(&f, false);
    check_dead(&f, answer_with(&f, 10, 1, 0), -EPROTO, "a reply of 10 bytes");
    start(&f, false);
    check_dead(&f, answer_with(&f, sizeof(struct np_reply), 1, 12345), -EPROTO, "invalid result 12345");
}

static void test_stopped(void)
{
    struct fixture f;
    struct np_result r;
    struct np_props props;
    int rc;

    start(&f, false);
    atomic_store(&f.h->s->asleep, 0);
    atomic_store(&f.h->s->doing, UINT32_MAX);
    while ((rc = np_test(f.p.recv, &r)) == -EAGAIN)
        usleep(1000);
    check_dead(&f, rc, -ETIMEDOUT, "hung for");

    start(&f, false);
    f.h->known[0] = false;
    check_dead(&f, np_props(f.h, 0, &props), -ETIMEDOUT, "hung for");

    /* A child that reports that it is asleep is not considered hung, so the request's own deadline ends the wait. */
    start(&f, false);
    atomic_store(&f.h->s->asleep, 1);
    f.p.recv->req[0].deadline = hw_deadline(400);
    is_int(np_wait(f.p.recv, hw_deadline(SOON), &r), -ETIMEDOUT, "a child that sleeps for ever");
    ok(strstr(hw_error(), "irecv 0"), "%s", hw_error());
    stop(&f);

    /* The application ignores SIGCHLD. */
    signal(SIGCHLD, SIG_IGN);
    start(&f, false);
    kill(f.h->pid, SIGKILL);
    while ((rc = np_test(f.p.recv, &r)) == -EAGAIN)
        usleep(1000);
    check_dead(&f, rc, -EIO, "another wait()");
    signal(SIGCHLD, SIG_DFL);
}

static void test_seals(void)
{
    int fd;
    void *at;
    is_int(np_shared_memory("hawser-test", 8192, &fd, &at), 0, "shared memory");
    is_int(ftruncate(fd, 0) < 0 ? errno : 0, EPERM, "cannot be cut short by whoever has it");
    munmap(at, 8192);
    close(fd);
}

int main(void)
{
    const int fds = proc_entries("/proc/self/fd");
    test_counters();
    test_entries();
    test_failure();
    test_replies();
    test_stopped();
    test_seals();
    is_int(proc_entries("/proc/self/fd"), fds, "no descriptor is left open");
    is_int(children(), 0, "and no child, living or dead");
    return tap_done();
}
