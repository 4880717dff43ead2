/* SPDX-License-Identifier: Apache-2.0 */
/* The action of `hawser nixl`. argv[0] is the action's name. */
#ifndef HW_TOOL_NIXL_H
#define HW_TOOL_NIXL_H

int nixl_check_main(int argc, char **argv);

#endif
