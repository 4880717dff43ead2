/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters of NCCL that the plugin sets for the whole process at its first init, never over the user's. All are
 * constants: they must be equal on every rank, or NCCL hangs, so nothing of the local machine decides them.
 * HAWSER_NCCL_TUNE=0 (on every rank) leaves them and the tuner out.
 */
#ifndef HN_PARAMS_H
#define HN_PARAMS_H

#include "transport/netplugin/table/abi.h"

#include <stdbool.h>

struct hn_param {
    const char *name, *value;
    const char *set; /* NAME=VALUE, as it stands in the environment */
    const char *why;
    /* Where one of these is in the environment it is the user who decides, and ours would contradict it. */
    const char *yields[6];
};

/* Ends with a NULL name. */
extern const struct hn_param hn_params[];

/* The variable in the environment by which the user decided on p: its own name, or one that it yields to. NULL: it is
 * ours to set. A variable that is there but empty counts. */
const char *hn_param_user(const struct hn_param *p);

/* Whether HAWSER_NCCL_TUNE lets us tune; a value that is neither yes nor no is warned of and is a yes. */
bool hn_tune(ncclDebugLogger_t logger);

/* Sets what is ours to set, at the first call of the process. */
void hn_params_set(ncclDebugLogger_t logger);

#endif
