/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/host/device.h"

#include "transport/netplugin/host/host_inner.h"

#include <limits.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Returns the device number that map assigns to nic, -1 if there is none, or -EINVAL for an invalid map. */
static int find_mapped_device(const char *map, const char *nic, unsigned devices)
{
    const size_t n = strlen(nic);
    for (const char *p = map; *p; p += p[0] == ',') {
        const char *eq = p + strcspn(p, "=,");
        char *end;
        const unsigned long dev = *eq == '=' ? strtoul(eq + 1, &end, 10) : ULONG_MAX;
        if (dev >= devices || eq == p || end == eq + 1 || (*end && *end != ','))
            return hw_fail(-EINVAL,
                           "knob plugin_devices: '%.80s' is not a list of NICs and devices such as eth1=0,eth2=1, with "
                           "devices from 0 to %u",
                           p, devices - 1);
        if ((size_t)(eq - p) == n && memcmp(p, nic, n) == 0)
            return (int)dev;
        p = end;
    }
    return -1;
}

/* Resolves a path in /sys and writes the last component of the result, such as a PCI address. */
static bool last_part(const char *path, char out[64])
{
    char real[PATH_MAX];
    const char *slash = *path == '/' && realpath(path, real) ? strrchr(real, '/') : NULL;
    return slash && snprintf(out, 64, "%s", slash + 1) < 64;
}

struct list {
    char names[160];
    int by_name, by_pci;
    bool nics; /* at least one name is the name of a NIC */
};

static int read_devices(struct np_host *h, const char *nic, struct list *l)
{
    char path[64], pci[64] = "", its[64];
    struct np_props p;
    *l = (struct list){.by_name = -1, .by_pci = -1};
    snprintf(path, sizeof(path), "/sys/class/net/%.15s/device", nic);
    if (!last_part(path, pci))
        pci[0] = 0;
    for (unsigned i = 0; i < h->info.devices; i++) {
        int rc = np_props(h, i, &p);
        if (rc)
            return rc;
        const size_t at = strlen(l->names);
        snprintf(l->names + at, sizeof(l->names) - at, "%s%s", at ? ", " : "", p.name);
        l->nics |= if_nametoindex(p.name) != 0;
        if (l->by_name < 0 && strcmp(p.name, nic) == 0)
            l->by_name = (int)i;
        if (l->by_pci < 0 && pci[0] && last_part(p.pci, its) && strcasecmp(its, pci) == 0)
            l->by_pci = (int)i;
    }
    return 0;
}

/* Used if no device matches. Assigns the first device to the first NIC that is requested, and no device to other NICs.
 */
static int guess_plugin_device(struct np_host *h, const char *nic, const struct list *l, const struct hw_logger *log)
{
    pthread_mutex_lock(&h->devices_lock);
    const bool first = !h->guessed[0];
    if (first)
        snprintf(h->guessed, sizeof(h->guessed), "%s", nic);
    const bool same = strcmp(h->guessed, nic) == 0;
    pthread_mutex_unlock(&h->devices_lock);
    if (!same)
        return hw_fail(-ENODEV,
                       "none of the devices of plugin %s (%s) matches NIC %s; its first device is already assigned to "
                       "%s: assign the devices with knob plugin_devices (plugin_devices=%s=0,%s=%d)",
                       h->info.table, l->names, nic, h->guessed, h->guessed, nic, h->info.devices > 1);
    if (first && log)
        hw_log(log, h->info.devices > 1 ? HAWSER_LOG_WARN : HAWSER_LOG_INFO,
               "none of the devices of plugin %s (%s) matches NIC %s: using the first device; knob plugin_devices "
               "selects another",
               h->info.table, l->names, nic);
    return 0;
}

int np_device_of(struct np_host *h, const char *nic, const char *map, const struct hw_logger *log)
{
    struct list l;
    int dev = find_mapped_device(map, nic, h->info.devices);
    if (dev != -1)
        return dev;
    int rc = read_devices(h, nic, &l);
    if (rc)
        return rc;
    if (l.by_name >= 0 || l.by_pci >= 0)
        return l.by_name >= 0 ? l.by_name : l.by_pci;
    if (l.nics && if_nametoindex(nic))
        return hw_fail(
            -ENODEV,
            "plugin %s has no device for NIC %s; its devices are %s (check its environment variables, or set knob "
            "plugin_devices)",
            h->info.table, nic, l.names);
    return guess_plugin_device(h, nic, &l, log);
}
