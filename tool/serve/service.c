/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/serve/service.h"

#include "base/size.h"
#include "mem/cuda.h"
#include "net/sysfs.h"
#include "tool/field/inventory.h"
#include "tool/load/buffer.h"
#include "tool/load/stats.h"
#include "tool/peer/reach.h"
#include "tool/raw/raw.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define POLL_MS      250    /* ms between two checks for a stop */
#define REPLY_MS     30000  /* ms; a client that does not receive its reply within this time is lost */
#define DATA_MS      300000 /* ms until an announced message must arrive */
#define AHEAD        16     /* receives posted ahead for sends, at least, unless there are fewer slots or messages */
#define PINGS_AHEAD  4
#define THREAD_STACK (1u << 20) /* CUDA drivers run on this stack too, and do not document how much they need */

struct service {
    hawser *h;
    struct service_options o;
    pthread_mutex_t lock; /* guards memory, writes to sum (not refused) and to stopping, and clients' idle and done */
    uint64_t memory;      /* bytes charged to clients */
    struct client *clients;
    struct service_summary sum;
    bool stopping;
};

struct client {
    struct service *s;
    struct client *next;
    pthread_t thread;
    hawser_peer *peer;
    bool done;       /* the thread has ended and only needs to be joined */
    hawser_op *idle; /* receive of the next request, which service_run() cancels at its end */
    hawser_mem *msg_mem;
    uint8_t *msg; /* TP_REQUEST then TP_REPLY bytes */
    struct buffer buf;
    uint64_t charged; /* bytes of service.memory that belong to this client */
    enum tp_op op;
    uint32_t flags, depth;
    bool streaming; /* BEGIN has posted receives, so the next message need not be a request */
    uint64_t first; /* first iteration of the batch that BEGIN announced */
    uint32_t count;
    hawser_op **posted; /* ring of posted receives or echoes, one for each slot */
    struct raw_server *raw;
    struct raw_pp_server *raw_pp;
    uint64_t checked, bad;
    char *inventory; /* inventory that the client is reading */
    size_t n_inventory;
};

/* Waits up to timeout_ms for op, and frees it. *len (may be NULL) receives the length of its message. Returns
 * -ECANCELED when the service stops. */
static int await_client_op(struct client *c, hawser_op *op, int timeout_ms, uint64_t *len)
{
    int rc = hawser_wait(op, POLL_MS); /* usually the operation ends here, and the clock is not read */
    uint64_t deadline = rc == -EAGAIN ? hw_deadline(timeout_ms) : 0;
    for (; rc == -EAGAIN; rc = hawser_wait(op, POLL_MS)) {
        if (__atomic_load_n(&c->s->stopping, __ATOMIC_RELAXED))
            rc = hw_fail(-ECANCELED, "the service is stopping");
        else if (hw_now() > deadline)
            rc = hw_fail(-ETIMEDOUT, "%s: a message to or from this client did not arrive within %d ms",
                         hawser_peer_name(c->peer), timeout_ms);
        if (rc != -EAGAIN)
            break;
    }
    if (len)
        *len = hawser_op_length(op);
    hawser_op_free(op);
    return rc;
}

/* Receives the next request into c->msg, and decodes it into *r. Waits without polling until the request arrives, the
 * peer is lost, or the service stops. */
static int next_request(struct client *c, struct tp_request *r)
{
    const struct hawser_op_options none = {.size = sizeof none, .timeout_ms = -1};
    const struct hawser_vec v = {.mem = c->msg_mem, .length = TP_REQUEST};
    hawser_op *op = NULL;
    int rc = hawser_recv(c->peer, &v, 1, &none, &op);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&c->s->lock);
    c->idle = op;
    if (c->s->stopping)
        hawser_cancel(op);
    pthread_mutex_unlock(&c->s->lock);
    rc = hawser_wait(op, -1);
    uint64_t len = hawser_op_length(op);
    pthread_mutex_lock(&c->s->lock);
    c->idle = NULL;
    pthread_mutex_unlock(&c->s->lock);
    hawser_op_free(op);
    return rc < 0 ? rc : tp_decode_request(c->msg, len, r);
}

