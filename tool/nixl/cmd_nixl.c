/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nixl: the action check. */
#include "tool/nixl/nixl.h"
#include "tool/tool.h"

static const struct tool_action actions[] = {
    {"check", nixl_check_main, "check whether NIXL finds and accepts the HAWSER backend and, if not, why"},
    {0},
};

int cmd_nixl(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "nixl",
        .about = "NIXL over hawser: an agent's create_backend(\"HAWSER\") loads libplugin_HAWSER.so.",
        .action = actions};
    return tool_act(&t, argc, argv);
}
