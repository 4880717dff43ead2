/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a correct plugin in its child process: all table versions, data integrity, windows, many connections, forks,
 * threads, and resource leaks. */
#include "netplugin_pair.h"
#include "wire/wire.h"

#include <pthread.h>

static void test_versions(void)
{
    for (unsigned v = 6; v <= 12; v++) {
        struct np_host *h = open_host(PLAIN, &(struct np_options){.newest = v});
        struct pair p;
        char name[32];
        snprintf(name, sizeof(name), "plain v%u", v);
        ok(np_info(h)->version == v && np_info(h)->devices > 0, "%s is loaded", name);
        is_int(np_info(h)->window, v == 6 ? 8 : 32, "its window");
        pair_open(&p, h, 0, 1 << 20);
        ok(pair_run(&p, 50, 64 << 10, 7) == 0, "%s: 50 messages, all bytes right", name);
        pair_close(&p);
        ok(no_report(h), "no sanitizer has anything to say of the child");
        np_close(h);
    }
}

static void test_sizes(void)
{
    static const size_t sizes[] = {0, 1, 7, 4096, 100000, 1 << 20, 9 << 20};
    struct np_host *h = open_host(PLAIN, &(struct np_options){0});
    struct pair p;
    pair_open(&p, h, 0, 18 << 20);
    for (size_t i = 0; i < HW_ARRAY_LEN(sizes); i++)
        ok(pair_run(&p, 3, sizes[i], i) == 0, "messages of %zu bytes", sizes[i]);

    struct np_result r;
    is_int(np_irecv(p.recv, p.rmr, 0, 4096, 0, HW_NEVER), 0, "a receive larger than its send is posted");
    is_int(np_isend(p.send, p.smr, 0, 100, 0, HW_NEVER), 0, "a send");
    is_int(np_wait(p.recv, hw_deadline(SOON), &r), 0, "it comes");
    ok(r.known && r.size == 100, "with the sender's size");
    is_int(np_consumed(p.recv), 0, "and is given back");
    is_int(np_wait(p.send, hw_deadline(SOON), &r), 0, "the send is over");
    pair_close(&p);
    np_close(h);
}

/* Tests that invalid calls are refused with a reason. */
static void test_refusals(void)
{
    struct np_host *h = open_host(PLAIN, &(struct np_options){0});
    struct np_props props;
    struct np_mem *m = NULL;
    struct np_mr *mr = NULL;
    struct np_result r;
    struct pair p;
    char there[64];
    is_int(np_props(h, 0, &props), 0, "properties");
    ok(*props.name && props.max_size > 0 && !props.unpacks, "say %s", props.name);
    is_int(np_props(h, 1000, &props), -ENODEV, "device 1000 is not there");
    is_int(np_mem_import(h, there, sizeof(there), -1, 0, &m), -EOPNOTSUPP, "private memory is refused");
    ok(strstr(hw_error(), "np_mem_alloc"), "and what to do is said: %s", hw_error());
    is_int(np_mem_alloc(h, 0, &m), -EINVAL, "memory of 0 bytes");

    pair_open(&p, h, 0, 1 << 20);
    is_int(np_test(p.send, &r), -EINVAL, "a test with nothing posted");
    is_int(np_irecv(p.send, p.smr, 0, 1, 0, HW_NEVER), -EINVAL, "a receive on the sending side");
    is_int(np_isend(p.send, p.rmr, 0, 1, 0, HW_NEVER), -EINVAL, "another connection's registration");
    is_int(np_isend(p.send, p.smr, 1 << 20, 1, 0, HW_NEVER), -EINVAL, "beyond the registration");
    is_int(np_isend(p.send, p.smr, SIZE_MAX, 2, 0, HW_NEVER), -EINVAL, "far beyond");
    is_int(np_isend(p.send, p.smr, 0, (size_t)2 << 30, 0, HW_NEVER), -EMSGSIZE, "more than a request can have");
    is_int(np_consumed(p.recv), -EINVAL, "nothing to give back");
    is_int(np_reg(p.send, p.mem, 0, (size_t)1 << 40, &mr), -EINVAL, "registering more than there is");
    is_int(np_mem_free(p.mem), -EBUSY, "memory that is registered stays");
    unsigned n = 0;
    while (np_irecv(p.recv, p.rmr, 0, 16, 0, HW_NEVER) == 0)
        n++;
    is_int(n, np_info(h)->window, "so many receives, and then -EAGAIN");
    is_int(np_test(p.recv, &r), -EAGAIN, "none is over");
    is_int(np_wait(p.recv, hw_deadline(50), &r), -EAGAIN, "nor after 50 ms");
    is_int(np_health(h), 0, "the child is well");
    pair_close(&p); /* with receives in flight */
    pair_open(&p, h, 0, 1 << 20);
    ok(pair_run(&p, 10, 1000, 1) == 0, "closing them hurt nobody");
    pair_close(&p);
    np_close(h);

    is_int(np_open("/no/such/plugin.so", &(struct np_options){0}, &h), -ENOENT, "no such file");
    ok(strstr(hw_error(), "no/such"), "%s", hw_error());
    is_int(np_open("nosuchplugin", &(struct np_options){0}, &h), -ENOENT, "no such name");
    ok(strstr(hw_error(), "libnccl-net-nosuchplugin.so"), "%s", hw_error());
    is_int(np_open("libm.so.6", &(struct np_options){0}, &h), -ENOEXEC, "a library that is no plugin");
    ok(strstr(hw_error(), "ncclNetPlugin_v"), "%s", hw_error());
    is_int(np_open("", &(struct np_options){0}, &h), -EINVAL, "no name at all");
}

