/* SPDX-License-Identifier: Apache-2.0 */
/* A program for verbs_oci.py that runs under the verbs broker. "all" tries permitted and forbidden actions, and prints
 * a line "NAME RESULT" for each. "wait" opens a file for reading and writing for each line of its standard input, and
 * prints the result. */
#include "base/base.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define UVERBS "/dev/infiniband/uverbs0"

/* LeakSanitizer inspects the process with ptrace(), which the filter forbids. */
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static const char *file; /* an ordinary file that can be created */

static const char *name_of(long rc)
{
    return rc >= 0 ? "ok" : hw_errno_name(errno);
}

static void say(const char *what, long rc)
{
    printf("%s %s\n", what, name_of(rc));
    fflush(stdout);
}

/* Opens an ordinary file for reading and writing, and uses the file. */
static long ordinary(int at)
{
    char back[6] = "";
    int fd = open(file, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    if (at >= 0 && dup2(fd, at) < 0)
        return -1;
    long rc = write(at >= 0 ? at : fd, "hello", 5);
    if (rc == 5 && (pread(fd, back, 5, 0) != 5 || strcmp(back, "hello") != 0)) {
        errno = EBADMSG;
        rc = -1;
    }
    int was = errno;
    close(fd);
    if (at >= 0)
        close(at);
    errno = was;
    return rc;
}

static long opens(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    int was = errno;
    if (fd >= 0)
        close(fd);
    errno = was;
    return fd;
}

/* Tries to open the node in several ways. The filter notifies the broker only of O_RDWR with open() or openat(). */
static void node(const char *what, const char *path)
{
    static const struct {
        const char *name;
        int flags;
    } way[] = {{"rdwr", O_RDWR}, {"wronly", O_WRONLY}, {"rdonly", O_RDONLY}};
    char name[64];
    for (size_t i = 0; i < HW_ARRAY_LEN(way); i++) {
        struct open_how how = {.flags = (uint64_t)way[i].flags | O_CLOEXEC};
        snprintf(name, sizeof(name), "%s_%s", what, way[i].name);
        say(name, opens(path, way[i].flags));
        snprintf(name, sizeof(name), "%s_openat2_%s", what, way[i].name);
        say(name, syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how)));
    }
}

static void *thread(void *arg)
{
    for (int i = 0; i < 50; i++)
        if (opens("/dev/null", O_RDWR) < 0)
            *(int *)arg = errno;
    return NULL;
}

static long threads(void)
{
    pthread_t t[8];
    int err[8] = {0};
    for (int i = 0; i < 8; i++)
        pthread_create(&t[i], NULL, thread, &err[i]);
    for (int i = 0; i < 8; i++) {
        pthread_join(t[i], NULL);
        errno = err[i] ? err[i] : errno;
        err[0] |= err[i];
    }
    return err[0] ? -1 : 0;
}

/* Runs fn in a separate process. Prints "killed" if SIGSYS killed the process, and "lived" otherwise. */
static void dies(const char *what, void (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        fn();
        _exit(0);
    }
    waitpid(pid, &status, 0);
    printf("%s %s\n", what, WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS ? "killed" : "lived");
}

/* Tries ptrace() in a child process. If this process were traced, its parent would have to handle the stops. */
static long traced(void)
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0)
        _exit(ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 ? errno : 0);
    waitpid(pid, &status, 0);
    errno = WEXITSTATUS(status);
    return errno ? -1 : 0;
}

#ifdef __x86_64__
static void i386(void)
{
    long rc;
    __asm__ volatile("int $0x80" : "=a"(rc) : "a"(20) : "memory", "r8", "r9", "r10", "r11"); /* getpid() on i386 */
}

static void x32(void)
{
    (void)syscall(0x40000000 | SYS_getpid);
}
#endif

static void all(void)
{
    struct stat st;
    struct iovec v = {.iov_base = &st, .iov_len = sizeof(st)};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    say("file", ordinary(-1));
    say("file960", ordinary(960));
    say("null", null);
    say("threads", threads());
    say("fork", system("exec 3<>/dev/null") == 0 ? 0 : -1);
    say("verbs_null", ioctl(null, RDMA_VERBS_IOCTL, 0));
    say("verbs_closed", ioctl(999, RDMA_VERBS_IOCTL, 0));
    say("open_missing", opens("/nosuch/file", O_RDWR));
    say("stat_node", stat(UVERBS, &st) == 0 && S_ISCHR(st.st_mode) && major(st.st_rdev) == 231 ? 0 : -1);
    node("node", UVERBS);
    node("node2", "/dev/infiniband/uverbs2");
    node("rdma_cm", "/dev/infiniband/rdma_cm");
    say("ptrace", traced());
    say("vm_readv", process_vm_readv(getpid(), &v, 1, &v, 1, 0));
    say("vm_writev", process_vm_writev(getpid(), &v, 1, &v, 1, 0));
    say("io_uring", syscall(SYS_io_uring_setup, 1, &st));
    say("userfaultfd", syscall(SYS_userfaultfd, 0));
    say("listener", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL));
    say("mknod", mknod("/tmp/hawser-node", S_IFCHR | 0600, makedev(1, 3)));
    say("netlink_rdma", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
    say("netlink_route", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    say("tcp", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
#ifdef __x86_64__
    dies("i386", i386);
    dies("x32", x32);
#endif
    printf("uid %u\n", (unsigned)getuid());
}

int main(int argc, char **argv)
{
    char line[16];
    if (argc != 3)
        return 2;
    file = argv[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(argv[1], "all") == 0)
        all();
    else
        while (fgets(line, sizeof(line), stdin))
            say("null", opens("/dev/null", O_RDWR));
    return 0;
}
