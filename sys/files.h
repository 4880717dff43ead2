/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files, and the machine's boot. */
#ifndef HW_SYS_FILES_H
#define HW_SYS_FILES_H

#include "base/base.h"

/* Reads fd from where it stands to its end, at most max bytes; what: its name, for the error. *text, with a 0 behind
 * its *len bytes, is the caller's to free; NULL after a failure. -E2BIG, -ENOMEM, -errno. */
int hw_file_read(int fd, size_t max, const char *what, char **text, size_t *len);

#define HW_BOOT_ID 64
/* The kernel's name for this boot. -EIO, and "" in id. */
int hw_boot_id(char id[HW_BOOT_ID]);

#endif
