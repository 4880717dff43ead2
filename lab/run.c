/* SPDX-License-Identifier: Apache-2.0 */
/* Runs programs in a lab's nodes. */
#include "lab/lab_int.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Opens the user namespace (-1 for the caller's own) and the network namespace of a node. mark receives the name of the
 * node's namespace, hawser-<lab>-<node>. */
static int open_spaces(const char *name, const char *node, int *user, int *net, char mark[64])
{
    struct lab l;
    unsigned k;
    int rc = lab_open_node(&name, node, &l, &k);
    if (rc < 0)
        return rc;
    lab_ns_name(name, k, mark, 64);
    *user = l.user;
    *net = l.node[k].ns;
    l.user = l.node[k].ns = -1; /* the caller owns these now */
    lab_close(&l);
    return 0;
}

int hw_lab_exec(const char *name, const char *node, char *const argv[], void (*warn)(const char *line),
                bool *cannot_run)
{
    int user, net, sysfs;
    char mark[64];
    const char *step;
    *cannot_run = false;
    int rc = open_spaces(name, node, &user, &net, mark);
    if (rc < 0)
        return rc;
    rc = hw_netns_join(user, net, mark, &sysfs, &step);
    hw_close(&user);
    hw_close(&net);
    if (rc < 0)
        return hw_fail(rc, "%s: %s", step, strerror(-rc));
    if (sysfs < 0 && warn) {
        char line[HW_ERR_TEXT];
        snprintf(line, sizeof(line),
                 "the node has no /sys of its own (mounting it failed: %s), so /sys/class/net shows the NICs of "
                 "another network namespace",
                 strerror(-sysfs));
        warn(line);
    }
    (void)execvp(argv[0], argv);
    *cannot_run = true;
    return hw_fail(-errno, "running %s: %s", argv[0], strerror(errno));
}

/* The message that a child writes to its pipe if it could not execute the command. On success, the pipe is closed
 * without data. */
struct failure {
    int rc;
    /* a string constant, which has the same address in the parent; NULL if the command itself failed */
    const char *step;
};

static _Noreturn void exec_node_command(char *const argv[], int user, int net, const char *mark, int stdout_fd,
                                        int report)
{
    struct failure f = {0};
    int sysfs;
    /* sysfs is ignored, because callers of this function do not require the node's /sys */
    f.rc = hw_netns_join(user, net, mark, &sysfs, &f.step);
    if (f.rc == 0 && stdout_fd >= 0) {
        if (stdout_fd == STDOUT_FILENO) /* dup2() would keep O_CLOEXEC in this case */
            (void)fcntl(stdout_fd, F_SETFD, 0);
        else if (dup2(stdout_fd, STDOUT_FILENO) < 0) {
            f.rc = -errno;
            f.step = "setting its stdout";
        }
    }
    if (f.rc == 0) {
        /* execve() resets signals that the parent catches, but not signals that it ignores */
        (void)signal(SIGPIPE, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        (void)sigprocmask(SIG_SETMASK, &none, NULL);
        (void)execvp(argv[0], argv);
        f.rc = -errno;
        f.step = NULL;
    }
    (void)!write(report, &f, sizeof(f));
    _exit(127);
}

int hw_lab_spawn(const char *name, const char *node, char *const argv[], int stdout_fd, pid_t *pid)
{
    int user = -1, net = -1, p[2];
    char mark[64];
    if (!argv || !argv[0])
        return hw_fail(-EINVAL, "no command to run in node %s", node ? node : "");
    int rc = open_spaces(name, node, &user, &net, mark);
    if (rc < 0)
        return rc;
    if (pipe2(p, O_CLOEXEC) < 0) {
        rc = hw_fail(-errno, "creating a pipe: %s", strerror(errno));
        hw_close(&user);
        hw_close(&net);
        return rc;
    }
    pid_t c = fork();
    if (c == 0)
        exec_node_command(argv, user, net, mark, stdout_fd, p[1]);
    if (c < 0)
        rc = hw_fail(-errno, "starting a process: %s", strerror(errno));
    hw_close(&p[1]);
    hw_close(&user);
    hw_close(&net);
    if (c > 0) {
        struct failure f;
        ssize_t n;
        do {
            n = read(p[0], &f, sizeof(f));
        } while (n < 0 && errno == EINTR);
        if (n == (ssize_t)sizeof(f)) {
            while (waitpid(c, NULL, 0) < 0 && errno == EINTR)
                ;
            if (f.step)
                rc = hw_fail(f.rc, "running %s in node %s: %s: %s", argv[0], node, f.step, strerror(-f.rc));
            else
                rc = hw_fail(f.rc, "running %s in node %s: %s", argv[0], node, strerror(-f.rc));
        } else {
            *pid = c;
        }
    }
    hw_close(&p[0]);
    return rc;
}
