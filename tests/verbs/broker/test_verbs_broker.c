/* SPDX-License-Identifier: Apache-2.0 */
/* Tests opens, requests and file descriptors throughout the verbs broker's lifetime, and how programs and opens end.
 * Uses real programs under the real filter, with real file descriptors and memory. verbs_fake.c replaces the RDMA
 * kernel. */
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ALL "[default]\ndevices = *\n"

/* ------------------------------------------------------------------- opens */

static int basics(void *arg)
{
    uint32_t pd, pd2;
    struct stat st;
    (void)arg;
    int fd = app_open(0);
    must(fd >= VB_FD_FIRST && fd <= VB_FD_LAST);
    must(fcntl(fd, F_GETFD) == FD_CLOEXEC);
    must(fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_nlink == 0);
    int plain = (int)syscall(SYS_open, "/dev/null", O_RDWR, 0);
    must(plain == fd + 1 && fcntl(plain, F_GETFD) == 0);
    must(app_context(fd) == 0);
    must(app_pd(fd, &pd) == 0 && pd == 0);
    must(app_pd(fd, &pd2) == 0 && pd2 == 1);
    must(app_pd(plain, &pd2) == 0 && pd2 == 0); /* object numbers are per open */
    must(app_pd_free(fd, 7) == -ENOENT);        /* the kernel's answer */
    app_step(1);
    must(app_pd_free(fd, pd) == 0 && app_pd_free(fd, 1) == 0);
    /* the program gets the kernel's refusal */
    fake->fail = -ENOMEM;
    must(app_pd(fd, &pd) == -ENOMEM);
    fake->fail = 0;
    app_step(2);
    must(close(plain) == 0);
    app_step(3);
    must(close(fd) == 0);
    app_step(4);
    /* files that are not devices, and other ways to open a device */
    must((fd = open("/dev/full", O_RDWR)) >= 0 && fd < VB_FD_FIRST && close(fd) == 0);
    must(open("/nowhere/at/all", O_RDWR) < 0 && errno == ENOENT);
    must((fd = open("/dev/null", O_RDONLY)) >= 0 && fd < VB_FD_FIRST && close(fd) == 0);
    must((fd = open("/dev/null", O_RDWR | O_CREAT, 0600)) >= VB_FD_FIRST && close(fd) == 0);
    must(open("/dev/null", O_RDWR | O_CREAT | O_EXCL, 0600) < 0 && errno == EEXIST);
    must(open("/dev/null", O_RDWR | O_DIRECTORY) < 0 && errno == ENOTDIR);
    must(syscall(SYS_openat, AT_FDCWD, 8, O_RDWR) < 0 && errno == EFAULT);
    must(chdir("/dev") == 0 && (fd = open("null", O_RDWR)) >= VB_FD_FIRST && close(fd) == 0);
    int dir = open("/", O_RDONLY | O_DIRECTORY);
    must((fd = openat(dir, "dev/null", O_RDWR)) >= VB_FD_FIRST && close(fd) == 0);
    must((fd = openat(999, "/dev/null", O_RDWR)) >= VB_FD_FIRST && close(fd) == 0);
    return 0;
}

static void test_basics(void)
{
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, basics, NULL);
    ok(world_until(&w, 1), "a device is opened at a high number, with the flags asked for; requests run");
    is_int(world_status(&w, "fake0.opens"), 2, "two opens are known");
    is_int(world_status(&w, "fake0.pd"), 3, "and their objects");
    is_int(world_status(&w, "fake1.opens"), -1, "another device is not");
    fake->go = 1;
    ok(world_until(&w, 2), "objects end, and fail");
    is_int(world_status(&w, "fake0.pd"), 1, "an object that ended is taken off, one that failed was never on");
    fake->go = 2;
    ok(world_until(&w, 3) && world_becomes(&w, "fake0.opens", 1), "a closed open ends");
    is_int(world_status(&w, "fake0.pd"), 0, "with its objects");
    fake->go = 3;
    ok(world_until(&w, 4) && world_becomes(&w, "fake0.opens", 0), "and so does the other");
    fake->go = 4;
    is_int(world_app(&w), 0, "opens of all other things are as ever");
    is_int(world_end(&w), 0, "the broker ends when told");
}

