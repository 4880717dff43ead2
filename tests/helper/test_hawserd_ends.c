/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the end of steered connections, with real connections and a fake NIC. hawserd must remove a rule when its
 * connection ends, regardless of how and when the connection ends. While the rule exists, no other connection may get
 * the port if the port is in the range of local ports. Runs in a separate network namespace, whose lo has the addresses
 * 10.9.0.1 and 10.9.0.2.
 */
#include "client.h"
#include "net.h"
#include "odd.h"
#include "served.h"
#include "tests/fakes/kernel/fake.h"
#include "tests/tap.h"
#include "transport/devmem/helper.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fake *F;
static struct hd_kernel K;
static struct hd_rights any = {
    .who = "user 0", .nics = "*", .max_queues = 16, .max_bindings = 16, .max_rules = 64, .max_bytes = UINT64_MAX};
static struct hw_logger quiet;
static int owner;

static void must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    perror(what);
    abort();
}

struct pair {
    int here, there; /* the client's and the server's sockets */
};

/* Connects from 10.9.0.1. Uses the given local port unless it is 0. */
static struct pair connect_pair(int l, int v6, unsigned port)
{
    struct pair p = {.here = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    union hw_addr from = net_address("10.9.0.1", port, v6), to = net_address("10.9.0.2", 9999, v6);
    if (port)
        must(bind(p.here, &from.sa, hw_addr_len(&from)), "bind");
    must(connect(p.here, &to.sa, hw_addr_len(&to)), "connect");
    p.there = accept4(l, NULL, NULL, SOCK_CLOEXEC);
    must(p.there, "accept");
    return p;
}

static void end_pair(struct pair *p)
{
    if (p->here >= 0)
        net_reset(&p->here);
    if (p->there >= 0)
        net_reset(&p->there);
}

/* ---- hawserd -------------------------------------------------------------------------------------- */

static unsigned rules_on_nic(void)
{
    unsigned n = 0;
    for (int i = 0; i < FAKE_RULES; i++)
        n += F->nic[0].rule[i].used;
    return n;
}

/* Creates a state with one binding. */
static uint32_t begin(struct hd_state *s)
{
    struct fake *fresh = fake_new();
    struct hw_helper_request q = {.type = HW_H_BIND_RX, .count = 1, .nic = "eth1"};
    struct hw_helper_reply a = {0};
    struct hd_facts f;
    int fd = fake_dmabuf(1 << 20);
    *F = *fresh;
    fake_free(fresh);
    hd_state_init(s, &K, &quiet, NULL);
    hd_inspect(&K, q.type, fd, &f);
    must(hd_bind(s, &owner, 0, &any, &f, fd, &q, &a), "bind");
    close(fd);
    return a.id;
}

static int steer(struct hd_state *s, uint32_t binding, int fd)
{
    struct hw_helper_reply a = {0};
    struct hd_facts f;
    hd_inspect(&K, HW_H_STEER, fd, &f);
    return hd_steer(s, &owner, &any, &f, binding, &a);
}

static void end(struct hd_state *s)
{
    hd_drop(s, &owner);
    is_int(rules_on_nic(), 0, "no rule is left");
    hd_state_free(s);
}

/* Handles the kernel's reports until no rule is left, but no longer than `ms` milliseconds. */
static void take_reports(struct hd_state *s, int ms)
{
    struct pollfd p = {.fd = K.events, .events = POLLIN};
    uint64_t until = hw_deadline(ms);
    while (rules_on_nic() && hw_now() < until)
        if (poll(&p, 1, 10) == 1)
            hd_take_reports(s);
}

static void drop_reports(void)
{
    uint64_t cookie[64];
    bool lost;
    while (K.ended(K.arg, cookie, 64, &lost) || lost)
        ;
}

static void look_at_all(struct hd_state *s)
{
    hw_list_each(it, tmp, &s->rules) hw_container_of(it, struct hd_held_rule, node)->due = 0;
    (void)hd_look(s);
}

/* ---- tests ---------------------------------------------------------------------------------------- */

static struct pair racer;
static int (*true_rule_add)(void *arg, int ifindex, struct hd_rule *r);
static int how_it_ends;

/* Ends the connection from either side while hawserd handles the steering request. */
static void end_racer(void)
{
    switch (how_it_ends) {
    case 0:
        net_dissolve(racer.here);
        break;
    case 1:
        net_reset(&racer.here);
        break;
    default:
        net_reset(&racer.there);
        break;
    }
}

static int end_and_add(void *arg, int ifindex, struct hd_rule *r)
{
    end_racer();
    return true_rule_add(arg, ifindex, r);
}

static int add_and_end(void *arg, int ifindex, struct hd_rule *r)
{
    int rc = true_rule_add(arg, ifindex, r);
    end_racer();
    return rc;
}

static void races(int l)
{
    static const char *const how[] = {"dissolves it", "closes it", "has it reset by the other end"};
    struct hd_state s;
    true_rule_add = K.rule_add;
    for (how_it_ends = 0; how_it_ends < 3; how_it_ends++) {
        uint32_t b = begin(&s);
        struct hd_facts f;
        struct hw_helper_reply a = {0};
        racer = connect_pair(l, 0, 0);
        hd_inspect(&K, HW_H_STEER, racer.here, &f);
        end_racer();
        int rc = hd_steer(&s, &owner, &any, &f, b, &a);
        ok(rc == -ENOTCONN && rules_on_nic() == 0, "a client %s after the look at its ends: no rule (%d)",
           how[how_it_ends], rc);
        end_pair(&racer);
        for (int late = 0; late < 2; late++) {
            racer = connect_pair(l, 0, 0);
            K.rule_add = late ? add_and_end : end_and_add;
            rc = steer(&s, b, racer.here);
            K.rule_add = true_rule_add;
            ok(rc == -ENOTCONN && rules_on_nic() == 0, "a client %s %s: no rule (%d)", how[how_it_ends],
               late ? "while the rule is made" : "before the rule is made", rc);
            end_pair(&racer);
        }
        end(&s);
    }
}

static void reports(int l)
{
    struct hd_state s;
    uint32_t b = begin(&s);
    for (int v6 = 0; v6 < 2; v6++) {
        const char *kind = v6 ? "IPv4 through an IPv6 socket" : "IPv4";
        struct pair p = connect_pair(l, v6, 0);
        is_int(steer(&s, b, p.here), 0, "a rule");
        net_reset(&p.here);
        take_reports(&s, MS);
        ok(rules_on_nic() == 0, "%s: closed with a reset, reported", kind);
        end_pair(&p);
        p = connect_pair(l, v6, 0);
        is_int(steer(&s, b, p.here), 0, "a rule");
        hw_close(&p.here);
        hw_close(&p.there);
        take_reports(&s, MS);
        ok(rules_on_nic() == 0, "%s: closed in order, in TIME_WAIT, reported", kind);
        p = connect_pair(l, v6, 0);
        is_int(steer(&s, b, p.here), 0, "a rule");
        hw_close(&p.there);
        hw_close(&p.here);
        take_reports(&s, MS);
        ok(rules_on_nic() == 0, "%s: closed by the other end first, reported", kind);
    }
    /* a connection exists until all processes have closed its socket */
    struct pair p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    int other = dup(p.here);
    pid_t pid = fork();
    if (pid == 0)
        pause();
    hw_close(&p.here);
    take_reports(&s, 200);
    look_at_all(&s);
    is_int(rules_on_nic(), 1, "a connection that another descriptor and another process have open lives");
    hw_close(&other);
    take_reports(&s, 200);
    look_at_all(&s);
    is_int(rules_on_nic(), 1, "that another process has open too");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    hw_close(&p.there);
    take_reports(&s, MS);
    is_int(rules_on_nic(), 0, "with the last one it goes");
    end(&s);
    (void)hd_look(&s);
}

/* Tests that polling finds ended connections that the kernel does not report, or whose report is lost. */
static void looks(int l)
{
    struct hd_state s;
    uint32_t b = begin(&s);
    struct pair p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    look_at_all(&s);
    is_int(rules_on_nic(), 1, "a connection that lives keeps its rule");
    uint64_t next = hd_look(&s), now = hw_now();
    ok(next > now && next <= now + HD_LOOK_MS * HW_MS, "it is looked at again within %d ms", HD_LOOK_MS);
    net_dissolve(p.here);
    look_at_all(&s);
    is_int(rules_on_nic(), 0, "dissolved by AF_UNSPEC, and the socket goes on");
    is_int(hd_look(&s) == HW_NEVER, 1, "nothing is looked at any more");
    end_pair(&p);

    p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    net_dissolve(p.here);
    union hw_addr nowhere = net_address("10.9.0.1", 1, 0);
    (void)connect(p.here, &nowhere.sa, hw_addr_len(&nowhere));
    look_at_all(&s);
    is_int(rules_on_nic(), 0, "dissolved, and used for something else at once");
    end_pair(&p);

    p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    net_reset(&p.there);
    look_at_all(&s);
    is_int(rules_on_nic(), 0, "reset by the other end");
    end_pair(&p);

    p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    hw_close(&p.here);
    drop_reports();
    look_at_all(&s);
    is_int(rules_on_nic(), 0, "closed, and the other end is not: nobody here has it any more");
    end_pair(&p);

    p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    hw_close(&p.here);
    hw_close(&p.there);
    drop_reports();
    look_at_all(&s);
    is_int(rules_on_nic(), 0, "in TIME_WAIT");
    end(&s);
}

static void lost_reports(int l)
{
    struct hd_state s;
    uint32_t b = begin(&s);
    int little = 1;
    struct pair p = connect_pair(l, 0, 0);
    is_int(steer(&s, b, p.here), 0, "a rule");
    must(setsockopt(K.events, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), "SO_RCVBUF");
    for (int i = 0; i < 100; i++) {
        struct pair other = connect_pair(l, 0, 0);
        end_pair(&other);
    }
    usleep(200 * 1000); /* time for a kernel thread to send the reports */
    net_reset(&p.here);
    usleep(200 * 1000);
    for (int i = 0; i < 10; i++)
        hd_take_reports(&s);
    is_int(rules_on_nic(), 1, "its report is among those that the kernel had no room for");
    (void)hd_look(&s);
    is_int(rules_on_nic(), 0, "so all connections are looked at, long before they are due");
    end_pair(&p);
    end(&s);
}

/* Tries six ways to get the port. Returns a bit mask of the successful ways. */
static unsigned victims(unsigned port)
{
    unsigned got = 0;
    for (int how = 0; how < 6; how++) {
        int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        union hw_addr to = net_address("10.9.0.2", 9999, 0), from = net_address("10.9.0.1", how < 3 ? 0 : port, 0);
        if (how == 2 || how == 4)
            must(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)), "SO_REUSEADDR");
        if (how == 5)
            must(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)), "SO_REUSEPORT");
        int rc = how ? bind(fd, &from.sa, hw_addr_len(&from)) : 0;
        got += (rc == 0 && connect(fd, &to.sa, hw_addr_len(&to)) == 0) << how;
        if (rc == 0)
            net_reset(&fd);
        close(fd);
    }
    return got;
}

