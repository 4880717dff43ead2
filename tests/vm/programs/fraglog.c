/* SPDX-License-Identifier: Apache-2.0 */
/* For bench/devmem-frags. Loaded through LD_PRELOAD, logs the results of each recvmsg() call with MSG_SOCK_DEVMEM to
 * the file FRAGLOG: a line "fd FD wanted BYTES", then "OFFSET LENGTH" for each fragment in device memory and "linear
 * LENGTH" for each fragment in ordinary memory. (strace does not decode these control messages.) */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* include/uapi/linux/uio.h and asm-generic/socket.h, include/linux/socket.h of Linux 6.12 */
enum { DEVMEM_LINEAR = 78, DEVMEM_DMABUF = 79, SOCK_DEVMEM = 0x2000000 };
struct frag {
    uint64_t offset;
    uint32_t size, token, dmabuf, flags;
};

__attribute__((noreturn)) static void die(const char *what)
{
    perror(what);
    abort();
}

__attribute__((visibility("default"))) ssize_t recvmsg(int fd, struct msghdr *m, int flags)
{
    ssize_t (*next)(int, struct msghdr *, int);
    char text[64 << 10];
    size_t at = 0;
    void *symbol = dlsym(RTLD_NEXT, "recvmsg");
    const char *path = getenv("FRAGLOG");
    if (!symbol || !path)
        die("fraglog: no recvmsg(), or no FRAGLOG");
    memcpy(&next, &symbol, sizeof(next));
    const ssize_t n = next(fd, m, flags);
    const int e = errno;
    if (n <= 0 || !(flags & SOCK_DEVMEM))
        return n;
    at += (size_t)sprintf(text, "fd %d wanted %zu\n", fd, m->msg_iov[0].iov_len);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        struct frag f;
        if (c->cmsg_level != SOL_SOCKET || (c->cmsg_type != DEVMEM_DMABUF && c->cmsg_type != DEVMEM_LINEAR))
            continue;
        memcpy(&f, CMSG_DATA(c), sizeof(f));
        if (sizeof(text) - at < 64)
            die("fraglog: more pieces than there is room for");
        if (c->cmsg_type == DEVMEM_DMABUF)
            at += (size_t)sprintf(text + at, "%llu %u\n", (unsigned long long)f.offset, f.size);
        else
            at += (size_t)sprintf(text + at, "linear %u\n", f.size);
    }
    int log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (log < 0 || write(log, text, at) != (ssize_t)at)
        die("fraglog");
    close(log);
    errno = e;
    return n;
}
