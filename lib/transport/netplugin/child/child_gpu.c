/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPUs in the child: the current GPU, and GPU memory. The child allocates the memory and the parent opens it through
 * CUDA IPC. The opposite does not work: a plugin such as GPUDirect-TCPX exports registered memory as a dma-buf, which
 * is impossible for memory that was opened through IPC (see hw_cuda_ipc_share() in lib/mem/cuda.h).
 */
#include "transport/netplugin/child/child.h"
#include "transport/netplugin/table/trace.h"

#include "net/pci.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void kid_set_gpu(struct kid *k, const struct hw_space *gpu)
{
    if (!gpu || k->set == gpu)
        return;
    if (k->set)
        hw_cuda_leave();
    k->set = hw_cuda_enter(gpu) == 0 ? gpu : NULL;
    np_trace_gpu(k->set ? k->set->device : -1);
}

static bool read_gpu_pci_path(const char *pci, struct hw_pci_path *out)
{
    char file[64], link[512];
    snprintf(file, sizeof(file), "/sys/bus/pci/devices/%s", pci);
    ssize_t n = readlink(file, link, sizeof(link) - 1);
    link[HW_MAX(n, (ssize_t)0)] = 0;
    return n > 0 && hw_pci_path_parse(link, out) == 0;
}

/* Returns the GPU nearest to the plugin's device by PCI path, 0 if the paths are unknown, or -errno if there is no
 * GPU. */
static int find_gpu_near_device(struct kid *k, int dev)
{
    ncclNetProperties_v12_t p;
    struct hw_pci_path nic, way;
    struct hw_gpu_info info;
    int n = hw_cuda_count(), best = 0;
    enum hw_dist least = HW_DIST_SYS;
    if (n < 0 || np_table_properties(&k->t, dev, &p) != ncclSuccess || !p.pciPath ||
        hw_pci_path_parse(p.pciPath, &nic) < 0)
        return HW_MIN(n, 0);
    for (int i = 0; i < n; i++) {
        enum hw_dist far = HW_DIST_SYS;
        if (hw_cuda_info(i, &info) == 0 && read_gpu_pci_path(info.pci, &way))
            far = hw_pci_distance(&nic, -1, &way, -1);
        if (far < least) {
            least = far;
            best = i;
        }
    }
    return best;
}

int kid_gpu(struct kid *k, const struct np_message *m, struct np_gpu *out)
{
    const struct hw_space *s;
    if (m->number >= NP_DEVICES)
        return hw_fail(-EINVAL, "invalid device number %u", m->number);
    int gpu = m->memory == UINT32_MAX ? find_gpu_near_device(k, (int)m->number) : (int)m->memory;
    int rc = gpu < 0 ? gpu : hw_space_device(HAWSER_MEM_CUDA, gpu, &s);
    if (rc < 0)
        return rc;
    out->device = gpu;
    return 0;
}

int kid_gpu_of(const struct np_message *m, const struct hw_space **out)
{
    *out = NULL;
    return m->memory == UINT32_MAX ? 0 : hw_space_device(HAWSER_MEM_CUDA, (int)m->memory, out);
}

int kid_alloc(struct kid *k, const struct np_message *m, struct np_gpu *out)
{
    const struct hw_space *s;
    void *at = NULL;
    if (m->number >= NP_MEMS || k->mem[m->number].at)
        return hw_fail(-EINVAL, "memory %u does not exist or is in use", m->number);
    int rc = hw_space_device(HAWSER_MEM_CUDA, (int)m->memory, &s);
    if (rc == 0)
        rc = s->ops->alloc(s, m->len, &at);
    if (rc < 0)
        return rc;
    rc = hw_cuda_ipc_share(s, at, &out->handle, &out->offset);
    if (rc < 0) {
        HW_KEEP_ERROR();
        s->ops->free(s, at, m->len);
        return rc;
    }
    k->mem[m->number].at = at;
    k->mem[m->number].len = m->len;
    k->mem[m->number].gpu = s;
    return 0;
}
