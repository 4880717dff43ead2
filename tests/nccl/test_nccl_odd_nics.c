/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the NCCL plugin on machines with unusual NICs: many NICs, long and odd names, many addresses, and NICs that
 * vanish after init. Each case runs in a child process with a network namespace of its own. The child plays both ranks:
 * it connects to its own listener.
 */
#include "base/base.h"
#include "nccl/inner.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIMIT_S 60 /* for one case */

static char warned[8192]; /* all warnings of the plugin */

__attribute__((format(printf, 5, 6))) static void logger(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                                         int line, const char *fmt, ...)
{
    const size_t len = strlen(warned);
    va_list ap;
    (void)flags, (void)file, (void)line;
    if (level != NCCL_LOG_WARN)
        return;
    va_start(ap, fmt);
    vsnprintf(warned + len, sizeof(warned) - len, fmt, ap);
    va_end(ap);
    strncat(warned, "\n", sizeof(warned) - strlen(warned) - 1);
}

__attribute__((format(printf, 1, 2))) static void run(const char *fmt, ...)
{
    char command[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(command, sizeof(command), fmt, ap);
    va_end(ap);
    if (system(command)) { // NOLINT(cert-env33-c): the test's own commands
        diag("failed: %s", command);
        _exit(3);
    }
}

static void add_test_nic(const char *name, unsigned number)
{
    run("ip link add '%s' type veth peer name peer%u && ip addr add 198.18.%u.1/24 dev '%s' && ip link set '%s' up && "
        "ip link set peer%u up",
        name, number, number, name, name, number);
}

static bool put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    hw_close(&fd);
    return good;
}

/* Enters a new user namespace, as root, and a new network namespace. */
static bool enter_namespace(void)
{
    char map[64];
    const unsigned uid = getuid(), gid = getgid();
    if (unshare(CLONE_NEWUSER | CLONE_NEWNET))
        return false;
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (!put_text("/proc/self/uid_map", map))
        return false;
    (void)put_text("/proc/self/setgroups", "deny");
    snprintf(map, sizeof(map), "0 %u 1", gid);
    return put_text("/proc/self/gid_map", map) && system("ip link set lo up") == 0; // NOLINT(cert-env33-c)
}

static void nap(void)
{
    struct timespec t = {.tv_nsec = 1000000};
    (void)nanosleep(&t, NULL);
}

static uint8_t handle[NCCL_NET_HANDLE_MAXSIZE];
static void *lc, *sc, *rc;

/* Connects device `dev` to the listener in `handle`. Returns the last result of connect or accept. */
static ncclResult_t connect_ranks(int dev)
{
    ncclResult_t r = ncclSuccess;
    sc = rc = NULL;
    while (r == ncclSuccess && (!sc || !rc)) {
        if (!sc)
            r = hn_connect(dev, handle, &sc);
        if (r == ncclSuccess && !rc)
            r = hn_accept(lc, &rc);
        nap();
    }
    return r;
}

/* Sends a message and checks it. */
static bool talk(void)
{
    static char from[100000], to[100000];
    void *mine, *theirs, *sreq = NULL, *rreq = NULL, *tos[] = {to};
    size_t sizes[] = {sizeof(to)};
    int done = 0, tags[] = {0}, size = 0;
    memset(from, 'x', sizeof(from));
    memset(to, 0, sizeof(to));
    if (hn_reg(sc, from, sizeof(from), NCCL_PTR_HOST, &mine) || hn_reg(rc, to, sizeof(to), NCCL_PTR_HOST, &theirs))
        return false;
    while (!rreq)
        if (hn_irecv(rc, 1, tos, sizes, tags, &theirs, NULL, &rreq))
            return false;
    while (!sreq)
        if (hn_isend(sc, from, sizeof(from), 0, mine, NULL, &sreq))
            return false;
    while (!done)
        if (hn_test(sreq, &done, &size))
            return false;
    for (done = 0; !done;)
        if (hn_test(rreq, &done, &size))
            return false;
    return size == (int)sizeof(to) && memcmp(from, to, sizeof(to)) == 0 && hn_dereg(sc, mine) == ncclSuccess &&
           hn_dereg(rc, theirs) == ncclSuccess;
}

/* Ends all. Returns true if nothing failed. */
static bool close_all(void)
{
    bool good = hn_close_send(sc) == ncclSuccess && hn_close_recv(rc) == ncclSuccess;
    good &= hn_close_listen(lc) == ncclSuccess && hn_finalize() == ncclSuccess && !hn_g.h;
    return good;
}

static bool works(int dev)
{
    return hn_listen(dev, handle, &lc) == ncclSuccess && connect_ranks(dev) == ncclSuccess && talk() && close_all();
}

/* ---- the cases ---------------------------------------------------------------------------------------------- */

static bool many_long_names(void)
{
    char name[HAWSER_NIC_NAME];
    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof(name), "br-%012u", i);
        add_test_nic(name, i);
    }
    (void)hn_init(logger, NULL);
    return hn_g.nnics == 20 && works(0);
}

