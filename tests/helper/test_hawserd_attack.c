/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks hawserd with clients that know its protocol and can use its socket. The clients send random messages and file
 * descriptors (also while hawserd is repeatedly killed), fake their identities, and open connections endlessly. Usage:
 * test_hawserd_attack [SECONDS [SEED]]
 */
#include "client.h"
#include "net.h"
#include "odd.h"
#include "served.h"
#include "tests/fakes/kernel/fake.h"
#include "tests/tap.h"
#include "transport/devmem/helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fake *F;
static struct fake was;
static struct hd_kernel K;
static struct hd_policy policy;
static char dir[40], path[64], state[64];
static int logs = -1, listener = -1;
static unsigned seconds = 6, seed = 1;

static unsigned dice(unsigned n)
{
    seed = seed * 1103515245u + 12345u;
    return (seed >> 16) % n;
}

static void must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    perror(what);
    abort();
}

static struct served start(const char *text)
{
    if (text && hd_policy_parse(&policy, text, "test") < 0)
        abort();
    if (!text)
        hd_policy_default(&policy, getuid());
    return served_start(F, &K, &policy, path, state, logs);
}

/* ---- unusual file descriptors ------------------------------------------------------------------------- */

static int odd_connection(void)
{
    union hw_addr to = net_address("10.9.0.2", 9999, 0), from = net_address("10.9.0.1", 0, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, &from.sa, hw_addr_len(&from)) < 0 || connect(fd, &to.sa, hw_addr_len(&to)) < 0)
        return fd; /* no free port is left */
    int there = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    switch (dice(8)) {
    case 0:
        net_reset(&there);
        break;
    case 1:
        net_dissolve(fd);
        break;
    case 2:
        net_dissolve(fd);
        (void)listen(fd, 1);
        break;
    case 3:
        (void)shutdown(fd, SHUT_RDWR);
        break;
    case 4:
        (void)shutdown(there, SHUT_WR);
        break;
    default: {
        static int kept[64], n; /* descriptors that stay open for a while */
        if (kept[n])
            net_reset(&kept[n]);
        kept[n] = there;
        n = (n + 1) % 64;
        return fd;
    }
    }
    hw_close(&there);
    return fd;
}

static int zoo(uint16_t type)
{
    sigset_t all;
    int p[2] = {-1, -1};
    if (dice(3)) /* a descriptor of the type that the request expects */
        return type == HW_H_STEER ? odd_connection() : fake_dmabuf((1 + dice(16)) * 4096);
    switch (dice(24)) {
    case 0:
        return fake_dmabuf(1 + dice(100000));
    case 1:
        must(pipe2(p, O_CLOEXEC), "pipe");
        close(p[1]);
        return p[0];
    case 2:
        return eventfd(0, EFD_CLOEXEC);
    case 3:
        return epoll_create1(EPOLL_CLOEXEC);
    case 4:
        return timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    case 5:
        sigfillset(&all);
        return signalfd(-1, &all, SFD_CLOEXEC);
    case 6:
        return inotify_init1(IN_CLOEXEC);
    case 7:
        return (int)syscall(SYS_pidfd_open, getpid(), 0);
    case 8:
        must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p), "socketpair");
        close(p[1]);
        return p[0];
    case 9:
        return client_connect(path); /* the other end is hawserd */
    case 10:
        return socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    case 11:
        return socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
    case 12:
        return posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    case 13:
        return open("/dev/zero", O_RDWR | O_CLOEXEC);
    case 14:
        return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 15:
        return open("/etc/passwd", O_PATH | O_CLOEXEC);
    case 16:
        return open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    case 17:
        return open("/proc/self/fdinfo/0", O_RDONLY | O_CLOEXEC);
    case 18:
        return socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    case 19:
        return odd_lingering();
    case 20:
        return open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    default:
        return odd_connection();
    }
}