static int denied(void *arg)
{
    (void)arg;
    int fd[4];
    must(app_open(1) == -EACCES);
    must((fd[0] = app_open(0)) >= 0 && (fd[1] = app_open(0)) >= 0);
    must(app_open(0) == -ENOMEM);
    /* Closing a device frees its quota at once, although the broker recently held a copy of the file descriptor. */
    for (int i = 0; i < 100; i++) {
        must(app_context(fd[0]) == 0);
        must(close(fd[0]) == 0);
        must((fd[0] = app_open(0)) >= 0);
    }
    struct rlimit low = {256, 256};
    must(close(fd[1]) == 0);
    must(setrlimit(RLIMIT_NOFILE, &low) == 0);
    must(app_open(0) == -EMFILE);
    app_step(1);
    return 0;
}

static void test_denied(void)
{
    struct world w;
    fake_reset();
    world_start(&w, "[default]\ndevices = fake0\nmax_contexts = 2\n", true, denied, NULL);
    world_until(&w, 1);
    is_int(world_status(&w, "refused"), 3, "refusals are counted");
    fake->go = 1;
    is_int(world_app(&w), 0,
           "a device that is not given, and one open too many, are refused; closing makes room at once");
    ok(strstr(world_audit(), "\"fake1\"") && strstr(world_audit(), "1024"), "and audited with their reasons");
    is_int(world_end(&w), 0, "the broker ends");
}

/* the lifetime of an open file description */

static int lives(void *arg)
{
    uint32_t pd;
    int pair[2], fd, fd2;
    (void)arg;
    must((fd = app_open(1)) >= 0 && app_pd(fd, &pd) == 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    must(map != MAP_FAILED);
    must((fd2 = dup(fd)) >= 0 && fd2 < VB_FD_FIRST && close(fd) == 0);
    must(app_pd(fd2, &pd) == 0 && pd == 1); /* the same open file description under another descriptor number */
    app_step(1);                            /* held by a dup and a mapping */
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    must(fd_send(pair[0], fd2) == 0);
    must(close(fd2) == 0 && munmap(map, 4096) == 0);
    app_step(2); /* held by a message in flight */
    must((fd2 = fd_take(pair[1])) >= 0);
    must(app_pd(fd2, &pd) == 0 && pd == 2);
    pid_t child = fork();
    if (child == 0) {
        while (fake->go < 3)
            usleep(1000);
        _exit(app_pd(fd2, &pd) == 0 && pd == 3 ? 0 : 1);
    }
    must(close(fd2) == 0);
    app_step(3); /* held by a child */
    int st;
    must(waitpid(child, &st, 0) == child && st == 0);
    app_step(4);
    must((fd = app_open(1)) >= 0);
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    must(map != MAP_FAILED && close(fd) == 0);
    app_step(5); /* held only by a mapping */
    must(munmap(map, 4096) == 0);
    app_step(6);
    /* The program cannot bypass the broker by reopening the device. */
    char path[64];
    must((fd = app_open(1)) >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    must(open(path, O_RDONLY) < 0 && errno == EACCES);
    must(open(path, O_RDWR) < 0 && errno == EACCES);
    must(open(path, O_WRONLY) < 0 && errno == EACCES);
    must(close(fd) == 0);
    /* If a program is killed, its open devices are closed, too. */
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 5; i++)
            app_pd(app_open(1), &pd);
        raise(SIGKILL);
    }
    must(waitpid(child, &st, 0) == child && WIFSIGNALED(st));
    app_step(7);
    return 0;
}

