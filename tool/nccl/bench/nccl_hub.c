/* SPDX-License-Identifier: Apache-2.0 */
/* The hub: rank 0 of the processes that a launcher started. The hub accepts the other processes, and connects the
 * supervisor's commands with the agents that these processes start. */
#include "base/size.h"
#include "sys/pass.h"
#include "tool/child.h"
#include "tool/nccl/bench/nccl_launch.h"
#include "tool/report/output.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define TUBES    ((size_t)2 * NB_RANKS)
#define EVENTS   64
#define POLL_MS  100
#define GIVE_MS  10000 /* ms; output for a supervisor that does not read for this long is dropped */
#define LEAVE_MS 15000 /* ms for the supervisor to exit after a signal */
#define SEAT_MS  5000
#define FDS      3 /* descriptors of a command: input, output, errors; --via passes these and a socket */

/* A command of the supervisor, and the agent that the command represents. */
struct tube {
    bool used;
    uint32_t id, seat;
    int call;         /* socket to the command; if the command closes it, no result is needed */
    int in, out, err; /* descriptors of the command; in is -1 after the end of its input */
};

struct met {
    hawser_peer *peer; /* NULL if not connected yet, or lost */
    struct nb_hello hello;
};

struct hub {
    const struct nb_launch *l;
    hawser *h;
    struct met *met;
    uint32_t size, here, next_id;
    bool begun;
    int door; /* socket for the requests of --via */
    struct tube tube[TUBES];
    struct nb_tube message;
    struct pollfd poll[2 + 2 * TUBES];
};

/* ---- commands -------------------------------------------------------------------------------- */

static void close_tube(struct tube *t)
{
    hw_close(&t->call);
    hw_close(&t->in);
    hw_close(&t->out);
    hw_close(&t->err);
    t->used = false;
}

/* Ends the command with the agent's status. Prints text first, unless text is NULL. */
static void end_tube(struct tube *t, int status, const char *text)
{
    int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (text)
        dprintf(t->err, "%s\n", text);
    (void)!write(t->call, &code, sizeof code);
    close_tube(t);
}

/* Writes an agent's output to the supervisor. */
static void give_output(int fd, const uint8_t *at, size_t len)
{
    const uint64_t deadline = hw_deadline(GIVE_MS);
    while (len) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        /* a pipe or socket that is ready accepts 4,096 bytes without blocking */
        ssize_t k =
            poll(&p, 1, POLL_MS) > 0 && !(p.revents & (POLLERR | POLLNVAL)) ? write(fd, at, HW_MIN(len, 4096u)) : -1;
        if (k > 0) {
            at += k;
            len -= (size_t)k;
        } else if (p.revents & (POLLERR | POLLNVAL) || hw_now() > deadline)
            return;
    }
}

/* Receives one message of a command, with the seat's number and four descriptors, and requests an agent from the seat.
 * Ignores a message that is incomplete or for which no tube is free, and closes its descriptors. */
static void answer_door(struct hub *b)
{
    uint32_t seat = UINT32_MAX;
    int fd[FDS + 1];
    struct tube *t = NULL;
    ssize_t n = hw_pass_receive(b->door, &seat, sizeof seat, fd, HW_ARRAY_LEN(fd), MSG_DONTWAIT, NULL);
    for (size_t i = 0; n == sizeof seat && fd[FDS] >= 0 && i < TUBES && !t; i++)
        t = b->tube[i].used ? NULL : &b->tube[i];
    if (!t) {
        for (size_t i = 0; i < HW_ARRAY_LEN(fd); i++)
            hw_close(&fd[i]);
        return;
    }
    *t = (struct tube){
        .used = true, .id = ++b->next_id, .seat = seat, .in = fd[0], .out = fd[1], .err = fd[2], .call = fd[3]};
    if (seat >= b->size || !b->met[seat].peer)
        end_tube(t, 255 << 8, "the process that the launcher started on this host has ended");
    else if (nb_tube_send(b->met[seat].peer, NB_TUBE_OPEN, t->id, 0, NULL, 0) < 0)
        end_tube(t, 255 << 8, hw_error());
}

