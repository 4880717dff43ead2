/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded reads of sysfs and procfs below a root. The root is "/", or a folder with a snapshot of another machine
 * (sys/, and perhaps proc/, run/ and others). Paths are relative to the root and are printf formats, such as
 * "sys/class/net/%s/mtu". Symbolic links, including absolute links and links with "..", are resolved within the root,
 * because a snapshot is not trusted.
 *
 * Functions that can fail return 0 or the stated value, or set hw_error() and return a negative errno. -ENOENT: the
 * file does not exist. -ENODATA: the file is empty. -E2BIG: the content is larger than the buffer, or a directory has
 * too many entries. -EINVAL: the file is not a regular file or does not have the expected content. Most other errors
 * come from the kernel. The kernel also returns -EINVAL for the speed of a NIC that is down.
 */
#ifndef HW_SYSFS_H
#define HW_SYSFS_H

#include "base/base.h"

#include <sched.h>

/* The maximum size of a sysfs attribute, one page (Documentation/filesystems/sysfs.rst), plus a NUL. */
#define HW_ATTR_MAX 4097

/* Opens the directory that is used as the root. Returns a descriptor, which the caller closes. */
int hw_root_open(const char *dir);

/* Reads a text without leading and trailing blanks and newlines, and NUL-terminates it. Returns the length, which is at
 * least 1. The text contains no NUL. */
int hw_root_text(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Read a whole number, decimal or hexadecimal with 0x, with nothing after the number. */
int hw_root_u64(int root, uint64_t *out, const char *fmt, ...) HW_PRINTF(3, 4);
int hw_root_i64(int root, int64_t *out, const char *fmt, ...) HW_PRINTF(3, 4);
/* Reads the target of a symbolic link. The last part of the path is not followed. Returns the length. */
int hw_root_link(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Reads the last part of a symbolic link's target, for example the name of a driver. Returns its length. */
int hw_root_link_name(int root, char *buf, size_t cap, const char *fmt, ...) HW_PRINTF(4, 5);
/* Returns true if the path exists, regardless of its type. */
bool hw_root_has(int root, const char *fmt, ...) HW_PRINTF(2, 3);

/* Opens any file or directory below the root, for content that is not text. The caller closes the descriptor. flags are
 * those of open(2), to which O_CLOEXEC is added. */
int hw_root_fd(int root, int flags, const char *fmt, ...) HW_PRINTF(3, 4);

struct hw_names {
    char **name;
    size_t n;
};
/* Lists a directory's entries without "." and "..", with "eth2" before "eth10". The caller frees out, even after a
 * failure. */
int hw_root_list(int root, struct hw_names *out, const char *fmt, ...) HW_PRINTF(3, 4);
void hw_names_free(struct hw_names *l);

/* The parsers for text that has already been read. They fail with -EINVAL, echo the text and leave *out unchanged. */
int hw_text_u64(const char *text, uint64_t *out);
int hw_text_i64(const char *text, int64_t *out);
/* Parses a list such as "0-3,8-11", in ascending order as the kernel prints it (lib/bitmap.c). *out receives the CPUs
 * below CPU_SETSIZE, and *count the number of all CPUs. */
int hw_text_cpulist(const char *text, cpu_set_t *out, size_t *count);

#endif
