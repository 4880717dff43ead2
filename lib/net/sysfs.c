/* SPDX-License-Identifier: Apache-2.0 */
#include "net/sysfs.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ENTRIES 65536 /* maximum number of entries of one directory */

/* Formats the path, or makes the calling function return -ENAMETOOLONG. */
#define MAKE_PATH(path, fmt)                                                       \
    do {                                                                           \
        va_list ap_;                                                               \
        va_start(ap_, fmt);                                                        \
        int n_ = vsnprintf(path, sizeof(path), fmt, ap_);                          \
        va_end(ap_);                                                               \
        if (n_ < 0 || (size_t)n_ >= sizeof(path))                                  \
            return hw_fail(-ENAMETOOLONG, "%.80s...: the path is too long", path); \
    } while (0)

int hw_root_open(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? hw_fail(-errno, "cannot use %s as the root of a machine's files: %s", dir, strerror(errno)) : fd;
}

static bool is_slash(int root)
{
    struct stat a, b;
    return fstat(root, &a) == 0 && stat("/", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Opens path within root. Returns a descriptor, or a negative errno without an error text. */
static int open_in(int root, const char *path, int flags)
{
    int fd = hw_openat2(root, *path ? path : ".", flags, RESOLVE_IN_ROOT);
    /* without openat2() (before Linux 5.6, and in sandboxes that block the call) only "/" can be read */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM) && is_slash(root))
        fd = openat(root, *path ? path : ".", flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int open_failed(int rc, const char *path)
{
    if (rc == -ENOSYS)
        return hw_fail(rc, "%s: reading a snapshot needs openat2(), Linux 5.6 or later", path);
    return hw_fail(rc, "%s: %s", path, strerror(-rc));
}

static int read_text(int root, const char *path, char *buf, size_t cap)
{
    /* nonblocking, because a FIFO in a snapshot must not block the reader */
    int fd = open_in(root, path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return open_failed(fd, path);
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        hw_close(&fd);
        return hw_fail(-EINVAL, "%s: not a regular file", path);
    }
    size_t n = 0;
    int rc = 0;
    while (n < cap) {
        ssize_t got = read(fd, buf + n, cap - n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            rc = hw_fail(-errno, "%s: %s", path, strerror(errno));
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    hw_close(&fd);
    if (rc < 0)
        return rc;
    if (n == cap)
        return hw_fail(-E2BIG, "%s: longer than %zu bytes", path, cap - 1);
    if (memchr(buf, 0, n))
        return hw_fail(-EINVAL, "%s: not a text file", path);
    while (n > 0 && isspace((unsigned char)buf[n - 1]))
        n--;
    buf[n] = 0;
    size_t lead = strspn(buf, " \t\r\n\v\f");
    memmove(buf, buf + lead, n - lead + 1);
    return n == lead ? hw_fail(-ENODATA, "%s: empty", path) : (int)(n - lead);
}

int hw_root_fd(int root, int flags, const char *fmt, ...)
{
    char path[PATH_MAX];
    MAKE_PATH(path, fmt);
    int fd = open_in(root, path, flags);
    return fd < 0 ? open_failed(fd, path) : fd;
}

int hw_root_text(int root, char *buf, size_t cap, const char *fmt, ...)
{
    char path[PATH_MAX];
    MAKE_PATH(path, fmt);
    return read_text(root, path, buf, cap);
}

int hw_text_u64(const char *text, uint64_t *out)
{
    int base = text[0] == '0' && (text[1] == 'x' || text[1] == 'X') ? 16 : 10;
    const char *digits = text + (base == 16 ? 2 : 0);
    char *end;
    errno = 0;
    unsigned long long v = strtoull(digits, &end, base);
    /* strtoull() would also accept blanks, signs and a second 0x */
    if (!isxdigit((unsigned char)*digits) || end == digits || *end || errno || (base == 16 && strpbrk(digits, "xX")))
        return hw_fail(-EINVAL, "'%.40s' is not a whole number", text);
    *out = v;
    return 0;
}

int hw_text_i64(const char *text, int64_t *out)
{
    uint64_t v = 0;
    bool minus = *text == '-';
    int rc = hw_text_u64(text + minus, &v);
    if (rc < 0 || v > (uint64_t)INT64_MAX)
        return hw_fail(-EINVAL, "'%.40s' is not a whole number of at most 63 bits", text);
    *out = minus ? -(int64_t)v : (int64_t)v;
    return 0;
}

/* Parses a CPU's number of at most 7 digits at *p, and moves *p past the number. Returns false for any other text. */
static bool cpu_at(const char **p, unsigned *out)
{
    unsigned v = 0, n = 0;
    for (; isdigit((unsigned char)**p) && n < 8; n++, (*p)++)
        v = 10 * v + (unsigned)(**p - '0');
    *out = v;
    return n > 0 && n < 8;
}

int hw_text_cpulist(const char *text, cpu_set_t *out, size_t *count)
{
    cpu_set_t set;
    size_t n = 0;
    unsigned next = 0; /* the lowest number that may follow */
    CPU_ZERO(&set);
    for (const char *p = text;;) {
        unsigned a, b;
        bool good = cpu_at(&p, &a);
        b = a;
        if (good && *p == '-') {
            p++;
            good = cpu_at(&p, &b);
        }
        if (!good || a < next || b < a || (*p && *p != ','))
            return hw_fail(-EINVAL, "'%.60s' is not a list of CPUs such as 0-3,8-11", text);
        for (unsigned c = a; c <= b && c < CPU_SETSIZE; c++)
            CPU_SET(c, &set);
        n += b - a + 1;
        next = b + 1;
        if (!*p)
            break;
        p++;
    }
    *out = set;
    *count = n;
    return 0;
}

int hw_root_u64(int root, uint64_t *out, const char *fmt, ...)
{
    char path[PATH_MAX], text[64];
    MAKE_PATH(path, fmt);
    int rc = read_text(root, path, text, sizeof(text));
    if (rc < 0)
        return rc;
    rc = hw_text_u64(text, out);
    return rc < 0 ? hw_wrap(rc, "%s", path) : 0;
}

int hw_root_i64(int root, int64_t *out, const char *fmt, ...)
{
    char path[PATH_MAX], text[64];
    MAKE_PATH(path, fmt);
    int rc = read_text(root, path, text, sizeof(text));
    if (rc < 0)
        return rc;
    rc = hw_text_i64(text, out);
    return rc < 0 ? hw_wrap(rc, "%s", path) : 0;
}

static int read_root_link(int root, const char *path, char *buf, size_t cap)
{
    int fd = open_in(root, path, O_PATH | O_NOFOLLOW);
    if (fd < 0)
        return open_failed(fd, path);
    ssize_t n = readlinkat(fd, "", buf, cap);
    int err = n < 0 ? errno : 0;
    hw_close(&fd);
    if (n < 0) /* readlink(2) of an empty path fails with ENOENT if the object is not a link */
        return hw_fail(-EINVAL, "%s: %s", path, err == ENOENT ? "not a symbolic link" : strerror(err));
    if (n == 0 || (size_t)n >= cap)
        return n ? hw_fail(-E2BIG, "%s: the target of this symbolic link has %zu bytes or more", path, cap)
                 : hw_fail(-ENODATA, "%s: the target of this symbolic link is empty", path);
    buf[n] = 0;
    return (int)n;
}

int hw_root_link(int root, char *buf, size_t cap, const char *fmt, ...)
{
    char path[PATH_MAX];
    MAKE_PATH(path, fmt);
    return read_root_link(root, path, buf, cap);
}

int hw_root_link_name(int root, char *buf, size_t cap, const char *fmt, ...)
{
    char path[PATH_MAX], target[PATH_MAX];
    MAKE_PATH(path, fmt);
    int rc = read_root_link(root, path, target, sizeof(target));
    if (rc < 0)
        return rc;
    const char *slash = strrchr(target, '/'), *name = slash ? slash + 1 : target;
    size_t n = strlen(name);
    if (n == 0 || n >= cap)
        return hw_fail(n ? -E2BIG : -EINVAL, "%s: a symbolic link to '%.80s', %s", path, target,
                       n ? "whose last part is too long" : "which does not end in a name");
    memcpy(buf, name, n + 1);
    return (int)n;
}

bool hw_root_has(int root, const char *fmt, ...)
{
    char path[PATH_MAX];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(path, sizeof(path), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(path))
        return false;
    int fd = open_in(root, path, O_PATH);
    bool has = fd >= 0;
    hw_close(&fd);
    return has;
}

static int by_version(const void *a, const void *b)
{
    return strverscmp(*(char *const *)a, *(char *const *)b);
}

static int list_into(DIR *d, const char *path, struct hw_names *out)
{
    size_t room = 0;
    for (const struct dirent *e; errno = 0, (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (out->n == MAX_ENTRIES)
            return hw_fail(-E2BIG, "%s: more than %d entries", path, MAX_ENTRIES);
        if (out->n == room) {
            room = HW_MAX(2 * room, (size_t)16);
            char **more = realloc(out->name, room * sizeof(*more));
            if (!more)
                return hw_no_memory("the entries of %s", path);
            out->name = more;
        }
        out->name[out->n] = strdup(e->d_name);
        if (!out->name[out->n])
            return hw_no_memory("the entries of %s", path);
        out->n++;
    }
    if (errno)
        return hw_fail(-errno, "%s: %s", path, strerror(errno));
    if (out->n > 1)
        qsort(out->name, out->n, sizeof(*out->name), by_version);
    return 0;
}

int hw_root_list(int root, struct hw_names *out, const char *fmt, ...)
{
    *out = (struct hw_names){0};
    char path[PATH_MAX];
    MAKE_PATH(path, fmt);
    int fd = open_in(root, path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return open_failed(fd, path);
    DIR *d = fdopendir(fd);
    if (!d) {
        int rc = hw_fail(-errno, "%s: %s", path, strerror(errno));
        hw_close(&fd);
        return rc;
    }
    int rc = list_into(d, path, out);
    closedir(d);
    return rc;
}

void hw_names_free(struct hw_names *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->name[i]);
    free(l->name);
    *l = (struct hw_names){0};
}
