/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nixl check: runs only doctor's checks of group nixl. */
#include "tool/doctor/doctor.h"
#include "tool/nixl/nixl.h"
#include "tool/nixl/nixl_look.h"
#include "tool/opts.h"

#include <stdlib.h>

#define CMD "nixl check"

struct check_args {
    const char *python, *dir;
    struct dr_finish how;
};

static const struct opt rows[] = {
    OPT_TEXT("python", 0, "FILE", struct check_args, python,
             "check the NIXL of this Python (default: the Python of this program's package, the one in VIRTUAL_ENV, or "
             "python3)"),
    OPT_TEXT("dir", 0, "DIR", struct check_args, dir,
             "check the NIXL that is installed in DIR, without running Python"),
    OPT_GROUP(dr_finish_opts, struct check_args, how),
    {0},
};

int nixl_check_main(int argc, char **argv)
{
    static const struct opts o = {.cmd = CMD,
                                  .args = "[OPTION...]",
                                  .about = "Finds the NIXL of a Python installation, and the HAWSER backend in the "
                                           "folder in which this NIXL looks for backends. Loads the backend in a "
                                           "child process, and reports whether NIXL would use the backend. Exit "
                                           "status: 0 if NIXL would use the backend and no check fails, 1 if not.",
                                  .rows = rows,
                                  .too_many = "check takes options only"};
    struct check_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (a.python && a.dir)
        return tool_usage(CMD, "--python and --dir cannot be combined");
    struct nixl_look *look = calloc(1, sizeof *look);
    struct dr_machine *m = calloc(1, sizeof *m);
    struct dr_report d = {0};
    if (!m || !look) {
        free(m);
        free(look);
        return tool_fail(CMD, "out of memory");
    }
    rc = nixl_look(look, a.python, a.dir);
    if (rc == 0) {
        m->root = -1;
        m->nixl = look;
        rc = dr_run(&d, m, NULL, 1u << DR_NIXL);
    }
    int exit = dr_finish(&d, rc, CMD, &a.how);
    nixl_look_free(look);
    free(look);
    free(m);
    return exit;
}