static int send_service_reply(struct client *c, const struct tp_reply *r)
{
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = REPLY_MS};
    const struct hawser_vec v = {.mem = c->msg_mem, .offset = TP_REQUEST, .length = TP_REPLY};
    hawser_op *op = NULL;
    int rc = tp_encode_reply(r, c->msg + TP_REQUEST);
    if (rc < 0 || (rc = hawser_send(c->peer, &v, 1, &o, &op)) < 0)
        return rc;
    return await_client_op(c, op, REPLY_MS + 1000, NULL);
}

static void fill_reply_counters(struct client *c, struct tp_reply *r)
{
    size_t n = TP_MAX_NICS;
    if (stats_nics(c->peer, c->s->o.devmem, r->nic, &n) == 0)
        r->n_nics = (uint32_t)n;
    r->cpu_us = stats_cpu_us();
}

static void release_client_buffer(struct client *c)
{
    if (c->raw)
        raw_server_cancel(c->raw);
    raw_server_finish(c->raw, NULL);
    if (c->raw_pp)
        raw_pp_server_cancel(c->raw_pp);
    raw_pp_server_finish(c->raw_pp, NULL);
    c->raw = NULL;
    c->raw_pp = NULL;
    free(c->posted);
    c->posted = NULL;
    int rc = buffer_free(&c->buf);
    pthread_mutex_lock(&c->s->lock);
    if (rc == 0)
        c->s->memory -= c->charged; /* after a failure the memory still exists, so it stays charged */
    c->charged = 0;
    pthread_mutex_unlock(&c->s->lock);
    c->op = 0;
}

static uint32_t count_receives_ahead(const struct client *c)
{
    uint32_t want = c->op == TP_PINGPONG ? PINGS_AHEAD : HW_MAX(2 * c->depth, (uint32_t)AHEAD);
    return HW_MIN(want, c->buf.slots);
}

/* Charges memory to the client. Fails with -ENOMEM if max_memory does not allow it, or if need is 0, which means an
 * overflow. */
static int charge_client_memory(struct client *c, uint64_t need)
{
    char want[32], left[32];
    pthread_mutex_lock(&c->s->lock);
    uint64_t room = c->s->o.max_memory - c->s->memory;
    bool fits = need != 0 && need <= room;
    if (fits) {
        c->s->memory += need;
        c->charged = need;
    }
    pthread_mutex_unlock(&c->s->lock);
    if (need == 0)
        return hw_fail(-ENOMEM, "the requested memory exceeds the address space of the serving node");
    return fits ? 0
                : hw_fail(-ENOMEM, "%s of memory is needed on the serving node, but %s there leaves only %s",
                          hw_format_size(need, want, sizeof want), c->s->o.limit_name,
                          hw_format_size(room, left, sizeof left));
}

static int make_client_buffer(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    const uint32_t rights = q->op == TP_WRITE      ? HAWSER_REMOTE_WRITE
                            : q->op == TP_READ     ? HAWSER_REMOTE_READ
                            : q->op == TP_VALIDATE ? HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE
                                                   : 0;
    const int gpu = q->gpu == TP_HOST ? BUFFER_HOST : (int)q->gpu;
    c->op = q->op;
    c->flags = q->flags;
    c->depth = q->depth;
    int rc = buffer_make(&c->buf, c->s->h, gpu, q->size, q->stride, q->slots, q->flags & TP_HOT, q->seed);
    if (rc < 0)
        return rc;
    if (rights)
        return hawser_export(c->buf.mem, 0, c->buf.len, rights, c->peer, r->key);
    c->posted = calloc(c->buf.slots, sizeof *c->posted);
    return c->posted ? 0 : hw_no_memory("%u slots", c->buf.slots);
}

static int prepare_client_buffer(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    release_client_buffer(c);
    int rc = charge_client_memory(c, buffer_need(q->size, q->stride, q->slots, q->flags & TP_HOT));
    if (rc < 0)
        return rc;
    rc = make_client_buffer(c, q, r);
    if (rc < 0)
        release_client_buffer(c);
    else
        snprintf(r->text, sizeof r->text, "%s", hawser_version());
    return rc;
}