/* The range of local ports contains only one port. The next connection would get this port if hawserd did not hold
 * it. */
static void ports(int l)
{
    struct hd_state s;
    uint32_t b = begin(&s);
    net_ports(40000, 40000);
    for (int how = 0; how < 3; how++) {
        static const char *const what[] = {"dissolved", "closed", "dissolved, of a socket that was bound to its port"};
        struct pair p = connect_pair(l, 0, how == 2 ? 40000 : 0);
        is_int(steer(&s, b, p.here), 0, "a rule for the connection of the one port that there is");
        if (how == 1)
            net_reset(&p.here);
        else
            net_dissolve(p.here);
        is_int(rules_on_nic(), 1, "hawserd does not know yet");
        is_int(victims(40000), 0, "and nobody gets the port");
        look_at_all(&s);
        is_int(rules_on_nic(), 0, what[how]);
        if (how == 2) { /* the socket is still bound */
            net_reset(&p.here);
            hw_close(&p.there);
        }
        end_pair(&p);
        is_int(victims(40000) & 1, 1, "now the next one gets it");
        while (poll(&(struct pollfd){.fd = l, .events = POLLIN}, 1, 0) == 1)
            close(accept4(l, NULL, NULL, SOCK_CLOEXEC));
        /* a port outside the range, such as a server's port, is not protected, so that a server can be restarted at
         * once */
        net_ports(41000, 42000);
        p = connect_pair(l, 0, 40001);
        is_int(steer(&s, b, p.here), 0, "a rule for a port that is not given out unasked");
        net_reset(&p.here);
        hw_close(&p.there);
        drop_reports();
        struct pair next = connect_pair(l, 0, 40001);
        is_int(rules_on_nic(), 1, "its owner may have it again, and the next connection has the same ends");
        look_at_all(&s);
        is_int(rules_on_nic(), 0, "which is not the one that was steered");
        end_pair(&next);
        net_ports(40000, 40000);
    }
    net_ports(32768, 60999);
    end(&s);
}

