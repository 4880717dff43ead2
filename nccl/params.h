/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL parameters that the plugin sets for the whole process at its first init. The plugin never overrides a user's
 * setting. All values are constants: NCCL may hang if ranks have different values, so the local machine must not
 * influence them. HAWSER_NCCL_TUNE=0, on every rank, disables these parameters and the tuner.
 */
#ifndef HN_PARAMS_H
#define HN_PARAMS_H

#include "transport/netplugin/table/abi.h"

#include <stdbool.h>

struct hn_param {
    const char *name, *value;
    const char *set; /* NAME=VALUE, as in the environment */
    const char *why;
    /* If one of these variables is set, the plugin leaves this parameter unset, since the values could contradict each
     * other. */
    const char *yields[6];
};

/* Terminated by an entry with a NULL name. */
extern const struct hn_param hn_params[];

/* Returns the name of the environment variable because of which the plugin leaves p unchanged: the parameter's own
 * name, or a variable that it yields to. Returns NULL if the plugin may set p. An empty variable counts as set. */
const char *hn_param_user(const struct hn_param *p);

/* Returns whether HAWSER_NCCL_TUNE permits tuning. Warns of a value that is neither yes nor no, and treats it as yes.
 */
bool hn_tune(ncclDebugLogger_t logger);

/* If hn_tune() permits it, sets the parameters for which hn_param_user() returns NULL. Only the first call in a process
 * has an effect. */
void hn_params_set(ncclDebugLogger_t logger);

#endif
