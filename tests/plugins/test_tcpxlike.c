/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl-net-tcpxlike.so does what tcpxlike.h says, a line of it at a time. */
#include "tcpxlike_link.h"

#include <pthread.h>

/* ---- the table, connecting -------------------------------------------------------------------- */

static void table(void)
{
    void *lib = dlopen(TCPXLIKE, RTLD_NOW | RTLD_LOCAL);
    CHECK(lib);
    for (int v = 1; v < 20; v++) {
        char name[32];
        snprintf(name, sizeof(name), "ncclNetPlugin_v%d", v);
        CHECK((dlsym(lib, name) != NULL) == (v == 7));
    }
    load();
    CHECK(strcmp(net->name, "GPUDirectTCPX_v7") == 0 && !net->regMrDmaBuf && net->irecvConsumed);
    int n = 0;
    CHECK(net->devices(&n) == ncclSuccess && n == 1);
    ncclNetProperties_v7_t p;
    memset(&p, 0xff, sizeof(p));
    CHECK(net->getProperties(0, &p) == ncclSuccess);
    CHECK(strcmp(p.name, "lo") == 0 && p.ptrSupport == (NCCL_PTR_HOST | NCCL_PTR_CUDA) && p.maxRecvs == 1);
    CHECK(p.netDeviceType == NCCL_NET_DEVICE_UNPACK && p.netDeviceVersion == 7 && p.speed > 0);
    CHECK(net->getProperties(1, &p) == ncclInternalError);
}

static void retries(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    CHECK(l.connects >= 6 && l.accepts >= 6); /* TCPXLIKE_RETRIES=5 */
    for (unsigned i = 88; i < sizeof(l.handle); i++)
        CHECK(l.handle[i] == (char)0xee);
    void *rc = NULL;
    ncclNetDeviceHandle_v7_t *rdev = &l.side;
    CHECK(net->accept(l.lc, &rc, &rdev) == ncclInternalError && !rc); /* one listener, one connection */
    leave(&l);
}

static void slowly(void)
{
    struct link l;
    load();
    start(&l);
    uint64_t since = hw_now();
    join(&l);
    CHECK(hw_now() - since >= 300 * HW_MS);
    leave(&l);
}

static void no_accept(void)
{
    struct link l;
    ncclNetDeviceHandle_v7_t *rdev = &l.side;
    load();
    start(&l);
    for (int i = 0; i < 500; i++, usleep(1000)) {
        CHECK(net->connect(0, l.handle, &l.sc, NULL) == ncclSuccess && !l.sc);
        CHECK(net->accept(l.lc, &l.rc, &rdev) == ncclSuccess && !l.rc);
    }
}

/* In one thread: connect comes back without a connection, accept sleeps in the call that has one. */
static void accept_sleeps(void)
{
    struct link l;
    ncclNetDeviceHandle_v7_t *rdev = &l.side;
    uint64_t slept = 0;
    load();
    start(&l);
    while (!l.rc) {
        uint64_t since = hw_now();
        CHECK(net->connect(0, l.handle, &l.sc, NULL) == ncclSuccess && !l.sc);
        CHECK(hw_now() - since >= 20 * HW_MS); /* TCPXLIKE_CONNECT_MICROS=20000: it waits in the call */
        since = hw_now();
        CHECK(net->accept(l.lc, &l.rc, &rdev) == ncclSuccess);
        slept = hw_now() - since;
    }
    CHECK(slept >= 400 * HW_MS); /* PROGRAM_FLOW_STEERING_WAIT_MICROS=400000 */
    join(&l);
    leave(&l);
}

static void *accept_one(void *arg)
{
    struct link *l = arg;
    ncclNetDeviceHandle_v7_t *rdev = &l->side;
    while (!l->rc)
        CHECK(net->accept(l->lc, &l->rc, &rdev) == ncclSuccess);
    return NULL;
}

/* A thread for each accept: four take as long as one. */
static void accepts_at_once(void)
{
    struct link l[4];
    pthread_t thread[4];
    load();
    const uint64_t since = hw_now();
    for (int i = 0; i < 4; i++) {
        start(&l[i]);
        CHECK(pthread_create(&thread[i], NULL, accept_one, &l[i]) == 0);
    }
    for (bool all = false; !all;) {
        all = true;
        for (int i = 0; i < 4; i++)
            if (!l[i].sc) {
                CHECK(net->connect(0, l[i].handle, &l[i].sc, NULL) == ncclSuccess);
                all &= l[i].sc != NULL;
            }
    }
    const uint64_t took = hw_now() - since;
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
        leave(&l[i]);
    }
    CHECK(took >= 1000 * HW_MS && took < 4000 * HW_MS);
}

