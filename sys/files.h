/* SPDX-License-Identifier: Apache-2.0 */
/* Reads whole files, and the id of the boot. */
#ifndef HW_SYS_FILES_H
#define HW_SYS_FILES_H

#include "base/base.h"

/* Reads fd from its current position to its end, at most max bytes; what: its name, for the error. The caller frees
 * *text, which has a 0 after its *len bytes; NULL after a failure. -E2BIG, -ENOMEM, -errno. */
int hw_file_read(int fd, size_t max, const char *what, char **text, size_t *len);

#define HW_BOOT_ID 64
/* Reads the kernel's id of this boot. -EIO, with "" in id. */
int hw_boot_id(char id[HW_BOOT_ID]);

#endif
