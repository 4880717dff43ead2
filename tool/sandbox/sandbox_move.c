/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox move: moves NICs into a container's network namespace. */
#include "sandbox/move/move.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CMD "sandbox move"

void sandbox_log(void *arg, int level, const char *line)
{
    fprintf(stderr, "hawser %s: %s%s\n", (const char *)arg, level == HAWSER_LOG_WARN ? "warning: " : "", line);
}

/* Splits a list such as "eth1,eth2=rdma0" into names. Fails with -EINVAL. */
static int cut_names(char *text, struct sb_nic *nic, size_t *n)
{
    *n = 0;
    for (char *next; text; text = next) {
        next = strchr(text, ',');
        if (next)
            *next++ = 0;
        if (*n == SB_NICS_MAX)
            return hw_fail(-EINVAL, "too many NICs: at most %d", SB_NICS_MAX);
        char *as = strchr(text, '=');
        if (as)
            *as++ = 0;
        if (!*text || (as && !*as))
            return hw_fail(-EINVAL, "the list of NICs contains an empty name");
        nic[(*n)++] = (struct sb_nic){text, as};
    }
    return 0;
}

const char *const sandbox_rdma_words[] = {
    [SB_RDMA_AUTO] = "auto", [SB_RDMA_REQUIRE] = "yes", [SB_RDMA_LEAVE] = "no", NULL};

struct move_args {
    struct sb_move_options m;
    const char *nics;
    struct hw_logger log;
};

static const struct opt rows[] = {
    OPT_TEXT("netns", 0, "NETNS", struct move_args, m.netns,
             "the container's network namespace: a process ID, a path, or a name from `ip netns list`"),
    OPT_TEXT("nics", 'n', "NIC[=NAME][,..]", struct move_args, nics,
             "move these NICs; NAME is the NIC's name in the container (default: the same)"),
    OPT_ENUM(
        "rdma", 0, "auto|yes|no", struct move_args, m.rdma, sandbox_rdma_words, SB_RDMA_AUTO,
        "also move the NICs' RDMA devices: yes (fail if that is impossible), no, or auto (if possible; the default)"),
    OPT_FLAG("no-arp", 0, struct move_args, m.no_arp, "change no ARP settings and add no source-based routes"),
    OPT_FLAG("force", 0, struct move_args, m.force,
             "also move NICs that have a default route, other devices on top, or nexthop objects"),
    OPT_TEXT("journal-dir", 0, "DIR", struct move_args, m.journal_dir,
             "folder of the journals (default: " SB_JOURNAL_DIR ")"),
    OPT_COUNT("verbose", 'v', struct move_args, log.level, "print what is done"),
    {0},
};

/* Returns the parent of a process, or 0 if it has none or the parent is unknown. */
static pid_t find_parent(pid_t pid)
{
    char path[64], line[512];
    pid_t parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return 0;
    /* Field 2, the name, is in parentheses and may contain any character. Fields 3 and 4 are the state, a letter, and
     * the parent (proc(5)). */
    const char *end = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
    if (end && strlen(end) > 4)
        parent = (pid_t)strtol(end + 4, NULL, 10);
    fclose(f);
    return parent;
}

/* Returns true if an ancestor of this process is in another mount namespace, as under `hawser lab exec` and
 * `ip netns exec`. */
static bool has_private_mounts(void)
{
    struct stat own, other;
    char path[64];
    if (stat("/proc/self/ns/mnt", &own) < 0)
        return false;
    for (pid_t pid = getppid(); pid > 0; pid = find_parent(pid)) {
        snprintf(path, sizeof path, "/proc/%d/ns/mnt", (int)pid);
        if (stat(path, &other) == 0 && other.st_ino != own.st_ino)
            return true;
    }
    return false;
}

/* Warns if the mount that keeps the container's network namespace ends with the mount namespace of this process. */
static void warn_private_mounts(const struct hw_logger *log, const char *id)
{
    if (!has_private_mounts())
        return;
    hw_log(
        log, HAWSER_LOG_WARN,
        "this mount namespace is not the host's, and when it ends, nothing keeps the NICs of the container: veth and "
        "macvlan devices are then lost if the container ends before `hawser sandbox restore %s`",
        id);
}

int sandbox_move_main(int argc, char **argv)
{
    static const struct opts o = {.cmd = CMD,
                                  .args = "ID --netns NETNS --nics NIC[=NAME][,..] [OPTION...]",
                                  .about = "Moves NICs into the network namespace of the container ID, with their "
                                           "addresses, routes and rules: all of\nthem or none. The original state is "
                                           "written to a journal first: `hawser sandbox restore ID` restores it.",
                                  .rows = rows,
                                  .least = 1,
                                  .most = 1,
                                  .too_few = "needs one container ID",
                                  .too_many = "needs one container ID"};
    char cmd[] = CMD;
    struct sb_nic nic[SB_NICS_MAX];
    struct move_args a = {.m.nic = nic, .log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN}};
    a.m.log = &a.log;
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (!a.m.netns || !a.nics)
        return tool_usage(CMD, "needs --netns and --nics");
    a.m.id = argv[optind];
    HW_AUTO_FREE char *text = strdup(a.nics);
    rc = text ? cut_names(text, nic, &a.m.n) : hw_no_memory("a list of NICs");
    if (rc == 0)
        rc = sb_move(&a.m);
    if (rc == 0)
        warn_private_mounts(&a.log, a.m.id);
    if (rc == -EINVAL)
        return tool_usage(CMD, "%s", hw_error());
    return rc < 0 ? tool_fail(CMD, "%s", hw_error()) : TOOL_OK;
}
