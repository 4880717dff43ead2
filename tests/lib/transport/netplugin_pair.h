/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of plugin hosts: a connection from a host to itself, and checks for leaked resources. */
#ifndef NETPLUGIN_PAIR_H
#define NETPLUGIN_PAIR_H

#include "base/pattern.h"
#include "tests/proc.h"
#include "tests/tap.h"
#include "transport/netplugin/host/host.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOON   20000 /* ms; much longer than any call takes, even on a slow machine with sanitizers */
#define UNUSED __attribute__((unused))

struct pair {
    struct np_host *h;
    struct np_listener *listener;
    struct np_comm *send, *recv;
    struct np_mem *mem; /* messages are sent from the first half and received into the second half */
    struct np_mr *smr, *rmr;
    size_t half;
    int event; /* -1 for separate eventfds */
};

UNUSED static int children(void)
{
    int n = 0;
    while (waitpid(-1, NULL, WNOHANG | __WALL) >= 0)
        n++;
    return n;
}

/* Returns true if the process has ended, even if it is still a zombie. */
UNUSED static bool is_gone(int pid)
{
    char path[64], text[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return true;
    (void)!fgets(text, sizeof(text), f);
    fclose(f);
    const char *state = strrchr(text, ')');
    return state && state[1] && state[2] == 'Z';
}

UNUSED static struct np_host *open_host(const char *plugin, const struct np_options *o)
{
    struct np_host *h = NULL;
    if (np_open(plugin, o, &h) < 0) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
    return h;
}

/* Returns true if the child's output contains no sanitizer reports. */
UNUSED static bool no_report(struct np_host *h)
{
    static char out[65536];
    np_output(h, out, sizeof(out));
    return !strstr(out, "runtime error") && !strstr(out, "Sanitizer");
}

UNUSED static int established(struct np_comm *c)
{
    int rc;
    while ((rc = np_established(c)) == -EAGAIN)
        usleep(100);
    return rc;
}

/* Establishes a connection with `len` bytes of memory for both directions together. The caller must set p->event before
 * this call, and must call pair_unmake() even if this call fails. Returns 0 or the first error. */
UNUSED static int pair_make_in(struct pair *p, struct np_host *h, unsigned dev, size_t len, int ms)
{
    uint8_t handle[NP_HANDLE_SIZE];
    const int event = p->event;
    *p = (struct pair){.h = h, .half = len / 2, .event = event};
    int rc = np_listen(h, dev, -1, handle, &p->listener);
    if (rc < 0)
        return rc;
    rc = np_connect(h, dev, -1, handle, hw_deadline(ms), event, &p->send);
    if (rc == 0)
        rc = np_accept(p->listener, hw_deadline(ms), event, &p->recv);
    if (rc == 0)
        rc = established(p->send);
    if (rc == 0)
        rc = established(p->recv);
    if (rc == 0)
        rc = np_mem_alloc(h, len, &p->mem);
    if (rc == 0)
        rc = np_reg(p->send, p->mem, 0, p->half, &p->smr);
    if (rc == 0)
        rc = np_reg(p->recv, p->mem, p->half, p->half, &p->rmr);
    return rc;
}

UNUSED static int pair_make(struct pair *p, struct np_host *h, unsigned dev, size_t len)
{
    return pair_make_in(p, h, dev, len, SOON);
}

UNUSED static void pair_unmake(struct pair *p)
{
    if (p->send)
        np_comm_close(p->send);
    if (p->recv)
        np_comm_close(p->recv);
    if (p->listener)
        np_listener_close(p->listener);
    if (p->mem)
        np_mem_free(p->mem);
}

UNUSED static void pair_open_on(struct pair *p, struct np_host *h, unsigned dev, size_t len)
{
    if (!ok(pair_make(p, h, dev, len) == 0, "a connection")) {
        printf("Bail out! %s\n", hw_error());
        exit(1);
    }
}

UNUSED static void pair_open(struct pair *p, struct np_host *h, unsigned dev, size_t len)
{
    p->event = -1;
    pair_open_on(p, h, dev, len);
}

UNUSED static void pair_close(struct pair *p)
{
    pair_unmake(p);
}

/* Transfers n messages of len bytes, with as many in flight as the window and the memory allow. Returns 0 on success.
 * On failure, prints the reason and returns -1. */
UNUSED static int pair_run(struct pair *p, unsigned n, size_t len, uint64_t seed)
{
    uint8_t *base = np_mem_ptr(p->mem);
    const unsigned places = len ? (unsigned)HW_MIN(p->half / len, 32u) : 32;
    unsigned rposted = 0, sposted = 0, got = 0, sent = 0;
    struct np_result r;
    const uint64_t deadline = hw_deadline(SOON);
    int rc = 0;
    while (rc >= 0 && (got < n || sent < n)) {
        while (rposted < n && rposted - got < places &&
               (rc = np_irecv(p->recv, p->rmr, rposted % places * len, len, 0, deadline)) == 0)
            rposted++;
        if (rc < 0 && rc != -EAGAIN)
            break;
        rc = 0;
        while (sposted < n && sposted - sent < places) {
            hw_pattern_fill(base + sposted % places * len, len, seed + 1, (uint64_t)sposted * len);
            rc = np_isend(p->send, p->smr, sposted % places * len, len, 0, deadline);
            if (rc < 0)
                break;
            sposted++;
        }
        if (rc < 0 && rc != -EAGAIN)
            break;
        rc = 0;
        while (got < rposted && (rc = got == sent ? np_wait(p->recv, hw_deadline(1), &r) : np_test(p->recv, &r)) == 0) {
            uint64_t first = 0;
            if ((r.known && r.size != len) ||
                hw_pattern_check(base + p->half + got % places * len, len, seed + 1, (uint64_t)got * len, &first)) {
                printf("# message %u: %zu bytes, wrong from %llu\n", got, r.size, (unsigned long long)first);
                return -1;
            }
            got++;
            rc = np_consumed(p->recv);
            if (rc < 0)
                break;
        }
        if (rc < 0 && rc != -EAGAIN)
            break;
        rc = 0;
        while (sent < sposted && (rc = np_test(p->send, &r)) == 0)
            sent++;
        if (rc == -EAGAIN)
            rc = 0;
    }
    if (rc < 0)
        printf("# after %u sent, %u received: %s\n", sent, got, hw_error());
    return rc < 0 ? -1 : 0;
}

#endif
