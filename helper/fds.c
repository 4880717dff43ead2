/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A descriptor from a stranger may be a file of a file system that he runs himself (FUSE): fstat(), lseek(), ioctl()
 * and even close() of it ask that file system, and wait for an answer that never needs to come. So, before anything
 * else, what it is gets asked in ways that such a file system has no say in; and what is neither a socket nor a dma-buf
 * is closed by a thread that may hang for it.
 */
#include "helper/fds.h"

#include <linux/sockios.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* The lines that the dma-buf code itself writes (dma_buf_show_fdinfo(), drivers/dma-buf/dma-buf.c). */
static bool is_dmabuf(int fd)
{
    char path[40], line[128];
    bool size = false, exporter = false;
    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        size |= strncmp(line, "size:\t", 6) == 0;
        exporter |= strncmp(line, "exp_name:\t", 10) == 0;
    }
    if (f)
        (void)fclose(f);
    return size && exporter;
}

static bool is_socket(int fd)
{
    int type;
    socklen_t len = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0;
}

int hd_fd_dmabuf_size(int fd, uint64_t *size)
{
    *size = 0;
    if (!is_dmabuf(fd))
        return hw_fail(-EBADF, "the descriptor that came with the request is no dma-buf");
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return hw_fail(-errno, "the size of the dma-buf: %s", hw_errno_name(errno));
    *size = (uint64_t)end;
    return 0;
}

int hd_fd_ends(int fd, union hw_addr *local, union hw_addr *remote, uint64_t *inode)
{
    struct stat st = {0};
    int domain = 0, type = 0, protocol = 0;
    socklen_t a = sizeof(domain), b = sizeof(type), c = sizeof(protocol);
    memset(local, 0, sizeof(*local));
    memset(remote, 0, sizeof(*remote));
    *inode = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &a) < 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &b) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &c) < 0 || (domain != AF_INET && domain != AF_INET6) ||
        type != SOCK_STREAM || protocol != IPPROTO_TCP)
        return hw_fail(-EINVAL, "the descriptor that came with the request is no TCP socket");
    int rc = hd_fd_same_netns(fd);
    if (rc)
        return rc;
    socklen_t l = sizeof(*local), r = sizeof(*remote);
    if (getsockname(fd, &local->sa, &l) < 0 || getpeername(fd, &remote->sa, &r) < 0)
        return hw_fail(errno == ENOTCONN ? -ENOTCONN : -errno,
                       "only a connected socket can be steered: its other end says whose packets are meant");
    if (fstat(fd, &st) < 0) /* of a socket, which asks nobody */
        return hw_fail(-errno, "the inode of a socket: %s", hw_errno_name(errno));
    *inode = st.st_ino;
    hw_addr_unmap(local);
    hw_addr_unmap(remote);
    return local->sa.sa_family == remote->sa.sa_family ? 0 : hw_fail(-EINVAL, "a socket with ends of two families");
}

/*
 * The namespace that the socket was made in, by SIOCGSKNS. For a client that is the socket accepted from it, which the
 * kernel makes in the namespace of the one that connects (net/unix/af_unix.c, unix_stream_connect()). Its process's
 * /proc/PID/ns/net would not do: to read that of another user takes CAP_SYS_PTRACE, and the process may have ended and
 * its number be another's. EPERM comes where the namespace belongs to another user namespace than ours or one below.
 */
int hd_fd_same_netns(int fd)
{
    struct stat theirs = {0}, ours = {0};
    int ns = ioctl(fd, SIOCGSKNS);
    if (ns < 0)
        return errno == EPERM ? hw_fail(-EXDEV, "it belongs to a network namespace that is none of hawserd's")
                              : hw_fail(-errno, "asking for a socket's network namespace: %s", hw_errno_name(errno));
    int rc = fstat(ns, &theirs) < 0 || stat("/proc/self/ns/net", &ours) < 0 ? -errno : 0;
    hw_close(&ns);
    if (rc)
        return hw_fail(rc, "asking for a socket's network namespace: %s", hw_errno_name(rc));
    if (theirs.st_dev != ours.st_dev || theirs.st_ino != ours.st_ino)
        return hw_fail(-EXDEV, "it belongs to another network namespace than hawserd: each needs a hawserd of its own");
    return 0;
}

#define SHED_MAX 16 /* threads that hang */
static atomic_int shedding;

static void *shed(void *arg)
{
    close((int)(intptr_t)arg);
    atomic_fetch_sub(&shedding, 1);
    return NULL;
}

void hd_fd_shed(int *fd)
{
    pthread_t t;
    pthread_attr_t a;
    if (*fd < 0 || is_socket(*fd) || is_dmabuf(*fd)) {
        hw_close(fd);
        return;
    }
    /* With so many hanging already, the descriptor stays open: that costs a number, and its sender his connection. */
    if (atomic_fetch_add(&shedding, 1) >= SHED_MAX || pthread_attr_init(&a) != 0) {
        atomic_fetch_sub(&shedding, 1);
    } else {
        pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
        if (pthread_create(&t, &a, shed, (void *)(intptr_t)*fd) != 0)
            atomic_fetch_sub(&shedding, 1);
        pthread_attr_destroy(&a);
    }
    *fd = -1;
}
