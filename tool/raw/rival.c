/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/raw/rival.h"

#include "tool/raw/raw.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define RUN_MS      120000 /* ms that a plain run may take in addition to its expected duration */
#define WARMUP      (16ull << 20)
#define WARMUP_CALL 1000

/* Reads hawser's current paths; if there are none, keeps the earlier ones. A NIC may have been added or lost since the
 * session began, and both sides of the comparison must use the same NICs. */
static void learn_paths(struct rival *v)
{
    struct session_path path[TP_MAX_PATHS];
    const size_t n = session_paths(v->s, path, TP_MAX_PATHS);
    if (n == 0)
        return;
    memcpy(v->path, path, n * sizeof *path);
    v->n_paths = n;
}

int rival_open(struct rival *v, struct session *s, const struct hw_knobs *knobs)
{
    *v = (struct rival){.s = s, .knobs = knobs};
    learn_paths(v);
    return v->n_paths ? 0 : hw_fail(-ENODEV, "no connection to %s reports its addresses", hawser_peer_name(s->peer));
}

static int generate_raw_token(struct tp_request *q)
{
    if (getrandom(q->raw.token, sizeof q->raw.token, 0) != (ssize_t)sizeof q->raw.token)
        return hw_fail(-EIO, "the kernel returned no random bytes: %s", hw_errno_text(errno));
    return 0;
}

static int start_rival_run(struct rival *v, struct tp_request *q, struct tp_reply *r, struct raw_path *paths, size_t n)
{
    int rc = generate_raw_token(q);
    if (rc < 0)
        return rc;
    q->type = TP_RAW;
    q->raw.n_addrs = (uint32_t)n;
    for (size_t i = 0; i < n; i++)
        memcpy(q->raw.addr[i], v->path[i].remote, sizeof q->raw.addr[i]);
    rc = session_call(v->s, q, r, SESSION_CALL_MS);
    for (size_t i = 0; i < n; i++)
        paths[i] = (struct raw_path){v->path[i].remote, r->port[i], v->path[i].local, v->path[i].nic};
    return rc;
}

static int end_rival_run(struct rival *v, struct tp_reply *r, int rc)
{
    /* Send RAW_END even if this side failed, because the server accepts no other RAW before RAW_END. */
    struct tp_request q = {.type = TP_RAW_END};
    if (rc == 0)
        return session_call(v->s, &q, r, RUN_MS);
    HW_KEEP_ERROR();
    (void)session_call(v->s, &q, r, SESSION_CALL_MS);
    return rc;
}

int rival_run(struct rival *v, struct measure *m, uint32_t streams, uint64_t iters, uint64_t duration_ms,
              struct rival_result *out)
{
    bool down = m->plan.op == TP_READ;
    struct raw_plan plan = {.dir = down ? RAW_SERVER_SENDS : RAW_CLIENT_SENDS,
                            .streams = streams,
                            .message = HW_MIN(m->plan.size, (uint64_t)RAW_MESSAGE),
                            .duration_ms = duration_ms,
                            .knobs = v->knobs};
    learn_paths(v);
    if (m->plan.size == 0)
        return hw_fail(-EINVAL, "plain sockets cannot carry messages of 0 bytes");
    if (!duration_ms)
        plan.total = iters * m->plan.size;
    plan.warmup = HW_MIN(WARMUP, plan.message * WARMUP_CALL);
    int limit = RUN_MS + (int)HW_MIN(HW_MAX(duration_ms, plan.total / 10000), (uint64_t)(TP_RAW_MS - RUN_MS));
    struct tp_request q = {.raw = {.kind = down ? TP_RAW_DOWN : TP_RAW_UP,
                                   .streams = streams,
                                   .timeout_ms = (uint32_t)limit,
                                   .message = plan.message,
                                   .total = plan.total,
                                   .duration_ms = duration_ms,
                                   .warmup = plan.warmup}};
    struct tp_reply r;
    struct raw_path paths[TP_MAX_PATHS];
    struct raw_result own = {0};
    int rc = start_rival_run(v, &q, &r, paths, v->n_paths);
    if (rc < 0)
        return rc;
    memcpy(plan.token, q.raw.token, sizeof plan.token);
    rc = raw_client_run(&plan, paths, v->n_paths, m->buf.base, m->buf.len, hw_deadline(limit), &own);
    rc = end_rival_run(v, &r, rc);
    if (rc < 0)
        return rc;
    double bytes = (double)(down ? r.raw_bytes : own.bytes), seconds = down ? r.raw_seconds : own.seconds;
    if (bytes <= 0 || seconds <= 0)
        return hw_fail(-EIO, "plain sockets transferred nothing");
    *out = (struct rival_result){bytes / 1e9 / seconds, own.cpu_seconds / (bytes / 1e9), r.raw_cpu / (bytes / 1e9), ""};
    memcpy(out->congestion, own.congestion, sizeof out->congestion);
    return 0;
}

int rival_best(struct rival *v, struct measure *m, uint64_t iters, uint32_t *streams)
{
    double best = 0;
    for (uint32_t n = 1; n <= 8; n *= 2) {
        struct rival_result r;
        int rc = rival_run(v, m, n, iters, 0, &r);
        if (rc < 0)
            return rc;
        if (r.GBps > best) {
            best = r.GBps;
            *streams = n;
        }
    }
    return 0;
}

int rival_pingpong(struct rival *v, struct measure *m, uint64_t iters, bool spin, double *p50_us)
{
    if (m->plan.size == 0 || m->plan.size > RAW_MESSAGE)
        return hw_fail(-EINVAL, "a message of a plain ping-pong must have 1 to %u bytes", RAW_MESSAGE);
    uint64_t warmup = HW_MAX(iters / 10, 10u);
    struct raw_pingpong pp = {.size = (uint32_t)m->plan.size,
                              .iters = (uint32_t)HW_MIN(iters, (uint64_t)INT32_MAX),
                              .warmup = (uint32_t)HW_MIN(warmup, (uint64_t)INT32_MAX),
                              .spin = spin,
                              .knobs = v->knobs};
    struct tp_request q = {.raw = {.kind = spin ? TP_RAW_SPIN : TP_RAW_BLOCK,
                                   .streams = 1,
                                   .timeout_ms = RUN_MS,
                                   .message = pp.size,
                                   .total = pp.iters,
                                   .warmup = pp.warmup}};
    struct tp_reply r;
    struct raw_path path[1];
    struct raw_latency got = {0};
    int rc = start_rival_run(v, &q, &r, path, 1);
    if (rc < 0)
        return rc;
    memcpy(pp.token, q.raw.token, sizeof pp.token);
    rc = raw_pp_client_run(&pp, path, hw_deadline(RUN_MS), &got, NULL);
    rc = end_rival_run(v, &r, rc);
    *p50_us = (double)got.p50_ns / 1e3;
    return rc;
}
