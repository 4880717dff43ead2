/* SPDX-License-Identifier: Apache-2.0 */
#include "odd.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void must(int rc, const char *what)
{
    if (rc >= 0)
        return;
    perror(what);
    abort();
}

static int connected(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(bind(l, (struct sockaddr *)&a, len), "bind");
    must(listen(l, 1), "listen");
    must(getsockname(l, (struct sockaddr *)&a, &len), "getsockname");
    must(connect(fd, (struct sockaddr *)&a, len), "connect");
    must(accept4(l, NULL, NULL, SOCK_CLOEXEC), "accept"); /* nobody reads or closes the accepted socket */
    close(l);
    return fd;
}

int odd_lingering(void)
{
    static char zeros[65536];
    struct linger hour = {.l_onoff = 1, .l_linger = 3600};
    int fd = connected();
    must(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), "SO_LINGER");
    while (send(fd, zeros, sizeof(zeros), MSG_DONTWAIT) > 0)
        ;
    return fd;
}

void odd_close(int fd)
{
    struct linger l = {0};
    socklen_t len = sizeof(l);
    pid_t pid = -1;
    if (getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &len) == 0 && l.l_onoff && l.l_linger)
        pid = fork();
    if (pid == 0) {
        usleep(20000); /* time for the parent to close its copy */
        _exit(0);
    }
    close(fd);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* ---- pages that never arrive --------------------------------------------------------------------- */

/* Returns a page that never arrives, so every access to it hangs. Returns NULL if this is impossible here. */
static void *missing_page(void)
{
    static int keep;
    struct uffdio_api api = {.api = UFFD_API};
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct uffdio_register r = {.range = {(uintptr_t)page, 4096}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    keep = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (keep >= 0 && ioctl(keep, UFFDIO_API, &api) == 0 && ioctl(keep, UFFDIO_REGISTER, &r) == 0)
        return page;
    return NULL;
}

static void *page;
static int busy = -1;

static void *send_page(void *arg)
{
    (void)send(busy, page, 4096, MSG_NOSIGNAL);
    return arg;
}

static void *wait_page(void *arg)
{
    (void)epoll_wait(busy, page, 4, -1);
    return arg;
}

static int make_busy(int fd, void *(*fn)(void *))
{
    pthread_t t;
    page = missing_page();
    if (!page) {
        close(fd);
        return -1;
    }
    busy = fd;
    must(-pthread_create(&t, NULL, fn, NULL), "a thread");
    pthread_detach(t);
    usleep(300 * 1000); /* time for the call to block; there is no better indication */
    return fd;
}

int odd_locked_socket(void)
{
    return make_busy(connected(), send_page);
}

int odd_locked_epoll(void)
{
    int p[2], ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN};
    must(pipe2(p, O_CLOEXEC), "pipe");
    must((int)write(p[1], "x", 1), "write");
    must(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e), "epoll_ctl");
    return make_busy(ep, wait_page);
}

/* ---- a FUSE file system -------------------------------------------------------------------------- */

static pid_t server;

static void reply(int dev, uint64_t unique, int error, const void *body, size_t len)
{
    char buf[512];
    struct fuse_out_header h = {.len = (uint32_t)(sizeof(h) + len), .error = error, .unique = unique};
    memcpy(buf, &h, sizeof(h));
    if (len)
        memcpy(buf + sizeof(h), body, len);
    (void)!write(dev, buf, sizeof(h) + len);
}

/* Serves a directory in which every name refers to the same file. Opening the file succeeds, but closing it hangs. */
static void serve_files(int dev)
{
    static char buf[1 << 20];
    for (;;) {
        ssize_t n = read(dev, buf, sizeof(buf));
        const struct fuse_in_header *h = (const struct fuse_in_header *)buf;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)sizeof(*h))
            _exit(0);
        bool root = h->nodeid == FUSE_ROOT_ID;
        struct fuse_attr attr = {
            .ino = h->nodeid, .mode = root ? S_IFDIR | 0755 : S_IFREG | 0666, .nlink = 1, .size = 4096};
        struct fuse_init_out init = {
            .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = 4096};
        struct fuse_attr_out attr_out = {.attr_valid = 3600, .attr = attr};
        struct fuse_entry_out entry = {.nodeid = 2, .entry_valid = 3600, .attr_valid = 3600, .attr = attr};
        struct fuse_open_out opened = {.fh = 1};
        entry.attr.mode = S_IFREG | 0666;
        if (h->opcode == FUSE_INIT)
            reply(dev, h->unique, 0, &init, sizeof(init));
        else if (h->opcode == FUSE_GETATTR)
            reply(dev, h->unique, 0, &attr_out, sizeof(attr_out));
        else if (h->opcode == FUSE_LOOKUP)
            reply(dev, h->unique, 0, &entry, sizeof(entry));
        else if (h->opcode == FUSE_OPEN || h->opcode == FUSE_OPENDIR)
            reply(dev, h->unique, 0, &opened, sizeof(opened));
        else if (h->opcode != FUSE_FLUSH && h->opcode != FUSE_INTERRUPT && h->opcode != FUSE_FORGET)
            reply(dev, h->unique, -ENOSYS, NULL, 0);
    }
}

/* Mounts the file system in a separate mount namespace, which exists until the process exits, and serves the file
 * system. */
static void start_server(int pipe_to)
{
    char dir[] = "/tmp/hawserd-fuse-XXXXXX", file[64], options[96];
    int dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dev < 0 || !mkdtemp(dir) || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        _exit(1);
    snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev);
    int rc = mount("hawserd-test", dir, "fuse", MS_NOSUID | MS_NODEV, options);
    pid_t opener = rc < 0 ? -1 : fork(); /* this process serves the child's open() */
    if (opener == 0) {
        char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0}, c = 0;
        struct iovec iov = {.iov_base = &c, .iov_len = 1};
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        close(dev);
        snprintf(file, sizeof(file), "%s/file", dir);
        int fd = open(file, O_RDWR | O_CLOEXEC);
        (void)umount2(dir, MNT_DETACH); /* the file system exists while the file is open */
        rmdir(dir);
        if (fd < 0)
            _exit(1);
        *h = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(h), &fd, sizeof(fd));
        (void)sendmsg(pipe_to, &m, 0);
        _exit(0); /* hangs while the kernel closes the file */
    }
    close(pipe_to);
    if (opener < 0) {
        rmdir(dir);
        _exit(1);
    }
    serve_files(dev);
}

int odd_fuse_start(void)
{
    int p[2];
    char c;
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p), "socketpair");
    server = fork();
    if (server == 0) {
        close(p[0]);
        start_server(p[1]);
    }
    close(p[1]);
    if (recv(p[0], &c, 1, MSG_PEEK) == 1)
        return p[0];
    close(p[0]);
    odd_fuse_end();
    return -1;
}

int odd_fuse_take(int from)
{
    char control[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0}, c;
    struct iovec iov = {.iov_base = &c, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd = -1;
    if (recvmsg(from, &m, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&m))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
    return fd;
}

void odd_fuse_end(void)
{
    if (server > 0) {
        kill(server, SIGKILL);
        waitpid(server, NULL, 0);
    }
    server = 0;
}
