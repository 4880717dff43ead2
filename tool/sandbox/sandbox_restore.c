/* SPDX-License-Identifier: Apache-2.0 */
/* hawser sandbox restore returns a container's NICs. hawser sandbox watch does so once the container has ended. */
#include "sandbox/move/move.h"
#include "tool/opts.h"
#include "tool/sandbox/sandbox.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

struct back {
    struct sb_restore_options o;
    struct hw_logger log;
};

static const struct opt rows[] = {OPT_TEXT("journal-dir", 0, "DIR", struct back, o.journal_dir,
                                           "folder of the journals (default: " SB_JOURNAL_DIR ")"),
                                  OPT_FLAG("forget", 0, struct back, o.forget,
                                           "delete the journal at the end, even if not everything could be restored"),
                                  OPT_COUNT("verbose", 'v', struct back, log.level, "print what is done"),
                                  {0}};

/* Parses the command line into b. cmd must stay valid as long as b. Returns OPTS_GO, or the exit status. */
static int read_restore_options(struct back *b, char *cmd, const char *about, int argc, char **argv)
{
    const struct opts o = {.cmd = cmd,
                           .args = "ID [OPTION...]",
                           .about = about,
                           .rows = rows,
                           .least = 1,
                           .most = 1,
                           .too_few = "needs one container ID",
                           .too_many = "needs one container ID"};
    *b = (struct back){.log = {.fn = sandbox_log, .arg = cmd, .level = HAWSER_LOG_WARN}};
    int rc = opts_parse(&o, b, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    b->o.id = argv[optind];
    b->o.log = &b->log;
    return OPTS_GO;
}

static int say_result(const char *cmd, int rc, unsigned lost)
{
    if (rc == -EINVAL)
        return tool_usage(cmd, "%s", hw_error());
    if (rc < 0)
        return tool_fail(cmd, "%s", hw_error());
    /* each lost NIC has already been reported */
    return lost ? tool_fail(cmd, "%u %s lost", lost, lost == 1 ? "NIC is" : "NICs are") : TOOL_OK;
}

int sandbox_restore_main(int argc, char **argv)
{
    char cmd[] = "sandbox restore";
    struct back b;
    unsigned lost = 0;
    int code =
        read_restore_options(&b, cmd,
                             "Returns the NICs of the container ID, with all their settings, wherever the NICs "
                             "are now. It is no error if there is nothing to return. NICs that cannot be returned are "
                             "reported, one per line, and the next call tries again to return those that still exist.",
                             argc, argv);
    if (code != OPTS_GO)
        return code;
    int rc = sb_restore(&b.o, &lost);
    return say_result(cmd, rc, lost);
}

int sandbox_watch_main(int argc, char **argv)
{
    char cmd[] = "sandbox watch";
    struct back b;
    unsigned lost = 0;
    int code = read_restore_options(&b, cmd,
                                    "Waits until the container ID has ended, and then returns its NICs. SIGINT and "
                                    "SIGTERM end the wait, and the NICs are not returned.",
                                    argc, argv);
    if (code != OPTS_GO)
        return code;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    /* Block these signals permanently, because a restore must not be interrupted. */
    int stop = sigprocmask(SIG_BLOCK, &set, NULL) < 0 ? -1 : signalfd(-1, &set, SFD_CLOEXEC);
    if (stop < 0)
        return tool_fail(cmd, "preparing for signals: %s", hw_errno_text(errno));
    int rc = sb_watch(&b.o, stop, &lost);
    hw_close(&stop);
    return say_result(cmd, rc, lost);
}