static void dirty_handle(void)
{
    char handle[NCCL_NET_HANDLE_MAXSIZE];
    void *lc, *sc;
    load();
    CHECK(net->listen(0, handle, &lc) == ncclSuccess);
    (void)net->connect(0, handle, &sc, NULL);
}

static void connect_again(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    (void)net->connect(0, l.handle, &l.sc, NULL);
}

static void refused(void)
{
    struct link l;
    load();
    start(&l);
    CHECK(net->closeListen(l.lc) == ncclSuccess);
    ncclResult_t rc = ncclSuccess;
    for (int i = 0; i < 1000 && !rc; i++, usleep(1000))
        rc = net->connect(0, l.handle, &l.sc, NULL);
    CHECK(rc == ncclInternalError && !l.sc);
}

static void accept_null(void)
{
    struct link l;
    ncclNetDeviceHandle_v7_t *rdev = NULL;
    load();
    start(&l);
    (void)net->accept(l.lc, &l.rc, &rdev);
}

/* ---- moving ----------------------------------------------------------------------------------- */

static void host_sizes(void)
{
    static const int sizes[] = {0, 1, 2, 7, 4095, 4096, 70001, (int)MIB, 4 * (int)MIB, 9 * (int)MIB + 3};
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 10 * MIB);
    for (unsigned i = 0; i < 2 * HW_ARRAY_LEN(sizes); i++) {
        int len = sizes[i % HW_ARRAY_LEN(sizes)];
        fill(m.from, i, (size_t)len);
        memset(m.to, 0, 10 * MIB);
        void *r = recv_now(&l, &m, 0, len), *s = send_now(&l, &m, 0, len);
        CHECK(both_done(s, r, 10000));
        CHECK(filled(m.to, i, (size_t)len) && m.to[len] == 0);
        consume(&l, r);
    }
    /* many at once, in order, whatever their tags and sizes */
    void *s[16], *r[16];
    fill(m.from, 9, 16 * 1000);
    memset(m.to, 0, 16 * 2000);
    for (unsigned i = 0; i < 16; i++)
        r[i] = recv_now(&l, &m, i * 2000, 2000);
    for (unsigned i = 0; i < 16; i++)
        s[i] = send_now(&l, &m, i * 1000, (int)(i * 60 + 1));
    for (unsigned i = 0; i < 16; i++) {
        CHECK(both_done(s[i], r[i], 10000));
        CHECK(memcmp(m.to + i * 2000, m.from + i * 1000, i * 60 + 1) == 0 && m.to[i * 2000 + i * 60 + 1] == 0);
    }
    for (unsigned i = 0; i < 16; i++)
        consume(&l, r[i]);
    forget(&l, &m);
    leave(&l);
}

static void window(void)
{
    struct link l;
    void *s[16], *r[16], *more;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    for (unsigned i = 0; i < 16; i++)
        r[i] = recv_now(&l, &m, 0, 64);
    CHECK(try_recv(&l, &m, 0, 64, &more) == ncclInternalError);
    for (unsigned i = 0; i < 16; i++)
        s[i] = send_now(&l, &m, 0, 64);
    CHECK(try_send(&l, &m, 0, 64, &more) == ncclInternalError);
    CHECK(both_done(s[0], r[0], 10000));
    more = send_now(&l, &m, 0, 64);                             /* a send's is free once it is done, */
    CHECK(try_recv(&l, &m, 0, 64, &s[0]) == ncclInternalError); /* a receive's is not */
    consume(&l, r[0]);
    r[0] = recv_now(&l, &m, 0, 64);
    for (unsigned i = 1; i < 16; i++)
        CHECK(both_done(s[i], r[i], 10000));
    CHECK(both_done(more, r[0], 10000));
}

static void only_test_moves(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    fill(m.from, 1, 4096);
    void *r = recv_now(&l, &m, 0, 4096), *s = send_now(&l, &m, 0, 4096);
    usleep(100000);
    for (int i = 0; i < 100; i++, usleep(1000))
        CHECK(!is_done(r)); /* nobody has tested the send */
    while (!is_done(s))
        ;
    usleep(100000);
    CHECK(m.to[0] != byte_at(1, 0)); /* nor the receive since */
    CHECK(both_done(NULL, r, 10000) && filled(m.to, 1, 4096));
}

