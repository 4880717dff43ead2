/* SPDX-License-Identifier: Apache-2.0 */
/* How this program was built, and what it runs on. */
#ifndef HW_TOOL_BUILD_H
#define HW_TOOL_BUILD_H

#include <stdio.h>

/* "hawser 1.0.0", and a line each for the commit, where it was known, compiler, C library and libraries. */
void build_print(FILE *out);
/* In one line, for reports: "1.0.0 (3f2a91c)". */
const char *build_name(void);

#endif
