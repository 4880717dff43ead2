/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a running hawserd over a fake kernel, with good and faulty clients. Also tests libhawser's client with faulty
 * daemons. */
#include "client.h"
#include "served.h"
#include "tests/tap.h"
#include "transport/devmem/helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fake *F;
static struct fake was;
static char dir[40], path[64], state[64];
static int logs = -1; /* the daemon's log, in memory */

/* ---- the daemon --------------------------------------------------------------------------------- */

static struct hd_policy policy;

static bool said(const char *what)
{
    return served_said(logs, what);
}

static struct served start(void)
{
    struct hd_kernel k;
    fake_kernel(F, &k);
    return served_start(F, &k, &policy, path, state, logs);
}

static void fresh(void)
{
    struct fake *f = fake_new();
    *F = *f;
    fake_free(f);
    was = *F;
    unlink(state);
    hd_policy_default(&policy, getuid());
}

/* ---- good clients ------------------------------------------------------------------------------- */

static void good(void)
{
    struct dm_helper *h, *g;
    struct dm_binding b, t, c;
    uint32_t rule, queue, again;
    fresh();
    is_int(dm_helper_open(path, MS, &h), -ENOENT, "no daemon, no socket");
    ok(strstr(hw_error(), "systemctl start hawserd") && h == NULL, "%s", hw_error());
    struct served r = start();
    is_int(dm_helper_open(path, MS, &h), 0, "a client");
    int buf = fake_dmabuf(1 << 20), s1 = fake_sock(6001), s2 = fake_sock(6002);
    is_int(dm_helper_bind_rx(h, "eth1", buf, 2, 0, &b), 0, "a binding to receive");
    ok(b.nqueues == 2 && b.queues[0] == 7 && b.queues[1] == 6 && b.id && b.dmabuf_id == F->bind[0].id, "of two queues");
    is_int(dm_helper_bind_tx(h, "eth1", buf, &t), 0, "one to send");
    ok(t.nqueues == 0 && t.id != b.id && t.dmabuf_id, "without queues");
    is_int(dm_helper_steer(h, b.id, s1, &rule, &queue), 0, "a rule");
    ok(F->nic[0].rule[FAKE_RULES - 1].used && F->nic[0].rule[FAKE_RULES - 1].rule.queue == queue, "is the NIC's too");
    is_int(dm_helper_steer(h, b.id, s1, &again, &queue), -EEXIST, "not twice for one connection");
    is_int(dm_helper_steer(h, t.id, s2, &again, &queue), -EINVAL, "not to a binding that sends");
    is_int(dm_helper_steer(h, 0, s2, &again, &queue), -ENOENT, "not to none");
    is_int(dm_helper_bind_rx(h, "eth1", -1, 1, 0, &c), -EBADF, "no descriptor: found here, and nothing breaks");
    is_int(dm_helper_bind_rx(h, "eth1", buf, 0, 0, &c), -EINVAL, "no queues");
    is_int(dm_helper_bind_rx(h, "", buf, 1, 0, &c), -ENODEV, "no NIC");
    is_int(dm_helper_bind_rx(h, "eth7", buf, 1, 0, &c), -ENODEV, "a NIC that is not there");
    is_int(dm_helper_bind_rx(h, "eth1", buf, 9, 0, &c), -EBUSY, "more queues than there are");
    ok(strstr(hw_error(), "eth1: 9 queues requested, 5 available") != NULL && c.id == 0, "in the daemon's words: %s",
       hw_error());
    is_int(dm_helper_open(path, MS, &g), 0, "a second client");
    is_int(dm_helper_release(g, rule), -ENOENT, "has no say in what the first one holds");
    is_int(dm_helper_bind_rx(g, "eth1", buf, 1, 0, &c), 0, "but may have another queue");
    is_int(c.queues[0], 5, "the next one");
    is_int(dm_helper_release(h, rule), 0, "the rule is released");
    is_int(dm_helper_release(h, rule), -ENOENT, "once");
    is_int(dm_helper_release(h, 0), -ENOENT, "nothing is 0");
    is_int(dm_helper_steer(h, b.id, s1, &rule, &queue), 0, "and may come again");
    struct pollfd p = {.fd = dm_helper_fd(h), .events = POLLIN};
    is_int(poll(&p, 1, 0), 0, "the daemon never speaks unasked");
    F->ended = 6001;
    ok(SOON(!F->nic[0].rule[FAKE_RULES - 1].used), "a rule goes with its connection");
    is_int(dm_helper_release(h, rule), -ENOENT, "and need not be released then");
    F->ended = 0;
    is_int(dm_helper_steer(h, b.id, s1, &rule, &queue), 0, "another connection may have the same ends");
    dm_helper_close(h);
    ok(SOON(said("binding 1 of user") && !F->nic[0].rule[FAKE_RULES - 1].used), "closing releases all");
    ok(SOON(F->nic[0].table[7] == 7 && F->nic[0].table[6] == 6), "the first one's queues are back in RSS");
    ok(F->nic[0].table[5] != 5, "the second one's are not");
    is_int(served_stop(&r), 0, "the daemon ends, and nothing is left to be undone");
    is_int(dm_helper_release(g, c.id), -EPIPE, "its clients see that");
    is_int(dm_helper_bind_rx(g, "eth1", buf, 1, 0, &c), -EPIPE, "and go on seeing it");
    p.fd = dm_helper_fd(g);
    ok(poll(&p, 1, 0) == 1, "their descriptors are readable then");
    dm_helper_close(g);
    dm_helper_close(NULL);
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "nothing was wrong");
    close(buf);
    close(s1);
    close(s2);
}