static void by_age(void)
{
    struct link l;
    void *r[3], *s[3];
    int done = 1;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    for (int i = 0; i < 3; i++) {
        r[i] = recv_now(&l, &m, 0, 64);
        s[i] = send_now(&l, &m, 0, 64);
    }
    CHECK(net->test(r[1], &done, NULL) == ncclInternalError && done == 0);
    CHECK(net->test(s[2], &done, NULL) == ncclInternalError);
    CHECK(net->irecvConsumed(l.rc, 1, r[0]) == ncclInternalError); /* it is not done */
    CHECK(both_done(s[0], r[0], 10000));
    CHECK(net->test(r[0], &done, NULL) == ncclInternalError); /* done, while others are on their way */
    CHECK(both_done(s[1], r[1], 10000) && both_done(s[2], r[2], 10000));
    CHECK(is_done(r[0]) && is_done(r[2])); /* and now again */
    CHECK(net->irecvConsumed(l.rc, 1, r[1]) == ncclInternalError);
    for (int i = 0; i < 3; i++)
        consume(&l, r[i]);
    CHECK(net->irecvConsumed(l.rc, 1, r[2]) == ncclInternalError);
    CHECK(net->test(r[2], &done, NULL) == ncclInternalError);
}

static void too_large(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 100);
    (void)both_done(send_now(&l, &m, 0, 101), r, 10000);
}

static void flush(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *data = m.to, *request;
    int len = 64;
    (void)net->iflush(l.rc, 1, &data, &len, &m.to_mr, &request);
}

static void empty_breaks(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 64), *s = send_now(&l, &m, 0, 0);
    CHECK(error_of(s, r) == ncclInternalError);
}

/* 5 bytes over 4 connections are tasks of 2, 2, 1 and 0. */
static void few_bytes_break(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 64), *s = send_now(&l, &m, 0, 5);
    CHECK(both_done(s, r, 10000));
    r = recv_now(&l, &m, 0, 64), s = send_now(&l, &m, 0, 8);
    CHECK(error_of(s, r) == ncclInternalError);
}

/* ---- faults on command ------------------------------------------------------------------------ */

static void third_fails(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    for (int i = 0; i < 2; i++) {
        void *r = recv_now(&l, &m, 0, 64);
        CHECK(both_done(send_now(&l, &m, 0, 64), r, 10000));
        consume(&l, r);
    }
    void *r = recv_now(&l, &m, 0, 64), *s = send_now(&l, &m, 0, 64);
    CHECK(error_of(s, r) == ncclInternalError); /* or has ended us by now */
}

static void third_stalls(void)
{
    struct link l, k;
    load();
    start(&l);
    join(&l);
    start(&k);
    join(&k);
    struct memory m = host_memory(&l, 4096), n = host_memory(&k, 4096);
    for (int i = 0; i < 2; i++) {
        void *r = recv_now(&l, &m, 0, 64);
        CHECK(both_done(send_now(&l, &m, 0, 64), r, 10000));
    }
    void *r = recv_now(&l, &m, 0, 64), *s = send_now(&l, &m, 0, 64);
    CHECK(both_done(s, NULL, 10000) && !both_done(NULL, r, 300));
    r = recv_now(&k, &n, 0, 64);
    CHECK(both_done(send_now(&k, &n, 0, 64), r, 10000)); /* the other comm goes on */
}

static void register_fails(void)
{
    struct link l;
    void *mr;
    load();
    start(&l);
    join(&l);
    CHECK(net->regMr(l.sc, &l, 10, NCCL_PTR_HOST, &mr) == ncclInternalError);
}

/* The other end is gone: what it said comes still, then there is an error. */
static void peer_closes(void)
{
    struct link l;
    load();
    start(&l);
    join(&l);
    struct memory m = host_memory(&l, 4096);
    void *r = recv_now(&l, &m, 0, 64), *next;
    CHECK(both_done(send_now(&l, &m, 0, 64), NULL, 10000));
    CHECK(net->closeSend(l.sc) == ncclSuccess);
    CHECK(both_done(NULL, r, 10000));
    next = recv_now(&l, &m, 0, 64);
    CHECK(error_of(next, NULL) == ncclInternalError);
    CHECK(try_recv(&l, &m, 0, 64, &next) == ncclInternalError);
}

