/* SPDX-License-Identifier: Apache-2.0 */
/* The environment, injected faults, the log, and the report. */
#include "tcpxlike.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tcpx_options tcpx_opt;
_Atomic int tcpx_listens, tcpx_comms, tcpx_regs;
_Atomic unsigned tcpx_cuda;

static ncclDebugLogger_t logger;
static const char *report;
static pid_t owner;

static struct fault {
    unsigned what, at;
    enum { ANY, SEND, RECV } side;
} faults[16];
static unsigned n_faults;
static atomic_uint requests, sends, recvs;

void tcpx_log(ncclDebugLogLevel level, int line, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (logger)
        logger(level, NCCL_NET, "tcpxlike", line, "NET/GPUDirectTCPX : %s", text);
    else if (level == NCCL_LOG_WARN)
        fprintf(stderr, "NET/GPUDirectTCPX : %s\n", text);
}

/* Aborts because of an error in the test, not in the host. */
__attribute__((noreturn)) static void bad_env(const char *name, const char *value)
{
    fprintf(stderr, "tcpxlike: %s=%s?\n", name, value);
    abort();
}

static unsigned number(const char *name, unsigned def, unsigned least, unsigned most)
{
    const char *v = getenv(name);
    if (!v || !*v)
        return def;
    char *end;
    unsigned long n = strtoul(v, &end, 10);
    if (*end || n < least || n > most)
        bad_env(name, v);
    return (unsigned)n;
}

static bool flag(const char *name, bool def)
{
    return number(name, def, 0, 1);
}

static bool request_fault(const char *text)
{
    static const struct {
        const char *name;
        unsigned what;
    } names[] = {{"stall", FAULT_STALL}, {"die", FAULT_DIE},     {"crash", FAULT_CRASH},
                 {"exit", FAULT_EXIT},   {"error", FAULT_ERROR}, {"nocmsg", FAULT_NOCMSG}};
    char name[16], side[8] = "";
    struct fault f = {0};
    int used = 0;
    if (sscanf(text, "%15[a-z]@%u%n:%7s", name, &f.at, &used, side) < 2 || f.at == 0 ||
        (text[used] && strcmp(side, "send") != 0 && strcmp(side, "recv") != 0))
        return false;
    f.side = side[0] == 's' ? SEND : side[0] == 'r' ? RECV : ANY;
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++)
        if (strcmp(names[i].name, name) == 0)
            f.what = names[i].what;
    if (!f.what || n_faults == HW_ARRAY_LEN(faults))
        return false;
    faults[n_faults++] = f;
    return true;
}

static void read_faults(const char *list)
{
    for (char one[64]; list && *list;) {
        size_t len = strcspn(list, ",");
        snprintf(one, sizeof(one), "%.*s", (int)len, list);
        list += len + (list[len] == ',');
        int used = 0;
        if (sscanf(one, "slowaccept=%u%n", &tcpx_opt.slow_accept, &used) == 1 && !one[used])
            continue;
        if (sscanf(one, "slowconnect=%u%n", &tcpx_opt.slow_connect, &used) == 1 && !one[used])
            continue;
        if (strcmp(one, "noaccept") == 0)
            tcpx_opt.no_accept = true;
        else if (strcmp(one, "hang-init") == 0)
            tcpx_opt.hang_init = true;
        else if (strcmp(one, "hang-accept") == 0)
            tcpx_opt.hang_accept = true;
        else if (strcmp(one, "exit-accept") == 0)
            tcpx_opt.exit_accept = true;
        else if (strcmp(one, "fail-regmr") == 0)
            tcpx_opt.fail_regmr = true;
        else if (!request_fault(one))
            bad_env("TCPXLIKE_FAULT", one);
    }
}

static pid_t thread; /* the thread that called init */

void tcpx_check_thread(void)
{
    if (tcpx_opt.one_thread && gettid() != thread)
        CRASH("called by thread %d, and by %d before: it is not safe for threads", (int)gettid(), (int)thread);
}

