/* SPDX-License-Identifier: Apache-2.0 */
/* What serve, bench, validate, doctor and sandbox share: a key, knobs, the log on stderr; and parsers of arguments. */
#ifndef HW_TOOL_COMMON_H
#define HW_TOOL_COMMON_H

#include "tool/tool.h"

/* A list of sizes: "64MiB,1GiB", "1KiB:64MiB" (doubling; the last is always in), or both mixed. Writes up to cap,
 * *n gets how many. -EINVAL echoing the bad part, -E2BIG. */
int opts_sizes(const char *text, uint64_t *out, size_t cap, size_t *n);
/* "host", "host:port", "1.2.3.4:port", "[v6]:port", "v6". *port keeps its value where none is said. -EINVAL. */
int opts_host(const char *text, char *host, size_t cap, uint16_t *port);
/* A comma-separated list of NIC names: none empty, none longer than the kernel's IFNAMSIZ - 1, none twice. -EINVAL. */
int opts_nics(const char *text);

#define COMMON_MAX_KNOBS 32

struct common {
    const char *key_file;
    bool insecure;
    int verbose;    /* -1: errors only */
    uint32_t flags; /* of struct hawser_options, besides */
    size_t n_knobs;
    char *knobs[COMMON_MAX_KNOBS + 1];
    uint8_t key[4096];
    size_t key_len;
};

/* Adds knob name with value as --knob would (value NULL: name is "NAME=VALUE"). -EINVAL, -E2BIG, -ENOMEM. */
int common_knob(struct common *c, const char *name, const char *value);
/* Reads the key file, or where there is none takes the key that is there, and opens a context. 0 or -errno. */
int common_open(struct common *c, hawser **out);
/* Forgets the key, frees the knobs. */
void common_free(struct common *c);
/* Reads a job key: a regular file that others cannot read, one newline at its end dropped. -EACCES, -EINVAL, -errno. */
int common_read_key(const char *path, uint8_t *key, size_t cap, size_t *len);

#endif
