/* SPDX-License-Identifier: Apache-2.0 */
/* A command in a sandbox without a container runtime. */
#ifndef HW_SANDBOX_RUN_H
#define HW_SANDBOX_RUN_H

#include "sandbox/move/move.h"
#include "sandbox/plan/env.h"
#include "sandbox/sysfs/tree.h"

struct sbx_run {
    char *const *argv;
    const char *netns;           /* as sb_move_options'; NULL: a new one */
    struct sbx_snapshot *s;      /* what the command sees is made of these two, */
    struct sbx_plan *p;          /* as they are after the NICs' move */
    const struct sbx_want *want; /* what p was made for */
    struct sbx_env_want env;     /* what is not the caller's own is set */
    bool no_sysfs;               /* /sys stays */
    bool memlock;                /* no limit */
    struct sb_move_options move; /* all but netns; n may be 0 */
};

/* Runs it in namespaces of its own (network, mounts), with the NICs, and gives them back at its end, also where that is
 * by a signal: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 are handed on. If the caller is killed, the
 * command is too, and sb_restore() or sbx_heal() gives back. 0, or -errno where it was not run or not all was given
 * back; *status: waitpid()'s, or -1: it was not run. */
int sbx_run(const struct sbx_run *r, int *status);

#endif