void tcpx_read_environment(ncclDebugLogger_t log)
{
    logger = log;
    if (owner == getpid())
        return; /* init is called for each communicator */
    owner = getpid();
    report = getenv("TCPXLIKE_REPORT");
    tcpx_opt.socks = number("NCCL_SOCKET_NTHREADS", 1, 1, 16) * number("NCCL_NSOCKS_PERTHREAD", 1, 1, 16);
    tcpx_opt.socks = HW_MIN(tcpx_opt.socks, MAX_SOCKS);
    tcpx_opt.chunk = number("NCCL_DYNAMIC_CHUNK_SIZE", 0, 0, 1u << 30);
    tcpx_opt.retries = number("TCPXLIKE_RETRIES", 3, 0, 1000000);
    tcpx_opt.frag = number("TCPXLIKE_FRAG", PAGE, 1, PAGE);
    tcpx_opt.pool = number("TCPXLIKE_POOL", 256, 1, 2048);
    tcpx_opt.steering_us = number("NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS", 5000000, 0, 600000000);
    tcpx_opt.connect_us = number("TCPXLIKE_CONNECT_MICROS", 200000, 0, 600000000);
    tcpx_opt.one_thread = flag("TCPXLIKE_ONE_THREAD", false);
    thread = gettid();
    tcpx_opt.seed = number("TCPXLIKE_SEED", 1, 0, UINT32_MAX);
    const char *v = getenv("TCPXLIKE_LOOPBACK");
    tcpx_opt.loopback = v && strcmp(v, "exit") == 0        ? LOOPBACK_EXITS
                        : flag("TCPXLIKE_LOOPBACK", false) ? LOOPBACK_WORKS
                                                           : LOOPBACK_SILENT;
    tcpx_opt.unpack_host = flag("TCPXLIKE_UNPACK_HOST", false);
    tcpx_opt.clean_handle = flag("TCPXLIKE_CLEAN_HANDLE", false);
    tcpx_opt.chunk_trap = flag("TCPXLIKE_CHUNK_TRAP", true);
    v = getenv("TCPXLIKE_OVERSIZE");
    if (v && *v && strcmp(v, "exit") != 0 && strcmp(v, "deliver") != 0)
        bad_env("TCPXLIKE_OVERSIZE", v);
    tcpx_opt.deliver_oversize = v && strcmp(v, "deliver") == 0;
    read_faults(getenv("TCPXLIKE_FAULT"));

    v = getenv("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME");
    v = v && *v ? v : "lo";
    while (*v) {
        size_t len = strcspn(v, ",");
        struct sockaddr_in at;
        if (tcpx_opt.devices == MAX_DEVICES || len >= sizeof(tcpx_opt.interface[0]))
            bad_env("NCCL_GPUDIRECTTCPX_SOCKET_IFNAME", v);
        snprintf(tcpx_opt.interface[tcpx_opt.devices], sizeof(tcpx_opt.interface[0]), "%.*s", (int)len, v);
        if (wire_address(tcpx_opt.interface[tcpx_opt.devices], &at))
            tcpx_opt.devices++;
        else
            WARN("no interface %.*s with an IPv4 address", (int)len, v);
        v += len + (v[len] == ',');
    }
}

unsigned tcpx_faults_now(bool sending)
{
    unsigned all = atomic_fetch_add(&requests, 1) + 1, mine = atomic_fetch_add(sending ? &sends : &recvs, 1) + 1;
    unsigned what = 0;
    for (unsigned i = 0; i < n_faults; i++) {
        const struct fault *f = &faults[i];
        if (f->side == ANY ? f->at == all : f->at == mine && (f->side == SEND) == sending)
            what |= f->what;
    }
    return what;
}

__attribute__((destructor)) static void write_report(void)
{
    FILE *f = report && *report && owner == getpid() ? fopen(report, "ae") : NULL;
    if (!f)
        return;
    fprintf(f, "listens=%d comms=%d registrations=%d requests=%u cuda=%u pid=%d\n", tcpx_listens, tcpx_comms, tcpx_regs,
            requests, tcpx_cuda, (int)owner);
    fclose(f);
}
