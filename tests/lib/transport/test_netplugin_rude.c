/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a plugin that misbehaves in every way that the ABI allows (tests/fakes/plugins/rude.h). Each fault must either
 * have no effect or cause an error that names the fault at the stage where it occurs. The test process must not leak
 * resources. */
#include "netplugin_pair.h"

#define LEN 1000
#define N   6

enum stage { OPEN, PROPS, CONNECT, RUN, CLOSE, LATER, NONE };
static const char *const stages[] = {"open", "properties", "connect", "run", "close", "later", "none"};

static const struct way {
    const char *rude;
    enum stage stage; /* the stage at which the fault is reported; NONE if it has no effect */
    int rc;
    const char *says;
    bool lives; /* the host survives the fault */
} ways[] = {
    {"", NONE, 0, NULL, true},
    {"load-crash", OPEN, -EIO, "SIGSEGV in dlopen", false},
    {"load-hang", OPEN, -ETIMEDOUT, "in dlopen", false},
    {"load-exit=3", OPEN, -EIO, "status 3 in dlopen", false},
    {"table-null", OPEN, -ENOEXEC, "no isend", false},
    {"table-name", OPEN, -ENOEXEC, "no name", false},
    {"init-fail", OPEN, -EIO, "init: the plugin returned 2 (ncclSystemError)", false},
    {"init-crash", OPEN, -EIO, "SIGSEGV in init", false},
    {"init-hang", OPEN, -ETIMEDOUT, "in init", false},
    {"init-exit", OPEN, -EIO, "leaving in init", false},
    {"init-slow", NONE, 0, NULL, true},
    {"devices=0", OPEN, -ENODEV, "the plugin reports 0", false},
    {"devices=-1", OPEN, -ENODEV, "the plugin reports -1", false},
    {"devices=1000", NONE, 0, NULL, true},
    {"devices-fail", OPEN, -EIO, "devices: the plugin returned 2", false},
    {"devices-unwritten", OPEN, -ENODEV, "the plugin reports 0", false},
    {"props-fail", PROPS, -EIO, "getProperties: the plugin returned 2", true},
    {"props-unwritten", PROPS, -EIO, "no name", true},
    {"props-no-name", PROPS, -EIO, "no name", true},
    {"props-long-name", NONE, 0, NULL, true},
    {"props-garbage", NONE, 0, NULL, true},
    {"props-wild", PROPS, -EIO, "SIGSEGV in getProperties", false},
    {"listen-fail", CONNECT, -EIO, "listen: the plugin returned 2", true},
    {"listen-null", CONNECT, -EIO, "no listener", true},
    {"listen-overrun", CONNECT, -EIO, "beyond the 128 bytes", true},
    {"connect-never", CONNECT, -ETIMEDOUT, "connect: not done before the deadline", true},
    {"connect-fail", CONNECT, -EIO, "connect: the plugin returned 2", true},
    {"connect-fail=99", CONNECT, -EIO, "returned 99 (not an ncclResult_t)", true},
    {"connect-codes", CONNECT, -ENXIO, "returned 1 (ncclUnhandledCudaError)", true},
    {"connect-slow=50", NONE, 0, NULL, true},
    {"accept-never", CONNECT, -ETIMEDOUT, "accept: not done before the deadline", true},
    {"accept-fail", CONNECT, -EIO, "accept: the plugin returned 3", true},
    {"regmr-every", CONNECT, -EIO, "regMr: the plugin returned", true},
    {"regmr-null", NONE, 0, NULL, true},
    {"isend-null", NONE, 0, NULL, true},
    {"irecv-null", NONE, 0, NULL, true},
    {"isend-never", RUN, -ETIMEDOUT, "isend 0 of 1000 bytes: the plugin did not accept the request", true},
    {"irecv-never", RUN, -ETIMEDOUT, "irecv 0 of 1000 bytes: the plugin did not accept the request", true},
    {"isend-fail", RUN, -EIO, "isend: the plugin returned", true},
    {"irecv-fail", RUN, -EIO, "irecv: the plugin returned", true},
    {"test-larger", RUN, -EMSGSIZE, "test: the plugin reports 1001 bytes for a receive of 1000", true},
    {"test-negative", RUN, -EMSGSIZE, "the plugin reports -1 bytes", true},
    {"test-no-size", NONE, 0, NULL, true},
    {"test-garbage", NONE, 0, NULL, true},
    {"test-unwritten", NONE, 0, NULL, true},
    {"test-early", RUN, -EBADMSG, "wrong bytes", true},
    {"test-never", RUN, -ETIMEDOUT, "isend 0 of 1000 bytes: accepted", true},
    {"test-crash", RUN, -EIO, "SIGSEGV in test", false},
    {"test-exit", RUN, -EIO, "status 1 in test", false},
    {"test-hang", RUN, -ETIMEDOUT, "hung for 1000 ms in test and was ended", false},
    {"test-slow=10", NONE, 0, NULL, true},
    {"recv-overrun", NONE, 0, NULL, true},
    {"recv-corrupt", RUN, -EBADMSG, "wrong bytes", true},
    {"close-fail", CLOSE, -EIO, "close: the plugin returned 3", true},
    {"close-crash", CLOSE, -EIO, "SIGSEGV in close", false},
    {"close-hang", CLOSE, -ETIMEDOUT, "in close", false},
    {"flood", NONE, 0, NULL, true},
    {"log-flood", NONE, 0, NULL, true},
    {"log-wild", NONE, 0, NULL, true},
    {"spin", NONE, 0, NULL, true},
    {"close-fds", OPEN, -EIO, "exited with status 0", false},
    {"signals", NONE, 0, NULL, true},
    {"environ", NONE, 0, NULL, true},
    {"chdir", CONNECT, -EMFILE, "RLIMIT_NOFILE", true},
    {"fork", NONE, 0, NULL, true},
    {"late-exit", LATER, -EIO, "exited with status 1", false},
    {"late-crash", LATER, -EIO, "SIGSEGV", false},
};

