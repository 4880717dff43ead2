/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/gpus.h"

#include "mem/cuda.h"
#include "node/plan.h"
#include "node/sysfs.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Digits at *p that make at most GPUS_TOP. */
static bool ordinal(const char **p, int *out)
{
    int v = 0, n = 0;
    for (; isdigit((unsigned char)**p) && v <= GPUS_TOP; n++, (*p)++)
        v = 10 * v + (**p - '0');
    *out = v;
    return n > 0 && v <= GPUS_TOP;
}

static int add(struct gpus *g, int gpu, int peer, const char *text)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->pair[i].gpu == gpu && g->pair[i].peer == peer)
            return hw_fail(-EINVAL, "'%.80s' names GPU %d twice", text, gpu);
    if (g->n == GPUS_MAX)
        return hw_fail(-E2BIG, "'%.80s' makes more than %d pairs of GPUs", text, GPUS_MAX);
    g->pair[g->n++] = (struct gpu_pair){.gpu = gpu, .peer = peer, .numa = -1};
    return 0;
}

int gpus_parse(const char *text, struct gpus *out)
{
    const char *p = text;
    *out = (struct gpus){.all = strcmp(text, "all") == 0};
    while (!out->all) {
        int first, last, peer = GPUS_SAME;
        bool good = ordinal(&p, &first);
        last = first;
        if (good && *p == '-') {
            p++;
            good = ordinal(&p, &last) && first <= last;
        } else if (good && *p == ':') {
            p++;
            good = ordinal(&p, &peer);
        }
        if (!good || (*p && *p != ','))
            return hw_fail(-EINVAL,
                           "'%.80s' is no list of GPUs like all, 0-3, 0,2 or 0:5,1:4 (here:there), from 0 to %d", text,
                           GPUS_TOP);
        for (int i = first; i <= last; i++) {
            int rc = add(out, i, peer, text);
            if (rc < 0)
                return rc;
        }
        if (!*p)
            break;
        p++;
    }
    return 0;
}

static const char *range(int n, char *buf, size_t cap)
{
    snprintf(buf, cap, n == 1 ? "one, GPU 0" : "%d, 0 to %d", n, n - 1);
    return buf;
}

int gpus_resolve(struct gpus *g, int here, int there, bool *wrapped)
{
    char text[48];
    *wrapped = false;
    if (there < 1)
        return hw_fail(-ENODEV, "the serving node has no GPU, or no CUDA driver that it could find");
    for (int i = 0; g->all && i < here; i++) {
        int rc = add(g, i, GPUS_SAME, "all");
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < g->n; i++) {
        struct gpu_pair *p = &g->pair[i];
        if (p->gpu >= here)
            return hw_fail(-ENODEV, "GPU %d is not there: this node has %s", p->gpu, range(here, text, sizeof text));
        if (p->peer >= there)
            return hw_fail(-ENODEV, "GPU %d is not there: the serving node has %s", p->peer,
                           range(there, text, sizeof text));
        if (p->peer == GPUS_SAME) {
            p->peer = p->gpu % there;
            *wrapped = *wrapped || p->gpu >= there;
        }
    }
    return 0;
}

/* ---- the plan ------------------------------------------------------------------------------- */

static int scan(struct hw_node *node)
{
    int n = hw_cuda_count(), rc = 0;
    if (n < 0)
        return n;
    struct hw_bdf *at = calloc((size_t)n, sizeof *at);
    int root = at ? hw_root_open("/") : hw_fail(-ENOMEM, "no memory for %d GPUs' addresses", n);
    for (int i = 0; i < n && root >= 0 && rc == 0; i++) {
        struct hw_gpu_info info;
        rc = hw_cuda_info(i, &info);
        if (rc == 0)
            rc = hw_bdf_parse(info.pci, &at[i]);
    }
    if (root < 0)
        rc = root;
    if (rc == 0) {
        const struct hw_scan opt = {.cuda = at, .n_cuda = (size_t)n, .live = true};
        rc = hw_node_scan(node, root, &opt);
    }
    hw_close(&root);
    free(at);
    return rc;
}

/* asked: these NICs are what the user wants, so that one which does not reach the peer is for connecting to complain
 * of.
 */
static void fit(struct gpu_pair *p, const struct hw_node *node, const struct hw_plan_gpu *planned, bool asked,
                const char (*reach)[HAWSER_NIC_NAME], size_t n_reach)
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

int gpus_plan(struct gpus *g, const char *nics, const char *map, const char (*reach)[HAWSER_NIC_NAME], size_t n_reach)
{
    struct hw_node node = {0};
    struct hw_plan plan = {0};
    char list[GPUS_MAX * 6] = "";
    size_t at = 0;
    for (size_t i = 0; i < g->n; i++) {
        bool again = false; /* a GPU may have two peers */
        for (size_t k = 0; k < i; k++)
            again = again || g->pair[k].gpu == g->pair[i].gpu;
        if (!again)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d", at ? "," : "", g->pair[i].gpu);
    }
    int rc = scan(&node);
    const struct hw_plan_want want = {.gpus = list, .nics = nics, .map = map};
    if (rc == 0)
        rc = hw_plan_make(&plan, &node, &want);
    for (size_t i = 0; i < g->n && rc == 0; i++)
        for (size_t k = 0; k < plan.n_gpus; k++)
            if (plan.gpu[k].gpu == g->pair[i].gpu)
                fit(&g->pair[i], &node, &plan.gpu[k], nics || plan.gpu[k].mapped, reach, n_reach);
    hw_plan_free(&plan);
    hw_node_free(&node);
    return rc < 0 ? hw_wrap(rc, "planning which NICs serve which GPU") : 0;
}