/* Tests the deadlines of an accept and of a receive. */
static void test_deadlines(void)
{
    struct np_host *h = open_host(PLAIN, &(struct np_options){0});
    uint8_t handle[NP_HANDLE_SIZE];
    struct np_listener *l;
    struct np_comm *c;
    struct np_result r;
    struct pair p;
    int rc;
    is_int(np_listen(h, 0, -1, handle, &l), 0, "a listener");
    is_int(np_accept(l, hw_deadline(100), -1, &c), 0, "accept begins");
    while ((rc = np_established(c)) == -EAGAIN)
        usleep(1000);
    is_int(rc, -ETIMEDOUT, "nobody comes");
    ok(strstr(hw_error(), "accept"), "%s", hw_error());
    is_int(np_accept(l, hw_deadline(100), -1, &c), -EINVAL, "a second accept is refused");
    np_comm_close(c);
    np_listener_close(l);

    pair_open(&p, h, 0, 1 << 20);
    is_int(np_irecv(p.recv, p.rmr, 0, 16, 0, hw_deadline(100)), 0, "a receive with 100 ms to go");
    is_int(np_wait(p.recv, hw_deadline(SOON), &r), -ETIMEDOUT, "is not over by then");
    ok(strstr(hw_error(), "irecv 0"), "%s", hw_error());
    is_int(np_test(p.recv, &r), -ETIMEDOUT, "and stays so");
    pair_close(&p);
    ok(np_health(h) == 0, "the host is well");
    np_close(h);
}

/* Tests importing the caller's memory from a memfd, and using one eventfd for both directions. */
static void test_import_and_event(void)
{
    struct np_host *h = open_host(PLAIN, &(struct np_options){0});
    struct pair p;
    struct np_mem *m;
    struct np_mr *mr;
    struct np_result r;
    const size_t len = 1 << 16;
    int fd = memfd_create("test", MFD_CLOEXEC), ev = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    ok(fd >= 0 && ev >= 0 && ftruncate(fd, (off_t)len) == 0, "a memfd and an eventfd");
    uint8_t *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    p.event = ev;
    pair_open_on(&p, h, 0, 1 << 17);
    is_int(np_mem_import(h, at, len + 1, fd, 0, &m), -EINVAL, "more than the file has");
    is_int(np_mem_import(h, at, len, fd, 0, &m), 0, "the caller's file is imported");
    is_int(np_reg(p.send, m, 0, len, &mr), 0, "and registered");
    memset(at, 'x', len);
    is_int(np_event(p.recv), ev, "the eventfd is the caller's");
    is_int(np_irecv(p.recv, p.rmr, 0, len, 0, HW_NEVER), 0, "a receive");
    is_int(np_test(p.recv, &r), -EAGAIN, "nothing yet");
    is_int(np_arm(p.recv), -EAGAIN, "armed");
    struct pollfd pf = {.fd = ev, .events = POLLIN};
    is_int(poll(&pf, 1, 20), 0, "silence");
    is_int(np_isend(p.send, mr, 0, len, 0, HW_NEVER), 0, "a send of the caller's memory");
    is_int(poll(&pf, 1, SOON), 1, "the eventfd is rung");
    is_int(np_test(p.recv, &r), 0, "it has come");
    const uint8_t *come = (uint8_t *)np_mem_ptr(p.mem) + p.half;
    ok(r.size == len && come[0] == 'x' && memcmp(come, come + 1, len - 1) == 0, "with its bytes");
    is_int(np_consumed(p.recv), 0, "given back");
    is_int(np_wait(p.send, hw_deadline(SOON), &r), 0, "sent");
    is_int(np_dereg(mr), 0, "deregistered");
    is_int(np_mem_free(m), 0, "let go");
    pair_close(&p);
    np_close(h);
    munmap(at, len);
    close(fd);
    close(ev);
}

