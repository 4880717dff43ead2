/* SPDX-License-Identifier: Apache-2.0 */
#include "sys/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST 16384 /* bytes of the first buffer; doubled when full */

int hw_file_read(int fd, size_t max, const char *what, char **text, size_t *len)
{
    size_t cap = 0;
    int rc = 0;
    *text = NULL;
    *len = 0;
    for (;;) {
        if (*len == cap) {
            cap = cap ? 2 * cap : FIRST;
            char *more = realloc(*text, cap + 1);
            if (!more) {
                rc = hw_no_memory("%s", what);
                break;
            }
            *text = more;
        }
        ssize_t n = read(fd, *text + *len, cap - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = hw_fail(-errno, "reading %s: %s", what, strerror(errno));
            break;
        }
        if (n == 0)
            break;
        *len += (size_t)n;
        if (*len > max) {
            rc = hw_fail(-E2BIG, "%s is larger than %zu %s", what, max < 1 << 20 ? max : max >> 20,
                         max < 1 << 20 ? "bytes" : "MiB");
            break;
        }
    }
    if (rc) {
        free(*text);
        *text = NULL;
        return rc;
    }
    (*text)[*len] = 0;
    return 0;
}

int hw_boot_id(char id[HW_BOOT_ID])
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    FILE *f = fopen(path, "re");
    bool got = f && fgets(id, HW_BOOT_ID, f) && strlen(id) > 8;
    if (f)
        (void)fclose(f);
    if (!got) {
        *id = 0;
        return hw_fail(-EIO, "cannot read %s", path);
    }
    id[strcspn(id, "\n")] = 0;
    return 0;
}
