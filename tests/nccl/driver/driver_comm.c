/* SPDX-License-Identifier: Apache-2.0 */
/* Waits with a deadline, exchanges data with the other rank, and makes and closes connections. */
#include "driver.h"

#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SWAP_MAX 256
#define GUARD    0xee

struct wait wait_for(const char *what)
{
    return (struct wait){.end = hw_now() + opt.deadline * 1000 * HW_MS, .what = what};
}

void nap_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) < 0 && errno == EINTR)
        ;
}

static int failed_over_there(struct rank *r, const char *what)
{
    if (atomic_load(&r->sh->gone) != r->step + 1)
        return 0;
    return hw_fail(-ECANCELED, "given up, since the other rank has failed: %s", what);
}

int wait_turn(struct rank *r, struct wait *w)
{
    if (++w->idle < 64)
        return 0;
    if (w->idle < 1024) {
        sched_yield();
    } else {
        struct timespec t = {.tv_nsec = 50000};
        nanosleep(&t, NULL);
    }
    if (w->idle % 64 != 0)
        return 0;
    int rc = failed_over_there(r, w->what);
    if (rc)
        return rc;
    if (hw_now() >= w->end)
        return hw_fail(-ETIMEDOUT, "not done within %llu s: %s", (unsigned long long)opt.deadline, w->what);
    return 0;
}

struct swap_msg {
    int step;
    unsigned len;
    uint8_t bytes[SWAP_MAX];
};

int swap(struct rank *r, const void *mine, void *theirs, size_t len)
{
    struct swap_msg out = {.step = r->step, .len = (unsigned)len}, in;
    uint64_t limit = 3 * opt.deadline,
             end = hw_now() + limit * 1000 * HW_MS; /* the other rank may itself have to wait */

    if (len > SWAP_MAX)
        return hw_fail(-EMSGSIZE, "the driver swaps %zu bytes", len);
    memcpy(out.bytes, mine, len);
    if (send(r->fd, &out, offsetof(struct swap_msg, bytes) + len, MSG_NOSIGNAL) < 0)
        return hw_fail(-errno, "sending to the other rank");
    for (;;) {
        struct pollfd p = {.fd = r->fd, .events = POLLIN};
        int n = poll(&p, 1, 20);
        if (n < 0 && errno != EINTR)
            return hw_fail(-errno, "waiting for the other rank");
        if (n > 0) {
            ssize_t got = recv(r->fd, &in, sizeof(in), 0);
            if (got < 0)
                return hw_fail(-errno, "receiving from the other rank");
            if (got == 0)
                return hw_fail(-EPIPE, "the other rank has gone");
            if (in.step != r->step) /* left over from a failed rank */
                continue;
            if (in.len != len)
                return hw_fail(-EBADMSG, "the ranks are out of step: %u bytes for %zu", in.len, len);
            memcpy(theirs, in.bytes, len);
            return 0;
        }
        int rc = failed_over_there(r, "agreeing");
        if (rc)
            return rc;
        if (hw_now() >= end)
            return hw_fail(-ETIMEDOUT, "the other rank is not there within %llu s", (unsigned long long)limit);
    }
}

int barrier(struct rank *r)
{
    char mine = 1, theirs;
    return swap(r, &mine, &theirs, 1);
}

struct comm *comm_new(struct rank *r, int sender)
{
    struct comm *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    c->r = r;
    c->sends = r->id == sender;
    c->dev = (int)opt.dev;
    c->id = (uint64_t)r->step << 32 | r->made++;
    memset(c->guarded, GUARD, sizeof(c->guarded));
    c->next = r->comms;
    r->comms = c;
    return c;
}

int comm_listen(struct comm *c)
{
    int rc = net_fail(net_listen(c->r, c->dev, c->guarded, &c->lc), "listen");
    if (rc)
        return rc;
    if (!c->lc)
        return hw_fail(-EPROTO, "listen returned success and no comm");
    for (size_t i = NCCL_NET_HANDLE_MAXSIZE; i < sizeof(c->guarded); i++)
        if (c->guarded[i] != GUARD)
            return hw_fail(-EOVERFLOW, "listen wrote beyond the %d bytes of the handle", NCCL_NET_HANDLE_MAXSIZE);
    return 0;
}

int comm_handle(struct comm *c)
{
    uint8_t theirs[NCCL_NET_HANDLE_MAXSIZE];
    int rc = swap(c->r, c->guarded, theirs, sizeof(theirs));
    if (!rc && c->sends)
        memcpy(c->guarded, theirs, sizeof(theirs));
    return rc;
}

int comm_try(struct comm *c)
{
    int rc;
    c->dh = &c->dev_space; /* TCPX writes to *dh */
    if (c->sends)
        rc = net_fail(net_connect(c->r, c->dev, c->guarded, &c->c, &c->dh), "connect");
    else
        rc = net_fail(net_accept(c->r, c->lc, &c->c, &c->dh), "accept");
    if (rc)
        return rc;
    return c->c ? 0 : -EAGAIN;
}

int comm_link(struct comm *c)
{
    struct wait w = wait_for(c->sends ? "connect" : "accept");
    int rc;
    while ((rc = comm_try(c)) == -EAGAIN)
        if ((rc = wait_turn(c->r, &w)))
            return rc;
    return rc;
}

int comm_close_listen(struct comm *c)
{
    void *lc = c->lc;
    c->lc = NULL;
    return lc ? net_fail(net_close_listen(c->r, lc), "closeListen") : 0;
}

int comm_open(struct rank *r, int sender, struct comm **out)
{
    struct comm *c = *out = comm_new(r, sender);
    int rc = c->sends ? 0 : comm_listen(c);
    if (!rc)
        rc = comm_handle(c);
    if (!rc)
        rc = comm_link(c);
    if (!rc && c->id % 2 == 0) /* like NCCL; other comms keep the listener until they close */
        rc = comm_close_listen(c);
    return rc;
}

int comm_close(struct comm *c)
{
    struct comm **at = &c->r->comms;
    int rc = 0, rc2;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    if (c->c && c->sends)
        rc = net_fail(net_close_send(c->r, c->c), "closeSend");
    else if (c->c)
        rc = net_fail(net_close_recv(c->r, c->c), "closeRecv");
    rc2 = comm_close_listen(c);
    free(c);
    return rc ? rc : rc2;
}

int comm_close_all(struct rank *r)
{
    int rc = 0;
    while (r->comms) {
        int rc2 = comm_close(r->comms);
        rc = rc ? rc : rc2;
    }
    return rc;
}