static void test_lives(void)
{
    static const struct {
        const char *by;
        int pds;
    } held[] = {{"a dup and a mapping", 2}, {"a message under way", 2}, {"a child", 3}};
    struct world w;
    fake_reset();
    world_start(&w, ALL, true, lives, NULL);
    for (int i = 1; i <= 3; i++) {
        ok(world_until(&w, i), "%s", held[i - 1].by);
        usleep(120000); /* longer than the broker keeps its own descriptor */
        is_int(world_status(&w, "fake1.opens"), 1, "holds an open");
        is_int(world_status(&w, "fake1.pd"), held[i - 1].pds, "and its objects");
        fake->go = i;
    }
    ok(world_until(&w, 4) && world_becomes(&w, "fake1.opens", 0), "it ends with the last of them");
    fake->go = 4;
    ok(world_until(&w, 5), "a mapping alone");
    usleep(120000);
    is_int(world_status(&w, "fake1.opens"), 1, "holds an open");
    fake->go = 5;
    ok(world_until(&w, 6) && world_becomes(&w, "fake1.opens", 0), "and it ends with that");
    fake->go = 6;
    ok(world_until(&w, 7) && world_becomes(&w, "fake1.opens", 0), "a program's end is its opens' end");
    fake->go = 7;
    is_int(world_app(&w), 0, "a descriptor cannot be opened again by /proc");
    is_int(world_end(&w), 0, "the broker ends");
}

/* ------------------------------------------------------------- descriptors */

static int descriptors(void *arg)
{
    uint32_t pd;
    uint64_t v = 0;
    int fd, other, ch;
    (void)arg;
    /* the stub keeps running */
    must((fd = app_open(0)) >= 0 && app_pd(fd, &pd) == 0 && close(fd) == 0);
    app_step(1);
    must((fd = app_open(0)) >= 0);
    /* files that the broker does not serve */
    must((other = open("/dev/null", O_RDONLY)) >= 0);
    must(app_pd(other, &pd) == -ENOTTY);
    must(app_pd(-1, &pd) == -EBADF && app_pd(555, &pd) == -EBADF);
    /* reused descriptor numbers: the same number refers to another file, then to another open */
    for (int i = 0; i < 200; i++) {
        must(app_pd(fd, &pd) == 0 && pd == 0);
        must(dup2(other, fd) == fd);
        must(app_pd(fd, &pd) == -ENOTTY);
        must(close(fd) == 0);
        must(app_pd(fd, &pd) == -EBADF);
        must(app_open(0) == fd);
    }
    /* a completion channel: the program receives the kernel's eventfd */
    must((ch = app_channel(fd)) >= 0 && ch < VB_FD_FIRST && fcntl(ch, F_GETFD) == FD_CLOEXEC);
    must(read(ch, &v, sizeof v) == sizeof v && v == 7 && write(ch, &v, sizeof v) == sizeof v);
    /* a CQ request that names the program's descriptor passes the same eventfd to the kernel */
    uint32_t cqe = 0;
    struct ib_uverbs_attr a[] = {
        {.attr_id = UVERBS_ATTR_CREATE_CQ_HANDLE, .flags = 1},
        {.attr_id = UVERBS_ATTR_CREATE_CQ_CQE, .len = 4, .flags = 1, .data = 64},
        {.attr_id = UVERBS_ATTR_CREATE_CQ_USER_HANDLE, .len = 8, .flags = 1, .data = 99},
        {.attr_id = UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, .len = 4, .flags = 1},
        {.attr_id = UVERBS_ATTR_CREATE_CQ_RESP_CQE, .len = 4, .flags = 1, .data = (uintptr_t)&cqe},
        {.attr_id = UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, .flags = 1, .data_s64 = ch},
    };
    must(app_ioctl(fd, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, a, 6) == 0);
    must(cqe == 64 && a[0].data == 0 && a[5].data_s64 == ch && a[4].flags & UVERBS_ATTR_F_VALID_OUTPUT);
    a[5].data_s64 = other;
    must(app_ioctl(fd, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, a, 6) == -EBADF);
    a[5].data_s64 = 777;
    must(app_ioctl(fd, UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, a, 6) == -EBADF);
    struct ib_uverbs_attr async = {.attr_id = UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, .flags = 1};
    must(app_ioctl(fd, UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, &async, 1) == 0);
    must(read((int)async.data, &v, sizeof v) == sizeof v && v == 9);
    /* no descriptor number is free for the channel */
    struct rlimit was, low = {4, 0};
    must(getrlimit(RLIMIT_NOFILE, &was) == 0);
    low.rlim_max = was.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &low) == 0);
    must(app_channel(fd) == -EMFILE);
    must(setrlimit(RLIMIT_NOFILE, &was) == 0);
    /* a child that unshares its file descriptor table is served with its own table */
    pid_t child = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);
    if (child == 0) {
        if (unshare(CLONE_FILES) || dup2(other, fd) != fd || app_pd(fd, &pd) != -ENOTTY)
            _exit(1);
        _exit(0);
    }
    int st;
    must(waitpid(child, &st, 0) == child && st == 0);
    must(app_pd(fd, &pd) == 0);
    must(close(fd) == 0 && close(ch) == 0);
    app_step(2);
    return 0;
}

