/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of hawserd steer connections from a dozen local ports, and end them at random times and in several ways.
 * Meanwhile, victims repeatedly connect to the same server. A victim must never get a connection that matches a flow
 * rule. Usage: test_hawserd_storm [SECONDS [SEED]]
 */
#include "client.h"
#include "net.h"
#include "served.h"
#include "tests/fakes/kernel/fake.h"
#include "tests/tap.h"
#include "transport/devmem/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define ATTACKERS 3
#define VICTIMS   3
#define PORTS     12
#define FROM      40000

struct counts {
    atomic_uint connected, hit, steered, refused, lost;
    atomic_bool stop;
};

static struct fake *F;
static struct counts *C;
static char dir[40], path[64], state[64];
static unsigned seed = 1;

static unsigned dice(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % n;
}

static void pause_a_little(void)
{
    unsigned us = dice(3) ? dice(300) : dice(5000);
    if (us > 50)
        usleep(us);
}

/* Accepts connections. Closes a connection when the peer closes it, or, at random, earlier. */
static void run_server(int l)
{
    struct pollfd p[256] = {{.fd = l, .events = POLLIN}};
    nfds_t n = 1;
    while (!atomic_load(&C->stop)) {
        (void)poll(p, n, 100);
        for (nfds_t i = n; i-- > 1;) {
            if (!p[i].revents && dice(400))
                continue;
            if (dice(2))
                net_reset(&p[i].fd);
            else
                close(p[i].fd);
            p[i] = p[--n];
        }
        if (p[0].revents && n < HW_ARRAY_LEN(p)) {
            p[n].fd = accept4(l, NULL, NULL, SOCK_CLOEXEC);
            p[n].revents = 0;
            p[n].events = POLLIN;
            n += p[n].fd >= 0;
        }
    }
}

/* Returns true if a flow rule matches these endpoints. */
static bool ruled(const union hw_addr *local, const union hw_addr *remote)
{
    for (int i = 0; i < FAKE_RULES; i++) {
        const volatile bool *used = &F->nic[0].rule[i].used;
        struct hd_rule r;
        if (!*used)
            continue;
        memcpy(&r, &F->nic[0].rule[i].rule, sizeof(r));
        if (*used && r.exact && hw_addr_same_host(&r.local, local) && hw_addr_same_host(&r.remote, remote) &&
            hw_addr_port(&r.local) == hw_addr_port(local) && hw_addr_port(&r.remote) == hw_addr_port(remote))
            return true;
    }
    return false;
}

static void run_victim(void)
{
    while (!atomic_load(&C->stop)) {
        union hw_addr to = net_address("10.9.0.2", 9999, 0), from = net_address("10.9.0.1", 0, 0), local = {0};
        socklen_t len = sizeof(local);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int rc = dice(2) ? 0 : bind(fd, &from.sa, hw_addr_len(&from));
        if (rc == 0)
            rc = connect(fd, &to.sa, hw_addr_len(&to));
        if (rc == 0 && getsockname(fd, &local.sa, &len) == 0) {
            atomic_fetch_add(&C->connected, 1);
            for (unsigned i = dice(20); i < 20; i++)
                if (ruled(&local, &to)) {
                    atomic_fetch_add(&C->hit, 1);
                    break;
                }
        }
        if (fd >= 0)
            net_reset(&fd);
        if (rc)
            usleep(200);
    }
}

/* Ends a connection in one of several ways, chosen at random. */
static void end_connection(int fd)
{
    union hw_addr nowhere = net_address("10.9.0.1", 1, 0);
    switch (dice(5)) {
    case 0:
        net_dissolve(fd);
        break;
    case 1:
        net_dissolve(fd);
        (void)connect(fd, &nowhere.sa, hw_addr_len(&nowhere));
        break;
    case 2:
        net_dissolve(fd);
        (void)listen(fd, 1);
        break;
    case 3:
        (void)shutdown(fd, SHUT_RDWR);
        break;
    default:
        break; /* closed later */
    }
}

