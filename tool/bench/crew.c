/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/bench/crew.h"

#include "tool/tool.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define POLL_MS 200
#define PACE_MS 500 /* period over which the progress line's rate is computed */

struct head {
    uint32_t type, len;
};

/* ---- worker side ---------------------------------------------------------------------------- */

static int send_to_supervisor(int fd, const void *data, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t k = send(fd, (const char *)data + at, len - at, MSG_NOSIGNAL);
        if (k < 0 && errno != EINTR)
            return hw_fail(-EPIPE, "reporting to the supervisor: %s", strerror(errno));
        at += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

int crew_say(int fd, enum crew_type type, const void *data, size_t len)
{
    const struct head h = {type, (uint32_t)len};
    int rc = send_to_supervisor(fd, &h, sizeof h);
    return rc < 0 ? rc : send_to_supervisor(fd, data, len);
}

int crew_say_result(int fd, const struct row *row, const struct measure *m, const char *json, size_t len)
{
    const uint64_t n = m->n_spans;
    const struct head h = {CREW_RESULT, (uint32_t)(sizeof *row + sizeof *m->hist + sizeof n + n * 16 + len)};
    int rc = send_to_supervisor(fd, &h, sizeof h);
    if (rc < 0 || (rc = send_to_supervisor(fd, row, sizeof *row)) < 0 ||
        (rc = send_to_supervisor(fd, m->hist, sizeof *m->hist)) < 0 || (rc = send_to_supervisor(fd, &n, sizeof n)) < 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = send_to_supervisor(fd, (const uint64_t[2]){m->spans[i].start, m->spans[i].end}, 16);
    return rc < 0 ? rc : send_to_supervisor(fd, json, len);
}

int crew_gate(int fd, const struct session *s, struct crew_ready at)
{
    int rc = crew_say(fd, CREW_READY, &at, sizeof at);
    if (rc < 0)
        return rc;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char go;
        if (session_stopped(s))
            return hw_fail(-EINTR, "interrupted");
        if (poll(&p, 1, POLL_MS) <= 0)
            continue;
        return recv(fd, &go, 1, 0) == 1 ? 0 : hw_fail(-EPIPE, "the supervisor has ended");
    }
}

/* ---- supervisor side ------------------------------------------------------------------------ */

int crew_open(struct crew *c, size_t n, size_t n_sizes)
{
    c->m = calloc(n, sizeof *c->m);
    c->n = c->m ? n : 0;
    c->n_sizes = n_sizes;
    for (size_t i = 0; i < c->n; i++) {
        c->m[i].fd = c->m[i].err = -1;
        c->m[i].gone = true;
        c->m[i].heard = hw_now();
        c->m[i].result = calloc(n_sizes, sizeof(struct crew_result *));
        if (!c->m[i].result) {
            crew_close(c);
            break;
        }
    }
    return c->n ? 0 : hw_no_memory("the workers");
}

void crew_close(struct crew *c)
{
    for (size_t i = 0; i < c->n; i++) {
        struct crew_member *m = &c->m[i];
        hw_close(&m->fd);
        hw_close(&m->err);
        free(m->in);
        for (size_t k = 0; m->result && k < c->n_sizes; k++) {
            if (m->result[k]) {
                free(m->result[k]->span);
                free(m->result[k]->json);
            }
            free(m->result[k]);
        }
        free(m->result);
    }
    free(c->m);
    c->m = NULL;
    c->n = 0;
}

static void mark_member_failed(struct crew_member *m, const char *why)
{
    if (!m->failed)
        snprintf(m->why, sizeof m->why, "%s", why);
    m->failed = true;
}

/* Prints why a member failed, once, and the last output of its process. */
static void print_member_failure(struct crew_member *m, bool verbose)
{
    if (m->named)
        return;
    m->named = true;
    output_progress(NULL);
    tool_fail("bench", "%s: %s", m->name, m->why);
    const char *at = m->tail, *end = m->tail + m->tail_len;
    while (at < end && !verbose) { /* with --verbose the output was already printed */
        const char *nl = memchr(at, '\n', (size_t)(end - at));
        int n = (int)((nl ? nl : end) - at);
        fprintf(stderr, "  last output of %s: %.*s\n", m->name, n, at);
        at += n + 1;
    }
}

static void give_up_member(struct crew *c, size_t i, const char *why)
{
    mark_member_failed(&c->m[i], why);
    if (c->give_up)
        c->give_up(c->arg, i);
}

static bool store_member_result(struct crew *c, struct crew_member *m, const uint8_t *at, size_t len)
{
    uint64_t n;
    struct crew_result *r = calloc(1, sizeof *r);
    const size_t fixed = sizeof r->row + sizeof r->hist + sizeof n;
    if (!r || m->at.size >= c->n_sizes || len < fixed)
        goto bad;
    memcpy(&r->row, at, sizeof r->row);
    memcpy(&r->hist, at + sizeof r->row, sizeof r->hist);
    memcpy(&n, at + fixed - sizeof n, sizeof n);
    if (n > (len - fixed) / 16)
        goto bad;
    r->n_spans = n;
    r->span = malloc(HW_MAX(n * 16, (uint64_t)1));
    size_t text = len - fixed - n * 16;
    r->json = malloc(text + 1);
    if (!r->span || !r->json)
        goto bad;
    memcpy(r->span, at + fixed, n * 16);
    memcpy(r->json, at + fixed + n * 16, text);
    r->json[text] = 0;
    m->result[m->at.size] = r;
    m->at = (struct crew_ready){.size = m->at.size + 1};
    return true;
bad:
    if (r) {
        free(r->span);
        free(r->json);
    }
    free(r);
    return false;
}

static bool handle_member_message(struct crew *c, struct crew_member *m, uint32_t type, const uint8_t *at, size_t len)
{
    struct crew_beat b;
    struct crew_interval v;
    switch (type) {
    case CREW_READY:
        if (len != sizeof m->at)
            return false;
        memcpy(&m->at, at, len);
        m->ready = true;
        m->heard = hw_now();
        return true;
    case CREW_BEAT:
        if (len != sizeof b)
            return false;
        memcpy(&b, at, len);
        if (b.flying != m->beat.flying || b.moved != m->beat.moved || b.ops != m->beat.ops) {
            m->heard = hw_now();
            m->still = false;
        }
        m->beat = b;
        return true;
    case CREW_INTERVAL:
        if (len != sizeof v)
            return false;
        memcpy(&v, at, len);
        c->interval(c->table, m->name, &v);
        return true;
    case CREW_RESULT:
        m->heard = hw_now();
        return store_member_result(c, m, at, len);
    case CREW_ERROR: {
        char why[HW_ERR_TEXT];
        snprintf(why, sizeof why, "%.*s", (int)len, (const char *)at);
        mark_member_failed(m, why);
        return true;
    }
    default:
        return false;
    }
}

static void mark_member_gone(struct crew *c, size_t i)
{
    struct crew_member *m = &c->m[i];
    m->gone = true;
    if (c->ended)
        c->ended(c->arg, i, m->why, sizeof m->why);
    if (!m->why[0] && m->at.size < c->n_sizes)
        mark_member_failed(m, "the worker ended before its work was done");
    m->failed = m->failed || m->why[0];
}

static void read_member_messages(struct crew *c, size_t i)
{
    struct crew_member *m = &c->m[i];
    if (m->in_cap - m->in_len < 4096) {
        size_t cap = HW_MAX(2 * m->in_cap, (size_t)65536);
        uint8_t *more = cap <= 2 * (size_t)CREW_MESSAGE ? realloc(m->in, cap) : NULL;
        if (!more) {
            give_up_member(c, i, "out of memory for the worker's messages");
            return;
        }
        m->in = more;
        m->in_cap = cap;
    }
    ssize_t k = recv(m->fd, m->in + m->in_len, m->in_cap - m->in_len, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (k <= 0) {
        mark_member_gone(c, i);
        return;
    }
    m->in_len += (size_t)k;
    size_t at = 0;
    struct head h;
    while (m->in_len - at >= sizeof h) {
        memcpy(&h, m->in + at, sizeof h);
        if (h.len > CREW_MESSAGE) {
            give_up_member(c, i, "the supervisor received an invalid message from the worker");
            break;
        }
        if (m->in_len - at < sizeof h + h.len)
            break;
        if (!m->failed && !handle_member_message(c, m, h.type, m->in + at + sizeof h, h.len)) {
            give_up_member(c, i, "a message from the worker is invalid, or memory is exhausted");
            break;
        }
        at += sizeof h + h.len;
    }
    memmove(m->in, m->in + at, m->in_len - at);
    m->in_len -= at;
}

/* Reads a child's output and keeps at most its last CREW_TAIL bytes, as whole lines if they are short enough. With
 * --verbose, also prints the output. */
static void read_member_stderr(struct crew *c, struct crew_member *m)
{
    char text[1024];
    ssize_t k = read(m->err, text, sizeof text);
    if (k <= 0) {
        if (k == 0 || (errno != EAGAIN && errno != EINTR))
            hw_close(&m->err);
        return;
    }
    size_t n = (size_t)k;
    if (c->verbose)
        fprintf(stderr, "[%s] %.*s", m->name, (int)n, text);
    if (m->tail_len + n > sizeof m->tail) {
        size_t drop = m->tail_len + n - sizeof m->tail;
        const char *nl = memchr(m->tail + drop, '\n', m->tail_len - drop);
        drop = nl ? (size_t)(nl + 1 - m->tail) : m->tail_len;
        memmove(m->tail, m->tail + drop, m->tail_len - drop);
        m->tail_len -= drop;
    }
    memcpy(m->tail + m->tail_len, text, n);
    m->tail_len += n;
}

static bool is_member_working(const struct crew *c, const struct crew_member *m)
{
    return !m->gone && !m->failed && m->at.size < c->n_sizes;
}

static uint64_t get_gate_position(const struct crew_ready *at)
{
    return (uint64_t)at->size << 32 | at->turn;
}

/* Releases the workers at the earliest point, once all workers at this point are ready. */
static void open_gate(struct crew *c)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < c->n; i++)
        if (is_member_working(c, &c->m[i]))
            least = HW_MIN(least, get_gate_position(&c->m[i].at));
    for (size_t i = 0; i < c->n; i++)
        if (is_member_working(c, &c->m[i]) && get_gate_position(&c->m[i].at) == least && !c->m[i].ready)
            return;
    for (size_t i = 0; i < c->n; i++) {
        struct crew_member *m = &c->m[i];
        if (!is_member_working(c, m) || get_gate_position(&m->at) != least)
            continue;
        m->ready = false;
        m->heard = hw_now();
        (void)send(m->fd, "G", 1, MSG_NOSIGNAL); /* if the worker has ended, read_member_messages() reports it */
    }
}

