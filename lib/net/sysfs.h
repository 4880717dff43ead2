/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reads of sysfs and procfs below a root, which is "/" or a folder with a snapshot of another machine (sys/,
 * and perhaps proc/, run/ ...). Paths are relative to the root and are printf formats: "sys/class/net/%s/mtu". Symbolic
 * links, also absolute ones and those with "..", stay within the root: a snapshot is untrusted.
 *
 * All functions return 0 (or the value stated) or -errno with hw_error(): -ENOENT: absent; -ENODATA: an empty file;
 * -E2BIG: larger than the buffer; -EINVAL: not a regular file, or not the expected content; or the kernel's error, such
 * as EINVAL for the speed of a NIC that is down.
 */
#ifndef HW_SYSFS_H
#define HW_SYSFS_H

#include "base/base.h"

#include <sched.h>

/* A sysfs attribute is at most a page (Documentation/filesystems/sysfs.rst), lists of NUMA distances included. */
#define HW_ATTR_MAX 4097

/* Opens the directory that is to be the root. Returns a descriptor, which the caller closes. */
int hw_root_open(const char *dir);

/* Reads a text without leading and trailing blanks and newlines, NUL-terminated. Returns its length, at least 1. The
 * text contains no NUL. */
int hw_root_text(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Read a whole number, decimal or 0x hexadecimal, with nothing after it. */
int hw_root_u64(int root, uint64_t *out, const char *fmt, ...) HW_PRINTF(3, 4);
int hw_root_i64(int root, int64_t *out, const char *fmt, ...) HW_PRINTF(3, 4);
/* Reads the target of a link; does not follow the last part of the path. Returns the length. */
int hw_root_link(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Reads the last part of a link's target: the driver's name, for example. */
int hw_root_link_name(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Returns true if the path exists, whatever its type. */
bool hw_root_has(int root, const char *fmt, ...) HW_PRINTF(2, 3);

/* Opens any file or directory below the root; the caller closes the descriptor. flags as for open(2), O_CLOEXEC is
 * added. For content that is not text. */
int hw_root_fd(int root, int flags, const char *fmt, ...) HW_PRINTF(3, 4);

struct hw_names {
    char **name;
    size_t n;
};
/* Lists a directory's entries without "." and "..", "eth2" before "eth10". The caller frees out, also after a
 * failure. */
int hw_root_list(int root, struct hw_names *out, const char *fmt, ...) HW_PRINTF(3, 4);
void hw_names_free(struct hw_names *l);

/* The parsers alone; -EINVAL echoes the text and leaves *out unchanged. */
int hw_text_u64(const char *text, uint64_t *out);
int hw_text_i64(const char *text, int64_t *out);
/* Parses "0-3,8-11", in rising order as the kernel prints it (lib/bitmap.c). *out receives the CPUs below CPU_SETSIZE,
 * *count the number of all CPUs. */
int hw_text_cpulist(const char *text, cpu_set_t *out, size_t *count);

#endif
