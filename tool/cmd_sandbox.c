/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox: its actions, one file each (tool/sandbox_*.c). */
#include "tool/sandbox.h"
#include "tool/tool.h"

#include <string.h>

static const struct action {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *args, *summary;
} actions[] = {
    {0},
};

int cmd_sandbox(int argc, char **argv)
{
    if (argc < 2)
        return tool_usage("sandbox", "which action?");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        printf("Usage: hawser sandbox ACTION [OPTION...]\n\n"
               "NICs, topology and environment that NCCL finds true in a container, and all of it undone "
               "afterwards.\n\n");
        for (const struct action *a = actions; a->name; a++)
            printf("  %-9s %s\n            %s\n", a->name, a->args, a->summary);
        printf("\n`hawser sandbox ACTION --help` says more.\n");
        return TOOL_OK;
    }
    for (const struct action *a = actions; a->name; a++)
        if (strcmp(argv[1], a->name) == 0)
            return a->run(argc - 1, argv + 1);
    return tool_usage("sandbox", "there is no '%s'", argv[1]);
}