/* Forwards a command's input to its agent. If the command has ended, orders the seat to kill the agent. */
static void serve_tube(struct hub *b, struct tube *t, bool ended, bool readable)
{
    hawser_peer *p = b->met[t->seat].peer;
    uint8_t buf[NB_TUBE_DATA_MOST];
    if (ended) {
        (void)nb_tube_send(p, NB_TUBE_KILL, t->id, 0, NULL, 0);
        close_tube(t);
        return;
    }
    if (!readable)
        return;
    ssize_t k = read(t->in, buf, sizeof buf);
    if (k > 0)
        (void)nb_tube_send(p, NB_TUBE_DATA, t->id, 0, buf, (size_t)k);
    else if (k == 0 || errno != EINTR) {
        (void)nb_tube_send(p, NB_TUBE_SHUT, t->id, 0, NULL, 0);
        hw_close(&t->in);
    }
}

/* ---- seats ----------------------------------------------------------------------------------- */

static struct met *find_met(struct hub *b, const hawser_peer *p)
{
    for (uint32_t i = 0; i < b->size; i++)
        if (b->met[i].peer == p)
            return &b->met[i];
    return NULL;
}

static void meet_seat(struct hub *b, hawser_peer *p, const struct nb_hello *h)
{
    const char *why = b->begun                                    ? "the measurement has already begun"
                      : h->size != b->size                        ? "it belongs to a job of a different size"
                      : b->met[h->rank].peer                      ? "its rank is already connected"
                      : strcmp(h->version, hawser_version()) != 0 ? "it runs a different version of hawser"
                                                                  : NULL;
    if (why) {
        tool_fail("nccl bench", "%s (%s) was refused: %s", h->name, hawser_peer_name(p), why);
        hawser_peer_close(p);
        return;
    }
    b->met[h->rank] = (struct met){.peer = p, .hello = *h};
    b->here++;
}

static void lose_seat(struct hub *b, hawser_peer *p)
{
    struct met *m = find_met(b, p);
    const uint32_t seat = m ? (uint32_t)(m - b->met) : b->size;
    hawser_peer_close(p);
    if (!m)
        return;
    m->peer = NULL;
    b->here--;
    for (size_t i = 0; i < TUBES; i++)
        if (b->tube[i].used && b->tube[i].seat == seat)
            end_tube(&b->tube[i], 255 << 8,
                     "the connection to the process that the launcher started on this host is lost");
}

static void hear_seat(struct hub *b, const struct hawser_completion *c)
{
    struct nb_tube *m = &b->message;
    const struct met *from = find_met(b, c->peer);
    struct tube *t = NULL;
    if (nb_tube_decode(c->data, c->length, m) < 0) {
        tool_fail("nccl bench", "%s: %s", hawser_peer_name(c->peer), hw_error());
        return;
    }
    if (m->type == NB_TUBE_HELLO && !from)
        meet_seat(b, c->peer, &m->hello);
    for (size_t i = 0; i < TUBES && from && !t; i++)
        if (b->tube[i].used && b->tube[i].id == m->id && &b->met[b->tube[i].seat] == from)
            t = &b->tube[i];
    if (t && m->type == NB_TUBE_DATA)
        give_output(m->value == 1 ? t->out : t->err, m->data, m->len);
    else if (t && m->type == NB_TUBE_ENDED)
        end_tube(t, (int)m->value, NULL);
}

static int hear_seats(struct hub *b, int ms)
{
    struct hawser_completion c[EVENTS];
    int n = hawser_poll_wait(b->h, c, EVENTS, ms);
    for (int i = 0; i < n; i++) {
        if (c[i].event == HAWSER_NOTIFIED) {
            hear_seat(b, &c[i]);
            hawser_data_free(c[i].data);
        } else if (c[i].event == HAWSER_DIED)
            lose_seat(b, c[i].peer);
    }
    return n;
}

static int meet_seats(struct hub *b)
{
    const uint64_t end = hw_deadline((int)b->l->wait_ms);
    uint32_t missing = 0;
    while (b->here < b->size && hw_now() < end) {
        output_progress("%u of %u ranks connected", b->here, b->size);
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        int n = hear_seats(b, POLL_MS);
        if (n < 0)
            return n;
    }
    output_progress(NULL);
    b->begun = true;
    while (missing < b->size && b->met[missing].peer)
        missing++;
    if (b->here == b->size)
        return 0;
    return hw_fail(-ETIMEDOUT,
                   "%u of %u ranks connected within %llu s; rank %u%s%s did not (--local measures only this host)",
                   b->here, b->size, (unsigned long long)(b->l->wait_ms / 1000), missing, b->l->seat->names ? ", " : "",
                   b->l->seat->names ? b->l->seat->names[missing] : "");
}