static void faults(void)
{
#define FAULT(what) WITH("TCPXLIKE_FAULT=" what)
    works("error@3:recv: that receive fails", third_fails, FAULT("error@3:recv"));
    works("error@6: sends and receives count together", third_fails, FAULT("error@6"));
    exits("exit@3:send", third_fails, FAULT("exit@3:send"), 1, "leaving at a request");
    exits("nocmsg@3:recv: of a scattered receive", third_fails,
          WITH("TCPXLIKE_FAULT=nocmsg@3:recv", "TCPXLIKE_UNPACK_HOST=1"), 1, "rx no cmsg");
    dies("die@3:recv", third_fails, FAULT("die@3:recv"), 60, SIGKILL, "");
    dies("crash@3:recv", third_fails, FAULT("crash@3:recv"), 60, SIGSEGV, "");
    works("stall@3:recv: that comm alone", third_stalls, FAULT("stall@3:recv"));
    works("slowaccept", slowly, FAULT("slowaccept=300"));
    works("slowconnect", slowly, FAULT("slowconnect=300"));
    works("noaccept: for half a second at least", no_accept, FAULT("noaccept"));
    works("fail-regmr", register_fails, FAULT("fail-regmr"));
    dies("hang-init: it is ended after a second", load, FAULT("hang-init"), 1, SIGALRM, "");
    dies("a fault that it does not know stops the test", load, FAULT("eror@3"), 60, SIGABRT, "TCPXLIKE_FAULT=eror@3?");
    works("the other end closes", peer_closes, plain);
}

static void nothing_left(void)
{
    const char *path = "tcpxlike-report.txt";
    char line[256] = "";
    (void)unlink(path);
    (void)in_child(host_sizes, WITH("TCPXLIKE_REPORT=tcpxlike-report.txt"), 60);
    FILE *f = fopen(path, "re");
    if (f) {
        (void)!fgets(line, sizeof(line), f);
        fclose(f);
    }
    static const char wanted[] = "listens=0 comms=0 registrations=0 requests=72 ";
    ok(strncmp(line, wanted, strlen(wanted)) == 0, "the report: %s", strtok(line, "\n"));
    (void)unlink(path);
}

int main(void)
{
    defaults();
    works("one table, v7, GPUDirectTCPX_v7, its properties", table, plain);
    works("connect and accept need calls; the handle's end is left alone; one connection each", retries,
          WITH("TCPXLIKE_RETRIES=5"));
    works("accept sleeps in a call, and connect waits for it", accept_sleeps,
          WITH("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=400000", "TCPXLIKE_CONNECT_MICROS=20000"));
    works("accepts of several threads sleep at the same time", accepts_at_once,
          WITH("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=1000000", "TCPXLIKE_CONNECT_MICROS=1000"));
    dies("a pointer in the handle", dirty_handle, plain, 60, SIGABRT, "has the pointer");
    dies("connect after its success", connect_again, plain, 60, SIGABRT, "has the pointer");
    works("connect to a listener that is gone", refused, plain);
    dies("accept with nowhere to write to", accept_null, plain, 60, SIGABRT, "recvDevComm");

    works("host memory: sizes, order; test does not write the size", host_sizes, plain);
    works("over 4 data connections", host_sizes, WITH("NCCL_NSOCKS_PERTHREAD=2", "NCCL_SOCKET_NTHREADS=2"));
    works("over 8, the most", host_sizes, WITH("NCCL_NSOCKS_PERTHREAD=8", "NCCL_SOCKET_NTHREADS=2"));
    works("16 requests a comm", window, plain);
    works("test alone moves", only_test_moves, plain);
    works("test and irecvConsumed go by age", by_age, plain);
    exits("a message larger than its receive", too_large, plain, 1, "memory would be overwritten");
    dies("iflush", flush, plain, 60, SIGABRT, "iflush");
    works("a message of 0 bytes, NCCL_DYNAMIC_CHUNK_SIZE not set", empty_breaks, WITH("NCCL_DYNAMIC_CHUNK_SIZE"));
    works("a message with a task of 0 bytes, likewise", few_bytes_break,
          WITH("NCCL_DYNAMIC_CHUNK_SIZE", "NCCL_NSOCKS_PERTHREAD=4"));
    works("likewise, the trap disarmed", host_sizes, WITH("NCCL_DYNAMIC_CHUNK_SIZE=0", "TCPXLIKE_CHUNK_TRAP=0"));

    faults();
    nothing_left();
    return tap_done();
}
