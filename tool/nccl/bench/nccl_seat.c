/* SPDX-License-Identifier: Apache-2.0 */
/* A seat: a process that a launcher started. A seat starts agents at the hub's request, and forwards their input and
 * output. */
#include "tool/child.h"
#include "tool/nccl/bench/nccl_launch.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILDREN 64 /* maximum simultaneous agents of a seat: one for each GPU of a node, and a few more */
#define EVENTS   64
#define POLL_MS  200
#define REAP_MS  20    /* ms between polls while an agent is about to exit */
#define STUCK_MS 30000 /* ms; an agent that does not read for this long is killed */
#define LEAVE_MS 5000  /* ms to wait for the hub's BYE after a signal */

struct child {
    pid_t pid; /* 0 if the slot is free */
    uint32_t id;
    int fd, err; /* standard input and output, and standard error; -1 if closed */
};

struct seat {
    hawser *h;
    hawser_peer *hub;
    struct child child[CHILDREN];
    bool done;
};

static struct child *find_child(struct seat *s, uint32_t id)
{
    for (size_t i = 0; i < CHILDREN; i++)
        if (s->child[i].pid && s->child[i].id == id)
            return &s->child[i];
    return NULL;
}

static void tell_end(struct seat *s, uint32_t id, int status)
{
    (void)nb_tube_send(s->hub, NB_TUBE_ENDED, id, (uint32_t)status, NULL, 0);
}

static void open_child(struct seat *s, uint32_t id)
{
    static char self[] = "/proc/self/exe", nccl[] = "nccl", bench[] = "bench", agent[] = "--agent";
    char *argv[] = {self, nccl, bench, agent, NULL};
    struct child *c = NULL;
    for (size_t i = 0; i < CHILDREN && !c; i++)
        c = s->child[i].pid ? NULL : &s->child[i];
    if (c && nb_agent_process(argv, &c->pid, &c->fd, &c->err) == 0) {
        const struct timeval most = {.tv_sec = STUCK_MS / 1000};
        (void)setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
        c->id = id;
        return;
    }
    const char *why = c ? hw_error() : "too many agents for one node";
    (void)nb_tube_send(s->hub, NB_TUBE_DATA, id, 2, why, strlen(why));
    tell_end(s, id, 127 << 8);
}

/* Sends input to the agent. Kills an agent that does not read its input within STUCK_MS. */
static void feed_child(struct child *c, const uint8_t *at, size_t len)
{
    while (len && c->fd >= 0) {
        ssize_t k = send(c->fd, at, len, MSG_NOSIGNAL);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0) {
            kill(c->pid, SIGKILL);
            return;
        }
        at += k;
        len -= (size_t)k;
    }
}

/* Forwards the data that the agent has written to one of its two descriptors, and closes standard error at its end.
 * Before output, forwards all standard error so far, because the supervisor looks in standard error for NCCL's choice
 * of network when a rank has replied. */
static void drain_child(struct seat *s, struct child *c, int *fd, uint32_t which)
{
    uint8_t buf[NB_TUBE_DATA_MOST];
    while (*fd >= 0) {
        ssize_t k = which == 1 ? recv(*fd, buf, sizeof buf, MSG_DONTWAIT) : read(*fd, buf, sizeof buf);
        if (k > 0 && which == 1)
            drain_child(s, c, &c->err, 2);
        if (k > 0)
            (void)nb_tube_send(s->hub, NB_TUBE_DATA, c->id, which, buf, (size_t)k);
        else if (k == 0 && which == 2)
            hw_close(fd);
        else if (k == 0 || errno != EINTR)
            return; /* an agent may still read after the end of its output */
    }
}

static void watch_child(struct seat *s, struct child *c)
{
    int status;
    drain_child(s, c, &c->fd, 1);
    drain_child(s, c, &c->err, 2);
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    drain_child(s, c, &c->fd, 1);
    drain_child(s, c, &c->err, 2);
    tell_end(s, c->id, status);
    hw_close(&c->fd);
    hw_close(&c->err);
    c->pid = 0;
}

static void obey_hub(struct seat *s, const struct nb_tube *m)
{
    struct child *c = find_child(s, m->id);
    if (m->type == NB_TUBE_BYE)
        s->done = true;
    else if (m->type == NB_TUBE_OPEN && !c)
        open_child(s, m->id);
    else if (m->type == NB_TUBE_DATA && c)
        feed_child(c, m->data, m->len);
    else if (m->type == NB_TUBE_SHUT && c)
        (void)shutdown(c->fd, SHUT_WR);
    else if (m->type == NB_TUBE_KILL && c)
        kill(c->pid, SIGKILL);
}

