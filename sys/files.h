/* SPDX-License-Identifier: Apache-2.0 */
/* Reads whole files, and the ID of the current boot. */
#ifndef HW_SYS_FILES_H
#define HW_SYS_FILES_H

#include "base/base.h"

/* Reads fd from its current position to its end. `what` names the file in error messages. *text has a NUL after its
 * *len bytes, and the caller frees it; it is NULL after a failure. Fails with -E2BIG if there are more than max bytes,
 * with -ENOMEM, or with another -errno. */
int hw_file_read(int fd, size_t max, const char *what, char **text, size_t *len);

#define HW_BOOT_ID 64
/* Reads the kernel's ID of this boot. On failure, returns -EIO and sets id to "". */
int hw_boot_id(char id[HW_BOOT_ID]);

#endif