static int post_client_receive(struct client *c, uint64_t iteration)
{
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = DATA_MS};
    const struct hawser_vec v = {.mem = c->buf.mem, .offset = buffer_offset(&c->buf, iteration), .length = c->buf.size};
    return hawser_recv(c->peer, &v, 1, &o, &c->posted[iteration % c->buf.slots]);
}

static int echo_client_message(struct client *c, uint64_t iteration)
{
    const struct hawser_op_options o = {.size = sizeof o, .timeout_ms = DATA_MS};
    const struct hawser_vec v = {.mem = c->buf.mem, .offset = buffer_offset(&c->buf, iteration), .length = c->buf.size};
    return hawser_send(c->peer, &v, 1, &o, &c->posted[iteration % c->buf.slots]);
}

static int await_slot_op(struct client *c, uint64_t iteration)
{
    hawser_op **op = &c->posted[iteration % c->buf.slots];
    hawser_op *mine = *op;
    uint64_t len;
    *op = NULL;
    if (!mine)
        return 0;
    int rc = await_client_op(c, mine, DATA_MS, &len);
    if (rc == 0 && len != c->buf.size)
        rc = hw_fail(-EPROTO, "%s: a message has %" PRIu64 " bytes, but %" PRIu64 " were announced",
                     hawser_peer_name(c->peer), len, c->buf.size);
    return rc;
}

/* Receives a batch while keeping further receives posted. pingpong sends each message back from the same slot, and
 * waits for that send only before the slot is used again, or at the end of the batch. */
static int receive_batch(struct client *c, uint64_t posted)
{
    uint64_t end = c->first + c->count;
    const bool echoes = c->op == TP_PINGPONG;
    int rc = 0;
    for (uint64_t i = c->first; i < end; i++) {
        rc = await_slot_op(c, i);
        if (rc < 0 || (echoes && (rc = echo_client_message(c, i)) < 0))
            return rc;
        if (posted >= end)
            continue;
        rc = await_slot_op(c, posted); /* wait for an echo sent from this slot, if any */
        if (rc < 0 || (rc = post_client_receive(c, posted++)) < 0)
            return rc;
    }
    for (uint32_t k = 0; k < c->buf.slots && echoes && rc == 0; k++)
        rc = await_slot_op(c, k);
    return rc;
}

/* Frees the posted operations, after cancelling those in flight. Must be called before the buffer is freed. */
static void drop_posted(struct client *c)
{
    for (uint32_t k = 0; c->posted && k < c->buf.slots; k++) {
        hawser_op_free(c->posted[k]);
        c->posted[k] = NULL;
    }
}

static int begin_client_batch(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    bool two_sided = c->op == TP_SEND || c->op == TP_PINGPONG;
    if (!c->op)
        return hw_fail(-EINVAL, "BEGIN without PREPARE");
    if (c->op != TP_PINGPONG && !(c->flags & TP_NO_VERIFY) && q->count > c->buf.slots)
        return hw_fail(-EINVAL, "a batch of %u iterations does not fit in %u slots", q->count, c->buf.slots);
    c->first = q->first;
    c->count = q->count;
    int rc = 0;
    if (c->op == TP_READ && !(c->flags & TP_NO_VERIFY))
        rc = buffer_fill(&c->buf, q->first, q->count);
    if (rc < 0)
        return rc;
    uint64_t posted = q->first;
    c->streaming = two_sided;
    for (; two_sided && rc == 0 && posted < q->first + HW_MIN(q->count, count_receives_ahead(c)); posted++)
        rc = post_client_receive(c, posted);
    if (rc < 0)
        return rc;
    fill_reply_counters(c, r);
    rc = send_service_reply(c, r);
    if (rc < 0 || (two_sided && (rc = receive_batch(c, posted)) < 0))
        return rc;
    c->streaming = false;
    return 1; /* the reply was already sent */
}

