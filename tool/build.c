/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/build.h"

#include "base/base.h"

#include <build_commit.h>
#include <gnu/libc-version.h>
#include <jansson.h>
#include <sodium.h>
#include <string.h>

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif
#ifndef HW_BUILD_TYPE
#define HW_BUILD_TYPE "unknown"
#endif

const char *build_name(void)
{
    static char name[96];
    if (*BUILD_COMMIT)
        snprintf(name, sizeof name, "%s (%s)", hawser_version(), BUILD_COMMIT);
    else
        snprintf(name, sizeof name, "%s", hawser_version());
    return name;
}

void build_print(FILE *out)
{
    fprintf(out, "hawser %s\n", hawser_version());
    fprintf(out, "commit: %s\n", *BUILD_COMMIT ? BUILD_COMMIT : "unknown (the build had no git information)");
    fprintf(out, "built: %s for %s, by %s\n", HW_BUILD_TYPE, HW_BUILD_MACHINE, COMPILER);
    fprintf(out, "glibc: built with %d.%d, runs with %s\n", __GLIBC__, __GLIBC_MINOR__, gnu_get_libc_version());
    fprintf(out, "libraries: libsodium %s (statically linked), jansson %s\n", sodium_version_string(),
            jansson_version_str());
    fprintf(out, "transports: tcp, devmem, netplugin\n");
}
