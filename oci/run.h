/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command in a sandbox without a container runtime. */
#ifndef HW_SANDBOX_RUN_H
#define HW_SANDBOX_RUN_H

#include "sandbox/move/move.h"
#include "sandbox/plan/env.h"
#include "sandbox/sysfs/tree.h"

struct sbx_run {
    char *const *argv;
    const char *netns;           /* as in sb_move_options; NULL: a new one */
    struct sbx_snapshot *s;      /* the command's view is made from this snapshot */
    struct sbx_plan *p;          /* and this plan, both updated after the NICs' move */
    const struct sbx_want *want; /* the wishes p was made for */
    struct sbx_env_want env;     /* sets the variables that the caller has not set */
    bool no_sysfs;               /* /sys stays */
    bool memlock;                /* no limit */
    struct sb_move_options move; /* everything except netns; n may be 0 */
};

/* Runs the command in its own namespaces (network, mounts), with the NICs, and restores them at its end, also after a
 * signal: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded. If the caller is killed, so is the
 * command, and sb_restore() or sbx_heal() restores. 0, or -errno if the command was not run or not everything was
 * restored; *status: of waitpid(), or -1: it was not run. */
int sbx_run(const struct sbx_run *r, int *status);

#endif
