/* SPDX-License-Identifier: Apache-2.0 */
/* Runs hawserd's main loop in a process of the test, over a fake kernel. */
#ifndef TESTS_HELPER_SERVED_H
#define TESTS_HELPER_SERVED_H

#include "helper/daemon.h"
#include "tests/fakes/kernel/fake.h"

struct served {
    pid_t pid;
    int stop;
    const char *path;
    struct fake *fake;
};

/* Starts hawserd's loop with the socket `path` and the journal `state`. Log lines go to the file descriptor `logs`. */
struct served served_start(struct fake *f, const struct hd_kernel *k, const struct hd_policy *p, const char *path,
                           const char *state, int logs);
/* Ends the process as SIGTERM does. Returns the exit status, or -1. */
int served_stop(struct served *r);
/* Kills the process with SIGKILL. */
void served_kill(struct served *r);
/* Returns true if the log contains the text. */
bool served_said(int logs, const char *what);

#endif
