/* SPDX-License-Identifier: Apache-2.0 */
#include "served.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void log_line(void *arg, int level, const char *line)
{
    (void)level;
    dprintf(*(int *)arg, "%s\n", line);
}

bool served_said(int logs, const char *what)
{
    static char text[1 << 20];
    ssize_t n = pread(logs, text, sizeof(text) - 1, 0);
    text[n < 0 ? 0 : n] = 0;
    return strstr(text, what) != NULL;
}

struct served served_start(struct fake *f, const struct hd_kernel *k, const struct hd_policy *p, const char *path,
                           const char *state, int logs)
{
    struct served r = {.stop = eventfd(0, EFD_CLOEXEC), .path = path, .fake = f};
    struct hw_logger log = {.fn = log_line, .arg = &logs, .level = HAWSER_LOG_DEBUG};
    if (ftruncate(logs, 0) < 0)
        abort();
    int listener = hd_listen(path);
    /* a child of a killed hawserd may not have closed its copy of the listening socket yet */
    for (int i = 0; listener == -EADDRINUSE && i < 1000; i++) {
        usleep(10000);
        listener = hd_listen(path);
    }
    if (listener < 0) {
        fprintf(stderr, "%s\n", hw_error());
        abort();
    }
    r.pid = fork();
    if (r.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct hd_daemon d = {.policy = p, .listener = listener, .stop = r.stop};
        hd_state_init(&d.state, k, &log, state);
        int lock = hd_journal_lock(state), rc = 1;
        for (int i = 0; lock == -EBUSY && i < 1000; i++) {
            usleep(10000);
            lock = hd_journal_lock(state);
        }
        if (lock >= 0 && hd_recover(&d.state, 100) == 0)
            rc = hd_serve(&d);
        hd_state_free(&d.state);
        close(lock);
        _exit(rc == 0 ? 0 : 1);
    }
    close(listener);
    return r;
}

int served_stop(struct served *r)
{
    int status = -1;
    if (write(r->stop, &(uint64_t){1}, 8) != 8)
        abort();
    waitpid(r->pid, &status, 0);
    fake_reap(r->fake, r->pid);
    close(r->stop);
    unlink(r->path);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void served_kill(struct served *r)
{
    kill(r->pid, SIGKILL);
    waitpid(r->pid, NULL, 0);
    fake_reap(r->fake, r->pid);
    close(r->stop);
}