static int hear_hub(struct seat *s, struct nb_tube *m)
{
    struct hawser_completion done[EVENTS];
    int rc = 0, n;
    while (rc == 0 && !s->done && (n = hawser_poll(s->h, done, EVENTS)) != 0) {
        if (n < 0)
            return n;
        for (int i = 0; i < n; i++) {
            const struct hawser_completion *c = &done[i];
            if (c->event == HAWSER_DIED && !s->done && rc == 0)
                rc = hw_fail(-ECONNRESET, "the connection to rank 0 is lost");
            if (c->event != HAWSER_NOTIFIED)
                continue;
            if (rc == 0 && !s->done && (rc = nb_tube_decode(c->data, c->length, m)) == 0)
                obey_hub(s, m);
            hawser_data_free(c->data);
        }
    }
    return rc;
}

static int serve_hub(struct seat *s)
{
    HW_AUTO_FREE struct nb_tube *m = calloc(1, sizeof *m);
    const int event = hawser_eventfd(s->h);
    uint64_t leave = HW_NEVER, ignored;
    int rc = m ? HW_MIN(event, 0) : hw_no_memory("a message");
    while (rc == 0 && !s->done) {
        struct pollfd p[1 + 2 * CHILDREN] = {{.fd = event, .events = POLLIN}};
        int ms = POLL_MS;
        for (size_t i = 0; i < CHILDREN; i++) {
            const struct child *c = &s->child[i];
            p[1 + 2 * i] = (struct pollfd){.fd = c->pid && c->err >= 0 ? c->fd : -1, .events = POLLIN};
            p[2 + 2 * i] = (struct pollfd){.fd = c->pid ? c->err : -1, .events = POLLIN};
            if (c->pid && c->err < 0)
                ms = REAP_MS;
        }
        (void)poll(p, HW_ARRAY_LEN(p), ms);
        if (p[0].revents)
            (void)!read(event, &ignored, sizeof ignored);
        rc = hear_hub(s, m);
        for (size_t i = 0; i < CHILDREN && rc == 0; i++)
            if (s->child[i].pid)
                watch_child(s, &s->child[i]);
        if (tool_stop && leave == HW_NEVER)
            leave = hw_deadline(LEAVE_MS);
        if (hw_now() > leave)
            rc = hw_fail(-EINTR, "interrupted");
    }
    return rc;
}

static int say_hello(struct seat *s, const struct launch_seat *me)
{
    struct nb_hello hello = {.rank = me->rank, .size = me->size, .node = nb_node_id()};
    char name[LAUNCH_NAME] = "";
    if (gethostname(name, sizeof name - 1) < 0 || !*name)
        snprintf(name, sizeof name, "rank%u", me->rank);
    name[strcspn(name, ".")] = 0;
    snprintf(hello.name, sizeof hello.name, "%s", me->name[0] ? me->name : name);
    snprintf(hello.version, sizeof hello.version, "%s", hawser_version());
    return nb_tube_send(s->hub, NB_TUBE_HELLO, 0, 0, &hello, 0);
}

int nb_seat(struct nb_launch *l)
{
    struct common own = {0};
    struct seat *s = calloc(1, sizeof *s);
    int code = TOOL_OK, rc = s ? launch_open(l->common, NB_SILENT_MS, &own, &s->h) : hw_no_memory("a seat");
    if (rc == 0 && !l->place.n)
        rc = launch_look_up(l->seat, &l->place, l->wait_ms);
    if (rc == 0)
        rc = launch_find(s->h, &l->place, l->wait_ms, &s->hub);
    if (rc == 0)
        rc = say_hello(s, l->seat);
    if (rc == 0)
        rc = serve_hub(s);
    if (rc < 0)
        code = tool_fail("nccl bench", "rank %u: %s", l->seat->rank, hw_error());
    for (size_t i = 0; s && i < CHILDREN; i++) {
        struct child *c = &s->child[i];
        if (!c->pid)
            continue;
        kill(c->pid, SIGKILL);
        (void)child_reap(&c->pid, 1000);
        hw_close(&c->fd);
        hw_close(&c->err);
    }
    if (s) {
        hawser_peer_close(s->hub);
        hawser_close(s->h);
    }
    common_free(&own);
    free(s);
    return code;
}
