/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a subcommand from one table, which getopt_long and --help both read; strict parsers that say what was
 * wrong; and the options that serve, bench and validate share.
 */
#ifndef HW_TOOL_OPTS_OLD_H
#define HW_TOOL_OPTS_OLD_H

#include "tool/common.h"

#include <getopt.h>

struct opt {
    const char *name; /* "size": --size */
    int id;           /* what opts_next() returns; a letter makes it a short option too */
    const char *arg;  /* "SIZE" where it takes an argument, else NULL */
    const char *help; /* NULL: not shown */
};

#define OPTS_MAX 64

/* OPT_*: results of opts_next() that are no option's id. */
enum {
    OPT_END = -1,
    OPT_BAD = -2,
    OPT_HELP = 1000,
    OPT_TRANSPORT = 1001,
    OPT_REQUIRE_DEVMEM = 1002,
    OPT_REQUIRE_DIRECT,
    OPT_RAILS,
    OPT_REQUIRE_NICS
};

struct opts {
    const char *cmd;       /* "bench" */
    const char *args;      /* "HOST[:PORT] [OPTION...]" */
    const char *about;     /* one or two lines under the usage line */
    const struct opt *opt; /* ends with a NULL name */
    /* private */
    struct option lng[OPTS_MAX];
    char shrt[2 * OPTS_MAX];
};

/* Makes o ready for opts_next(), from the start of argv. */
void opts_start(struct opts *o);
/* The next option's id with *arg, OPT_END (positional arguments start at optind), OPT_HELP (help was printed to stdout:
 * return TOOL_OK) or OPT_BAD (the reason was printed to stderr: return TOOL_USAGE). */
int opts_next(struct opts *o, int argc, char **argv, const char **arg);

/* What serve, bench and validate share. */
#define COMMON_OPTS                                                                                                    \
    {"knob", 'K', "NAME=VALUE", "set a knob of the library (see `hawser help knobs`); may be repeated"},               \
        {"key-file", 'k', "FILE", "the job key that both sides must hold, 16 to 4096 bytes"},                          \
        {"transport", OPT_TRANSPORT, "NAME", "tcp, devmem, or netplugin:PLUGIN; the same on both sides"},              \
        {"require-devmem", OPT_REQUIRE_DEVMEM, NULL, "--transport devmem --require-direct"},                           \
        {"require-direct", OPT_REQUIRE_DIRECT, NULL,                                                                   \
         "fail where what a GPU receives does not land in its memory by the NIC"},                                     \
        {"rails", OPT_RAILS, "MAP", "which NICs may be joined: \"eth1,enp6s0;10.0.2.0/24\", or @FILE, a rail a line"}, \
        {"require-nics", OPT_REQUIRE_NICS, "N", "fail where fewer pairs of NICs work"},                                \
        {"insecure", 'I', NULL, "with no key, talk to any address, not only to loopback and 198.18.0.0/15"},           \
    {                                                                                                                  \
        "verbose", 'v', NULL, "say on stderr what the library does; twice: more"                                       \
    }

int common_option(struct common *c, int id, const char *arg);

#endif