/* Tests a client that is killed, and a daemon that is killed. */
static void deaths(void)
{
    struct dm_helper *h;
    struct dm_binding b;
    uint32_t rule, queue;
    fresh();
    struct served r = start();
    int buf = fake_dmabuf(1 << 20), s1 = fake_sock(6001);
    pid_t pid = fork();
    if (pid == 0) {
        if (dm_helper_open(path, MS, &h) == 0 && dm_helper_bind_rx(h, "eth2", buf, 3, 0, &b) == 0 &&
            dm_helper_steer(h, b.id, s1, &rule, &queue) == 0)
            raise(SIGKILL);
        _exit(1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    ok(WIFSIGNALED(status), "a client that holds something is killed");
    ok(SOON(said("new binding 1 of user") && said("released binding 1 of user") && !*fake_differs(&was, F)),
       "all of it is undone");

    is_int(dm_helper_open(path, MS, &h), 0, "another one");
    is_int(dm_helper_bind_rx(h, "eth2", buf, 3, 0, &b), 0, "binds");
    is_int(dm_helper_steer(h, b.id, s1, &rule, &queue), 0, "and steers");
    served_kill(&r);
    struct pollfd p = {.fd = dm_helper_fd(h), .events = POLLIN};
    ok(poll(&p, 1, MS) == 1, "the daemon is killed, which its client is told");
    ok(*fake_differs(&was, F), "and what it had done to the NIC is still there");
    is_int(dm_helper_release(h, rule), -EPIPE, "the client's next call says so");
    dm_helper_close(h);
    is_int(dm_helper_open(path, MS, &h), -ECONNREFUSED, "its socket is dead");
    ok(strstr(hw_error(), "restart") != NULL, "%s", hw_error());
    r = start();
    is_int(dm_helper_open(path, MS, &h), 0, "the next daemon takes its place");
    is_str(fake_differs(&was, F), "", "and has undone it all");
    is_int(dm_helper_bind_rx(h, "eth2", buf, 3, 0, &b), 0, "so that it can be had again");
    dm_helper_close(h);
    is_int(served_stop(&r), 0, "it ends");
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "nothing was wrong");
    close(buf);
    close(s1);
}

/* Tests a daemon that does not answer, and a daemon that sends wrong answers. */
static void liars(void)
{
    struct dm_helper *h;
    int l = hd_listen(path);
    uint64_t began = hw_now();
    is_int(dm_helper_open(path, 200, &h), -ETIMEDOUT, "a daemon that says nothing");
    ok(hw_now() - began >= 190 * HW_MS, "is given its time");
    for (int i = 0; i < 4; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct pollfd p = {.fd = l, .events = POLLIN};
            uint8_t buf[HW_HELPER_REPLY + 8] = {0};
            struct hw_helper_reply a = {.type = i == 1 ? HW_H_RELEASE : HW_H_HELLO, .seq = i == 2 ? 9 : 1};
            int fd;
            do { /* skip connections that have timed out */
                poll(&p, 1, MS);
                fd = accept(l, NULL, NULL);
            } while (recv(fd, buf, sizeof(buf), 0) <= 0 ||
                     (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1));
            hw_helper_reply_encode(buf, &a);
            (void)!send(fd, buf, i == 0 ? 5 : i == 3 ? sizeof(buf) : HW_HELPER_REPLY, 0);
            pause();
        }
        static const char *const what[] = {"too short", "to another question", "to another number", "too long"};
        int rc = dm_helper_open(path, MS, &h);
        ok(rc == -EPROTO && !h, "an answer %s: %s", what[i], hw_error());
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    close(l);
    unlink(path);
}

/* ---- bad clients -------------------------------------------------------------------------------- */

static void dropped(const char *what, const void *buf, size_t len, const int *fds, unsigned n)
{
    int fd = client_greeted(path);
    (void)client_send(fd, buf, len, fds, n);
    is_int(client_answer(fd), 1, what);
    close(fd);
}

static void dropped_request(const char *what, struct hw_helper_request q, const int *fds, unsigned n)
{
    uint8_t buf[HW_HELPER_REQUEST];
    hw_helper_request_encode(buf, &q);
    dropped(what, buf, sizeof(buf), fds, n);
}

/* Returns the number of memfds of fake_dmabuf() among the first 256 file descriptors of the process. */
static unsigned memfds_of(pid_t pid)
{
    unsigned n = 0;
    for (int i = 0; i < 256; i++) {
        char file[48], target[64];
        snprintf(file, sizeof(file), "/proc/%d/fd/%d", (int)pid, i);
        ssize_t len = readlink(file, target, sizeof(target) - 1);
        target[len < 0 ? 0 : len] = 0;
        n += strstr(target, "memfd:dmabuf") != NULL;
    }
    return n;
}

static void malformed(void)
{
    fresh();
    struct served r = start();
    int two[2] = {fake_dmabuf(8192), fake_dmabuf(8192)};
    dropped("an HTTP request", "GET / HTTP/1.1\r\n", 16, NULL, 0);
    ok(SOON(said("a request of 16 bytes does not begin")), "and the log says so");
    uint8_t big[70000] = {0};
    dropped("70000 bytes", big, sizeof(big), NULL, 0);
    dropped("one byte", "x", 1, NULL, 0);
    dropped_request("a second greeting", client_hello, NULL, 0);
    dropped_request("an unknown type", (struct hw_helper_request){.type = 77}, NULL, 0);
    struct hw_helper_request bind = {.type = HW_H_BIND_RX, .count = 1, .nic = "eth1"};
    dropped_request("a bind without a descriptor", bind, NULL, 0);
    dropped_request("a bind with two", bind, two, 2);
    dropped_request("a release with one", (struct hw_helper_request){.type = HW_H_RELEASE, .id = 1}, two, 1);
    bind.count = 99;
    dropped_request("a bind of 99 queues", bind, two, 1);
    bind = (struct hw_helper_request){.type = HW_H_BIND_RX, .count = 1, .nic = "../eth1"};
    dropped_request("a NIC that is a path", bind, two, 1);
    int fd = client_connect(path);
    bind = (struct hw_helper_request){.type = HW_H_BIND_RX, .count = 1, .nic = "eth1"};
    (void)client_ask(fd, &bind, two, 1);
    is_int(client_answer(fd), 1, "a bind before the greeting");
    close(fd);
    fd = client_connect(path);
    uint8_t buf[HW_HELPER_REQUEST];
    hw_helper_request_encode(buf, &client_hello);
    buf[4] = 9;
    (void)client_send(fd, buf, sizeof(buf), NULL, 0);
    is_int(client_answer(fd), -EPROTONOSUPPORT, "a client of another version is told so");
    is_int(client_answer(fd), 1, "and then let go");
    close(fd);
    ok(SOON(memfds_of(r.pid) == 0), "of the descriptors that came none is left open");
    ok(SOON(said("the request has too many descriptors") && said("before the greeting")),
       "each with a line in the log");
    is_str(fake_differs(&was, F), "", "no NIC was touched");
    is_int(served_stop(&r), 0, "the daemon lives");
    close(two[0]);
    close(two[1]);
}

static void forbidden(void)
{
    struct dm_helper *h;
    struct dm_binding b;
    fresh();
    if (hd_policy_parse(&policy, "[user 4294967290]\nnics = *\n", "test") < 0)
        abort();
    struct served r = start();
    int open[50];
    for (int i = 0; i < 50; i++) {
        open[i] = client_connect(path);
        (void)client_ask(open[i], &client_hello, NULL, 0);
    }
    int bad = 0;
    for (int i = 0; i < 50; i++) {
        int first = client_answer(open[i]), then = client_answer(open[i]);
        bad += first != -EACCES || then != 1;
        close(open[i]);
    }
    is_int(bad, 0, "fifty connections of a user whom the policy does not name: each is told, and closed");
    bad = 0;
    for (int i = 0; i < 50; i++) { /* the refusal may arrive before or after the greeting */
        bad += dm_helper_open(path, MS, &h) != -EACCES;
        usleep(i * 20);
    }
    is_int(bad, 0, "and fifty of our own client");
    ok(strstr(hw_error(), "/etc/hawser/hawserd.conf") != NULL, "%s", hw_error());
    is_int(served_stop(&r), 0, "the daemon ends");

    fresh();
    char text[120];
    snprintf(text, sizeof(text), "[user %u]\nnics = eth2\nmax-queues = 2\nmax-rules = 1\n", (unsigned)getuid());
    if (hd_policy_parse(&policy, text, "test") < 0)
        abort();
    r = start();
    int buf = fake_dmabuf(1 << 20), small = fake_dmabuf(100), s1 = fake_sock(1), s2 = fake_sock(2);
    uint32_t rule, queue;
    is_int(dm_helper_open(path, MS, &h), 0, "a user with few rights");
    is_int(dm_helper_bind_rx(h, "eth1", buf, 1, 0, &b), -EACCES, "a NIC that is not his");
    is_int(dm_helper_bind_tx(h, "eth1", buf, &b), -EACCES, "not for sending either");
    is_int(dm_helper_bind_rx(h, "eth2", buf, 3, 0, &b), -EDQUOT, "more queues than he may have");
    is_int(dm_helper_bind_rx(h, "eth2", small, 1, 0, &b), -EINVAL, "a dma-buf of 100 bytes");
    is_int(dm_helper_bind_rx(h, "eth2", buf, 2, 0, &b), 0, "what he may have");
    is_int(dm_helper_steer(h, b.id, small, &rule, &queue), -EINVAL, "no rule for what is no connection");
    is_int(dm_helper_steer(h, b.id, s1, &rule, &queue), 0, "one rule");
    is_int(dm_helper_steer(h, b.id, s2, &rule, &queue), -EDQUOT, "not two");
    dm_helper_close(h);
    is_int(served_stop(&r), 0, "the daemon ends");
    is_str(fake_differs(&was, F), "", "all is as it was");

    fresh();
    F->foreign_ns = true;
    r = start();
    is_int(dm_helper_open(path, MS, &h), -EXDEV, "a client of another network namespace");
    is_int(served_stop(&r), 0, "the daemon ends");
    close(buf);
    close(small);
    close(s1);
    close(s2);
}

static void floods(void)
{
    struct dm_helper *h;
    struct dm_binding b;
    fresh();
    struct served r = start();
    /* a client that sends requests endlessly, but reads no answers */
    int fd = client_greeted(path), buf = fake_dmabuf(1 << 20);
    struct hw_helper_request q = {.type = HW_H_RELEASE, .id = 5};
    int sent = 0;
    uint64_t until = hw_deadline(MS);
    uint8_t raw_q[HW_HELPER_REQUEST];
    hw_helper_request_encode(raw_q, &q);
    while (hw_now() < until) {
        if (send(fd, raw_q, sizeof(raw_q), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
            sent++;
        else if (errno == EAGAIN)
            usleep(1000);
        else
            break;
    }
    ok(SOON(said("does not read its answers")), "a client that asks %d times and reads nothing is dropped", sent);
    close(fd);
    /* a client that opens as many connections as possible */
    int all[HD_CLIENTS_PER_USER + 8], in = 0, out = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(all); i++) {
        all[i] = client_connect(path);
        (void)client_ask(all[i], &client_hello, NULL, 0);
    }
    for (size_t i = 0; i < HW_ARRAY_LEN(all); i++) {
        int got = client_answer(all[i]);
        in += got == 0;
        out += got == -EUSERS;
    }
    is_int(in, HD_CLIENTS_PER_USER, "one user's connections are taken up to the limit");
    is_int(out, 8, "the others are told");
    for (size_t i = 0; i < HW_ARRAY_LEN(all); i++)
        close(all[i]);
    /* a busy client must not block other clients */
    fd = client_greeted(path);
    pid_t pid = fork();
    if (pid == 0) {
        uint8_t in_buf[HW_HELPER_REPLY];
        for (;;) {
            (void)!send(fd, raw_q, sizeof(raw_q), MSG_NOSIGNAL);
            (void)!recv(fd, in_buf, sizeof(in_buf), MSG_DONTWAIT);
        }
    }
    usleep(100 * 1000);
    int rc = -1;
    (void)SOON((rc = dm_helper_open(path, MS, &h)) != -EUSERS);
    is_int(rc, 0, "beside one that never stops asking, another client");
    is_int(dm_helper_bind_rx(h, "eth1", buf, 1, 0, &b), 0, "is served");
    dm_helper_close(h);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fd);
    is_int(served_stop(&r), 0, "the daemon ends");
    is_str(fake_differs(&was, F), "", "all is as it was");
    close(buf);
}

int main(void)
{
    F = fake_new();
    snprintf(dir, sizeof(dir), "/tmp/hawserd-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/s", dir);
    snprintf(state, sizeof(state), "%s/state", dir);
    logs = memfd_create("log", MFD_CLOEXEC);
    if (fcntl(logs, F_SETFL, O_APPEND) < 0) /* so that truncation resets the write position */
        return 1;
    good();
    deaths();
    liars();
    malformed();
    forbidden();
    floods();
    char left[96];
    static const char *const names[] = {"", ".new", ".lock"};
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        snprintf(left, sizeof(left), "%s%s", state, names[i]);
        unlink(left);
    }
    unlink(path);
    rmdir(dir);
    return tap_done();
}
