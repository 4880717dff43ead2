/* SPDX-License-Identifier: Apache-2.0 */
/* The two policies, and checks that the simulated kernel does not have more objects than the policy allows or than the
 * broker counts. */
#include "fuzz/tenant/tenant.h"
#include "verbs/policy/policy.h"

#define MOST_BYTES (6 * T_PAGE)
static const uint8_t most[VB_TYPES] = {
    [VB_CONTEXT] = 3, [VB_PD] = 2,   [VB_MR] = 3, [VB_MW] = 2,        [VB_CQ] = 2,   [VB_QP] = 2, [VB_SRQ] = 1,
    [VB_AH] = 2,      [VB_XRCD] = 1, [VB_WQ] = 1, [VB_RWQ_TABLE] = 1, [VB_FLOW] = 1, [VB_DM] = 1, [VB_COUNTERS] = 1};
const char *t_policy(bool all)
{
    return all ? "[default]\ndevices = fuzz0, fuzz1\nports = 1\nqp_types = rc\nallow = dmabuf, raw, flow, xrc\n"
                 "mr_bytes = 24KiB\nmax_contexts = 3\nmax_pds = 2\nmax_mrs = 3\nmax_mws = 2\nmax_cqs = 2\nmax_qps = 2\n"
                 "max_srqs = 1\nmax_ahs = 2\nmax_xrcds = 1\nmax_wqs = 1\nmax_rwq_tables = 1\nmax_flows = 1\n"
                 "max_dms = 1\nmax_counters = 1\ncqe = 64\nqp_wr = 32\n"
               : "[default]\ndevices = fuzz0, fuzz1\nports = 1\nqp_types = rc\nallow = none\ndestinations = ::/64\n"
                 "mr_bytes = 24KiB\nmax_contexts = 3\nmax_pds = 2\nmax_mrs = 3\nmax_mws = 2\nmax_cqs = 2\nmax_qps = 2\n"
                 "max_srqs = 1\nmax_ahs = 2\nmax_xrcds = 1\nmax_wqs = 1\nmax_rwq_tables = 1\nmax_flows = 1\n"
                 "max_dms = 1\nmax_counters = 1\ncqe = 64\nqp_wr = 32\n";
}

/* ---- quotas ------------------------------------------------------------------------------------------- */

/* Adds the objects of a node that has not ended to n and bytes. The node itself counts as a context if it was ever
 * passed to a program. */
T_UNSEEN static void count(const struct t_file *f, uint32_t n[T_DEVICES][VB_TYPES], uint64_t bytes[T_DEVICES])
{
    n[f->device][VB_CONTEXT] += f->given;
    for (unsigned i = 0; i < f->objects; i++) {
        n[f->device][f->object[i].type]++;
        bytes[f->device] += f->object[i].bytes;
    }
}

static void count_all(uint32_t n[T_DEVICES][VB_TYPES], uint64_t bytes[T_DEVICES])
{
    memset(n, 0, T_DEVICES * sizeof n[0]);
    memset(bytes, 0, T_DEVICES * sizeof bytes[0]);
    for (const struct t_file *f = t.nodes; f; f = f->next)
        count(f, n, bytes);
}

/* Returns the number that follows "name": in the status of a device. */
static uint64_t told(const char *text, const char *end, const char *name)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(text, key);
    return at && at < end ? strtoull(at + strlen(key), NULL, 10) : 0;
}

void t_rdma_status(const char *text)
{
    uint32_t n[T_DEVICES][VB_TYPES];
    uint64_t bytes[T_DEVICES];
    count_all(n, bytes);
    for (unsigned d = 0; d < T_DEVICES; d++) {
        char name[32];
        snprintf(name, sizeof name, "\"fuzz%u\"", d);
        const char *at = strstr(text, name), *next = at ? strstr(at, "\"device\":") : NULL;
        const char *end = next ? next : text + strlen(text);
        if (!at)
            continue;
        for (unsigned type = VB_PD; type < VB_TYPES; type++) {
            const char *what = vb_type_name((enum vb_type)type);
            T_HOLDS(!most[type] || told(at, end, what) >= n[d][type],
                    "device %u has %u objects of type %s, it counts %u", d, n[d][type], what,
                    (unsigned)told(at, end, what));
        }
        T_HOLDS(told(at, end, "mr_bytes") >= bytes[d], "device %u has %llu bytes registered, it counts %llu", d,
                (unsigned long long)bytes[d], (unsigned long long)told(at, end, "mr_bytes"));
    }
}

void t_rdma_check(void)
{
    uint32_t n[T_DEVICES][VB_TYPES];
    uint64_t bytes[T_DEVICES];
    count_all(n, bytes);
    for (unsigned d = 0; d < T_DEVICES; d++) {
        for (unsigned type = VB_CONTEXT; type < VB_TYPES; type++)
            T_HOLDS(!most[type] || n[d][type] <= most[type], "device %u has %u objects of type %s, of %u", d,
                    n[d][type], vb_type_name((enum vb_type)type), most[type]);
        T_HOLDS(bytes[d] <= MOST_BYTES, "device %u has %llu bytes registered", d, (unsigned long long)bytes[d]);
    }
}
