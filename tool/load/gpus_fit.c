/* SPDX-License-Identifier: Apache-2.0 */
/* Matches pairs of GPUs to the machines: determines which GPUs exist on both nodes, and which NICs serve the GPUs. */
#include "tool/load/gpus.h"

#include "mem/cuda.h"
#include "net/sysfs.h"
#include "node/plan.h"
#include "tool/peer/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PATHS 256

static int scan_gpu_node(struct hw_node *node)
{
    int n = hw_cuda_count();
    if (n < 0)
        return n;
    HW_AUTO_FREE struct hw_bdf *at = calloc((size_t)n, sizeof *at);
    HW_AUTO_CLOSE int root = at ? hw_root_open("/") : hw_no_memory("the addresses of %d GPUs", n);
    if (root < 0)
        return root;
    for (int i = 0; i < n; i++) {
        struct hw_gpu_info info;
        int rc = hw_cuda_info(i, &info);
        if (rc < 0 || (rc = hw_bdf_parse(info.pci, &at[i])) < 0)
            return rc;
    }
    const struct hw_scan opt = {.cuda = at, .n_cuda = (size_t)n, .live = true};
    return hw_node_scan(node, root, &opt);
}

/* Copies to a pair the NUMA node, the CPUs, and those planned NICs that `reach` lists. If `asked` is true, the user
 * specified the NICs, and all of them are copied, so that connecting reports any NIC that does not reach the peer. */
static void apply_gpu_plan(struct gpu_pair *p, const struct hw_node *node, const struct hw_plan_gpu *planned,
                           bool asked, const char (*reach)[HAWSER_NIC_NAME], size_t n_reach)
{
    size_t at = 0, n;
    for (size_t i = 0; i < planned->n_nics; i++) {
        const char *name = node->netdev[planned->nic[i]].name;
        bool reaches = asked;
        for (size_t k = 0; k < n_reach; k++)
            reaches = reaches || strcmp(name, reach[k]) == 0;
        if (!reaches)
            continue;
        int k = snprintf(p->nics + at, sizeof p->nics - at, "%s%s", at ? "," : "", name);
        at = HW_MIN(at + (size_t)HW_MAX(k, 0), sizeof p->nics - 1);
    }
    const struct hw_gpu *gpu = &node->gpu[planned->gpu];
    p->numa = hw_node_numa_of(node, gpu->pci);
    p->has_cpus = *planned->cpus && hw_text_cpulist(planned->cpus, &p->cpus, &n) == 0;
}

/* Plans the NICs of all pairs (see gpus_fit()). reach lists the NICs that reach the peer. */
static int plan_nics(struct gpus *g, const char *nics, const char *map, const char (*reach)[HAWSER_NIC_NAME],
                     size_t n_reach)
{
    struct hw_node node = {0};
    struct hw_plan plan = {0};
    char list[GPUS_MAX * 6] = "";
    size_t at = 0;
    for (size_t i = 0; i < g->n; i++) {
        bool again = false; /* a GPU may be in several pairs */
        for (size_t k = 0; k < i; k++)
            again = again || g->pair[k].gpu == g->pair[i].gpu;
        if (!again)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? "," : "", g->pair[i].gpu);
    }
    int rc = scan_gpu_node(&node);
    const struct hw_plan_want want = {.gpus = list, .nics = nics, .map = map};
    if (rc == 0)
        rc = hw_plan_make(&plan, &node, &want);
    for (size_t i = 0; i < g->n && rc == 0; i++)
        for (size_t k = 0; k < plan.n_gpus; k++)
            if (plan.gpu[k].gpu == g->pair[i].gpu)
                apply_gpu_plan(&g->pair[i], &node, &plan.gpu[k], nics || plan.gpu[k].mapped, reach, n_reach);
    hw_plan_free(&plan);
    hw_node_free(&node);
    return rc < 0 ? hw_wrap(rc, "planning which NICs serve which GPU") : 0;
}

static void end_fit_session(struct session *s)
{
    HW_KEEP_ERROR();
    session_close(s);
}

int gpus_fit(struct gpus *g, hawser *h, const char *host, uint16_t port, const char *nics, const char *map, int *there,
             bool *wrapped)
{
    struct session s __attribute__((cleanup(end_fit_session))) = {0};
    struct tp_request q = {.type = TP_FACTS};
    HW_AUTO_FREE struct tp_reply *r = calloc(1, sizeof *r);
    HW_AUTO_FREE struct session_path *path = calloc(MAX_PATHS, sizeof *path);
    HW_AUTO_FREE char(*reach)[HAWSER_NIC_NAME] = calloc(MAX_PATHS, sizeof *reach);
    const struct hawser_connect_options any = {.size = sizeof any, .channels = 1};
    int here = hw_cuda_count();
    if (here < 0)
        return hw_wrap(here, "--gpus");
    if (!r || !path || !reach)
        return hw_no_memory("the peer's facts");
    int rc = session_open(&s, h, host, port, &any);
    if (rc < 0 || (rc = session_call(&s, &q, r, SESSION_CALL_MS)) < 0)
        return rc;
    *there = r->facts.gpus;
    rc = gpus_resolve(g, here, *there, wrapped);
    if (rc < 0)
        return rc;
    size_t n = session_paths(&s, path, MAX_PATHS);
    for (size_t i = 0; i < n; i++)
        memcpy(reach[i], path[i].nic, sizeof *reach);
    return plan_nics(g, nics, map, (const char(*)[HAWSER_NIC_NAME])reach, n);
}