static int end_client_batch(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    fill_reply_counters(c, r); /* before checking, which uses CPU time */
    if (!c->op || q->first != c->first || q->count > c->count)
        return hw_fail(-EINVAL, "END of iterations that were not begun");
    if (c->op != TP_READ && c->op != TP_PINGPONG && !(c->flags & TP_NO_VERIFY)) {
        int rc = buffer_check(&c->buf, q->first, q->count, &r->bad, &r->checked, &r->first_bad);
        c->checked += r->checked;
        c->bad += r->bad;
        return rc;
    }
    return 0;
}

static int raw_begin(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    uint64_t deadline = hw_deadline((int)q->raw.timeout_ms);
    if (!c->buf.base || c->raw || c->raw_pp)
        return hw_fail(-EINVAL, "RAW without PREPARE of host memory, or while another RAW runs");
    if (q->raw.kind == TP_RAW_SPIN || q->raw.kind == TP_RAW_BLOCK) {
        struct raw_pingpong pp = {.size = (uint32_t)q->raw.message,
                                  .iters = (uint32_t)HW_MIN(q->raw.total, (uint64_t)INT32_MAX),
                                  .warmup = (uint32_t)HW_MIN(q->raw.warmup, (uint64_t)INT32_MAX),
                                  .spin = q->raw.kind == TP_RAW_SPIN,
                                  .knobs = c->s->o.knobs};
        memcpy(pp.token, q->raw.token, sizeof pp.token);
        return raw_pp_server_start(&pp, q->raw.addr[0], deadline, &c->raw_pp, &r->port[0]);
    }
    struct raw_plan plan = {.dir = q->raw.kind == TP_RAW_UP ? RAW_CLIENT_SENDS : RAW_SERVER_SENDS,
                            .streams = q->raw.streams,
                            .message = q->raw.message,
                            .total = q->raw.total,
                            .duration_ms = q->raw.duration_ms,
                            .warmup = q->raw.warmup,
                            .knobs = c->s->o.knobs};
    memcpy(plan.token, q->raw.token, sizeof plan.token);
    const char *addr[TP_MAX_PATHS];
    for (uint32_t i = 0; i < q->raw.n_addrs; i++)
        addr[i] = q->raw.addr[i];
    return raw_server_start(&plan, addr, q->raw.n_addrs, c->buf.base, c->buf.len, deadline, &c->raw, r->port);
}

static int raw_end(struct client *c, struct tp_reply *r)
{
    int rc;
    if (c->raw) {
        struct raw_result got = {0};
        rc = raw_server_finish(c->raw, &got);
        c->raw = NULL;
        r->raw_bytes = got.bytes;
        r->raw_seconds = rc == 0 ? got.seconds : 0;
        r->raw_cpu = rc == 0 ? got.cpu_seconds : 0;
    } else if (c->raw_pp) {
        rc = raw_pp_server_finish(c->raw_pp, &r->raw_cpu);
        c->raw_pp = NULL;
    } else {
        rc = hw_fail(-EINVAL, "RAW_END without RAW");
    }
    return rc;
}

/* Fills the reply to FACTS, for clients such as `hawser doctor`. */
static int fill_reply_facts(const struct tp_request *q, struct tp_reply *r)
{
    uint64_t in = reach_wall_ns();
    int root = hw_root_open("/");
    int rc = root < 0 ? root : reach_facts(root, &r->facts);
    if (rc == 0 && q->flags & TP_CONTAINED)
        reach_contained(root, &r->facts);
    hw_close(&root);
    if (rc == 0 && q->reach.n_addrs > 0)
        rc = reach_try(&q->reach, &r->facts);
    HW_KEEP_ERROR();
    int gpus = hw_cuda_count(); /* without a driver there are no GPUs */
    r->facts.gpus = (uint16_t)HW_MIN(HW_MAX(gpus, 0), TP_HOST - 1);
    r->facts.wall_in_ns = in;
    r->facts.wall_out_ns = reach_wall_ns();
    return rc;
}

