/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes that are files in a device's sysfs folder. A value consists of lines "PATH=TEXT". */
#include "sandbox/attr/attr.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VALUE_MAX 4096
#define PATH_SIZE 128

static int read_attr_file(int folder, const char *path, char out[VALUE_MAX])
{
    int fd = openat(folder, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd < 0 ? -1 : read(fd, out, VALUE_MAX - 1);
    int rc = n < 0 ? -errno : 0;
    hw_close(&fd);
    out[HW_MAX(n, (ssize_t)0)] = 0;
    out[strcspn(out, "\n")] = 0;
    return rc;
}

/* Adds a line for the file if it is readable. */
static int add_file(int folder, const char *path, struct sb_blob *out)
{
    char value[VALUE_MAX];
    if (read_attr_file(folder, path, value) < 0)
        return 0;
    int rc = sb_blob_put(out, path, strlen(path));
    if (rc < 0 || (rc = sb_blob_put(out, "=", 1)) < 0 || (rc = sb_blob_put(out, value, strlen(value))) < 0)
        return rc;
    return sb_blob_put(out, "\n", 1);
}

int sb_read_files(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    int rc = 0;
    if (d->folder < 0)
        return -EOPNOTSUPP;
    for (const char *const *p = a->path; *p && rc == 0; p++)
        rc = add_file(d->folder, *p, out);
    return rc;
}

/* The settable files of a queue, except values that the kernel computes (byte_queue_limits/limit). */
static const char *const of_queue[] = {"rps_cpus",
                                       "rps_flow_cnt",
                                       "xps_cpus",
                                       "xps_rxqs",
                                       "tx_maxrate",
                                       "byte_queue_limits/hold_time",
                                       "byte_queue_limits/limit_max",
                                       "byte_queue_limits/limit_min",
                                       "byte_queue_limits/stall_thrs"};

int sb_read_queues(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    struct dirent **list = NULL;
    int n = d->folder < 0 ? -1 : scandirat(d->folder, "queues", &list, NULL, versionsort), rc = 0;
    (void)a;
    if (n < 0)
        return -EOPNOTSUPP;
    for (int i = 0; i < n; i++) {
        char path[PATH_SIZE];
        for (size_t k = 0; rc == 0 && list[i]->d_name[0] != '.' && k < HW_ARRAY_LEN(of_queue); k++) {
            snprintf(path, sizeof(path), "queues/%.32s/%s", list[i]->d_name, of_queue[k]);
            rc = add_file(d->folder, path, out);
        }
        free(list[i]);
    }
    free(list);
    return rc;
}

/* Returns the value in the line for path, or NULL if there is no such line. The value is a part of the blob. */
static const char *find_line(const struct sb_blob *b, const char *path, size_t len, size_t *n)
{
    for (const char *p = (const char *)b->p, *end = p + b->n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        if (!stop)
            break;
        if ((size_t)(stop - p) > len && memcmp(p, path, len) == 0 && p[len] == '=') {
            *n = (size_t)(stop - p) - len - 1;
            return p + len + 1;
        }
        p = stop + 1;
    }
    return NULL;
}

static int write_attr_file(const struct sb_dev *d, const char *path, const char *value, size_t n)
{
    int fd = openat(d->folder, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t k = fd < 0 ? -1 : write(fd, n ? value : "\n", n ? n : 1);
    int rc = k < 0 ? hw_fail(-errno, "%s: writing '%.*s' to %s: %s", d->name, (int)HW_MIN(n, (size_t)64), value, path,
                             strerror(errno))
                   : 0;
    hw_close(&fd);
    return rc;
}

/* Writes the lines of `of` that are different or missing in `than`. If zero is set, only writes 0 to the files that are
 * in `of` and missing in `than`. */
static int write_lines(const struct sb_dev *d, const struct sb_blob *of, const struct sb_blob *than, bool zero)
{
    int rc = 0;
    for (const char *p = (const char *)of->p, *end = p + of->n; p < end;) {
        const char *stop = memchr(p, '\n', (size_t)(end - p)), *is = stop ? memchr(p, '=', (size_t)(stop - p)) : NULL;
        char path[PATH_SIZE];
        size_t n = 0;
        if (!is || is - p >= PATH_SIZE)
            return hw_fail(-EBADMSG, "%s: a recorded value does not consist of PATH=TEXT lines for sysfs", d->name);
        snprintf(path, sizeof(path), "%.*s", (int)(is - p), p);
        const char *other = find_line(than, p, (size_t)(is - p), &n), *value = zero ? "0" : is + 1;
        size_t len = zero ? 1 : (size_t)(stop - is) - 1;
        bool differs = zero ? !other : !other || n != len || memcmp(other, value, n) != 0;
        int err = differs ? write_attr_file(d, path, value, len) : 0;
        rc = rc < 0 ? rc : err;
        p = stop + 1;
    }
    return rc;
}

int sb_write_files(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    (void)a;
    int rc = write_lines(d, was, now, false), err = write_lines(d, now, was, true);
    return rc < 0 ? rc : err;
}