static void devices(int l)
{
    struct hd_state s;
    uint32_t b = begin(&s);
    struct pair p = connect_pair(l, 0, 0);
    must(setsockopt(p.here, SOL_SOCKET, SO_BINDTODEVICE, "lo", 2), "SO_BINDTODEVICE");
    is_int(steer(&s, b, p.here), 0, "a connection that is bound to the NIC");
    fake_ifindex = 7;
    look_at_all(&s);
    is_int(rules_on_nic(), 0, "one that is bound to another device is not the NIC's");
    is_int(steer(&s, b, p.here), -ENOTCONN, "and gets no rule");
    fake_ifindex = 1;
    end_pair(&p);
    end(&s);
}

/* ---- the daemon ---------------------------------------------------------------------------------- */

static char dir[40], path[64], state[64];

static void clients(int l)
{
    struct dm_helper *h;
    struct dm_binding b;
    uint32_t rule, queue;
    struct hd_policy policy;
    int logs = memfd_create("log", MFD_CLOEXEC), buf = fake_dmabuf(1 << 20), status;
    must(fcntl(logs, F_SETFL, O_APPEND), "O_APPEND");
    struct fake *fresh = fake_new();
    *F = *fresh;
    fake_free(fresh);
    hd_policy_default(&policy, getuid());
    struct served r = served_start(F, &K, &policy, path, state, logs);
    must(dm_helper_open(path, MS, &h), "a client");
    must(dm_helper_bind_rx(h, "eth1", buf, 1, 0, &b), "a binding");
    struct pair p = connect_pair(l, 0, 0);
    is_int(dm_helper_steer(h, b.id, p.here, &rule, &queue), 0, "a rule");
    is_int(dm_helper_steer(h, b.id, p.here, &rule, &queue), -EEXIST, "is there");
    net_reset(&p.here);
    ok(SOON(rules_on_nic() == 0), "it goes with its connection");
    end_pair(&p);

    /* a client that ends its connections at random times and reuses the sockets immediately */
    unsigned made = 0, refused = 0;
    for (int i = 0; i < 300; i++) {
        p = connect_pair(l, 0, 0);
        pid_t pid = fork();
        if (pid == 0) {
            union hw_addr nowhere = net_address("10.9.0.1", 1, 0);
            uint64_t until = hw_now() + (uint64_t)(i % 60) * 100000;
            while (hw_now() < until)
                ;
            net_dissolve(p.here);
            (void)connect(p.here, &nowhere.sa, hw_addr_len(&nowhere));
            _exit(0);
        }
        int rc = dm_helper_steer(h, b.id, p.here, &rule, &queue);
        made += rc == 0;
        refused += rc == -ENOTCONN;
        waitpid(pid, &status, 0);
        end_pair(&p);
        if (rc == -ENOSPC || rc == -EDQUOT)
            (void)SOON(rules_on_nic() == 0);
    }
    ok(made + refused >= 250, "300 connections are dissolved while they are steered: %u rules, %u refused", made,
       refused);
    ok(SOON(rules_on_nic() == 0), "all rules go, and none stays for ever: %u", rules_on_nic());

    /* a locked socket blocks only its own request */
    int locked = odd_locked_socket();
    if (locked < 0) {
        tap_skip("a socket that is locked", ODD_PAGES);
    } else {
        struct dm_helper *g;
        int fd = client_greeted(path);
        struct hw_helper_request q = {.type = HW_H_BIND_RX, .seq = 2, .count = 1, .nic = "eth2"};
        struct hw_helper_reply a;
        (void)client_ask(fd, &q, &buf, 1);
        is_int(client_answer_to(fd, &a), 0, "a binding");
        q = (struct hw_helper_request){.type = HW_H_STEER, .seq = 3, .id = a.id};
        (void)client_ask(fd, &q, &locked, 1);
        usleep(100 * 1000);
        is_int(dm_helper_open(path, MS, &g), 0, "while a socket is locked another client is taken");
        is_int(dm_helper_release(g, 1), -ENOENT, "and served");
        dm_helper_close(g);
        close(fd);
        ok(SOON(served_said(logs, "eth2: released binding") && F->nic[1].table[7] == 7),
           "and what its own client had is undone when that leaves");
    }
    dm_helper_close(h);
    is_int(served_stop(&r), 0, "the daemon ends");
    close(buf);
}

int main(void)
{
    F = fake_new();
    fake_kernel(F, &K);
    if (!net_make())
        tap_skip_all("a network namespace needs CAP_SYS_ADMIN");
    must(fake_kernel_real_sockets(&K), "this machine's kernel");
    int l = net_server();
    struct pair p = connect_pair(l, 0, 0);
    struct hd_facts f;
    hd_inspect(&K, HW_H_STEER, p.here, &f);
    if (f.rc || K.alive(K.arg, 1, &f.conn) != 1)
        tap_skip_all("this kernel has no sock_diag for TCP");
    end_pair(&p);
    races(l);
    reports(l);
    looks(l);
    ports(l);
    devices(l);
    lost_reports(l);
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    clients(l);
    static const char *const names[] = {"", ".new", ".lock"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        char left[96];
        snprintf(left, sizeof(left), "%s%s", state, names[i]);
        unlink(left);
    }
    rmdir(dir);
    int rc = tap_done();
    fflush(stdout);
    /* not exit(): a thread may hang in send() */
    _exit(rc);
}
