/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends file descriptors on which system calls hang to the real hawserd, from a user whom the policy allows and from
 * another user. hawserd must continue to serve other clients, exit when requested, and be able to restart. Usage:
 * test_hawserd_hang HAWSERD
 */
#include "client.h"
#include "helper/daemon.h"
#include "odd.h"
#include "tests/tap.h"
#include "transport/devmem/helper.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STRANGER 65534 /* a user who is not in the policy */

static const char *program;
static char dir[40], path[64], state[64];
static pid_t hawserd;

static void launch(void)
{
    struct dm_helper *h;
    hawserd = fork();
    if (hawserd == 0) {
        const struct rlimit files = {.rlim_cur = 200,
                                     .rlim_max = 200}; /* a low limit, so that leaked descriptors are noticed early */
        int null = open("/dev/null", O_WRONLY);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setrlimit(RLIMIT_NOFILE, &files);
        if (!getenv("TEST_LOG"))
            dup2(null, STDERR_FILENO);
        execl(program, program, "--socket", path, "--state", state, (char *)NULL);
        _exit(127);
    }
    if (!SOON(dm_helper_open(path, MS, &h) == 0)) {
        diag("%s", hw_error());
        abort();
    }
    dm_helper_close(h);
}

static void served(const char *what)
{
    struct dm_helper *h;
    uint64_t began = hw_now();
    int rc = dm_helper_open(path, MS, &h);
    if (rc == 0)
        rc = dm_helper_release(h, 1);
    ok(rc == -ENOENT, "%s: another client is served (after %llu ms): %s", what,
       (unsigned long long)((hw_now() - began) / HW_MS), hw_error());
    dm_helper_close(h);
    if (rc == -ENOENT)
        return;
    kill(hawserd, SIGKILL);
    waitpid(hawserd, NULL, 0);
    launch();
}

static const struct hw_helper_request rx = {.type = HW_H_BIND_RX, .seq = 2, .count = 1, .nic = "lo"};
static const struct hw_helper_request steer = {.type = HW_H_STEER, .seq = 2, .id = 1};
static const struct hw_helper_request release = {.type = HW_H_RELEASE, .seq = 2, .id = 1};

/* Stops hawserd, sends a request, and closes the file descriptors. When hawserd handles the request, only hawserd has
 * these file descriptors open. */
static void send_and_close(const struct hw_helper_request *q, int *fds, unsigned n, bool leave)
{
    int fd = client_greeted(path);
    kill(hawserd, SIGSTOP);
    (void)client_ask(fd, q, fds, n);
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    if (leave)
        close(fd);
    kill(hawserd, SIGCONT);
    if (leave)
        return;
    int rc = client_answer(fd);
    ok(rc < 0 || rc == 1, "the request is refused, or its client dropped: %d", rc);
    close(fd);
}

static void lingering(void)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fds[3] = {odd_lingering()};
    send_and_close(&rx, fds, 1, false);
    served("a socket that lingers, for a dma-buf");
    fds[0] = odd_lingering();
    send_and_close(&steer, fds, 1, false);
    served("a socket that lingers, to be steered");
    fds[0] = odd_lingering();
    send_and_close(&release, fds, 1, false);
    served("a socket that lingers, with a request that has none");
    fds[0] = dup(null);
    fds[1] = odd_lingering();
    fds[2] = odd_lingering();
    send_and_close(&rx, fds, 3, false);
    served("sockets that linger, behind another descriptor");
    fds[0] = odd_lingering();
    send_and_close(&rx, fds, 1, true);
    served("a socket that lingers, of a client that has left");

    int fd = client_greeted(path);
    kill(hawserd, SIGSTOP);
    for (int i = 0; i < 3; i++) {
        fds[0] = odd_lingering();
        (void)client_ask(fd, i ? &rx : &release, fds, 1);
        close(fds[0]);
    }
    close(fd);
    kill(hawserd, SIGCONT);
    served("sockets that linger, in messages that nobody reads");
    close(null);
}

