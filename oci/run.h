/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a command in a sandbox without a container runtime. */
#ifndef HW_SANDBOX_RUN_H
#define HW_SANDBOX_RUN_H

#include "sandbox/move/move.h"
#include "sandbox/plan/env.h"
#include "sandbox/sysfs/tree.h"

struct sbx_run {
    char *const *argv;
    const char *netns;           /* as in sb_move_options; NULL for a new namespace */
    struct sbx_snapshot *s;      /* the snapshot that describes the command's devices */
    struct sbx_plan *p;          /* the plan; s and p are updated after the NICs have moved */
    const struct sbx_want *want; /* the request that p was made for */
    struct sbx_env_want env;     /* variables to set if the caller has not set them */
    bool no_sysfs;               /* leave /sys as it is */
    bool memlock;                /* remove the limit for locked memory */
    struct sb_move_options move; /* everything except netns; n may be 0 */
};

/* Runs the command in the network namespace netns with the NICs and in a new mount namespace, and restores the NICs
 * when the command exits. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are forwarded to the command. If the
 * caller is killed, the command is killed too, and sb_restore() or sbx_heal() can restore the NICs. Returns 0, or
 * -errno if the command was not run or not everything was restored. *status is the status of the command's process from
 * waitpid(), or -1 if the process was not started or did not get its NICs. */
int sbx_run(const struct sbx_run *r, int *status);

#endif
