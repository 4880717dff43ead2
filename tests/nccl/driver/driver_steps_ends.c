/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that test a killed rank whose children survive, a stopped rank, and memory that is deregistered early. */
#include "driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct flow_spec stream = {
    .what = "a stream of messages", .n = 1u << 30, .depth = 8, .min = 65536, .max = 65536};

/* ---- a killed rank whose children live on ------------------------------------------------------ */

#define CHILDREN     3
#define CHILDREN_MS  20000 /* maximum lifetime of the children */
#define SEEN_MS      4000  /* limit for rank 0 to notice, below the default peer timeout of 10 s */
#define STILL_MS     6000
#define PEER_TIMEOUT "HAWSER_PEER_TIMEOUT_MS"

/* Forks children that survive the parent, like PyTorch's data loaders. */
static int start_children(struct rank *r)
{
    for (int i = 0; i < CHILDREN; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return hw_fail(-errno, "fork");
        if (pid > 0)
            continue;
        for (uint64_t end = hw_now() + CHILDREN_MS * HW_MS; hw_now() < end && !atomic_load(&r->sh->children_go);)
            nap_ms(10);
        _exit(0);
    }
    return 0;
}

/* Rank 1 is killed, and its children continue to run. Rank 0 must notice in time. */
int step_dead_parent(struct rank *r)
{
    struct comm *c;
    struct flow f;
    int rc = comm_open(r, 0, &c);

    if (!rc && (opt.no_death || opt.no_fork || !opt.ends))
        return SKIP("only with --ends, without --no-death and --no-fork");
    if (rc || (rc = flow_open(&f, c, &stream)))
        return rc;
    if (r->id == 1) {
        rc = flow_some(&f, 1, 10);
        if (rc || (rc = start_children(r)))
            return rc;
        atomic_store(&r->sh->died, hw_now());
        return raise(SIGKILL);
    }
    rc = flow_until_error(&f);
    const uint64_t ms = (hw_now() - atomic_load(&r->sh->died)) / HW_MS;
    atomic_store(&r->sh->children_go, 1);
    if (rc == 0 && ms > SEEN_MS)
        rc = hw_fail(-ETIMEDOUT, "a rank that was killed was noticed after %llu ms, while its children lived",
                     (unsigned long long)ms);
    printf("# the end of a rank whose children live was noticed after %llu ms\n", (unsigned long long)ms);
    return rc ? rc : flow_abandon(&f);
}

/* ---- a stopped rank ---------------------------------------------------------------------------- */

/* Rank 1 is stopped for longer than the peer timeout. Rank 0 must get an error before rank 1 continues. */
int step_stopped_deadline(struct rank *r)
{
    const char *text = getenv(PEER_TIMEOUT);
    const uint64_t limit = text ? strtoull(text, NULL, 10) : 0;
    struct comm *c;
    struct flow f;
    int rc = comm_open(r, 0, &c);

    if (!rc && (opt.no_abort || !opt.ends || limit == 0 || limit > STILL_MS / 3))
        return SKIP("only with --ends, and " PEER_TIMEOUT " of 2000 at most");
    if (rc || (rc = flow_open(&f, c, &stream)) || (rc = flow_some(&f, 1, 4)) || (rc = barrier(r)))
        return rc;
    if (r->id == 1) {
        pid_t me = getpid(), child = fork();
        if (child == 0) {
            nap_ms(STILL_MS);
            _exit(kill(me, SIGCONT) ? 1 : 0);
        }
        if (child < 0)
            return hw_fail(-errno, "fork");
        (void)raise(SIGSTOP);
        (void)waitpid(child, NULL, 0);
        rc = flow_until_error(&f);
    } else {
        const uint64_t start = hw_now();
        rc = flow_until_error(&f);
        const uint64_t ms = (hw_now() - start) / HW_MS;
        if (rc == 0 && ms > STILL_MS - 1000)
            rc = hw_fail(-ETIMEDOUT, "a rank that was stopped was noticed after %llu ms, wanted about %llu",
                         (unsigned long long)ms, (unsigned long long)limit);
    }
    if (rc == 0)
        rc = flow_abandon(&f);
    return rc ? rc : barrier(r);
}

/* ---- memory that is deregistered early ---------------------------------------------------------- */

#define BYTES ((size_t)65536)

struct box {
    uint8_t *p;
    void *mh, *req;
};

static int open_box(struct comm *c, struct box *b)
{
    b->p = aligned_alloc(4096, BYTES);
    if (!b->p)
        return hw_fail(-ENOMEM, "%zu bytes", BYTES);
    memset(b->p, 0xee, BYTES);
    return net_fail(net_reg(c->r, c->c, b->p, BYTES, &b->mh), "regMr");
}