static void look_at_clocks(struct crew *c)
{
    uint64_t now = hw_now();
    for (size_t i = 0; i < c->n; i++) {
        struct crew_member *m = &c->m[i];
        char why[HW_ERR_TEXT];
        if (!is_member_working(c, m) || m->ready)
            continue;
        uint64_t ms = now > m->heard ? (now - m->heard) / HW_MS : 0;
        if (m->beat.flying && ms >= CREW_STILL_MS && !m->still) {
            m->still = true;
            output_progress(NULL);
            tool_fail("bench", "%s has transferred nothing for %d s", m->name, CREW_STILL_MS / 1000);
        }
        if (ms < (m->beat.flying ? CREW_STALL_MS : CREW_OTHER_MS))
            continue;
        snprintf(why, sizeof why, "stalled: %s for %d s; not waiting any longer",
                 m->beat.flying ? "operations in flight, but no progress" : "no report",
                 (m->beat.flying ? CREW_STALL_MS : CREW_OTHER_MS) / 1000);
        give_up_member(c, i, why);
    }
}

/* Returns true if every remaining worker has finished size k. */
static bool is_size_done(const struct crew *c, size_t k)
{
    for (size_t i = 0; i < c->n; i++)
        if (is_member_working(c, &c->m[i]) && c->m[i].at.size <= k)
            return false;
    return true;
}