static bool forty_nics(void)
{
    char name[HAWSER_NIC_NAME];
    for (unsigned i = 0; i < 40; i++) {
        snprintf(name, sizeof(name), "eth%u", i);
        add_test_nic(name, i);
    }
    (void)hn_init(logger, NULL);
    return hn_g.nnics == HN_NICS_MAX && strstr(warned, "eth32") && works(0);
}

static bool many_addresses(void)
{
    for (unsigned i = 0; i < 100; i++)
        run("ip addr add 198.19.0.%u/32 dev lo", i + 1);
    add_test_nic("eth0", 0);
    (void)hn_init(logger, NULL);
    struct sockaddr_in last = {.sin_family = AF_INET};
    char name[HAWSER_NIC_NAME] = "";
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    last.sin_addr.s_addr = htonl(0xc6130000 + 100);
    if (bind(fd, (const struct sockaddr *)&last, sizeof(last)) == 0)
        hw_nic_of_socket(fd, name);
    hw_close(&fd);
    return strcmp(hn_g.nics, "eth0") == 0 && strcmp(name, "lo") == 0 && works(0);
}

static bool misspelled(void)
{
    setenv("HAWSER_NICS", "eth0,eht1,eth2", 1);
    for (unsigned i = 0; i < 3; i++)
        add_test_nic(i == 0 ? "eth0" : i == 1 ? "eth1" : "eth2", i);
    run("ip link set eth2 down");
    (void)hn_init(logger, NULL);
    return strcmp(hn_g.nics, "eth0") == 0 && strstr(warned, "not used: eht1,eth2;") && works(0);
}

static bool not_virbr(void)
{
    add_test_nic("virbr0", 0);
    add_test_nic("eth0", 1);
    (void)hn_init(logger, NULL);
    return strcmp(hn_g.nics, "eth0") == 0;
}

static bool all_but_docker(void)
{
    setenv("NCCL_SOCKET_IFNAME", "^docker", 1);
    add_test_nic("docker0", 0);
    (void)hn_init(logger, NULL);
    bool alone = strcmp(hn_g.nics, "lo") == 0 && hn_finalize() == ncclSuccess;
    add_test_nic("eth0", 1);
    (void)hn_init(logger, NULL);
    return alone && strcmp(hn_g.nics, "eth0") == 0 && works(0);
}

/* NCCL ignores these ports as well. */
static bool with_ports(void)
{
    static const struct {
        const char *list, *nics;
    } cases[] = {
        {"eth0:1", "eth0"},      {"eth1:0,eth0:1", "eth0,eth1"}, {"=eth0:1", "eth0"},
        {"=eth:1,eth1", "eth1"}, {"^=eth0:7", "eth1"},
    };
    bool good = true;
    add_test_nic("eth0", 0);
    add_test_nic("eth1", 1);
    for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++) {
        setenv("NCCL_SOCKET_IFNAME", cases[i].list, 1);
        (void)hn_init(logger, NULL);
        diag("%s: %s", cases[i].list, hn_g.nics);
        good &= strcmp(hn_g.nics, cases[i].nics) == 0 && hn_finalize() == ncclSuccess;
    }
    return good;
}

static bool odd_names(void)
{
    add_test_nic("a,b", 0);
    add_test_nic("r\xc3\xa9seau0", 1);
    add_test_nic("eth0", 2);
    (void)hn_init(logger, NULL);
    return strcmp(hn_g.nics, "eth0") == 0 && strstr(warned, "a,b") && works(0);
}

static bool vanished_before_listen(void)
{
    add_test_nic("eth0", 0);
    add_test_nic("eth1", 1);
    (void)hn_init(logger, NULL);
    run("ip link del eth1");
    return hn_g.nnics == 2 && works(1);
}

static bool down_before_connect(void)
{
    add_test_nic("eth0", 0);
    add_test_nic("eth1", 1);
    (void)hn_init(logger, NULL);
    if (hn_listen(0, handle, &lc))
        return false;
    run("ip link set eth0 down");
    return connect_ranks(0) == ncclSuccess && talk() && close_all();
}

static bool near_one_down(void)
{
    setenv("HAWSER_NCCL_NEAR", "1", 1);
    add_test_nic("eth0", 0);
    add_test_nic("eth1", 1);
    (void)hn_init(logger, NULL);
    if (hn_listen(1, handle, &lc) || !hn_g.near)
        return false;
    run("ip link set eth1 down");
    return connect_ranks(1) == ncclSuccess && talk() && close_all();
}

static bool all_down(void)
{
    add_test_nic("eth0", 0);
    (void)hn_init(logger, NULL);
    if (hn_listen(0, handle, &lc))
        return false;
    run("ip link set eth0 down");
    return connect_ranks(0) != ncclSuccess && strstr(warned, "eth0") && hn_close_listen(lc) == ncclSuccess &&
           hn_finalize() == ncclSuccess && !hn_g.h;
}

/* Plays a rank on another node, whose network namespace contains peer0 and peer1. Of these, only peer1 is up, with an
 * address in the subnet of eth1. Sends the handle of its listener to fd, and accepts connections until it is killed. */