/* ---- while the supervisor works --------------------------------------------------------------- */

static void poll_all(struct hub *b, int event)
{
    struct pollfd *p = b->poll;
    uint64_t ignored;
    p[0] = (struct pollfd){.fd = event, .events = POLLIN};
    p[1] = (struct pollfd){.fd = b->door, .events = POLLIN};
    for (size_t i = 0; i < TUBES; i++) {
        const struct tube *t = &b->tube[i];
        p[2 + 2 * i] = (struct pollfd){.fd = t->used ? t->call : -1, .events = POLLIN};
        p[3 + 2 * i] = (struct pollfd){.fd = t->used ? t->in : -1, .events = POLLIN};
    }
    (void)poll(p, HW_ARRAY_LEN(b->poll), POLL_MS);
    if (p[0].revents)
        (void)!read(event, &ignored, sizeof ignored);
    for (size_t i = 0; i < TUBES; i++)
        if (b->tube[i].used && (p[2 + 2 * i].revents || p[3 + 2 * i].revents))
            serve_tube(b, &b->tube[i], p[2 + 2 * i].revents != 0, p[3 + 2 * i].revents != 0);
    if (p[1].revents)
        answer_door(b);
}

/* Serves requests until the supervisor has exited or, after a signal, LEAVE_MS have passed. Returns the supervisor's
 * wait status. */
static int serve_supervisor(struct hub *b, pid_t *pid)
{
    const int event = hawser_eventfd(b->h);
    uint64_t leave = HW_NEVER;
    for (;;) {
        int status;
        if (waitpid(*pid, &status, WNOHANG) == *pid) {
            *pid = 0;
            return status;
        }
        poll_all(b, event);
        while (hear_seats(b, 0) > 0)
            continue;
        if (tool_stop && leave == HW_NEVER) {
            kill(*pid, tool_stop);
            leave = hw_deadline(LEAVE_MS);
        }
        if (hw_now() > leave)
            return child_reap(pid, 0);
    }
}

static int tell_rows(struct hub *b, int to)
{
    for (uint32_t i = 0; i < b->size; i++) {
        struct nb_seat_row row = {.node = b->met[i].hello.node};
        memcpy(row.name, b->met[i].hello.name, sizeof row.name);
        if (write(to, &row, sizeof row) != sizeof row)
            return hw_fail(-EPIPE, "the process that supervises the measurement has ended");
    }
    return 0;
}

static void dismiss_seats(struct hub *b)
{
    struct hawser_completion c[EVENTS];
    const uint64_t end = hw_deadline(SEAT_MS);
    uint32_t left = 0;
    for (uint32_t i = 0; b->met && i < b->size; i++)
        left += b->met[i].peer && nb_tube_send(b->met[i].peer, NB_TUBE_BYE, 0, 0, NULL, 0) == 0;
    while (left > 0 && hw_now() < end) { /* a seat disconnects after BYE */
        int n = hawser_poll_wait(b->h, c, EVENTS, POLL_MS);
        for (int i = 0; i < n; i++) {
            if (c[i].event == HAWSER_NOTIFIED)
                hawser_data_free(c[i].data);
            left -= c[i].event == HAWSER_DIED && left > 0;
        }
    }
}

