/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's loop in a process of the test, over a fake kernel. */
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

/* Starts the loop, which listens at path and has its journal at state. The log goes to the file descriptor logs. */
struct served served_start(struct fake *f, const struct hd_kernel *k, const struct hd_policy *p, const char *path,
                           const char *state, int logs);
/* Ends the process as SIGTERM does. Returns its exit status, or -1. */
int served_stop(struct served *r);
/* Kills the process with SIGKILL. */
void served_kill(struct served *r);
/* Returns whether logs contain the text. */
bool served_said(int logs, const char *what);

#endif