/* Fills the reply to INVENTORY, for `hawser fieldtest`. The client reads the text in one or more parts. */
static int fill_reply_inventory(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    if (q->first == 0) {
        free(c->inventory);
        c->n_inventory = 0;
        HW_AUTO_CLOSE int root = hw_root_open("/");
        int rc = root < 0 ? root : inventory_make(root, &c->inventory, &c->n_inventory);
        if (rc < 0) {
            c->inventory = NULL;
            return rc;
        }
    }
    if (!c->inventory || q->first > c->n_inventory)
        return hw_fail(-EINVAL, "INVENTORY was requested from byte %" PRIu64 " of %zu", q->first, c->n_inventory);
    r->whole = (uint32_t)c->n_inventory;
    r->n_piece = (uint32_t)HW_MIN(c->n_inventory - q->first, (uint64_t)TP_PIECE);
    memcpy(r->piece, c->inventory + q->first, r->n_piece);
    return 0;
}

/* Handles one request. Returns 0 if the caller must send r, 1 if the reply was already sent, or a negative errno, which
 * the caller sends as the reply unless c->streaming is set. */
static int serve_one(struct client *c, const struct tp_request *q, struct tp_reply *r)
{
    switch (q->type) {
    case TP_PREPARE:
        return prepare_client_buffer(c, q, r);
    case TP_BEGIN:
        return begin_client_batch(c, q, r);
    case TP_END:
        return end_client_batch(c, q, r);
    case TP_RAW:
        return raw_begin(c, q, r);
    case TP_RAW_END:
        return raw_end(c, r);
    case TP_RELEASE:
        release_client_buffer(c);
        return 0;
    case TP_FACTS:
        return fill_reply_facts(q, r);
    case TP_INVENTORY:
        return fill_reply_inventory(c, q, r);
    default:
        return hw_fail(-EINVAL, "a request has the unknown type %d", (int)q->type);
    }
}

/* Serves requests until the client disconnects, is lost or violates the protocol, or the service stops. Returns the
 * reason as a negative errno. */
static int serve_requests(struct client *c)
{
    HW_AUTO_FREE struct tp_request *q = calloc(1, sizeof *q);
    HW_AUTO_FREE struct tp_reply *r = calloc(1, sizeof *r);
    if (!q || !r)
        return hw_no_memory("messages");
    int rc;
    while ((rc = next_request(c, q)) == 0) {
        *r = (struct tp_reply){.type = q->type, .id = q->id};
        rc = serve_one(c, q, r);
        if (rc == 1)
            continue;
        if (rc < 0) {
            if (c->streaming)
                return rc; /* a posted receive would match the next request, so the session cannot continue */
            *r = (struct tp_reply){.type = q->type, .id = q->id, .status = rc};
            snprintf(r->text, sizeof r->text, "%s", hawser_error());
            __atomic_fetch_add(&c->s->sum.refused, 1, __ATOMIC_RELAXED);
        }
        rc = send_service_reply(c, r);
        if (rc < 0)
            return rc;
    }
    return rc;
}

static void *client_main(void *arg)
{
    struct client *c = arg;
    int rc = serve_requests(c);
    char why[HW_ERR_TEXT];
    snprintf(why, sizeof why, "%s", hawser_error());

    struct tp_nic nics[TP_MAX_NICS];
    size_t n = TP_MAX_NICS;
    uint64_t tx = 0, rx = 0, device = 0, copied = 0;
    if (stats_nics(c->peer, false, nics, &n) == 0)
        for (size_t i = 0; i < n; i++) {
            tx += nics[i].tx_bytes;
            rx += nics[i].rx_bytes;
            device += nics[i].rx_device_bytes;
            copied += nics[i].rx_copied_bytes;
        }
    bool died = rc != -ESHUTDOWN && rc != -ECANCELED;
    if (!c->s->o.quiet) {
        const char *name = hawser_peer_name(c->peer), *reason = why;
        if (strncmp(why, name, strlen(name)) == 0 && strncmp(why + strlen(name), ": ", 2) == 0)
            reason += strlen(name) + 2; /* skip the peer's name, which is already printed */
        printf("client %s %s%s: %.3f GB in, %.3f GB out, %.3f GB checked, %" PRIu64 " bad byte%s", name,
               died               ? "is lost: "
               : rc == -ECANCELED ? "was disconnected"
                                  : "left",
               died ? reason : "", (double)rx / 1e9, (double)tx / 1e9, (double)c->checked / 1e9, c->bad,
               hw_plural(c->bad));
        if (device || copied)
            printf("; %.3f GB by NICs into device memory, %.3f GB copied by a CPU", (double)device / 1e9,
                   (double)copied / 1e9);
        putchar('\n');
        fflush(stdout);
    }
    drop_posted(c);
    hawser_peer_close(c->peer); /* after this, no operation of the peer uses the memory, so it can be freed */
    release_client_buffer(c);
    hawser_mem_deregister(c->msg_mem);
    free(c->msg);
    free(c->inventory);
    pthread_mutex_lock(&c->s->lock);
    struct service_summary *sum = &c->s->sum;
    sum->died += died;
    sum->checked += c->checked;
    sum->bad += c->bad;
    sum->tx_bytes += tx;
    sum->rx_bytes += rx;
    c->done = true;
    pthread_mutex_unlock(&c->s->lock);
    return NULL;
}

