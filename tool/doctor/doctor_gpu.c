/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of GPUs and of NVIDIA's kernel modules. */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#define VENDOR_NVIDIA 0x10de
#define CLASS_DISPLAY 0x03 /* pci_ids.h: PCI_BASE_CLASS_DISPLAY */
#define FIRST_DMABUF  515  /* first driver version with dma-buf export (CUDA 11.7) */
#define SMALL_WINDOW  (256ull << 20)

enum driver_kind { NO_DRIVER, OPEN, PROPRIETARY };

/* Returns the kind of the loaded driver and stores its version. /proc/driver/nvidia/version starts with "NVRM version:
 * NVIDIA UNIX Open Kernel Module for x86_64 580.95.05 Release Build ..." or "NVRM version: NVIDIA UNIX x86_64 Kernel
 * Module 535.54.03 ...". The version is the first word that starts with three digits and a dot. */
static enum driver_kind read_gpu_driver(int root, char version[32])
{
    char text[1024];
    version[0] = 0;
    if (hw_root_text(root, text, sizeof text, "proc/driver/nvidia/version") < 0)
        return NO_DRIVER;
    text[strcspn(text, "\n")] = 0;
    bool open = strstr(text, "Open Kernel Module") != NULL;
    char *save = NULL;
    for (char *w = strtok_r(text, " \t", &save); w; w = strtok_r(NULL, " \t", &save))
        if (strspn(w, "0123456789") == 3 && w[3] == '.') {
            snprintf(version, 32, "%.31s", w);
            break;
        }
    return open ? OPEN : PROPRIETARY;
}

/* Returns the number of NVIDIA's display devices on PCI. Calls fn for each if fn is not NULL. */
static size_t pci_gpus(struct dr_report *d, void (*fn)(struct dr_report *d, const char *bdf))
{
    struct hw_names l = {0};
    size_t n = 0;
    if (hw_root_list(d->m->root, &l, "sys/bus/pci/devices") == 0)
        for (size_t i = 0; i < l.n; i++) {
            uint64_t vendor, class;
            if (hw_root_u64(d->m->root, &vendor, "sys/bus/pci/devices/%s/vendor", l.name[i]) < 0 ||
                hw_root_u64(d->m->root, &class, "sys/bus/pci/devices/%s/class", l.name[i]) < 0 ||
                vendor != VENDOR_NVIDIA || class >> 16 != CLASS_DISPLAY)
                continue;
            n++;
            if (fn)
                fn(d, l.name[i]);
        }
    hw_names_free(&l);
    return n;
}

void dr_gpu_driver(struct dr_report *d)
{
    char v[32];
    enum driver_kind kind = read_gpu_driver(d->m->root, v);
    size_t gpus = pci_gpus(d, NULL);
    unsigned long major = strtoul(v, NULL, 10);
    if (kind == NO_DRIVER && gpus == 0)
        dr_say(d, DR_SKIP, NULL, "no NVIDIA GPU on PCI, and no NVIDIA driver");
    else if (kind == NO_DRIVER) {
        dr_say(d, DR_FAIL, NULL, "NVIDIA GPUs on PCI: %zu, but NVIDIA's driver is not loaded", gpus);
        dr_mend(d, "apt install nvidia-open && reboot");
    } else if (!major)
        dr_say(d, DR_SKIP, NULL, "/proc/driver/nvidia/version has no version");
    else if (kind == PROPRIETARY) {
        dr_say(d, DR_WARN, NULL, "%s, proprietary modules: no dma-buf export, and RDMA only with nvidia_peermem", v);
        dr_mend(d, "apt install nvidia-open && reboot");
    } else if (major < FIRST_DMABUF) {
        dr_say(d, DR_WARN, NULL, "%s, open modules, but older than %d", v, FIRST_DMABUF);
        dr_mend(d, "apt install nvidia-open && reboot");
    } else
        dr_say(d, DR_PASS, NULL, "%s, open modules", v);
}

static bool no_cuda(struct dr_report *d)
{
    if (d->m->n_gpus < 0)
        dr_say(d, DR_SKIP, NULL, "CUDA is not available: %s", d->m->cuda_why);
    else if (d->m->n_gpus == 0)
        dr_say(d, DR_SKIP, NULL, "CUDA finds no GPU");
    return d->m->n_gpus <= 0;
}

static const char *format_gpu_ordinal(int i, char buf[32])
{
    snprintf(buf, 32, "GPU %d", i);
    return buf;
}