/* Sends a message and its file descriptors. Most messages are valid or almost valid. */
static int send_something(int fd, uint32_t seq, const uint32_t *ids, unsigned n_ids)
{
    static const char *const names[] = {"eth1", "eth2", "lo", "eth9", "0123456789abcde", "*", "..", "%s%n"};
    struct hw_helper_request q = {.type = (uint16_t)(1 + dice(5)), .seq = seq};
    uint8_t buf[600] = {0};
    int fds[253];
    size_t len = HW_HELPER_REQUEST;
    unsigned n = hw_helper_fds(q.type);
    if (q.type == HW_H_STEER || q.type == HW_H_RELEASE)
        q.id = ids[dice(n_ids)];
    if (q.type == HW_H_BIND_RX)
        q.count = 1 + dice(dice(8) ? 3 : 20);
    if (q.type == HW_H_BIND_RX || q.type == HW_H_BIND_TX)
        snprintf(q.nic, sizeof(q.nic), "%s", names[dice(dice(4) ? 2 : 8)]);
    hw_helper_request_encode(buf, &q);
    if (dice(25) == 0)
        buf[dice(HW_HELPER_REQUEST)] ^= (uint8_t)(1u << dice(8));
    if (dice(60) == 0)
        len = dice(sizeof(buf));
    if (dice(30) == 0)
        n = 1 - n;
    if (n && dice(25) == 0)
        n += dice(dice(5) ? 4 : 252);
    for (unsigned i = 0; i < n; i++) {
        fds[i] = i < 4 ? zoo(q.type) : dup(fds[0]);
        if (fds[i] < 0)
            fds[i] = dup(STDERR_FILENO);
    }
    int rc = client_send(fd, buf, len, fds, n);
    for (unsigned i = 0; i < n; i++)
        odd_close(fds[i]);
    return rc;
}

static void converse(void)
{
    uint32_t ids[16] = {1, 2, 3, 0xffffffff};
    unsigned n_ids = 4;
    int fd = client_connect(path);
    if (fd < 0) {
        usleep(1000);
        return;
    }
    if (dice(20))
        (void)client_ask(fd, &client_hello, NULL, 0);
    for (unsigned left = 1 + dice(30); left; left--) {
        struct hw_helper_reply r = {0};
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (send_something(fd, left, ids, n_ids) < 0)
            break;
        if (dice(12) == 0)
            continue; /* do not wait for the answer */
        if (poll(&p, 1, dice(20) ? 2000 : 1) == 1 && client_answer_to(fd, &r) == 1)
            break;
        if (r.id) {
            ids[dice(16)] = r.id;
            n_ids = 16;
        }
        if (dice(40) == 0)
            break;
    }
    close(fd);
}

static pid_t start_zoo(unsigned number)
{
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    seed = seed * 1000 + number;
    for (;;)
        converse();
}

static void end_zoo(pid_t *pid, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        kill(pid[i], SIGKILL);
    for (unsigned i = 0; i < n; i++)
        waitpid(pid[i], NULL, 0);
    while (poll(&(struct pollfd){.fd = listener, .events = POLLIN}, 1, 0) == 1)
        close(accept4(listener, NULL, NULL, SOCK_CLOEXEC));
}