static int start_service_client(struct service *s, struct client *c, hawser_peer *p)
{
    pthread_attr_t attr;
    if (!c || !(c->msg = calloc(1, TP_REQUEST + TP_REPLY)))
        return hw_no_memory("client %s", hawser_peer_name(p));
    int rc = hawser_mem_register(s->h, HAWSER_MEM_HOST, c->msg, TP_REQUEST + TP_REPLY, &c->msg_mem);
    if (rc < 0)
        return rc;
    c->s = s;
    c->peer = p;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, THREAD_STACK);
    int e = pthread_create(&c->thread, &attr, client_main, c);
    pthread_attr_destroy(&attr);
    return e ? hw_fail(-e, "starting a thread for client %s: %s", hawser_peer_name(p), hw_errno_text(e)) : 0;
}

static int add_client(struct service *s, hawser_peer *p)
{
    struct client *c = calloc(1, sizeof *c);
    int rc = start_service_client(s, c, p);
    if (rc < 0) {
        (void)tool_fail(s->o.cmd, "%s", hawser_error());
        hawser_peer_close(p);
        if (c) {
            hawser_mem_deregister(c->msg_mem);
            free(c->msg);
            free(c);
        }
        return rc;
    }
    pthread_mutex_lock(&s->lock);
    c->next = s->clients;
    s->clients = c;
    s->sum.clients++;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

/* Joins and frees the clients that have ended; with all, waits for every client. Returns the number of remaining
 * clients. */
static size_t reap_service_clients(struct service *s, bool all)
{
    size_t left = 0;
    for (struct client **at = &s->clients; *at;) {
        struct client *c = *at;
        pthread_mutex_lock(&s->lock);
        bool done = c->done;
        pthread_mutex_unlock(&s->lock);
        if (!done && !all) {
            left++;
            at = &c->next;
            continue;
        }
        *at = c->next;
        pthread_join(c->thread, NULL);
        free(c);
    }
    return left;
}

int service_run(hawser *h, const struct service_options *o, struct service_summary *out)
{
    struct service s = {.h = h, .o = *o, .lock = PTHREAD_MUTEX_INITIALIZER};
    int rc = 0;
    while (!tool_stop) {
        hawser_peer *p = NULL;
        rc = hawser_accept(h, POLL_MS, &p);
        if (rc == 0)
            add_client(&s, p);
        else if (rc != -EAGAIN && rc != -EINTR)
            break;
        rc = 0;
        if (reap_service_clients(&s, false) == 0 && o->once && s.sum.clients > 0)
            break;
    }
    HW_KEEP_ERROR();
    pthread_mutex_lock(&s.lock);
    __atomic_store_n(&s.stopping, true, __ATOMIC_RELAXED);
    for (struct client *c = s.clients; c; c = c->next)
        if (c->idle)
            hawser_cancel(c->idle);
    pthread_mutex_unlock(&s.lock);
    reap_service_clients(&s, true);
    *out = s.sum;
    pthread_mutex_destroy(&s.lock);
    return HW_MIN(rc, 0);
}
