/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser nccl`. argv[0] is the action's name. */
#ifndef HW_TOOL_NCCL_H
#define HW_TOOL_NCCL_H

int nccl_env_main(int argc, char **argv);
int nccl_check_main(int argc, char **argv);
int nccl_bench_main(int argc, char **argv);

#endif
