/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_attack: processes and threads that start, exit, are stopped and are killed; two containers; quotas. */
#include "verbs_attack.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>

static void ended_well(pid_t pid)
{
    int status = -1;
    CHECK(reap(pid, &status) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0, "child: status %#x", status);
}

void life(void)
{
    uint32_t mr, cq, qp;
    CHECK(reg_mr(dev, pd, area, 65536, &mr) == 0, "REG_MR");
    CHECK(create_cq(dev, &cq) == 0, "CREATE_CQ");
    CHECK(create_qp(dev, pd, cq, 16, &qp) == 0, "CREATE_QP");
}

void pairs(unsigned n, double seconds)
{
    const uint64_t before = pinned();
    const double end = now() + seconds;
    uint32_t mr;
    unsigned i = 0;
    for (; i < n && now() < end; i++) {
        const int rc = reg_mr(dev, pd, area + (i & 7) * 4096, 4096 + (i & 3) * 4096, &mr);
        CHECK(rc == 0, "REG_MR %u: %d", i, rc);
        CHECK(dereg_mr(dev, mr) == 0, "DEREG %u", i);
    }
    CHECK(pinned() == before, "something is pinned");
    if (n > 10)
        printf("%u pairs\n", i);
}

static int clone_child(void *arg)
{
    (void)arg;
    pairs(5, 1e9);
    return 0;
}

void forks(char **argv)
{
    uint32_t mine, theirs;
    char numbers[2][16], inherited[] = "inherited", alone[] = "life", stack[1 << 16] __attribute__((aligned(16)));
    CHECK(reg_mr(dev, pd, area, 4096, &mine) == 0, "the parent's");
    pid_t pid = fork();
    if (pid == 0) {
        pairs(5, 1e9); /* in a separate mm, through the same open file */
        CHECK(reg_mr(dev, pd, area, 4096, &theirs) == 0, "the child's");
        _exit(0);
    }
    ended_well(pid);
    snprintf(numbers[0], 16, "%d", dev);
    snprintf(numbers[1], 16, "%u", pd);
    fcntl(dev, F_SETFD, 0);
    pid = fork();
    if (pid == 0) { /* the open file remains open across exec */
        execv("/proc/self/exe", (char *[]){argv[0], inherited, numbers[0], numbers[1], NULL});
        _exit(9);
    }
    ended_well(pid);
    pid = vfork(); // NOLINT(clang-analyzer-security.insecureAPI.vfork): this test needs vfork()
    if (pid == 0) {
        execv("/proc/self/exe", (char *[]){argv[0], alone, NULL});
        _exit(9);
    }
    ended_well(pid);
    pid = clone(clone_child, stack + sizeof(stack), CLONE_VM | SIGCHLD, NULL); /* another process with the same mm */
    CHECK(pid > 0, "clone");
    ended_well(pid);
    CHECK(dereg_mr(dev, mine) == 0, "the parent's is still there");
    pairs(3, 1e9);
}

static void *pairs_thread(void *arg)
{
    uint32_t mr = 0;
    uint8_t *mine = area + (uintptr_t)arg * 65536;
    for (int i = 0; i < 20; i++) {
        CHECK(reg_mr(dev, pd, mine, 4096, &mr) == 0, "REG_MR");
        CHECK(dereg_mr(dev, mr) == 0, "DEREG");
    }
    return NULL;
}

void threads(unsigned n)
{
    pthread_t t[64];
    for (uintptr_t i = 0; i < n && i < 64; i++)
        CHECK(pthread_create(&t[i], NULL, pairs_thread, (void *)i) == 0, "thread");
    for (unsigned i = 0; i < n && i < 64; i++)
        pthread_join(t[i], NULL);
    CHECK(pinned() == 0, "pinned");
}

/* Kills children at random times. On a machine that pauses, the broker may be too slow for a child, which then exits
 * before it is killed. */
void kills(unsigned n, unsigned seed)
{
    unsigned died = 0;
    for (unsigned i = 0; i < n; i++) {
        const pid_t pid = fork();
        if (pid == 0) {
            for (;;) {
                dev = open_context();
                pd = alloc_pd(dev);
                life();
                pairs(3, 1e9);
                close(dev);
            }
        }
        usleep((useconds_t)rand_r(&seed) % 60000);
        kill(pid, SIGKILL);
        int status;
        reap(pid, &status);
        died += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    }
    printf("%u of %u children killed\n", died, n);
    CHECK(died > n / 2, "too few");
    pairs(3, 1e9);
}

static volatile sig_atomic_t alarms;
static void on_alarm(int signal)
{
    (void)signal;
    alarms++;
}

