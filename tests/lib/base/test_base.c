/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the basic macros: HW_MIN and HW_MAX, guards, and HW_KEEP_ERROR. */
#include "base/base.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <unistd.h>

static int count_call(int *calls, int value)
{
    ++*calls;
    return value;
}

static void evaluate_once(void)
{
    int calls = 0;
    ok(HW_MIN(count_call(&calls, -1), 0) == -1 && calls == 1, "HW_MIN calls its first argument once");
    calls = 0;
    ok(HW_MAX(0, count_call(&calls, 7)) == 7 && calls == 1, "HW_MAX calls its second argument once");
    calls = 0;
    ok(HW_MIN(HW_MAX(count_call(&calls, 3), 2), count_call(&calls, 9)) == 3 && calls == 2, "one within another, too");
    ok(HW_MAX((uint64_t)1 << 40, 5u) == (uint64_t)1 << 40, "the wider type is the result's");
}

static int fail_with_guards(int *fd_was)
{
    HW_AUTO_FREE char *text = strdup("freed on the way out");
    HW_AUTO_CLOSE int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *fd_was = fd;
    int rc = hw_fail(-EIO, "what went wrong: %s", text ? text : "");
    HW_KEEP_ERROR();
    (void)hw_fail(-EPERM, "what its undoing said");
    return rc;
}

static void guards(void)
{
    int fd = -1;
    int rc = fail_with_guards(&fd);
    ok(rc == -EIO && strstr(hw_error(), "what went wrong"), "the error text is the first one: %s", hw_error());
    ok(fd >= 0 && fcntl(fd, F_GETFD) < 0 && errno == EBADF, "the descriptor is closed");
}

int main(void)
{
    evaluate_once();
    guards();
    return tap_done();
}
