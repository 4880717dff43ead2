/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reads of sysfs and procfs below a root, which is "/" or a folder that holds a snapshot of another machine's
 * (sys/, and perhaps proc/, run/ ...). Paths are relative to the root and made by printf: "sys/class/net/%s/mtu".
 * Symbolic links stay within the root, absolute ones and any number of ".." too: a snapshot is a stranger's.
 *
 * All return 0 (or what is said) or -errno with hw_error(): -ENOENT absent, -ENODATA an empty file, -E2BIG larger than
 * the buffer, -EINVAL not a plain file, or not what was asked for; and what the kernel says, as EINVAL for the speed of
 * a NIC that is down.
 */
#ifndef HW_SYSFS_H
#define HW_SYSFS_H

#include "base/base.h"

#include <sched.h>

/* A sysfs attribute is at most a page (Documentation/filesystems/sysfs.rst), lists of NUMA distances included. */
#define HW_ATTR_MAX 4097

/* A directory to be the root: its descriptor, to be closed. */
int hw_root_open(const char *dir);

/* A text without blanks and newlines around it, with a NUL behind. Its length, at least 1. Never with a NUL inside. */
int hw_root_text(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* A whole number, decimal or 0x hexadecimal, with nothing behind it. */
int hw_root_u64(int root, uint64_t *out, const char *fmt, ...) HW_PRINTF(3, 4);
int hw_root_i64(int root, int64_t *out, const char *fmt, ...) HW_PRINTF(3, 4);
/* A link's target as it stands there, of the link itself (the last part of the path is not followed). Its length. */
int hw_root_link(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* The last part of that: the driver's name, for one. */
int hw_root_link_name(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Is there such a thing, of any kind? */
bool hw_root_has(int root, const char *fmt, ...) HW_PRINTF(2, 3);

/* A descriptor of anything below the root, to be closed; flags as open(2)'s, O_CLOEXEC added. For what is not text. */
int hw_root_fd(int root, int flags, const char *fmt, ...) HW_PRINTF(3, 4);

struct hw_names {
    char **name;
    size_t n;
};
/* A directory's entries but "." and "..", "eth2" before "eth10". To be freed, also after a failure. */
int hw_root_list(int root, struct hw_names *out, const char *fmt, ...) HW_PRINTF(3, 4);
void hw_names_free(struct hw_names *l);

/* The parsers alone; -EINVAL echoing the text, *out untouched then. */
int hw_text_u64(const char *text, uint64_t *out);
int hw_text_i64(const char *text, int64_t *out);
/* "0-3,8-11", in rising order as the kernel prints it (lib/bitmap.c): the set, without those from CPU_SETSIZE on, and
 * how many there are with them. */
int hw_text_cpulist(const char *text, cpu_set_t *out, size_t *count);

#endif
