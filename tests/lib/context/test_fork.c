/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a process that forks while it has connections. The child must not inherit the connections, so the peer detects
 * the parent's death. */
#include "tests/lib/context/pairhelp.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Returns the number of sockets and event-loop file descriptors that this process has, excluding `own`. */
static int count_copies(int own)
{
    int n = 0;
    char link[300], to[64];
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return -1;
    for (const struct dirent *e; (e = readdir(d));) {
        snprintf(link, sizeof link, "/proc/self/fd/%s", e->d_name);
        ssize_t len = readlink(link, to, sizeof to - 1);
        to[len < 0 ? 0 : len] = 0;
        n += atoi(e->d_name) != own && (strncmp(to, "socket:", 7) == 0 || strstr(to, "eventpoll") ||
                                        strstr(to, "eventfd") || strstr(to, "timerfd"));
    }
    closedir(d);
    return n;
}

/* Serves one peer, and forks a child that outlives this process. Writes the port and the child's result to fd. */
static void serve(int fd)
{
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    uint16_t port;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    if (write(fd, &port, sizeof port) != sizeof port)
        _exit(1);
    must(hawser_accept(h, 10000, &p));
    usleep(200000); /* time for all connections to be established */
    if (fork() == 0) {
        int copies = count_copies(fd);
        if (write(fd, &copies, sizeof copies) != sizeof copies)
            _exit(1);
        for (int k = 0; k < 3; k++)
            (void)close(k); /* so readers of this test's output do not wait for this child */
        sleep(20);
        _exit(0);
    }
    for (;;)
        pause();
}

int main(void)
{
    int fd[2], copies = -1, rc = 0;
    uint16_t port;
    watchdog(60);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) < 0)
        bail("no socket");
    pid_t child = fork();
    if (child == 0) {
        close(fd[0]);
        serve(fd[1]);
    }
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    if (read(fd[0], &port, sizeof port) != sizeof port)
        bail("no server");
    must(hawser_connect(h, "127.0.0.1", port, NULL, 10000, &p));
    if (read(fd[0], &copies, sizeof copies) != sizeof copies)
        bail("no child");
    is_int(copies, 0, "a child has no copy of its parent's connections and loops");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    uint64_t began = hw_now();
    while ((rc = hawser_peer_state(p)) == 0 && hw_now() - began < 30000 * HW_MS)
        usleep(1000);
    ok(rc == -ECONNRESET && hw_now() - began < 5000 * HW_MS,
       "a killed peer whose child lives is noticed: %d after %llu ms", rc,
       (unsigned long long)((hw_now() - began) / HW_MS));
    hawser_peer_close(p);
    hawser_close(h);
    return tap_done();
}