static void test_descriptors(void)
{
    struct world w;
    fake_reset();
    unsigned wrong = fake->wrong;
    world_start(&w, ALL, true, descriptors, NULL);
    world_until(&w, 1);
    world_status(&w, "opens");
    unsigned before = world_fds(&w);
    fake->go = 1;
    world_until(&w, 2);
    for (int ms = 0; ms < 20000 && world_fds(&w) != before; ms++) /* world_status() would close them, too */
        usleep(1000);
    is_int(world_fds(&w), before, "what the broker had fetched it closes soon");
    ok(world_becomes(&w, "fake0.opens", 0), "all of it ends");
    is_int(world_fds(&w), before, "the broker keeps no descriptor");
    fake->go = 2;
    is_int(world_app(&w), 0, "foreign and recycled descriptors; those in requests are translated there and back");
    is_int(fake->wrong, wrong, "the kernel saw nothing foreign");
    is_int(world_end(&w), 0, "the broker ends");
}

static int pass_to[2];

static int giver(void *arg)
{
    uint32_t pd;
    int fd = app_open(0);
    (void)arg;
    must(fd >= 0 && app_pd(fd, &pd) == 0);
    must(fd_send(pass_to[0], fd) == 0);
    app_step(2);
    must(app_pd(fd, &pd) == 0 && pd == 1);
    return 0;
}

static int taker(void *arg)
{
    uint32_t pd;
    int fd = fd_take(pass_to[1]);
    (void)arg;
    must(fd >= 0);
    must(app_pd(fd, &pd) == -ENOTTY && app_pd_free(fd, 0) == -ENOTTY);
    int high = dup2(fd, VB_FD_LAST);
    must(high == VB_FD_LAST && app_post(high, 0) == 32); /* the kernel handles this write; /dev/null accepts all data */
    return 0;
}

static void test_two(void)
{
    struct world a, b;
    fake_reset();
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pass_to))
        abort();
    world_start(&b, ALL, true, taker, NULL);
    world_start(&a, ALL, true, giver, NULL);
    world_until(&a, 2);
    is_int(world_app(&b), 0, "an open of one container is nothing to another's broker");
    fake->go = 2;
    is_int(world_app(&a), 0, "and its own goes on");
    world_end(&a);
    world_end(&b);
    close(pass_to[0]);
    close(pass_to[1]);
}

int main(void)
{
    fake_start();
    test_basics();
    test_denied();
    test_lives();
    test_descriptors();
    test_two();
    fake_end();
    return tap_done();
}
