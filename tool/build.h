/* SPDX-License-Identifier: Apache-2.0 */
/* How this program was built, and on what it runs. */
#ifndef HW_TOOL_BUILD_H
#define HW_TOOL_BUILD_H

#include <stdio.h>

/* Prints "hawser 1.0.0", and one line each for the commit, if known, the compiler, the C library and other
 * libraries. */
void build_print(FILE *out);
/* Returns one line for reports: "1.0.0 (3f2a91c)". */
const char *build_name(void);

#endif