static unsigned open_files(pid_t pid)
{
    char name[40];
    unsigned n = 0;
    snprintf(name, sizeof(name), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(name);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

/* Tests that another client is served throughout the attacks, and that no resources of the attackers remain
 * afterwards. */
static void anything(void)
{
    pid_t pid[3];
    unsigned asked = 0, bad = 0;
    uint64_t worst = 0;
    struct served r = start(NULL);
    struct dm_helper *h;
    must(dm_helper_open(path, MS, &h), "a client");
    unsigned files = open_files(r.pid);
    for (unsigned i = 0; i < 3; i++)
        pid[i] = start_zoo(i);
    uint64_t until = hw_deadline((int)seconds * 1000);
    while (hw_now() < until) {
        uint64_t began = hw_now();
        bad += dm_helper_release(h, 0xfffffff0u) != -ENOENT;
        worst = HW_MAX(worst, hw_now() - began);
        asked++;
        usleep(10000);
    }
    ok(asked > 10 && bad == 0,
       "messages and descriptors at random: another client is served %u times, %u not, worst %llu ms", asked, bad,
       (unsigned long long)(worst / HW_MS));
    end_zoo(pid, 3);
    ok(SOON(!*fake_differs(&was, F)), "all is undone: %s", fake_differs(&was, F));
    is_str(F->wrong, "", "nothing was wrong");
    bool few = SOON(open_files(r.pid) <= files);
    ok(few, "no descriptor is left in hawserd: %u, %u before", open_files(r.pid), files);
    dm_helper_close(h);
    is_int(served_stop(&r), 0, "the daemon ends");
}

/* Kills hawserd at random times. The next hawserd must undo all remaining changes. */
static void kills(void)
{
    unsigned something = 0;
    for (int i = 0; i < 12; i++) {
        pid_t pid[2];
        struct served r = start(NULL);
        struct dm_helper *h;
        struct dm_binding b;
        int buf = fake_dmabuf(1 << 20);
        must(dm_helper_open(path, MS, &h), "a client");
        must(dm_helper_bind_rx(h, "eth2", buf, 1, 0, &b), "a binding");
        for (unsigned k = 0; k < 2; k++)
            pid[k] = start_zoo((unsigned)i * 10 + k + 100);
        usleep(20000 + dice(300000));
        served_kill(&r);
        something += *fake_differs(&was, F) != 0;
        dm_helper_close(h);
        close(buf);
        end_zoo(pid, 2);
    }
    struct served r = start(NULL);
    struct dm_helper *h;
    must(dm_helper_open(path, MS, &h), "a client");
    is_str(fake_differs(&was, F), "", "killed twelve times in the middle of that, all is undone");
    is_str(F->wrong, "", "nothing was wrong");
    is_int(something, 12, "there was something to undo each time");
    dm_helper_close(h);
    is_int(served_stop(&r), 0, "the daemon ends");
}

/* ---- users ------------------------------------------------------------------------------------------ */

/* Calls fn in a child process, then connects. Returns 0, a positive errno value, or 77 if fn failed. */
static int answer_as(int (*fn)(void))
{
    struct dm_helper *h;
    pid_t pid = fork();
    if (pid == 0) {
        if (fn() < 0)
            _exit(77);
        int rc = dm_helper_open(path, MS, &h);
        _exit(-rc & 0xff);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int become(uid_t uid, const gid_t *groups, size_t n)
{
    return setgroups(n, groups) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ? -1 : 0;
}

static int as_stranger(void)
{
    return become(54321, NULL, 0);
}

static int write_text(const char *file, const char *text)
{
    int fd = open(file, O_WRONLY | O_CLOEXEC), rc = fd < 0 ? -1 : (int)write(fd, text, strlen(text));
    close(fd);
    return rc;
}

/* Becomes user 0 in a new user namespace. */
static int as_false_root(void)
{
    if (become(54321, NULL, 0) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 || unshare(CLONE_NEWUSER) < 0 ||
        write_text("/proc/self/setgroups", "deny") < 0 || write_text("/proc/self/uid_map", "0 54321 1") < 0 ||
        write_text("/proc/self/gid_map", "0 54321 1") < 0)
        return -1;
    return getuid() == 0 ? 0 : -1;
}

static int as_member(void)
{
    const gid_t group = 4242;
    return become(54321, &group, 1);
}

static int as_member_of_many(void)
{
    static gid_t groups[65536];
    for (unsigned i = 0; i < 65535; i++)
        groups[i] = 100000 + i;
    groups[65535] = 4242;
    return become(54321, groups, 65536);
}

static int as_other_netns(void)
{
    return unshare(CLONE_NEWNET);
}

static void is_answer(int got, int want, const char *what)
{
    if (got == 77)
        tap_skip(what, "this machine does not let it be");
    else
        is_int(got, want, what);
}

static void users(void)
{
    struct served r = start("[user 0]\nnics = *\n[group 4242]\nnics = *\n");
    is_answer(answer_as(as_stranger), EACCES, "a user whom the policy does not name");
    is_answer(answer_as(as_false_root), EACCES, "the root of a user namespace of its own is not root");
    is_answer(answer_as(as_member), 0, "a member of a group that it names");
    is_answer(answer_as(as_member_of_many), 0, "also where that is the last of 65536 groups");
    is_answer(answer_as(as_other_netns), EXDEV, "root in another network namespace");
    is_int(served_stop(&r), 0, "the daemon ends");
}

/* Starts a process that runs as the given user, opens connections until hawserd refuses one, and keeps them until the
 * process is killed. Returns the number of accepted connections. */
static unsigned take_places(uid_t uid, pid_t *pid)
{
    const gid_t group = 4242;
    unsigned n = 0;
    int p[2];
    must(pipe2(p, O_CLOEXEC), "pipe");
    *pid = fork();
    if (*pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (become(uid, &group, 1) < 0)
            _exit(1);
        while (n < HD_CLIENTS_PER_USER + 4 && client_greeted(path) >= 0)
            n++;
        (void)!write(p[1], &n, sizeof(n));
        pause();
    }
    close(p[1]);
    if (read(p[0], &n, sizeof(n)) != sizeof(n))
        n = 0;
    close(p[0]);
    return n;
}

static void places(void)
{
    struct served r = start("[group 4242]\nnics = *\n");
    pid_t pid[HD_CLIENTS_BUSY / HD_CLIENTS_PER_USER + 3];
    unsigned full = 0, few = 0;
    for (unsigned i = 0; i < HW_ARRAY_LEN(pid); i++) {
        unsigned n = take_places(60000 + i, &pid[i]);
        full += n == HD_CLIENTS_PER_USER;
        few += n == HD_CLIENTS_FEW;
    }
    is_int(full, HD_CLIENTS_BUSY / HD_CLIENTS_PER_USER, "users take as many connections as they get");
    is_int(few, 3, "there is room for a few of each other user");
    for (unsigned i = 0; i < HW_ARRAY_LEN(pid); i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    is_int(served_stop(&r), 0, "the daemon ends");
}

/* Tests unprivileged users that connect as fast as possible. */
static void strangers(void)
{
    struct served r = start("[user 0]\nnics = *\n");
    struct dm_helper *h;
    pid_t pid[2];
    unsigned in = 0, tried = 0;
    for (int i = 0; i < 2; i++) {
        pid[i] = fork();
        if (pid[i])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (become(54321, NULL, 0) < 0)
            _exit(1);
        for (;;) {
            int fd = client_connect(path), lingers = dice(50) ? -1 : odd_lingering();
            (void)client_ask(fd, &client_hello, &lingers, lingers >= 0);
            if (lingers >= 0)
                odd_close(lingers);
            close(fd);
        }
    }
    uint64_t until = hw_deadline(3000);
    while (hw_now() < until) {
        tried++;
        if (dm_helper_open(path, MS, &h) == 0) {
            in++;
            dm_helper_close(h);
        }
        usleep(5000);
    }
    ok(in > tried / 2, "beside strangers who connect without end, %u of %u connections of a user are taken", in, tried);
    for (int i = 0; i < 2; i++) {
        kill(pid[i], SIGKILL);
        waitpid(pid[i], NULL, 0);
    }
    ok(lseek(logs, 0, SEEK_END) < 100000, "and the log does not grow with them: %lld bytes",
       (long long)lseek(logs, 0, SEEK_END));
    is_int(served_stop(&r), 0, "the daemon ends");
}

int main(int argc, char **argv)
{
    if (argc > 1)
        seconds = (unsigned)strtoul(argv[1], NULL, 0);
    if (argc > 2)
        seed = (unsigned)strtoul(argv[2], NULL, 0);
    F = fake_new();
    fake_kernel(F, &K);
    if (geteuid() != 0 || !net_make())
        tap_skip_all("users and a network namespace need root");
    must(fake_kernel_real_sockets(&K), "this machine's kernel");
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    logs = memfd_create("log", MFD_CLOEXEC);
    must(fcntl(logs, F_SETFL, O_APPEND), "O_APPEND");
    was = *F;
    listener = net_server();
    anything();
    kills();
    users();
    places();
    strangers();
    static const char *const names[] = {"", ".new", ".lock"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        char left[96];
        snprintf(left, sizeof(left), "%s%s", state, names[i]);
        unlink(left);
    }
    rmdir(dir);
    return tap_done();
}
