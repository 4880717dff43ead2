/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by serve, bench, validate, doctor and sandbox: the key, knobs, the log on stderr, and argument parsers. */
#ifndef HW_TOOL_COMMON_H
#define HW_TOOL_COMMON_H

#include "tool/tool.h"

/* Parses a list of sizes: "64MiB,1GiB", "1KiB:64MiB" (doubling; includes the last), or both mixed. Writes up to cap; *n
 * receives how many. -EINVAL echoes the bad part; -E2BIG. */
int opts_sizes(const char *text, uint64_t *out, size_t cap, size_t *n);
/* Parses "host", "host:port", "1.2.3.4:port", "[v6]:port", "v6". *port is unchanged if none is given. -EINVAL. */
int opts_host(const char *text, char *host, size_t cap, uint16_t *port);
/* Checks a comma-separated list of NIC names: none empty, none longer than the kernel's IFNAMSIZ - 1, none repeated.
 * -EINVAL. */
int opts_nics(const char *text);

#define COMMON_MAX_KNOBS 32

struct common {
    const char *key_file;
    bool insecure;
    int verbose;    /* -1: errors only */
    uint32_t flags; /* further flags of struct hawser_options */
    size_t n_knobs;
    char *knobs[COMMON_MAX_KNOBS + 1];
    uint8_t key[4096];
    size_t key_len;
};

/* Adds knob name with value, like --knob (value NULL: name is "NAME=VALUE"). -EINVAL, -E2BIG, -ENOMEM. */
int common_knob(struct common *c, const char *name, const char *value);
/* Reads the key file, or without one uses the key that is already set, and opens a context. 0 or -errno. */
int common_open(struct common *c, hawser **out);
/* Clears the key and frees the knobs. */
void common_free(struct common *c);
/* Reads a job key: a regular file that others cannot read; drops one newline at its end. -EACCES, -EINVAL, -errno. */
int common_read_key(const char *path, uint8_t *key, size_t cap, size_t *len);

#endif
