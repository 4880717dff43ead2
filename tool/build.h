/* SPDX-License-Identifier: Apache-2.0 */
/* Version and build information for --version and for reports. */
#ifndef HW_TOOL_BUILD_H
#define HW_TOOL_BUILD_H

#include <stdio.h>

/* Prints "hawser" and the version, followed by lines for the commit, the compiler, the C library, other libraries and
 * the transports. */
void build_print(FILE *out);
/* Returns the version and, if known, the commit, such as "1.0.0 (3f2a91c)", for reports. */
const char *build_name(void);

#endif