void dr_gpu_dmabuf(struct dr_report *d)
{
    char name[32];
    if (no_cuda(d))
        return;
    for (int i = 0; i < d->m->n_gpus; i++) {
        const struct hw_gpu_info *g = &d->m->gpu[i];
        if (g->dmabuf) {
            dr_say(d, DR_PASS, format_gpu_ordinal(i, name), "%s supports dma-buf export", g->name);
        } else {
            dr_say(d, DR_WARN, format_gpu_ordinal(i, name), "%s does not support dma-buf export with this driver",
                   g->name);
            dr_mend(d, "apt install nvidia-open && reboot   # needs a Turing or newer GPU, and driver %d or later",
                    FIRST_DMABUF);
        }
    }
}

void dr_gpu_gpudirect(struct dr_report *d)
{
    char name[32];
    if (no_cuda(d))
        return;
    for (int i = 0; i < d->m->n_gpus; i++) {
        const struct hw_gpu_info *g = &d->m->gpu[i];
        if (g->gpudirect)
            dr_say(d, DR_PASS, format_gpu_ordinal(i, name), "%s supports GPUDirect RDMA", g->name);
        else {
            dr_say(d, DR_WARN, format_gpu_ordinal(i, name),
                   "%s does not support GPUDirect RDMA: a consumer GPU, or a virtual machine that hides this feature",
                   g->name);
            dr_mend(d, "nvidia-smi -q   # shows the product name; only data-centre and workstation GPUs support "
                       "GPUDirect RDMA");
        }
    }
}

/* Checks the size of a GPU's BAR1. The second line of the sysfs file "resource" describes BAR1: start, end, flags
 * (drivers/pci/pci-sysfs.c, resource_show()). */
static void bar1_of(struct dr_report *d, const char *bdf)
{
    char text[HW_ATTR_MAX];
    unsigned long long start = 0, end = 0;
    uint64_t memory = 0;
    char *at = NULL, *rest = NULL;
    const char *line = NULL;
    if (hw_root_text(d->m->root, text, sizeof text, "sys/bus/pci/devices/%s/resource", bdf) > 0)
        line = strchr(text, '\n');
    if (line) {
        start = strtoull(line + 1, &at, 16);
        end = strtoull(at, &rest, 16);
    }
    if (!line || at == line + 1 || rest == at) {
        dr_say(d, DR_SKIP, bdf, "the GPU's PCI resources cannot be read");
        return;
    }
    for (int i = 0; i < d->m->n_gpus; i++)
        if (strcasecmp(d->m->gpu[i].pci, bdf) == 0)
            memory = d->m->gpu[i].memory;
    double mib = start < end ? (double)(end - start + 1) / (1 << 20) : 0;
    if (start >= end) {
        dr_say(d, DR_FAIL, bdf, "no BAR1: the firmware found no address space for the window");
        dr_mend(d,
                "lspci -vv -s %s   # then set 'Above 4G decoding' in the firmware, or boot the kernel with pci=realloc",
                bdf);
    } else if (end - start + 1 <= SMALL_WINDOW || (memory && end - start + 1 < memory)) {
        dr_say(d, DR_WARN, bdf, "%.0f MiB%s", mib, memory ? ", less than the GPU's memory" : "");
        dr_mend(d, "nvidia-smi -q -d MEMORY   # shows BAR1; 'Resizable BAR' in the firmware makes it larger");
    } else
        dr_say(d, DR_PASS, bdf, "%.0f MiB", mib);
}

void dr_gpu_bar1(struct dr_report *d)
{
    if (pci_gpus(d, bar1_of) == 0)
        dr_say(d, DR_SKIP, NULL, "no NVIDIA GPU on PCI");
}

void dr_gpu_peermem(struct dr_report *d)
{
    char v[32];
    int root = d->m->root;
    enum driver_kind kind = read_gpu_driver(root, v);
    struct hw_names rdma = {0};
    bool ib = hw_root_list(root, &rdma, "sys/class/infiniband") == 0 && rdma.n > 0;
    hw_names_free(&rdma);
    if (kind == NO_DRIVER || !ib)
        dr_say(d, DR_SKIP, NULL, "%s", kind == NO_DRIVER ? "no NVIDIA driver" : "no RDMA NIC");
    else if (hw_root_has(root, "sys/module/nvidia_peermem"))
        dr_say(d, DR_PASS, NULL, "loaded");
    else if (kind == OPEN)
        dr_say(d, DR_PASS, NULL, "not loaded, and not needed: the open modules export dma-bufs");
    else {
        dr_say(d, DR_WARN, NULL, "not loaded, but the modules are proprietary and there are RDMA NICs");
        dr_mend(d, "modprobe nvidia-peermem");
    }
}
