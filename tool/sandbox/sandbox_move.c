/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox move: NICs into a container's network namespace. */
#include "sandbox/move/move.h"
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>

#define CMD "sandbox move"

enum { O_NETNS = 300, O_JOURNAL, O_RDMA, O_NO_ARP, O_FORCE };

void sandbox_log(void *arg, int level, const char *line)
{
    fprintf(stderr, "hawser %s: %s%s\n", (const char *)arg, level == HAWSER_LOG_WARN ? "warning: " : "", line);
}

/* "eth1,eth2=rdma0": cuts text into names. -EINVAL. */
static int cut(char *text, struct sb_nic *nic, size_t *n)
{
    *n = 0;
    for (char *next; text; text = next) {
        next = strchr(text, ',');
        if (next)
            *next++ = 0;
        if (*n == SB_NICS_MAX)
            return hw_fail(-EINVAL, "more than %d NICs", SB_NICS_MAX);
        char *as = strchr(text, '=');
        if (as)
            *as++ = 0;
        if (!*text || (as && !*as))
            return hw_fail(-EINVAL, "an empty name among the NICs");
        nic[(*n)++] = (struct sb_nic){text, as};
    }
    return 0;
}

bool sandbox_rdma(const char *text, enum sb_rdma *out)
{
    *out = *text == 'y' ? SB_RDMA_REQUIRE : *text == 'n' ? SB_RDMA_LEAVE : SB_RDMA_AUTO;
    return strcmp(text, "auto") == 0 || strcmp(text, "yes") == 0 || strcmp(text, "no") == 0;
}

int sandbox_move_main(int argc, char **argv)
{
    static const struct opt opt[] = {
        {"netns", O_NETNS, "NETNS", "the container's: a process's number, a path, or a name of `ip netns`"},
        {"nics", 'n', "NIC[=NAME][,..]", "these NICs; NAME: what each is called in the container (default: the same)"},
        {"rdma", O_RDMA, "auto|yes|no",
         "their RDMA devices too: where they can go, or else fail, or not (default: auto)"},
        {"no-arp", O_NO_ARP, NULL, "leave ARP as the container has it"},
        {"force", O_FORCE, NULL, "NICs with a default route, or with other devices on them, too"},
        {"journal-dir", O_JOURNAL, "DIR", "where journals are (default: " SB_JOURNAL_DIR ")"},
        {"verbose", 'v', NULL, "say what is done"},
        {0},
    };
    struct opts o = {
        CMD,
        "ID --netns NETNS --nics NIC[=NAME][,..] [OPTION...]",
        "Moves NICs into the network namespace of the container ID, with their addresses, routes and rules:\n"
        "all of them or none. What there was is in a journal first: `hawser sandbox restore ID` gives it back.",
        opt,
        {{0}},
        {0}};
    char cmd[] = CMD;
    struct hw_logger log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN};
    struct sb_nic nic[SB_NICS_MAX];
    struct sb_move_options m = {.nic = nic, .log = &log};
    const char *arg, *nics = NULL;
    int id;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        switch (id) {
        case O_NETNS:
            m.netns = arg;
            break;
        case 'n':
            nics = arg;
            break;
        case O_RDMA:
            if (!sandbox_rdma(arg, &m.rdma))
                return tool_usage(CMD, "--rdma is auto, yes or no, and not '%s'", arg);
            break;
        case O_NO_ARP:
            m.no_arp = true;
            break;
        case O_FORCE:
            m.force = true;
            break;
        case O_JOURNAL:
            m.journal_dir = arg;
            break;
        case 'v':
            log.level++;
            break;
        default:
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
        }
    }
    if (optind != argc - 1)
        return tool_usage(CMD, "it takes one ID, the container's");
    if (!m.netns || !nics)
        return tool_usage(CMD, "it needs --netns and --nics");
    m.id = argv[optind];
    char *text = strdup(nics);
    int rc = text ? cut(text, nic, &m.n) : hw_fail(-ENOMEM, "out of memory");
    if (rc == 0)
        rc = sb_move(&m);
    free(text);
    if (rc == -EINVAL)
        return tool_usage(CMD, "%s", hw_error());
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}
