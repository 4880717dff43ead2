/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox restore: what `move` took, given back. hawser sandbox watch: the same, once the container has ended.
 */
#include "sandbox/move/move.h"
#include "tool/opts_old.h"
#include "tool/sandbox/sandbox.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

enum { O_JOURNAL = 300, O_FORGET };

struct back {
    struct sb_restore_options o;
    struct hw_logger log;
};

/* What the command line says into b; cmd stays in use. -1: go on; else an exit code. */
static int begin(struct back *b, char *cmd, const char *about, int argc, char **argv)
{
    static const struct opt opt[] = {
        {"journal-dir", O_JOURNAL, "DIR", "where journals are (default: " SB_JOURNAL_DIR ")"},
        {"forget", O_FORGET, NULL, "drop the journal at the end, even if not all could be given back"},
        {"verbose", 'v', NULL, "say what is done"},
        {0}};
    struct opts o = {cmd, "ID [OPTION...]", about, opt, {{0}}, {0}};
    *b = (struct back){.log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN}};
    const char *arg;
    int id;
    opts_start(&o);
    while ((id = opts_next(&o, argc, argv, &arg)) != OPT_END) {
        switch (id) {
        case O_JOURNAL:
            b->o.journal_dir = arg;
            break;
        case O_FORGET:
            b->o.forget = true;
            break;
        case 'v':
            b->log.level++;
            break;
        default:
            return id == OPT_HELP ? TOOL_OK : TOOL_USAGE;
        }
    }
    if (optind != argc - 1)
        return tool_usage(cmd, "it takes one ID, the container's");
    b->o.id = argv[optind];
    b->o.log = &b->log;
    return -1;
}

static int result(const char *cmd, int rc, unsigned lost)
{
    if (rc == -EINVAL)
        return tool_usage(cmd, "%s", hw_error());
    if (rc < 0)
        return tool_fail(cmd, "%s", hw_error());
    /* Each has its line already. */
    return lost ? tool_fail(cmd, "%u %s lost", lost, lost == 1 ? "NIC is" : "NICs are") : TOOL_OK;
}

int sandbox_restore_main(int argc, char **argv)
{
    char cmd[] = "sandbox restore";
    struct back b;
    unsigned lost = 0;
    int code =
        begin(&b, cmd,
              "Gives back the NICs of the container ID, with all they had, wherever they are by now. Nothing to give\n"
              "back is no error; what cannot be given back is told, one line each, and tried again by the next call.",
              argc, argv);
    if (code >= 0)
        return code;
    int rc = sb_restore(&b.o, &lost);
    return result(cmd, rc, lost);
}

int sandbox_watch_main(int argc, char **argv)
{
    char cmd[] = "sandbox watch";
    struct back b;
    unsigned lost = 0;
    int code =
        begin(&b, cmd,
              "Waits until the container ID has ended, then restores. SIGINT and SIGTERM end the wait, and nothing is\n"
              "restored.",
              argc, argv);
    if (code >= 0)
        return code;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    /* Blocked for good: once restoring has begun it is brought to its end. */
    int stop = sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC);
    if (stop < 0)
        return tool_fail(cmd, "preparing for signals: %s", hw_errno_name(errno));
    int rc = sb_watch(&b.o, stop, &lost);
    hw_close(&stop);
    return result(cmd, rc, lost);
}