/* Listens, meets all seats, and serves the supervisor. Returns the exit code. */
static int run_hub(struct hub *b, pid_t *supervisor, int seat, int rows)
{
    const struct nb_launch *l = b->l;
    struct common own = {0};
    struct launch_pmix *pmix = NULL;
    uint32_t rank, size = 0;
    uint16_t port = 0;
    int status = TOOL_FAILED << 8, rc = launch_open(l->common, NB_SILENT_MS, &own, &b->h);
    if (rc == 0)
        rc = launch_listen(b->h, &l->place, &port);
    if (rc == 0 && !l->place.n) {
        rc = launch_pmix_open(&pmix, &rank, &size);
        if (rc == 0)
            rc = launch_publish(pmix, port);
        l->seat->size = l->seat->size ? l->seat->size : size;
    }
    b->size = l->seat->size;
    if (rc == 0 && !(b->met = calloc(b->size, sizeof *b->met)))
        rc = hw_no_memory("%u ranks", b->size);
    if (rc == 0 && write(seat, &port, sizeof port) != sizeof port)
        rc = hw_fail(-EPIPE, "the other process of rank 0 has ended");
    if (rc == 0)
        rc = meet_seats(b);
    if (rc == 0)
        rc = tell_rows(b, rows);
    close(rows);
    if (rc < 0)
        (void)tool_failed("nccl bench", rc);
    else
        status = serve_supervisor(b, supervisor);
    for (size_t i = 0; i < TUBES; i++)
        if (b->tube[i].used)
            close_tube(&b->tube[i]);
    if (b->h)
        dismiss_seats(b);
    launch_pmix_close(pmix);
    hawser_close(b->h);
    common_free(&own);
    free(b->met);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- processes ------------------------------------------------------------------------------- */

static void follow_parent(pid_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(TOOL_FAILED);
}

static void become_first_seat(struct nb_launch *l, int from)
{
    l->place = (struct launch_place){.n = 1, .ports = 1};
    if (!child_read(from, &l->place.port, sizeof l->place.port))
        _exit(TOOL_FAILED);
    close(from);
    snprintf(l->place.host[0], sizeof l->place.host[0], "127.0.0.1");
    exit(nb_seat(l));
}

static void become_supervisor(int (*supervise)(void *, const struct nb_seat_row *, uint32_t, int), void *arg, int from,
                              int via)
{
    struct nb_seat_row *row = calloc(LAUNCH_RANKS, sizeof *row);
    uint32_t n = 0;
    while (row && n < LAUNCH_RANKS && child_read(from, &row[n], sizeof row[n]))
        n++;
    close(from);
    int code = n ? supervise(arg, row, n, via) : TOOL_FAILED; /* the hub has printed the error */
    free(row);
    exit(code);
}

int nb_hub(struct nb_launch *l, int (*supervise)(void *arg, const struct nb_seat_row *row, uint32_t n, int via),
           void *arg)
{
    int seat[2], rows[2], door[2], code;
    pid_t parent = getpid(), first = -1, supervisor = -1;
    struct hub *b = calloc(1, sizeof *b);
    if (!b || pipe2(seat, O_CLOEXEC) < 0 || pipe2(rows, O_CLOEXEC) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, door) < 0 || (first = fork()) < 0)
        return tool_fail("nccl bench", "starting processes for rank 0: %s", strerror(errno));
    if (first == 0) {
        follow_parent(parent);
        close(seat[1]);
        close(rows[1]);
        free(b);
        become_first_seat(l, seat[0]);
    }
    supervisor = fork();
    if (supervisor == 0) {
        follow_parent(parent);
        close(seat[1]);
        close(rows[1]);
        (void)fcntl(door[1], F_SETFD, 0); /* inherited by the commands that the supervisor starts */
        free(b);
        become_supervisor(supervise, arg, rows[0], door[1]);
    }
    close(seat[0]);
    close(rows[0]);
    close(door[1]);
    *b = (struct hub){.l = l, .door = door[0]};
    code = run_hub(b, &supervisor, seat[1], rows[1]);
    close(seat[1]);
    (void)child_reap(&supervisor, POLL_MS);
    (void)child_reap(&first, SEAT_MS);
    close(door[0]);
    free(b);
    return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

int nb_via(const char *told)
{
    int call[2], code;
    uint64_t door, number;
    HW_AUTO_FREE char *first = strdup(told);
    char *second = first ? strchr(first, ',') : NULL;
    if (!second)
        return TOOL_USAGE;
    *second++ = 0;
    if (hw_parse_u64(first, 0, INT32_MAX, &door) < 0 || hw_parse_u64(second, 0, LAUNCH_RANKS, &number) < 0)
        return TOOL_USAGE;
    uint32_t seat = (uint32_t)number;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, call) < 0)
        return tool_fail("nccl bench", "creating sockets: %s", strerror(errno));
    const int fd[FDS + 1] = {0, 1, 2, call[1]};
    int rc = hw_pass_send((int)door, NULL, &seat, sizeof seat, fd, HW_ARRAY_LEN(fd), 0);
    if (rc < 0)
        return tool_fail("nccl bench", "contacting the process of rank 0: %s", strerror(-rc));
    close(call[1]);
    close(0);
    close(1);
    return child_read(call[0], &code, sizeof code) ? code : TOOL_FAILED;
}
