/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/table/quirks.h"

#include "transport/netplugin/table/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define G "NCCL_GPUDIRECTTCPX_"

enum { WAIT_MOST_MS = 600000 };

/* For google/nccl-plugin-gpudirecttcpx v3.1.9. */
static const struct np_env tcpx_env[] = {
    {.name = "NCCL_DYNAMIC_CHUNK_SIZE",
     .rule = NP_ENV_IS,
     .value = "524288",
     .why = "the default, 0, leads to tasks of 0 bytes, which break the connection"},
    {.name = G "RECV_SYNC",
     .rule = NP_ENV_UNSET,
     .value = "0",
     .why = "if set, the receiver sends 4 bytes to the sender for each request, so both sides must use the same value"},
    {.name = G "UNIX_CLIENT_PREFIX",
     .rule = NP_ENV_MANAGER,
     .value = "rx_rule_manager",
     .fallback = "/tmp",
     .why = "the receive datapath manager (RxDM) steers the plugin's flows and creates its sockets in /run/tcpx"},
    {.name = G "SOCKET_IFNAME", .rule = NP_ENV_NICS, .why = "the data NICs, which are the NICs near the GPUs"},
    {.name = G "CTRL_DEV", .rule = NP_ENV_NICS, .why = "the NIC of the control connections, which is not a data NIC"},
};

static const struct np_quirk quirks[] = {
    {
        /*
         * GPUDirect-TCPX. Only its test() moves bytes. test() never writes *size. It returns 3 for a request that is
         * not the oldest, and also if 16 requests are held. Receives are held until irecvConsumed(). After the 80 bytes
         * that the peer needs, the handle contains a pointer of this process, which the peer would dereference.
         * iflush() must not be called, because it reads through *request. accept() sleeps until its flow rules take
         * effect, by default for 5 s (PROGRAM_FLOW_STEERING_WAIT_MICROS), and writes to **rdev. Programs set up its
         * connections in several threads at the same time, as NCCL does if a process has several communicators.
         */
        .table = "GPUDirectTCPX",
        .max_requests = 16,
        .max_size = NET_UNPACK_MAX_SLICE_SIZE,
        .max_fragments = NET_UNPACK_MAX_SLICE_PAGES,
        .align = 4096,
        .handle_bytes = 80,
        .remote_only = true,
        .wait_env = G "PROGRAM_FLOW_STEERING_WAIT_MICROS",
        .wait_ms = 5000,
        .env = tcpx_env,
        .n_env = HW_ARRAY_LEN(tcpx_env),
    },
    {
        /* aws-ofi-nccl. A listen or connect that opens an endpoint took 0.1 to 1.7 s with the tcp provider of libfabric
         * 1.17 on two busy cores. Within a process these calls are serialized, and regMr waits for the lock that they
         * hold. */
        .table = "Libfabric",
        .wait_ms = 15000,
    },
    {
        /* google/nccl-fastsocket. Its connect() and accept() each wait for the peer. */
        .table = "FastSocket",
        .setup_threads = true,
    },
    {.table = ""},
};

const struct np_quirk *np_quirk_of(const char *table_name)
{
    const struct np_quirk *q = quirks;
    while (strncmp(table_name, q->table, strlen(q->table)) != 0)
        q++;
    return q;
}

uint32_t np_quirk_size(const struct np_quirk *q, uint32_t mtu)
{
    uint32_t size = q->max_size ? q->max_size : UINT32_MAX;
    if (!q->max_fragments)
        return size;
    /* Counts the fragments of a packet: one for each page of its payload, and one more because the payload may begin
     * within a page. The 52 bytes are the IPv4 and TCP headers with timestamps. A power of two keeps the caller's
     * chunks aligned. */
    const uint64_t page = 4096; /* of the plugin's receive buffer */
    const uint64_t payload = mtu > 576 ? mtu - 52 : 524;
    const uint64_t most = payload * (q->max_fragments / ((payload + page - 1) / page + 1));
    while (size > most)
        size = size & (size - 1) ? 1u << (31 - __builtin_clz(size)) : size / 2;
    return size;
}

