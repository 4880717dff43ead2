/* SPDX-License-Identifier: Apache-2.0 */
/* Functions for the mount system calls of Linux 5.2 and for mount_setattr() of Linux 5.12. glibc has provided these
 * functions since 2.36, but the Python wheel must also run with an older glibc. They are not compiled if the C library
 * provides them. */
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsopen(const char *fs_name, unsigned flags)
{
    return (int)syscall(SYS_fsopen, fs_name, flags);
}

int fsconfig(int fd, unsigned cmd, const char *key, const void *value, int aux)
{
    return (int)syscall(SYS_fsconfig, fd, cmd, key, value, aux);
}

int fsmount(int fd, unsigned flags, unsigned attributes)
{
    return (int)syscall(SYS_fsmount, fd, flags, attributes);
}

int open_tree(int dir, const char *path, unsigned flags)
{
    return (int)syscall(SYS_open_tree, dir, path, flags);
}

int move_mount(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return (int)syscall(SYS_move_mount, from_dir, from, to_dir, to, flags);
}

int mount_setattr(int dir, const char *path, unsigned flags, struct mount_attr *attributes, size_t size)
{
    return (int)syscall(SYS_mount_setattr, dir, path, flags, attributes, size);
}