/* The first error and the stage at which it occurred. */
struct outcome {
    enum stage stage;
    int rc;
    char text[HW_ERR_TEXT];
};

static bool note(struct outcome *o, enum stage stage, int rc)
{
    if (rc < 0 && o->stage == NONE) {
        o->stage = stage;
        o->rc = rc;
        snprintf(o->text, sizeof(o->text), "%s", hw_error());
    }
    return rc < 0;
}

static bool printable(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return false;
    return true;
}

/* Transfers messages. If early is true, waits for each receive to complete before sending the message. */
static int run(struct pair *p, int ms, bool early)
{
    uint8_t *at = np_mem_ptr(p->mem);
    struct np_result r = {0};
    for (unsigned i = 0; i < N; i++) {
        hw_pattern_fill(at, LEN, 5, (uint64_t)i * LEN);
        int rc = np_irecv(p->recv, p->rmr, 0, LEN, 0, hw_deadline(2 * ms));
        if (rc == 0 && early)
            rc = np_wait(p->recv, hw_deadline(SOON), &r);
        if (rc == 0)
            rc = np_isend(p->send, p->smr, 0, LEN, 0, hw_deadline(ms));
        if (rc == 0)
            rc = np_wait(p->send, hw_deadline(SOON), &r);
        if (rc == 0 && !early)
            rc = np_wait(p->recv, hw_deadline(SOON), &r);
        if (rc < 0)
            return rc;
        if (r.size != LEN || hw_pattern_check(at + p->half, LEN, 5, (uint64_t)i * LEN, NULL))
            return hw_fail(-EBADMSG, "plugin rude: %zu bytes, wrong bytes", r.size);
        rc = np_consumed(p->recv);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void use(const struct way *w, struct np_host *h, struct outcome *o)
{
    /* Use a short timeout if it is expected to expire; otherwise allow for a slow machine. */
    const int ms = w->rc == -ETIMEDOUT && w->lives ? 300 : SOON;
    struct np_props props;
    struct pair p;
    if (note(o, PROPS, np_props(h, 0, &props)))
        return;
    if (!printable(props.name) || !printable(props.pci) || props.speed < 0 || !(props.latency >= 0) || !props.max_size)
        note(o, PROPS, hw_fail(-EBADMSG, "properties that cannot be: '%s'", props.name));
    p.event = -1;
    if (!note(o, CONNECT, pair_make_in(&p, h, 0, 1 << 16, ms)))
        note(o, RUN, run(&p, ms, strcmp(w->rude, "test-early") == 0));
    if (w->stage == LATER) {
        int rc;
        for (int i = 0; i < 400 && (rc = np_health(h)) == 0; i++)
            usleep(10000);
        note(o, LATER, rc);
    }
    note(o, CLOSE, p.send ? np_comm_close(p.send) : 0);
    note(o, CLOSE, p.recv ? np_comm_close(p.recv) : 0);
    note(o, CLOSE, p.listener ? np_listener_close(p.listener) : 0);
    if (p.mem)
        np_mem_free(p.mem);
}

static void check(const struct way *w)
{
    char rude[64];
    struct outcome o = {.stage = NONE};
    struct np_host *h = NULL;
    int pid = 0;
    bool lives = false;
    snprintf(rude, sizeof(rude), "RUDE=%s", w->rude);
    struct np_options opts = {
        .env = (const char *const[]){rude, NULL},
        .open_ms = w->rc == -ETIMEDOUT ? 400 : SOON,
        .call_ms = w->rc == -ETIMEDOUT ? 1000 : SOON,
    };
    if (!note(&o, OPEN, np_open(RUDE, &opts, &h))) {
        pid = np_info(h)->pid;
        use(w, h, &o);
        lives = np_health(h) == 0;
        np_close(h);
    }
    ok(o.stage == w->stage && o.rc == w->rc && lives == w->lives &&
           (!w->says || (strstr(o.text, w->says) && strstr(o.text, "rude"))) &&
           (pid == 0 || (kill(-pid, 0) < 0 && errno == ESRCH)),
       "%s: %s", *w->rude ? w->rude : "not rude at all", o.stage == NONE ? "no harm done" : o.text);
    if (o.stage != w->stage || o.rc != w->rc || lives != w->lives)
        diag("shown at %s, %d, and the host %s; wanted %s, %d, %s", stages[o.stage], o.rc, lives ? "lives" : "is dead",
             stages[w->stage], w->rc, w->says ? w->says : "nothing");
}

/* Tests that the host survives random errors and that later connections can still work. */
static void test_errors(void)
{
    struct np_host *h = open_host(RUDE, &(struct np_options){.env = (const char *const[]){"RUDE=errors=7", NULL}});
    unsigned failed = 0, worked = 0;
    for (int i = 0; i < 20; i++) {
        struct pair p = {.event = -1};
        if (pair_make(&p, h, 0, 1 << 16) == 0) {
            int rc = run(&p, SOON, false);
            failed += rc < 0 && rc > -4096;
            worked += rc == 0;
        }
        pair_unmake(&p);
    }
    ok(failed > 0 && failed + worked == 20 && np_health(h) == 0, "20 connections with errors at random: %u failed",
       failed);
    np_close(h);
}

/* Tests that a plugin that writes past the end of a shared memory block crashes without changing another block. */
static void test_overrun(void)
{
    struct np_host *h =
        open_host(RUDE, &(struct np_options){.env = (const char *const[]){"RUDE=recv-overrun=4096", NULL}});
    struct np_mem *other;
    struct np_result r;
    struct pair p;
    pair_open(&p, h, 0, 1 << 16);
    is_int(np_mem_alloc(h, 1 << 16, &other), 0, "another piece of memory");
    is_int(np_irecv(p.recv, p.rmr, p.half - LEN, LEN, 0, hw_deadline(SOON)), 0, "a receive at the end of the first");
    is_int(np_isend(p.send, p.smr, 0, LEN, 0, hw_deadline(SOON)), 0, "a send");
    is_int(np_wait(p.recv, hw_deadline(SOON), &r), -EIO, "is the end of the child");
    ok(strstr(hw_error(), "SIGSEGV in test") || strstr(hw_error(), "SIGBUS in test"), "%s", hw_error());
    const uint8_t *bytes = np_mem_ptr(other);
    size_t i = 0;
    while (i < 1 << 16 && !bytes[i])
        i++;
    is_int(i, 1 << 16, "and nothing was written elsewhere");
    np_mem_free(other);
    pair_close(&p);
    np_close(h);
}

int main(void)
{
    const int fds = proc_entries("/proc/self/fd");
    for (size_t i = 0; i < HW_ARRAY_LEN(ways); i++)
        check(&ways[i]);
    test_errors();
    test_overrun();
    is_int(proc_entries("/proc/self/fd"), fds, "no descriptor is left open");
    is_int(proc_maps("memfd:hawser"), 0, "no shared memory");
    is_int(children(), 0, "and no child, living or dead");
    return tap_done();
}
