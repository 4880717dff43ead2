/* SPDX-License-Identifier: Apache-2.0 */
/* Version and build information for --version and for reports. */
#ifndef HW_TOOL_BUILD_H
#define HW_TOOL_BUILD_H

#include <stdio.h>

/* Prints "hawser 1.0.0", followed by lines for the commit, the compiler, the C library, other libraries and the
 * transports. */
void build_print(FILE *out);
/* Returns the version and the commit, if known, as one word group for reports: "1.0.0 (3f2a91c)". */
const char *build_name(void);

#endif
