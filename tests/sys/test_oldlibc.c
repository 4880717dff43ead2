/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the replacements for newer glibc functions, which meson.build renames for this test. The replacements must
 * return the same names as glibc's functions, and must fail with the same errors. */
#include "tests/tap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>

const char *old_strerrorname_np(int err);
const char *old_sigabbrev_np(int sig);
int old_fsopen(const char *fs_name, unsigned flags);
int old_fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux);
int old_fsmount(int fd, unsigned flags, unsigned attributes);
int old_open_tree(int dir, const char *path, unsigned flags);
int old_move_mount(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int old_mount_setattr(int dir, const char *path, unsigned flags, struct mount_attr *attributes, size_t size);

static bool same_name(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static void names(void)
{
    int bad_errno = 0, bad_signal = 0;
    for (int i = -2; i < 200; i++) {
        bad_errno += !same_name(old_strerrorname_np(i), strerrorname_np(i));
        bad_signal += !same_name(old_sigabbrev_np(i), sigabbrev_np(i));
    }
    ok(bad_errno == 0, "errors have glibc's names (%d differ)", bad_errno);
    ok(bad_signal == 0, "signals have glibc's names (%d differ)", bad_signal);
}

/* Checks that glibc's function and the replacement fail with the same error, whatever privileges this process has. */
#define same_failure(function, ...)                                                                                    \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        int theirs = function(__VA_ARGS__), their_errno = errno;                                                       \
        errno = 0;                                                                                                     \
        int ours = old_##function(__VA_ARGS__), our_errno = errno;                                                     \
        ok(theirs == -1 && ours == -1 && their_errno == our_errno, #function ": %s, %s", strerrorname_np(their_errno), \
           strerrorname_np(our_errno));                                                                                \
    } while (0)

static void mounts(void)
{
    struct mount_attr none = {0};
    same_failure(fsopen, "no such file system", 0);
    same_failure(fsconfig, -1, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    same_failure(fsmount, -1, FSMOUNT_CLOEXEC, 0);
    same_failure(open_tree, -1, "/no such folder", OPEN_TREE_CLOEXEC);
    same_failure(move_mount, -1, "/no such folder", -1, "/none either", 0);
    same_failure(mount_setattr, -1, "/no such folder", 0, &none, 1);
}

int main(void)
{
    names();
    mounts();
    return tap_done();
}