static void test_many(void)
{
    enum { N = 40 };
    struct np_host *h = open_host(PLAIN, &(struct np_options){0});
    struct pair p[N];
    int good = 0;
    for (int i = 0; i < N; i++)
        pair_open(&p[i], h, 0, 1 << 17);
    for (int i = 0; i < N; i++) {
        struct np_result r;
        good += np_irecv(p[i].recv, p[i].rmr, 0, 1 << 16, 0, HW_NEVER) == 0;
        good += np_isend(p[i].send, p[i].smr, 0, 1 << 16, 0, HW_NEVER) == 0;
        good += np_test(p[i].recv, &r) == -EAGAIN || true;
    }
    is_int(good, 3 * N, "40 connections have a message under way each");
    for (int i = N; i-- > 0;) {
        struct np_result r;
        good -= np_wait(p[i].recv, hw_deadline(SOON), &r) == 0 || r.size == 0;
        good -= np_consumed(p[i].recv) == 0;
        good -= np_wait(p[i].send, hw_deadline(SOON), &r) == 0;
    }
    is_int(good, 0, "all have come");
    for (int i = 0; i < N; i++)
        pair_close(&p[i]);
    for (int i = 0; i < 200; i++) {
        uint8_t handle[NP_HANDLE_SIZE];
        struct np_listener *l;
        good += np_listen(h, 0, -1, handle, &l) == 0 && np_listener_close(l) == 0;
    }
    is_int(good, 200, "200 listeners one after the other");
    np_close(h);
}

struct job {
    struct np_host *h;
    int bad;
};

static void *one_thread(void *arg)
{
    struct job *j = arg;
    struct pair p;
    for (int i = 0; i < 3; i++) {
        p.event = -1;
        j->bad += pair_make(&p, j->h, 0, 1 << 18) != 0;
        if (j->bad)
            return NULL;
        j->bad += pair_run(&p, 30, 50000, (uint64_t)i) != 0;
        pair_unmake(&p);
    }
    return NULL;
}

static void test_threads(void)
{
    struct np_host *h = open_host(PLAIN, &(struct np_options){0});
    pthread_t t[4];
    struct job j[4] = {{h, 0}, {h, 0}, {h, 0}, {h, 0}};
    int bad = 0;
    for (int i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, one_thread, &j[i]);
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
        bad += j[i].bad;
    }
    is_int(bad, 0, "four threads, three connections each in turn, all bytes right");
    np_close(h);
}

/* Opens a host in a thread that then exits. The plugin's child must outlive the thread that forked it. */
static void *opener(void *arg)
{
    struct np_host **h = arg;
    *h = open_host(PLAIN, &(struct np_options){0});
    return NULL;
}

static void test_forks(void)
{
    struct np_host *h = NULL;
    struct pair p;
    pthread_t t;
    int status = -1;
    pthread_create(&t, NULL, opener, &h);
    pthread_join(t, NULL);
    usleep(50000);
    pair_open(&p, h, 0, 1 << 17);
    pid_t pid = fork();
    if (pid == 0) {
        struct np_result r;
        int rc = np_health(h) == -EPERM && np_irecv(p.recv, p.rmr, 0, 1, 0, HW_NEVER) == -EPERM &&
                 np_test(p.recv, &r) == -EPERM;
        np_close(h);
        _exit(rc ? 0 : 1);
    }
    waitpid(pid, &status, 0);
    is_int(status, 0, "in a fork all gives -EPERM, and it can be closed");
    ok(pair_run(&p, 10, 60000, 3) == 0, "the host works on");
    pair_close(&p);
    np_close(h);
}

