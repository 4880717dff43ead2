/* SPDX-License-Identifier: Apache-2.0 */
/* Code shared by the subcommands that open a context: the job key, knobs, log output on stderr, and argument
 * parsers. */
#ifndef HW_TOOL_COMMON_H
#define HW_TOOL_COMMON_H

#include "tool/tool.h"

/* Parses a list of sizes: "64MiB,1GiB", a range such as "1KiB:64MiB" (doubles at each step and includes the last size),
 * or a mix of both. Writes at most cap sizes and stores their number in *n. Fails with -EINVAL or -E2BIG. */
int opts_sizes(const char *text, uint64_t *out, size_t cap, size_t *n);
/* Parses "host", "host:port", "1.2.3.4:port", "[v6]:port" or "v6". Leaves *port unchanged if the text has no port.
 * Fails with -EINVAL. */
int opts_host(const char *text, char *host, size_t cap, uint16_t *port);
/* Checks a comma-separated list of NIC names. No name may be empty, longer than IFNAMSIZ - 1, or repeated, or contain a
 * slash or a space. Fails with -EINVAL. */
int opts_nics(const char *text);

#define COMMON_MAX_KNOBS 32

struct common {
    const char *key_file;
    bool insecure;
    int verbose;    /* log level relative to warnings; -1 logs only errors */
    uint32_t flags; /* additional flags for struct hawser_options */
    size_t n_knobs;
    char *knobs[COMMON_MAX_KNOBS + 1];
    uint8_t key[4096];
    size_t key_len;
};

/* Adds a knob, like --knob. If value is NULL, name has the form "NAME=VALUE". Fails with -EINVAL, -E2BIG or -ENOMEM. */
int common_knob(struct common *c, const char *name, const char *value);
/* Opens a context with the key from the key file or, without a key file, with the key that c already has, if any.
 * Returns 0 or -errno. */
int common_open(struct common *c, hawser **out);
/* Clears the key and frees the knobs. */
void common_free(struct common *c);
/* Reads a job key of 16 to cap bytes from a regular file, and drops one trailing newline. Rejects a file with read or
 * write permission for others. Fails with -EACCES, -EINVAL or another -errno. */
int common_read_key(const char *path, uint8_t *key, size_t cap, size_t *len);

#endif
