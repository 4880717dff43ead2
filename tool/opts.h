/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a subcommand from one table, which getopt_long and --help both read; strict parsers that say what was
 * wrong; and the options that serve, bench and validate share.
 */
#ifndef HW_TOOL_OPTS_H
#define HW_TOOL_OPTS_H

#include "tool/tool.h"

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

/* A list of sizes: "64MiB,1GiB", "1KiB:64MiB" (doubling; the last is always in), or both mixed. Writes up to cap,
 * *n gets how many. -EINVAL echoing the bad part, -E2BIG. */
int opts_sizes(const char *text, uint64_t *out, size_t cap, size_t *n);
/* "host", "host:port", "1.2.3.4:port", "[v6]:port", "v6". *port keeps its value where none is said. -EINVAL. */
int opts_host(const char *text, char *host, size_t cap, uint16_t *port);
/* A comma-separated list of NIC names: none empty, none longer than the kernel's IFNAMSIZ - 1, none twice. -EINVAL. */
int opts_nics(const char *text);

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

#define COMMON_MAX_KNOBS 32

struct common {
    const char *key_file;
    bool insecure;
    int verbose;
    size_t n_knobs;
    char *knobs[COMMON_MAX_KNOBS + 1];
    uint8_t key[4096];
    size_t key_len;
};

/* Takes option id if it is a common one: 1 taken, 0 not one of them, -EINVAL with hw_error(). */
int common_option(struct common *c, int id, const char *arg);
/* Adds knob name with value as --knob would (value NULL: name is "NAME=VALUE"). -EINVAL, -E2BIG, -ENOMEM. */
int common_knob(struct common *c, const char *name, const char *value);
/* Reads the key file and opens a context. 0 or -errno with hw_error(). */
int common_open(struct common *c, hawser **out);
/* Forgets the key, frees the knobs. */
void common_free(struct common *c);
/* Reads a job key: a regular file that others cannot read, one newline at its end dropped. -EACCES, -EINVAL, -errno. */
int common_read_key(const char *path, uint8_t *key, size_t cap, size_t *len);

#endif
