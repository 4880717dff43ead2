/* SPDX-License-Identifier: Apache-2.0 */
/* hawser nccl check: runs only doctor's checks of group nccl. */
#include "tool/doctor/doctor.h"
#include "tool/nccl/nccl.h"
#include "tool/nccl/nccl_look.h"
#include "tool/opts.h"

#include <stdlib.h>

#define CMD "nccl check"

struct check_args {
    const char *nccl;
    struct dr_finish how;
};

static const struct opt rows[] = {
    OPT_TEXT("nccl", 0, "FILE", struct check_args, nccl,
             "load NCCL's library from FILE, as your program does (default: libnccl.so.2)"),
    OPT_GROUP(dr_finish_opts, struct check_args, how),
    {0},
};

int nccl_check_main(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about =
            "Repeats NCCL's lookup of a network plugin, loads in child processes what NCCL would load, and reports "
            "which network NCCL would use and, if not hawser, why. Exit status: 0 if NCCL would use hawser and no "
            "check fails, 1 if not.",
        .rows = rows,
        .too_many = "check takes options only"};
    struct check_args a = {0};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    struct nccl_look look;
    struct dr_machine *m = calloc(1, sizeof *m);
    struct dr_report d = {0};
    if (!m)
        return tool_fail(CMD, "out of memory");
    rc = nccl_look(&look, a.nccl);
    if (rc == 0) {
        m->root = -1;
        m->nccl = &look;
        rc = dr_run(&d, m, NULL, 1u << DR_NCCL);
    }
    int exit = dr_finish(&d, rc, CMD, &a.how);
    nccl_look_free(&look);
    free(m);
    return exit;
}
