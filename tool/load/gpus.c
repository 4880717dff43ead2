/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/load/gpus.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses a decimal GPU number of at most GPUS_TOP at *p, and advances *p past the digits. */
static bool parse_gpu_ordinal(const char **p, int *out)
{
    int v = 0, n = 0;
    for (; isdigit((unsigned char)**p) && v <= GPUS_TOP; n++, (*p)++)
        v = 10 * v + (**p - '0');
    *out = v;
    return n > 0 && v <= GPUS_TOP;
}

static int get_peer_gpu(int gpu, int peer)
{
    return peer == GPUS_SAME ? gpu : peer;
}

static int add_gpu_pair(struct gpus *g, int gpu, int peer, const char *text)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->pair[i].gpu == gpu && get_peer_gpu(gpu, g->pair[i].peer) == get_peer_gpu(gpu, peer))
            return hw_fail(-EINVAL, "'%.80s' lists GPU %d twice", text, gpu);
    if (g->n == GPUS_MAX)
        return hw_fail(-E2BIG, "'%.80s' has too many pairs of GPUs; at most %d are allowed", text, GPUS_MAX);
    g->pair[g->n++] = (struct gpu_pair){.gpu = gpu, .peer = peer, .numa = -1};
    return 0;
}

int gpus_parse(const char *text, struct gpus *out)
{
    const char *p = text;
    *out = (struct gpus){.all = strcmp(text, "all") == 0};
    while (!out->all) {
        int first, last, peer = GPUS_SAME;
        bool good = parse_gpu_ordinal(&p, &first);
        last = first;
        if (good && *p == '-') {
            p++;
            good = parse_gpu_ordinal(&p, &last) && first <= last;
        } else if (good && *p == ':') {
            p++;
            good = parse_gpu_ordinal(&p, &peer);
        }
        if (!good || (*p && *p != ','))
            return hw_fail(-EINVAL,
                           "'%.80s' is not a list of GPUs such as all, 0-3, 0,2 or 0:5,1:4 (local:remote), with "
                           "numbers from 0 to %d",
                           text, GPUS_TOP);
        for (int i = first; i <= last; i++) {
            int rc = add_gpu_pair(out, i, peer, text);
            if (rc < 0)
                return rc;
        }
        if (!*p)
            break;
        p++;
    }
    return 0;
}

static const char *format_gpu_range(int n, char *buf, size_t cap)
{
    snprintf(buf, cap, n == 1 ? "only GPU 0" : "%d GPUs, 0 to %d", n, n - 1);
    return buf;
}

int gpus_resolve(struct gpus *g, int here, int there, bool *wrapped)
{
    char text[48];
    *wrapped = false;
    if (there < 1)
        return hw_fail(-ENODEV, "the serving node has no GPU, or found no CUDA driver");
    for (int i = 0; g->all && i < here; i++) {
        int rc = add_gpu_pair(g, i, GPUS_SAME, "all");
        if (rc < 0)
            return rc;
    }
    for (size_t i = 0; i < g->n; i++) {
        struct gpu_pair *p = &g->pair[i];
        if (p->gpu >= here)
            return hw_fail(-ENODEV, "GPU %d does not exist: this node has %s", p->gpu,
                           format_gpu_range(here, text, sizeof text));
        if (p->peer >= there)
            return hw_fail(-ENODEV, "GPU %d does not exist: the serving node has %s", p->peer,
                           format_gpu_range(there, text, sizeof text));
        if (p->peer == GPUS_SAME) {
            p->peer = p->gpu % there;
            *wrapped = *wrapped || p->gpu >= there;
        }
    }
    return 0;
}
