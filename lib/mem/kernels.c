/* SPDX-License-Identifier: Apache-2.0 */
#include "mem/kernels.h"

#include <pthread.h>
#include <stdlib.h>

extern const char hw_gather_ptx[]; /* kernels/gather.ptx, embedded by scripts/embed.py */

static struct loaded {
    const struct hw_space *space; /* exists as long as the process */
    struct hw_kernels kernels;
    struct loaded *next;
} * all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int load_gpu_kernels(const struct hw_space *s, struct hw_kernels *k)
{
    const struct hw_cuda *cu;
    CUmodule module;
    int rc = hw_cuda(&cu);
    if (rc < 0)
        return rc;
    rc = hw_cuda_enter(s);
    if (rc < 0)
        return rc;
    CUresult e = cu->ModuleLoadData(&module, hw_gather_ptx);
    if (!e) {
        e = cu->ModuleGetFunction(&k->gather, module, "hw_gather");
        if (!e)
            e = cu->ModuleGetFunction(&k->gather_few, module, "hw_gather_few");
        if (!e)
            e = cu->ModuleGetFunction(&k->fill, module, "hw_pattern_fill");
        if (!e)
            e = cu->ModuleGetFunction(&k->check, module, "hw_pattern_check");
        if (e)
            (void)cu->ModuleUnload(module);
    }
    hw_cuda_leave();
    return e ? hw_cuda_fail(e, "loading hawser's GPU kernels (PTX 7.0 for sm_70) on %s", s->name) : 0;
}

int hw_kernels(const struct hw_space *s, const struct hw_kernels **out)
{
    int rc = 0;
    pthread_mutex_lock(&lock);
    struct loaded *l = all;
    while (l && l->space != s)
        l = l->next;
    if (!l) {
        l = calloc(1, sizeof(*l));
        rc = l ? load_gpu_kernels(s, &l->kernels) : hw_no_memory("the GPU kernels on %s", s->name);
        if (rc < 0) {
            free(l);
        } else {
            l->space = s;
            l->next = all;
            all = l;
        }
    }
    pthread_mutex_unlock(&lock);
    if (rc == 0)
        *out = &l->kernels;
    return rc;
}