/* Tests a user who is not in the policy. In the second run, the client exits before hawserd handles its connection. */
static void stranger(void)
{
    if (geteuid() != 0) {
        tap_skip("a user whom the policy does not know", "becoming one needs root");
        return;
    }
    for (int late = 0; late < 2; late++) {
        int lingers = odd_lingering();
        kill(hawserd, SIGSTOP);
        pid_t pid = fork();
        if (pid == 0) {
            if (setresuid(STRANGER, STRANGER, STRANGER) < 0)
                _exit(1);
            int fd = client_connect(path);
            int rc = client_ask(fd, &client_hello, &lingers, 1);
            close(lingers);
            if (late)
                _exit(rc ? 1 : 0);
            kill(getppid(), 0);
            pause();
        }
        close(lingers);
        usleep(200 * 1000);
        kill(hawserd, SIGCONT);
        served(late ? "of a user without rights who has left" : "of a user without rights");
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

/* Tests a client that keeps its file descriptor open. */
static void keep(const char *what, const struct hw_helper_request *q, int odd)
{
    if (odd < 0) {
        tap_skip(what, ODD_PAGES);
        return;
    }
    int fd = client_greeted(path);
    (void)client_ask(fd, q, &odd, 1);
    usleep(100 * 1000);
    served(what);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    ok(poll(&p, 1, HD_INSPECT_MS + MS) == 1, "%s: its client is not kept for ever", what);
    served(what);
    close(fd);
}

static unsigned processes(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        char file[300], text[512];
        snprintf(file, sizeof(file), "/proc/%s/stat", e->d_name);
        int fd = e->d_name[0] >= '1' && e->d_name[0] <= '9' ? open(file, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        ssize_t len = read(fd, text, sizeof(text) - 1);
        close(fd);
        text[len < 0 ? 0 : len] = 0;
        const char *p = strrchr(text, ')');
        n += p && strtol(p + 4, NULL, 10) == hawserd;
    }
    if (d)
        closedir(d);
    return n;
}

static unsigned open_files(void)
{
    unsigned n = 0;
    for (int i = 0; i < 200; i++) {
        char file[48];
        struct stat st;
        snprintf(file, sizeof(file), "/proc/%d/fd/%d", (int)hawserd, i);
        n += lstat(file, &st) == 0;
    }
    return n;
}

/* Tests hundreds of file descriptors whose close() hangs. */
static void flood(void)
{
    int from = odd_fuse_start();
    if (from < 0) {
        tap_skip("files whose close does not end", ODD_FUSE);
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        int odd = odd_fuse_take(from);
        int open_now[32] = {0};
        for (int i = 0; i < 300; i++) {
            int *fd = &open_now[i % 32];
            if (*fd)
                close(*fd);
            *fd = client_greeted(path);
            (void)client_ask(*fd, i % 2 ? &rx : &steer, &odd, 1);
        }
        pause();
    }
    sleep(3);
    close(from); /* the child has received the file */
    served("300 files whose close does not end");
    unsigned n = processes(), files = open_files();
    ok(n <= HD_INSPECT_USER + HD_DISCARD_CHILDREN, "%u processes hang for them", n);
    ok(files < 3 * HD_CLIENTS_PER_USER / 2, "%u descriptors are open", files);
    kill(pid, SIGKILL); /* the process cannot exit, either */
    served("its sender is killed");

    int status = -1;
    uint64_t until = hw_deadline(MS);
    kill(hawserd, SIGTERM);
    while (waitpid(hawserd, &status, WNOHANG) == 0 && hw_now() < until)
        usleep(2000);
    is_int(status, 0, "SIGTERM ends hawserd while they hang");
    kill(hawserd, SIGKILL);
    launch();
    served("the next one");
    kill(hawserd, SIGKILL);
    waitpid(hawserd, NULL, 0);
    launch();
    served("and the one after a SIGKILL");
    odd_fuse_end();
    waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_hawserd_hang HAWSERD\n");
        return 2;
    }
    program = argv[1];
    if (prctl(PR_CAPBSET_READ, 12 /* CAP_NET_ADMIN */, 0, 0, 0) != 1 || geteuid() != 0) {
        tap_skip("hawserd itself", "it needs CAP_NET_ADMIN");
        return tap_done();
    }
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir) || chmod(dir, 0755) < 0)
        return 1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    launch();
    lingering();
    stranger();
    keep("a socket in the middle of a send", &steer, odd_locked_socket());
    keep("an epoll descriptor in the middle of a wait", &rx, odd_locked_epoll());
    flood();
    kill(hawserd, SIGKILL);
    waitpid(hawserd, NULL, 0);
    static const char *const names[] = {"", ".new", ".lock"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        char left[96];
        snprintf(left, sizeof(left), "%s%s", state, names[i]);
        unlink(left);
    }
    unlink(path);
    rmdir(dir);
    int rc = tap_done();
    fflush(stdout);
    /* not exit(): threads may hang in system calls */
    _exit(rc);
}