static void attack_once(struct dm_helper *h, const struct dm_binding *b)
{
    union hw_addr to = net_address("10.9.0.2", 9999, 0), from = net_address("10.9.0.1", 0, 0);
    uint32_t rule = 0, queue;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
    int how = (int)dice(3), reuse = how == 2;
    if (how)
        hw_addr_set_port(&from, (uint16_t)(FROM + dice(PORTS)));
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    if (bind(fd, &from.sa, hw_addr_len(&from)) < 0 || connect(fd, &to.sa, hw_addr_len(&to)) < 0) {
        close(fd);
        usleep(200);
        return;
    }
    unsigned own = dice(1u << 15);
    pid_t pid = dice(2) ? fork() : -1; /* a second process with the same socket ends the connection meanwhile */
    if (pid == 0) {
        seed += own;
        pause_a_little();
        end_connection(fd);
        _exit(0);
    }
    int rc = dm_helper_steer(h, b->id, fd, &rule, &queue);
    atomic_fetch_add(rc ? &C->refused : &C->steered, 1);
    pause_a_little();
    if (rc == 0 && dice(3) == 0)
        (void)dm_helper_release(h, rule);
    end_connection(fd);
    if (dice(2))
        net_reset(&fd);
    if (pid > 0)
        waitpid(pid, &status, 0);
    if (fd >= 0)
        net_reset(&fd);
}

static void run_attacker(void)
{
    while (!atomic_load(&C->stop)) {
        struct dm_helper *h = NULL;
        struct dm_binding b;
        int buf = fake_dmabuf(1 << 20);
        if (dm_helper_open(path, MS, &h) == 0 && dm_helper_bind_rx(h, "eth1", buf, 1, 0, &b) == 0)
            for (unsigned left = 20 + dice(200); left && !atomic_load(&C->stop); left--)
                attack_once(h, &b);
        else
            atomic_fetch_add(&C->lost, 1);
        dm_helper_close(h); /* also removes all rules */
        close(buf);
    }
}

static pid_t start(void (*fn)(void), unsigned number)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    seed = seed * 1000 + number;
    fn();
    _exit(0);
}

static int listener;
static void server(void)
{
    run_server(listener);
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 0) : 5;
    struct hd_kernel k;
    struct hd_policy policy;
    struct fake was;
    pid_t pid[1 + ATTACKERS + VICTIMS];
    if (argc > 2)
        seed = (unsigned)strtoul(argv[2], NULL, 0);
    F = fake_new();
    C = mmap(NULL, sizeof(*C), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fake_kernel(F, &k);
    if (!net_make())
        tap_skip_all("a network namespace needs CAP_SYS_ADMIN");
    if (fake_kernel_real_sockets(&k) < 0 || C == MAP_FAILED)
        return 1;
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    hd_policy_default(&policy, getuid());
    was = *F;
    int logs = open("/dev/null", O_RDWR | O_CLOEXEC);
    logs = memfd_create("log", MFD_CLOEXEC);
    struct served r = served_start(F, &k, &policy, path, state, logs);
    net_ports(FROM, FROM + PORTS - 1);
    listener = net_server();
    pid[0] = start(server, 0);
    for (unsigned i = 1; i < HW_ARRAY_LEN(pid); i++)
        pid[i] = start(i <= ATTACKERS ? run_attacker : run_victim, i);
    sleep(seconds);
    atomic_store(&C->stop, true);
    for (size_t i = 0; i < HW_ARRAY_LEN(pid); i++)
        waitpid(pid[i], NULL, 0);
    diag("%u connections steered, %u refused, %u bindings not had", atomic_load(&C->steered), atomic_load(&C->refused),
         atomic_load(&C->lost));
    ok(atomic_load(&C->steered) > 0 && atomic_load(&C->connected) > 0, "connections are steered, victims connect");
    ok(atomic_load(&C->hit) == 0, "of %u connections of victims %u had the ends of a rule", atomic_load(&C->connected),
       atomic_load(&C->hit));
    ok(SOON(!*fake_differs(&was, F)), "all is undone: %s", fake_differs(&was, F));
    is_str(F->wrong, "", "nothing was wrong");
    is_int(served_stop(&r), 0, "the daemon ends");
    static const char *const names[] = {"", ".new", ".lock"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        char left[96];
        snprintf(left, sizeof(left), "%s%s", state, names[i]);
        unlink(left);
    }
    rmdir(dir);
    return tap_done();
}
