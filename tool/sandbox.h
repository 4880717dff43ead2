/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser sandbox`. argv[0] is the action's name. */
#ifndef HW_TOOL_SANDBOX_H
#define HW_TOOL_SANDBOX_H

int sandbox_plan_main(int argc, char **argv);
int sandbox_snapshot_main(int argc, char **argv);
int sandbox_sysfs_main(int argc, char **argv);
int sandbox_env_main(int argc, char **argv);

#endif