static int post_box(struct comm *c, struct box *b)
{
    struct wait w = wait_for("room for a request");
    int rc = 0;
    while (!rc && !b->req) {
        rc = net_fail(c->sends ? net_isend(c->r, c->c, b->p, BYTES, 0, b->mh, NULL, &b->req)
                               : net_irecv(c->r, c->c, b->p, BYTES, 0, b->mh, NULL, &b->req),
                      c->sends ? "isend" : "irecv");
        if (!rc && !b->req)
            rc = wait_turn(c->r, &w);
    }
    return rc;
}

static int await_box(struct comm *c, struct box *b)
{
    struct wait w = wait_for("a message beside memory that was taken back");
    int done = 0, size = 0, rc = 0;
    while (!rc && !done) {
        rc = net_fail(net_test(c->r, b->req, &done, &size), "test");
        if (!rc && !done)
            rc = wait_turn(c->r, &w);
    }
    return rc == 0 && size != (int)BYTES ? hw_fail(-EPROTO, "%d bytes came, %zu were sent", size, BYTES) : rc;
}

/* Posts two receives, and deregisters the memory of the second. The first receive must still get its message. */
static int deregister_second(struct comm *c, struct box box[2])
{
    int rc = 0;
    for (int i = 0; i < 2 && !rc; i++)
        if (!(rc = open_box(c, &box[i])))
            rc = post_box(c, &box[i]);
    if (!rc)
        rc = net_fail(net_dereg(c->r, c->c, box[1].mh), "deregMr of memory with a request on it");
    free(box[1].p);
    box[1].p = NULL;
    if (rc || (rc = barrier(c->r)) || (rc = await_box(c, &box[0])))
        return rc;
    for (size_t i = 0; i < BYTES; i++)
        if (box[0].p[i] != 0x5a)
            return hw_fail(-EBADMSG, "byte %zu of the message is %#x", i, box[0].p[i]);
    return 0;
}

/* Tests a request for 300 ms. Fails if it succeeds. */
static int await_no_success(struct comm *c, struct box *b)
{
    int done = 0, size;
    for (uint64_t end = hw_now() + 300 * HW_MS; hw_now() < end; nap_ms(1)) {
        if (net_fail(net_test(c->r, b->req, &done, &size), "test"))
            return 0;
        if (done)
            return hw_fail(-EBADMSG,
                           "a request took the place of an earlier one whose memory was deregistered; byte 0 is %#x",
                           b->p[0]);
    }
    return 0;
}

/* One side posts two requests, and deregisters the memory of the first one before the other side posts a request. No
 * request may succeed: the second message must not fill the first receive, nor the first message the second receive. */
static int deregister_first(struct rank *r, bool by_sender)
{
    struct box box[2] = {{0}};
    struct comm *c;
    int rc = comm_open(r, 0, &c);
    const bool mine = !rc && c->sends == by_sender;

    for (int i = 0; i < (mine ? 2 : 0) && !rc; i++)
        if (!(rc = open_box(c, &box[i])))
            rc = post_box(c, &box[i]);
    if (mine && !rc)
        rc = net_fail(net_dereg(r, c->c, box[0].mh), "deregMr of memory with a request on it");
    if (rc || (rc = barrier(r)))
        return rc;
    if (!mine && !(rc = open_box(c, &box[1])))
        rc = post_box(c, &box[1]);
    if (!rc)
        rc = await_no_success(c, &box[1]);
    if (rc || (rc = barrier(r)))
        return rc;
    void *late = NULL;
    if (mine && !net_fail(c->sends ? net_isend(r, c->c, box[1].p, BYTES, 0, box[1].mh, NULL, &late)
                                   : net_irecv(r, c->c, box[1].p, BYTES, 0, box[1].mh, NULL, &late),
                          "a request afterwards"))
        rc = hw_fail(-EBADMSG, "a later request was accepted");
    if (!rc)
        rc = net_fail(net_dereg(r, c->c, box[1].mh), "deregMr");
    if (!rc)
        rc = comm_close(c);
    free(box[0].p);
    free(box[1].p);
    return rc ? rc : barrier(r);
}

int step_deregister_first(struct rank *r)
{
    if (opt.no_abort || !opt.ends)
        return SKIP("only with --ends, without --no-abort");
    int rc = deregister_first(r, true);
    return rc ? rc : deregister_first(r, false);
}

int step_deregister_one(struct rank *r)
{
    struct box box[2] = {{0}};
    struct comm *c;
    int rc = comm_open(r, 0, &c);

    if (!rc && (opt.no_abort || !opt.ends))
        return SKIP("only with --ends, without --no-abort");
    if (rc)
        return rc;
    if (!c->sends) {
        rc = deregister_second(c, box);
    } else if (!(rc = open_box(c, &box[0]))) {
        memset(box[0].p, 0x5a, BYTES);
        if (!(rc = barrier(r)) && !(rc = post_box(c, &box[0])))
            rc = await_box(c, &box[0]);
    }
    if (!rc)
        rc = net_fail(net_dereg(r, c->c, box[0].mh), "deregMr");
    if (!rc)
        rc = comm_close(c);
    free(box[0].p);
    return rc ? rc : barrier(r);
}
