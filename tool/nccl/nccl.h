/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser nccl`, whose argv[0] is the action's name, and nccl_nics(). */
#ifndef HW_TOOL_NCCL_H
#define HW_TOOL_NCCL_H

#include "node/plan.h"

int nccl_env_main(int argc, char **argv);
int nccl_check_main(int argc, char **argv);
int nccl_bench_main(int argc, char **argv);

#define NCCL_NICS 1024 /* size of a list of NIC names, as of knob nics */

/* Divides the NICs that the plugin would use by default: list receives the names of the NICs that serve GPUs, and left
 * receives the other names. Returns true if neither is empty, so that HAWSER_NICS is worth setting. */
bool nccl_nics(const struct hw_node *n, const struct hw_plan *p, char list[NCCL_NICS], char left[NCCL_NICS]);

#endif