/* ---- the environment ------------------------------------------------------------------------ */

struct report {
    np_report_fn fn;
    void *arg;
    int bad;
};

static void report_quirk_finding(struct report *r, enum np_grade grade, const char *fmt, ...) HW_PRINTF(3, 4);
static void report_quirk_finding(struct report *r, enum np_grade grade, const char *fmt, ...)
{
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    if (grade == NP_BAD && r->bad++ == 0)
        hw_fail(-EINVAL, "%s", line);
    if (r->fn)
        r->fn(r->arg, grade, line);
}

static const char *find_quirk_env(const char *const *env, const char *name)
{
    const size_t n = strlen(name);
    for (; env && *env; env++)
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
            return *env + n + 1;
    return NULL;
}

unsigned np_quirk_wait_ms(const struct np_quirk *q, const char *const *env)
{
    const char *v = q->wait_env ? find_quirk_env(env, q->wait_env) : NULL;
    char *end;
    if (!v || !*v)
        return q->wait_ms;
    errno = 0;
    const unsigned long us = strtoul(v, &end, 10);
    return errno || *end ? q->wait_ms : (unsigned)HW_MIN(us / 1000 + 1, (unsigned long)WAIT_MOST_MS);
}

static void check_quirk_nics(struct report *r, const struct np_env *e, const char *v)
{
    struct stat st;
    char path[64];
    if (!v || !*v) {
        report_quirk_finding(r, NP_WARN, "%s is not set, so the plugin chooses the NICs: set it to %s", e->name,
                             e->why);
        return;
    }
    for (const char *p = v; *p;) {
        const size_t n = strcspn(p, ",");
        if (n > 0 && (n > 15 || memchr(p, '/', n) || /* IFNAMSIZ includes the NUL */
                      snprintf(path, sizeof(path), "/sys/class/net/%.*s", (int)n, p) < 0 || stat(path, &st) < 0)) {
            report_quirk_finding(r, NP_BAD, "%s contains '%.*s', but there is no such NIC: set it to %s", e->name,
                                 (int)HW_MIN(n, 40u), p, e->why);
            return;
        }
        p += n + (p[n] == ',');
    }
    report_quirk_finding(r, NP_GOOD, "%s=%.100s", e->name, v);
}

static void check_one(struct report *r, const struct np_env *e, const char *v)
{
    struct stat st;
    char path[256];
    switch (e->rule) {
    case NP_ENV_IS:
        if (!v || !*v || strcmp(v, "0") == 0)
            report_quirk_finding(r, NP_BAD, "%s is %s: %s; export %s=%s", e->name, v && *v ? v : "not set", e->why,
                                 e->name, e->value);
        else if (strcmp(v, e->value) != 0)
            report_quirk_finding(r, NP_WARN, "%s=%.40s: only %s is known to work: %s", e->name, v, e->value, e->why);
        else
            report_quirk_finding(r, NP_GOOD, "%s=%s", e->name, v);
        break;
    case NP_ENV_UNSET:
        if (v && strcmp(v, e->value) != 0)
            report_quirk_finding(r, NP_WARN, "%s=%.40s: %s; unset it", e->name, v, e->why);
        else
            report_quirk_finding(r, NP_GOOD, "%s is %s", e->name, v ? v : "not set");
        break;
    case NP_ENV_NICS:
        check_quirk_nics(r, e, v);
        break;
    case NP_ENV_MANAGER:
        snprintf(path, sizeof(path), "%s/%s", v && *v ? v : e->fallback, e->value);
        if (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))
            report_quirk_finding(r, NP_GOOD, "%s: %s exists", e->name, path);
        else
            report_quirk_finding(r, NP_BAD, "%s is %.80s, and there is no socket %.120s: %s", e->name,
                                 v && *v ? v : "not set", path, e->why);
        break;
    }
}

int np_check_env(const struct np_quirk *q, const char *const *env, np_report_fn fn, void *arg)
{
    struct report r = {.fn = fn, .arg = arg};
    for (size_t i = 0; i < q->n_env; i++)
        check_one(&r, &q->env[i], find_quirk_env(env, q->env[i].name));
    return r.bad;
}