static void interrupt_members(struct crew *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (c->interrupt && is_member_working(c, &c->m[i]))
            c->interrupt(c->arg, i);
}

static bool has_result(const struct crew *c, size_t size)
{
    for (size_t i = 0; i < c->n; i++)
        if (size < c->n_sizes && c->m[i].result[size])
            return true;
    return false;
}

/* Bytes and time of the last sample, for computing a rate. */
struct pace {
    uint64_t at, moved;
    double GBps;
};

static void tell_crew_progress(struct crew *c, struct pace *p)
{
    const uint64_t now = hw_now();
    uint64_t moved = 0;
    for (size_t i = 0; i < c->n; i++)
        moved += c->m[i].beat.moved;
    if (!p->at || moved < p->moved) { /* no earlier sample that this one can be compared with */
        *p = (struct pace){.at = now, .moved = moved};
    } else if (now - p->at >= PACE_MS * HW_MS) {
        p->GBps = (double)(moved - p->moved) / (double)(now - p->at);
        p->at = now;
        p->moved = moved;
    }
    output_progress("%zu worker%s, %.3f GB so far, %.2f GB/s", c->n, hw_plural(c->n), (double)moved / 1e9, p->GBps);
}

int crew_run(struct crew *c)
{
    struct pollfd *p = calloc(2 * c->n, sizeof *p);
    size_t done = 0, n_failed = 0;
    uint64_t last = HW_NEVER; /* deadline for the workers to exit, once none is working */
    bool stopped = false;
    struct pace pace = {0};
    if (!p)
        return hw_no_memory("the workers");
    for (;;) {
        bool any = false, busy = false;
        for (size_t i = 0; i < c->n; i++) {
            struct crew_member *m = &c->m[i];
            p[2 * i] = (struct pollfd){.fd = m->gone ? -1 : m->fd, .events = POLLIN};
            p[2 * i + 1] = (struct pollfd){.fd = m->err, .events = POLLIN};
            any = any || !m->gone || m->err >= 0;
            busy = busy || is_member_working(c, m);
        }
        if (!busy && last == HW_NEVER)
            last = hw_deadline(CREW_PATIENCE);
        if (!any || hw_now() > last)
            break;
        (void)poll(p, 2 * c->n, POLL_MS);
        for (size_t i = 0; i < c->n; i++) {
            if (p[2 * i + 1].revents)
                read_member_stderr(c, &c->m[i]);
            if (p[2 * i].revents)
                read_member_messages(c, i);
            if (c->m[i].failed && !stopped && (c->m[i].err < 0 || c->m[i].gone))
                print_member_failure(&c->m[i], c->verbose);
        }
        if (tool_stop && !stopped)
            interrupt_members(c);
        stopped = stopped || tool_stop;
        for (size_t i = 0; i < c->n && tool_stopped_ms() > SESSION_FINISH_MS + 2 * POLL_MS; i++)
            if (is_member_working(c, &c->m[i]))
                give_up_member(c, i, "interrupted");
        look_at_clocks(c);
        if (!stopped)
            open_gate(c);
        tell_crew_progress(c, &pace);
        for (; !stopped && done < c->n_sizes && is_size_done(c, done); done++)
            c->sized(c->table, done);
    }
    free(p);
    if (stopped && has_result(c, done))
        c->sized(c->table, done);
    for (size_t i = 0; i < c->n; i++) {
        if (c->m[i].failed && !stopped)
            print_member_failure(&c->m[i], c->verbose);
        n_failed += c->m[i].failed;
    }
    return stopped ? hw_fail(-EINTR, "interrupted") : (int)n_failed;
}