/* Tests that the plugin's process exits if its parent is killed, even if another process has its file descriptors. */
static void test_parent_dies(void)
{
    int pipe_fd[2], at[2] = {0, 0};
    bool gone = false;
    if (pipe(pipe_fd) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        struct np_host *h;
        at[0] = np_open(PLAIN, &(struct np_options){0}, &h) < 0 ? 0 : np_info(h)->pid;
        at[1] = fork(); /* the copy keeps the socket open */
        if (at[1] != 0)
            (void)!write(pipe_fd[1], at, sizeof(at));
        while (true)
            pause();
    }
    ok(read(pipe_fd[0], at, sizeof(at)) == sizeof(at) && at[0] > 0 && at[1] > 0, "a process has a host");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    for (int i = 0; i < 300 && at[0] > 0 && !(gone = is_gone(at[0])); i++)
        usleep(10000);
    ok(gone, "it is killed, and the plugin's process ends too");
    if (at[1] > 0)
        kill(at[1], SIGKILL);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}

/* Tests a plugin whose connect() and accept() wait for each other in separate threads. */
static void test_waits(void)
{
    struct np_host *h = open_host(WAITS, &(struct np_options){0});
    uint8_t handle[NP_HANDLE_SIZE];
    struct np_listener *l;
    struct np_comm *c;
    struct pair p[4];
    for (int i = 0; i < 4; i++)
        pair_open(&p[i], h, 0, 1 << 17);
    for (int i = 0; i < 4; i++)
        ok(pair_run(&p[i], 10, 20000, 1) == 0, "messages over a connection that was made by two threads");

    /* An accept without a connect does not delay other connections and can be closed, although its thread remains. */
    is_int(np_listen(h, 0, -1, handle, &l), 0, "a listener");
    is_int(np_accept(l, hw_deadline(100), -1, &c), 0, "an accept that waits");
    is_int(np_established(c), -EAGAIN, "as it does");
    ok(pair_run(&p[0], 10, 20000, 2) == 0, "while messages move");
    is_int(established(c), -ETIMEDOUT, "it is given up");
    is_int(np_comm_close(c), 0, "and closed");
    is_int(np_listener_close(l), 0, "its listener too");
    ok(pair_run(&p[3], 10, 20000, 3) == 0, "messages move on");
    for (int i = 0; i < 4; i++)
        pair_close(&p[i]);
    np_close(h);
}

/* Tests a plugin whose listeners share one endpoint per thread, like aws-ofi-nccl. Closing a connection with posted
 * receives destroys the endpoint, and a receiver always has posted receives. */
static void test_ends(void)
{
    struct np_host *h = open_host(ENDS, &(struct np_options){0});
    struct pair p[3];
    for (int i = 0; i < 3; i++)
        pair_open(&p[i], h, 0, 1 << 17);
    is_int(np_irecv(p[1].recv, p[1].rmr, 0, 4096, 0, HW_NEVER), 0, "a receive is posted");
    usleep(50000); /* time for the child to post the receive */
    pair_close(&p[1]);
    ok(pair_run(&p[0], 10, 20000, 1) == 0, "one connection is closed: another moves on");
    pair_open(&p[1], h, 0, 1 << 17);
    for (int i = 0; i < 3; i++)
        ok(pair_run(&p[i], 10, 20000, 2) == 0, "so do all others, and a new one");
    for (int i = 0; i < 3; i++)
        pair_close(&p[i]);
    np_close(h);

    static const char *const slow[] = {"ENDS_LISTEN=1500", NULL};
    h = open_host(ENDS, &(struct np_options){.env = slow, .call_ms = 500});
    pair_open(&p[0], h, 0, 1 << 17);
    ok(pair_run(&p[0], 10, 20000, 3) == 0, "a listen that takes 1.5 s as it is known to, where other calls have 0.5 s");
    pair_close(&p[0]);
    np_close(h);
}

static void test_older_greeting(void)
{
    static const uint32_t longest[] = {4u << 20, (1u << 20) - 4096, 4096};
    for (size_t i = 0; i < HW_ARRAY_LEN(longest); i++) {
        uint8_t head[HW_PLUGIN_HEAD];
        hw_put32(head, HW_PLUGIN_MAGIC);
        hw_put32(head + 4, longest[i]);
        ok(hw_plugin_greet_size(head) == -EPROTO && strstr(hw_error(), "older"),
           "a greeting of version 1 with messages of %u bytes: %s", longest[i], hw_error());
    }
}

int main(void)
{
    const int fds = proc_entries("/proc/self/fd");
    test_older_greeting();
    test_versions();
    test_sizes();
    test_refusals();
    test_deadlines();
    test_import_and_event();
    test_many();
    test_threads();
    test_forks();
    test_parent_dies();
    test_waits();
    test_ends();
    is_int(proc_entries("/proc/self/fd"), fds, "no descriptor is left open");
    is_int(children(), 0, "and no child, living or dead");
    return tap_done();
}
