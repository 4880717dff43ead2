/* SPDX-License-Identifier: Apache-2.0 */
/* The NICs as presented to NCCL: their positions in the machine, their speeds, and their groups. */
#include "devices.h"
#include "net/rails.h"
#include "net/sysfs.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PCI_DEVICES  "sys/bus/pci/devices"
#define NVIDIA       0x10de
#define DISPLAY      0x03 /* the base class of GPUs (PCI Code and ID Assignment Specification) */
#define GPUS_MAX     64
#define VIRTUAL_MBPS 24000 /* Mbit/s of a device if one of its NICs reports no speed */
/* minimum Mbit/s of a device: NCCL finds no path below 960 Mbit/s, because its search ends at 0.12 GB/s */
#define LEAST_MBPS 1000
#define MOST_MBPS  INT32_MAX /* a higher speed is an error of the driver: the sum of all NICs' speeds could overflow */

void hn_find_places(int root, struct hn_nic *nic, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char link[PATH_MAX];
        int64_t value;
        nic[i].numa = -1;
        nic[i].pci.depth = 0;
        nic[i].mbps = 0;
        nic[i].down = hw_root_i64(root, &value, "sys/class/net/%s/carrier", nic[i].name) == 0 && value == 0;
        if (hw_root_link(root, link, sizeof(link), "sys/class/net/%s", nic[i].name) < 0 ||
            hw_pci_path_parse(link, &nic[i].pci) < 0)
            nic[i].pci.depth = 0;
        if (hw_root_i64(root, &value, "sys/class/net/%s/device/numa_node", nic[i].name) == 0)
            nic[i].numa = (int)value;
        if (hw_root_i64(root, &value, "sys/class/net/%s/speed", nic[i].name) == 0 && value > 0 &&
            value <= MOST_MBPS) /* -1 means unknown */
            nic[i].mbps = (uint64_t)value;
    }
}

struct gpu {
    struct hw_pci_path pci;
    int numa;
};

static unsigned find_gpus(int root, struct gpu *gpu)
{
    struct hw_names l;
    unsigned n = 0;
    if (hw_root_list(root, &l, PCI_DEVICES) < 0) {
        hw_names_free(&l);
        return 0;
    }
    for (size_t i = 0; i < l.n && n < GPUS_MAX; i++) {
        char link[PATH_MAX];
        uint64_t vendor, class;
        int64_t numa;
        if (hw_root_u64(root, &vendor, PCI_DEVICES "/%s/vendor", l.name[i]) < 0 || vendor != NVIDIA ||
            hw_root_u64(root, &class, PCI_DEVICES "/%s/class", l.name[i]) < 0 || class >> 16 != DISPLAY ||
            hw_root_link(root, link, sizeof(link), PCI_DEVICES "/%s", l.name[i]) < 0 ||
            hw_pci_path_parse(link, &gpu[n].pci) < 0)
            continue;
        gpu[n].numa = hw_root_i64(root, &numa, PCI_DEVICES "/%s/numa_node", l.name[i]) == 0 ? (int)numa : -1;
        n++;
    }
    hw_names_free(&l);
    return n;
}

/* Returns true if both devices are below the same root port, and thus share the port's link to the CPU. */
static bool share_root_port(const struct hw_pci_path *a, const struct hw_pci_path *b)
{
    return a->depth > 1 && b->depth > 1 && strcmp(a->root, b->root) == 0 && hw_bdf_cmp(a->at[0], b->at[0]) == 0;
}

static bool is_with_gpu(const struct hn_nic *nic, const struct gpu *gpu, unsigned n, bool by_switch)
{
    for (unsigned i = 0; i < n; i++)
        if (by_switch ? share_root_port(&nic->pci, &gpu[i].pci) : nic->pci.depth && nic->numa == gpu[i].numa)
            return true;
    return false;
}

unsigned hn_group_nics(int root, const struct hn_nic *nic, unsigned n, uint8_t *group)
{
    struct gpu gpu[GPUS_MAX];
    bool by_switch[HN_NICS_MAX];
    unsigned gpus = find_gpus(root, gpu), groups = 0, switches = 0, nodes = 0;
    for (unsigned i = 0; i < n; i++) {
        unsigned k = 0;
        by_switch[i] = is_with_gpu(&nic[i], gpu, gpus, true);
        for (; k < i; k++)
            if (by_switch[i] == by_switch[k] &&
                (by_switch[i] ? share_root_port(&nic[i].pci, &nic[k].pci)
                              : nic[i].numa == nic[k].numa && !nic[i].pci.depth == !nic[k].pci.depth))
                break;
        if (k < i) {
            group[i] = group[k];
            continue;
        }
        group[i] = (uint8_t)groups++;
        switches += by_switch[i];
        nodes += !by_switch[i] && is_with_gpu(&nic[i], gpu, gpus, false);
    }
    return switches ? switches : nodes;
}

/* Returns the number of the NIC's rail in the map, or HN_NO_RAIL if there is none. NCCL compares these numbers between
 * nodes that share NVLink, where the same rail may have another NIC. */
static int find_rail(const char *rails, const struct hn_nic *nic)
{
    struct hw_path_end end = {.addr = nic->ip};
    memcpy(end.name, nic->name, sizeof(end.name));
    const int number = hw_rails_number(rails, &end);
    return number < 0 || number > INT16_MAX ? HN_NO_RAIL : number;
}

/* Writes the NIC's PCI path in the kernel's form, which NCCL uses for its topology. Leaves out unchanged if the NIC has
 * no PCI path. */
static void find_pci_path(const char *nic, char *out, size_t cap)
{
    char path[64], real[PATH_MAX];
    snprintf(path, sizeof(path), "/sys/class/net/%s/device", nic);
    if (realpath(path, real) && strlen(real) < cap)
        memcpy(out, real, strlen(real) + 1);
}

uint64_t hn_sum_speeds(const struct hn_nic *nic, unsigned n)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!nic[i].mbps && !nic[i].down)
            return 0;
        sum += nic[i].mbps;
    }
    return sum;
}

/* Returns the speed in Mbit/s of one of `shared` devices that share n NICs. */
static int share_speed(const struct hn_nic *nic, unsigned n, unsigned shared)
{
    const uint64_t sum = hn_sum_speeds(nic, n);
    return sum ? (int)HW_MAX(HW_MIN(sum / shared, (uint64_t)INT_MAX), (uint64_t)LEAST_MBPS) : VIRTUAL_MBPS;
}

unsigned hn_make_devices(const struct hn_nic *nic, unsigned n, bool apart, const char *rails, struct hn_device *out)
{
    unsigned devices = n == 0 ? 0 : apart ? HW_MAX(n, (unsigned)HN_DEVICES) : HN_DEVICES;
    for (unsigned d = 0; d < devices; d++) {
        const struct hn_nic *on = &nic[d % n];
        unsigned shared = devices / n + (d % n < devices % n); /* number of devices of this NIC */
        out[d] = (struct hn_device){.nic = d % n, .rail = HN_NO_RAIL};
        out[d].mbps = apart ? share_speed(on, 1, shared) : share_speed(nic, n, devices);
        if (apart || n == 1)
            out[d].rail = find_rail(rails, on);
        snprintf(out[d].name, sizeof(out[d].name), "%s/%d", on->name, (int)d);
        find_pci_path(on->name, out[d].pci, sizeof(out[d].pci));
    }
    return devices;
}
