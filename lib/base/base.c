/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

__thread bool hw_own_thread;
static __thread char err_text[HW_ERR_TEXT];

/* Replaces control characters. Control characters in text from a peer could break the one-line format of logs, or
 * control a terminal. */
static void one_line(void)
{
    for (char *c = err_text; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
}

int hw_fail(int rc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err_text, sizeof(err_text), fmt, ap);
    va_end(ap);
    one_line();
    return rc;
}

int hw_no_memory(const char *fmt, ...)
{
    char what[HW_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    return hw_fail(-ENOMEM, "out of memory for %s", what);
}

int hw_wrap(int rc, const char *fmt, ...)
{
    char whole[2 * HW_ERR_TEXT];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(whole, HW_ERR_TEXT, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : HW_MIN((size_t)n, (size_t)HW_ERR_TEXT - 1);
    snprintf(whole + at, sizeof(whole) - at, ": %s", err_text);
    memcpy(err_text, whole, HW_ERR_TEXT - 1); /* the end may be cut off; the buffer's last byte is already a NUL */
    one_line();
    return rc;
}

int hw_fail_copy(int rc, const char *line)
{
    return hw_fail(rc, "%s", line);
}

const char *hw_error(void)
{
    return err_text;
}

struct hw_error_kept hw_error_take(void)
{
    struct hw_error_kept k;
    memcpy(k.text, err_text, sizeof(k.text));
    return k;
}

void hw_error_put(const struct hw_error_kept *k)
{
    memcpy(err_text, k->text, sizeof(err_text));
}

const char *hw_errno_name(int err)
{
    const char *n = strerrorname_np(err < 0 ? -err : err);
    return n ? n : "unknown error";
}

const char *hw_errno_text(int err)
{
    return strerror(err < 0 ? -err : err);
}

void hw_log(const struct hw_logger *l, int level, const char *fmt, ...)
{
    if (!l->fn || level > l->level)
        return;
    int saved = errno;
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    l->fn(l->arg, level, line);
    errno = saved;
}

int hw_openat2(int dir, const char *path, int flags, uint64_t resolve)
{
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC, .resolve = resolve};
    int fd, tries = 0;
    do
        fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    while (fd < 0 && errno == EAGAIN && ++tries < 10000);
    return fd;
}

void hw_close(int *fd)
{
    if (*fd < 0)
        return;
    int saved = errno;
    close(*fd); /* not repeated after EINTR, because Linux has closed the descriptor in any case */
    *fd = -1;
    errno = saved;
}

void hw_free(void *p)
{
    void *at;
    memcpy(&at, p, sizeof(at)); /* p points to a pointer of any type */
    free(at);
    memset(p, 0, sizeof(at));
}