/* If a reply is lost, the program never learns of the registration, so the memory stays pinned. */
void signals(double seconds)
{
    const struct sigaction a = {.sa_handler = on_alarm};
    const struct itimerval t = {{0, 3000}, {0, 3000}}, none = {0};
    uint32_t mr = 0;
    uint32_t cq, qp;
    unsigned made = 0, interrupted = 0;
    sigaction(SIGALRM, &a, NULL);
    CHECK(create_cq(dev, &cq) == 0, "CREATE_CQ");
    setitimer(ITIMER_REAL, &t, NULL);
    for (const double end = now() + seconds; now() < end;) {
        int rc = reg_mr(dev, pd, area, 4096, &mr);
        interrupted += rc == -EINTR;
        CHECK(rc == 0 || rc == -EINTR, "REG_MR %d", rc);
        while (rc == 0 && (rc = dereg_mr(dev, mr)) == -EINTR)
            rc = 0;
        CHECK(rc == 0 || rc == -EINTR, "DEREG %d", rc);
        rc = create_qp(dev, pd, cq, 16, &qp);
        interrupted += rc == -EINTR;
        CHECK(rc == 0 || rc == -EINTR, "CREATE_QP %d", rc);
        while (rc == 0 && (rc = destroy_qp(dev, qp)) == -EINTR)
            rc = 0;
        CHECK(rc == 0 || rc == -EINTR, "DESTROY_QP %d", rc);
        made++;
    }
    setitimer(ITIMER_REAL, &none, NULL);
    printf("%u made, %d signals, %u interrupted, %llu bytes pinned\n", made, (int)alarms, interrupted,
           (unsigned long long)pinned());
    CHECK(made && alarms && pinned() == 0, "a reply was lost");
}

void stops(double seconds)
{
    const pid_t pid = fork();
    if (pid == 0) {
        for (const double end = now() + seconds; now() < end;)
            pairs(3, 1e9);
        _exit(0);
    }
    int status;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        kill(pid, SIGSTOP);
        usleep(7000);
        kill(pid, SIGCONT);
        usleep(11000);
    }
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", status);
}

/* Tests the user's own limit on locked memory, which the kernel enforces. */
void memlock(void)
{
    const struct rlimit limit = {65536, 65536};
    uint32_t mr = 0;
    CHECK(geteuid() != 0 && setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "this is for a user");
    int rc = reg_mr(dev, pd, area, 32768, &mr);
    CHECK(rc == 0, "32 KiB of 64: %d", rc);
    rc = reg_mr(dev, pd, area + MIB, 65536, &mr);
    CHECK(rc == -ENOMEM, "96 KiB of 64: %d", rc);
}

/* ------------------------------------------------------------------ two containers */

void pass(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint32_t mr = 0;
    char byte = 0, control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec v = {&mr, sizeof(mr)}; /* the MR's number is sent as well */
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    CHECK(reg_mr(dev, pd, area, 4096, &mr) == 0, "REG_MR");
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(s, (struct sockaddr *)&a, sizeof(a)) == 0 && listen(s, 1) == 0, "%s", path);
    const int c = accept(s, NULL, NULL);
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    *h = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(h), &dev, sizeof(dev));
    CHECK(sendmsg(c, &m, 0) == sizeof(mr) && read(c, &byte, 1) == 1, "passing it on");
    CHECK(dereg_mr(dev, mr) == 0, "what is the owner's own is still there");
}

int take(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint32_t mr = 0, theirs = 0;
    char byte = 0, control[CMSG_SPACE(sizeof(int))];
    struct iovec v = {&theirs, sizeof(theirs)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    int fd = -1;
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    const int s = socket(AF_UNIX, SOCK_STREAM, 0);
    for (int i = 0; i < 300 && connect(s, (struct sockaddr *)&a, sizeof(a)); i++)
        usleep(100000);
    CHECK(recvmsg(s, &m, 0) == sizeof(theirs), "nothing came");
    const struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    CHECK(h, "no descriptor came");
    memcpy(&fd, CMSG_DATA(h), sizeof(fd));
    const int made = reg_mr(fd, pd, area, 4096, &mr), ended = dereg_mr(fd, 0);
    printf("another's open file: REG_MR %s, DEREG %s\n", strerror(-made), strerror(-ended));
    /* Uses only the number, on a separately opened file that has no such MR. */
    CHECK(dereg_mr(dev, theirs) == -ENOENT, "%u here", theirs);
    CHECK(rereg_mr(dev, theirs, REREG_ACCESS, NULL, 0, IB_UVERBS_ACCESS_LOCAL_WRITE) < 0, "%u here", theirs);
    CHECK(write(s, &byte, 1) == 1, "answer");
    return made == 0 || ended == 0;
}