static void play_far_rank(int fd)
{
    char go;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || unshare(CLONE_NEWNET) || write(fd, "", 1) != 1 || read(fd, &go, 1) != 1)
        _exit(3);
    run("ip addr add 198.18.1.9/24 dev peer1 && ip link set peer1 up");
    (void)hn_init(logger, NULL);
    if (hn_listen(0, handle, &lc) || write(fd, handle, sizeof(handle)) != sizeof(handle))
        _exit(3);
    for (;; nap())
        (void)hn_accept(lc, &rc);
}

/* Waits until the kernel reports that eth0 has no carrier and that eth1 has one, which takes up to a second. */
static void wait_for_carriers(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    while (!hw_nic_is_down(fd, "eth0") || hw_nic_is_down(fd, "eth1"))
        nap();
    hw_close(&fd);
}

/* Connects to a rank on another node, whose handle has first an address behind eth0, and then one behind eth1. Returns
 * true if this takes less than 2.5 s. */
static bool connects_over_eth1(void)
{
    int fd[2];
    char ready;
    struct hn_handle h;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
        return false;
    pid_t pid = fork();
    if (pid == 0)
        play_far_rank(fd[1]);
    if (read(fd[0], &ready, 1) != 1)
        return false;
    run("ip link set peer0 netns %d && ip link set peer1 netns %d", (int)pid, (int)pid);
    (void)hn_init(logger, NULL);
    if (write(fd[0], "", 1) != 1 || read(fd[0], handle, sizeof(handle)) != sizeof(handle) ||
        hn_handle_decode(handle, &h))
        return false;
    wait_for_carriers();
    h.addr[0] = (struct hn_addr){.family = 4, .ip = {198, 18, 0, 9}};
    h.addr[1] = (struct hn_addr){.family = 4, .ip = {198, 18, 1, 9}};
    hn_handle_encode(handle, &h);
    const uint64_t begin = hw_now();
    ncclResult_t r = ncclSuccess;
    while (r == ncclSuccess && !sc) {
        r = hn_connect(0, handle, &sc);
        nap();
    }
    const uint64_t ms = (hw_now() - begin) / HW_MS;
    diag("connected after %llu ms", (unsigned long long)ms);
    hw_close(&fd[0]);
    hw_close(&fd[1]);
    return r == ncclSuccess && ms < 2500 && hn_close_send(sc) == ncclSuccess;
}

/* An attempt at an address behind a NIC without a carrier takes three seconds. */
static bool no_carrier(void)
{
    struct hn_handle h;
    const uint8_t eth1[] = {198, 18, 1, 1};
    add_test_nic("eth0", 0);
    add_test_nic("eth1", 1);
    if (!connects_over_eth1() || strcmp(hn_g.nics, "eth0,eth1") != 0)
        return false;
    if (hn_listen(0, handle, &lc) || hn_handle_decode(handle, &h))
        return false;
    return memcmp(h.addr[0].ip, eth1, sizeof(eth1)) == 0 && hn_close_listen(lc) == ncclSuccess &&
           hn_finalize() == ncclSuccess && !hn_g.h;
}

static bool can_enter(void)
{
    return true;
}

/* Starts a case in a child process. */
static pid_t start_case(bool (*fn)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid)
        return pid;
    unsetenv("HAWSER_NICS");
    unsetenv("NCCL_SOCKET_IFNAME");
    alarm(LIMIT_S);
    if (!enter_namespace())
        exit(2);
    bool good = fn();
    if (!good)
        diag("warnings: %s", warned);
    exit(good ? 0 : 1);
}

/* Returns the exit status of a case, or -1 if it was killed. */
static int end_case(pid_t pid)
{
    int status = 0;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    static const struct {
        bool (*fn)(void);
        const char *what;
    } cases[] = {
        {many_long_names, "20 NICs with names of 15 characters"},
        {forty_nics, "of 40 NICs, 32 are used, and the others are named"},
        {many_addresses, "the loopback has 101 addresses"},
        {all_but_docker, "a list of other NICs selects the loopback only if there is nothing else"},
        {with_ports, "NCCL_SOCKET_IFNAME may have ports"},
        {misspelled, "names in HAWSER_NICS that select no NIC are reported"},
        {not_virbr, "the bridge of libvirt, whose address is the same on every node, is not used"},
        {odd_names, "NICs whose names are not possible in a list are left out"},
        {vanished_before_listen, "a NIC is removed between init and listen"},
        {down_before_connect, "a NIC is down before connect"},
        {no_carrier, "the first NIC has no carrier: the addresses of the other one are tried first"},
        {near_one_down, "the only preferred NIC is down before connect"},
        {all_down, "all NICs are down before connect: an error"},
    };
    pid_t pid[HW_ARRAY_LEN(cases)];
    if (end_case(start_case(can_enter)) != 0)
        tap_skip_all("needs a user namespace, a network namespace and ip(8)");
    for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++)
        pid[i] = start_case(cases[i].fn);
    for (size_t i = 0; i < HW_ARRAY_LEN(cases); i++)
        is_int(end_case(pid[i]), 0, cases[i].what);
    return tap_done();
}
