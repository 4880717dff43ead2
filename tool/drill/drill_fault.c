/* SPDX-License-Identifier: Apache-2.0 */
/* Disables a NIC: sets its link down, or makes this node send to an unused Ethernet address. */
#include "sys/rtnl.h"
#include "sys/rtnl_neigh.h"
#include "tool/drill/drill.h"

#include <fcntl.h>
#include <linux/neighbour.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEIGHBOURS 256
#define ANSWER_MS  15000 /* ms for the child to answer; more than the 10 s for which hw_netlink waits for the kernel */

struct order {
    char nic[IFNAMSIZ];
    uint8_t how, away;
};

struct answer {
    int rc;
    uint64_t at;
    char text[HW_ERR_TEXT];
};

/* State of the child: the disabled NIC and its original neighbour entries. */
struct away {
    struct hw_netlink rt;
    int index; /* index of the disabled NIC, or 0 if none is disabled */
    enum drill_how how;
    struct hw_rtnl_neigh was[NEIGHBOURS];
    int n;
};

/* An unused Ethernet address, from the locally administered range. */
static const uint8_t nobody[6] = {0x02, 0, 0, 0, 0, 1};

static int make_hole(struct away *a, int index)
{
    int n = hw_rtnl_neigh_list(&a->rt, index, a->was, NEIGHBOURS), rc = 0;
    if (n < 0)
        return n;
    if (n == 0)
        return hw_fail(-ENODATA, "the NIC has no neighbour entries, so --how hole has nothing to change");
    a->n = HW_MIN(n, NEIGHBOURS);
    for (int i = 0; i < a->n && rc == 0; i++) {
        struct hw_rtnl_neigh to = a->was[i];
        memcpy(to.mac, nobody, sizeof to.mac);
        to.state = NUD_PERMANENT;
        rc = hw_rtnl_neigh_set(&a->rt, &to);
    }
    return rc;
}

static int fill_hole(struct away *a)
{
    int rc = 0;
    for (int i = 0; i < a->n; i++) {
        struct hw_rtnl_neigh to = a->was[i];
        if (!(to.state & NUD_PERMANENT))
            to.state = NUD_REACHABLE;
        int one = hw_rtnl_neigh_set(&a->rt, &to);
        rc = rc < 0 ? rc : one;
    }
    a->n = 0;
    return rc;
}

static int give_back(struct away *a)
{
    int rc = 0;
    if (a->index)
        rc = a->how == DRILL_HOLE ? fill_hole(a) : hw_rtnl_link_up(&a->rt, a->index, true);
    a->index = 0;
    return rc;
}

static int take_away(struct away *a, const struct order *o)
{
    struct hw_rtnl_link link;
    int rc = give_back(a);
    if (rc < 0)
        return rc;
    rc = hw_rtnl_link_get(&a->rt, o->nic, &link);
    if (rc < 0)
        return rc;
    a->index = link.index;
    a->how = (enum drill_how)o->how;
    rc = a->how == DRILL_HOLE ? make_hole(a, link.index) : hw_rtnl_link_up(&a->rt, link.index, false);
    if (rc < 0) {
        HW_KEEP_ERROR();
        (void)give_back(a);
    }
    return rc;
}

/* Runs in the child: handles orders until the parent closes its end of the pipe, and then restores the disabled NIC. */
static _Noreturn void obey(int from, int to)
{
    static struct away a;
    struct order o;
    int rc = hw_netlink_open(&a.rt, NETLINK_ROUTE);
    while (read(from, &o, sizeof o) == (ssize_t)sizeof o) {
        struct answer answer = {.rc = rc};
        if (rc == 0)
            answer.rc = o.away ? take_away(&a, &o) : give_back(&a);
        answer.at = hw_now();
        if (answer.rc < 0)
            snprintf(answer.text, sizeof answer.text, "%s", hw_error());
        if (write(to, &answer, sizeof answer) != (ssize_t)sizeof answer)
            break;
    }
    (void)give_back(&a);
    _exit(0);
}

int drill_child_start(struct drill_child *c)
{
    int there[2], back[2];
    *c = (struct drill_child){.to = -1, .from = -1};
    if (pipe2(there, O_CLOEXEC) < 0)
        return hw_fail(-errno, "creating a pipe: %s", strerror(errno));
    if (pipe2(back, O_CLOEXEC) < 0) {
        int rc = hw_fail(-errno, "creating a pipe: %s", strerror(errno));
        hw_close(&there[0]);
        hw_close(&there[1]);
        return rc;
    }
    c->pid = fork();
    if (c->pid == 0) {
        hw_close(&there[1]);
        hw_close(&back[0]);
        /* a different process name, so that killing hawser by name does not kill the child */
        (void)prctl(PR_SET_NAME, "drill gives NIC");
        signal(SIGINT, SIG_IGN); /* a terminal also signals the child, which must not end before the parent */
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        signal(SIGPIPE, SIG_IGN);
        obey(there[0], back[1]);
    }
    int rc = c->pid < 0 ? hw_fail(-errno, "starting a process: %s", strerror(errno)) : 0;
    hw_close(&there[0]);
    hw_close(&back[1]);
    c->to = there[1];
    c->from = back[0];
    if (rc < 0) {
        c->pid = 0;
        drill_child_end(c);
    }
    return rc;
}

int drill_child_do(struct drill_child *c, const char *nic, enum drill_how how, bool away, uint64_t *at)
{
    struct order o = {.how = (uint8_t)how, .away = away};
    struct answer a;
    struct pollfd p = {.fd = c->from, .events = POLLIN};
    snprintf(o.nic, sizeof o.nic, "%s", nic);
    if (write(c->to, &o, sizeof o) != (ssize_t)sizeof o || poll(&p, 1, ANSWER_MS) != 1 ||
        read(c->from, &a, sizeof a) != (ssize_t)sizeof a)
        return hw_fail(-ECHILD, "the process that disables NICs does not answer");
    *at = a.at;
    return a.rc < 0 ? hw_fail(a.rc, "%s %s: %s", away ? "disabling" : "re-enabling", nic, a.text) : 0;
}

void drill_child_end(struct drill_child *c)
{
    if (!c->pid && c->to <= 0)
        return;
    hw_close(&c->to);
    hw_close(&c->from);
    if (c->pid)
        waitpid(c->pid, NULL, 0);
    c->pid = 0;
}
