/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of NICs. Most of these examine all NICs with a hardware device, or all NICs that are up if no NIC has
 * a hardware device. */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#define FULL_PAGE_MTU  4148 /* gives an MSS of 4096 with TCP timestamps, so that nearly every fragment is a page */
#define INTERRUPTS_MAX (8u << 20)

void dr_each_nic(struct dr_report *d, void (*fn)(struct dr_report *d, const struct dr_nic *n))
{
    const struct dr_machine *m = d->m;
    bool physical = false;
    for (int i = 0; i < m->n_nics; i++)
        physical |= m->nic[i].physical;
    size_t before = d->n;
    for (int i = 0; i < m->n_nics; i++)
        if (m->nic[i].physical || (!physical && m->nic[i].up))
            fn(d, &m->nic[i]);
    if (m->n_nics < 0)
        dr_say(d, DR_SKIP, NULL, "the NICs cannot be listed: %s", hw_errno_text(-m->n_nics));
    else if (d->n == before)
        dr_say(d, DR_SKIP, NULL, "no NIC except loopback is up");
}

static void link_of(struct dr_report *d, const struct dr_nic *n)
{
    char state[32];
    if (!n->up) {
        dr_say(d, DR_SKIP, n->name, "the NIC is administratively down");
        return;
    }
    if (hw_root_text(d->m->root, state, sizeof state, "sys/class/net/%s/operstate", n->name) < 0) {
        dr_say(d, DR_SKIP, n->name, "%s", hw_error());
    } else if (strcmp(state, "up") == 0) {
        dr_say(d, DR_PASS, n->name, "up");
    } else if (strcmp(state, "unknown") == 0) {
        dr_say(d, DR_SKIP, n->name, "the driver does not report the link state");
    } else {
        dr_say(d, DR_FAIL, n->name, "the NIC is administratively up, but its link is %s", state);
        dr_mend(
            d,
            "ip link set %s down && ip link set %s up   # if the link stays down, check the cable and the switch port",
            n->name, n->name);
    }
}

void dr_nic_link(struct dr_report *d)
{
    dr_each_nic(d, link_of);
}

static void speed_of(struct dr_report *d, const struct dr_nic *n)
{
    int64_t mbit;
    if (hw_root_i64(d->m->root, &mbit, "sys/class/net/%s/speed", n->name) < 0)
        dr_say(d, DR_SKIP, n->name, "unknown: the NIC is down, or its driver does not report the speed");
    else if (mbit <= 0)
        dr_say(d, DR_SKIP, n->name, "unknown to its driver");
    else if (mbit < 10000) {
        dr_say(d, DR_WARN, n->name, "%.1f Gbit/s: suitable for management, not for data", (double)mbit / 1e3);
        dr_mend(d, "ethtool %s   # shows the modes that the NIC and its link partner advertise", n->name);
    } else
        dr_say(d, DR_PASS, n->name, "%.0f Gbit/s", (double)mbit / 1e3);
}

void dr_nic_speed(struct dr_report *d)
{
    dr_each_nic(d, speed_of);
}

/* Parses a link speed such as "16.0 GT/s PCIe". Returns 0 if the text has another form. */
static double giga_transfers(const char *text)
{
    char *end;
    double v = strtod(text, &end);
    return end != text && strncmp(end, " GT/s", 5) == 0 ? v : 0;
}

static void pcie_of(struct dr_report *d, const struct dr_nic *n)
{
    char now[64], most[64];
    uint64_t w_now, w_most;
    int root = d->m->root;
    if (hw_root_text(root, now, sizeof now, "sys/class/net/%s/device/current_link_speed", n->name) < 0 ||
        hw_root_text(root, most, sizeof most, "sys/class/net/%s/device/max_link_speed", n->name) < 0 ||
        hw_root_u64(root, &w_now, "sys/class/net/%s/device/current_link_width", n->name) < 0 ||
        hw_root_u64(root, &w_most, "sys/class/net/%s/device/max_link_width", n->name) < 0) {
        dr_say(d, DR_SKIP, n->name, "no PCIe link is known for this NIC");
        return;
    }
    double a = giga_transfers(now), b = giga_transfers(most);
    if (a <= 0 || b <= 0 || w_now == 0)
        dr_say(d, DR_SKIP, n->name,
               "the speed or the width of the PCIe link is unknown (current speed '%s', maximum '%s')", now, most);
    else if (a < b || w_now < w_most) {
        dr_say(d, DR_WARN, n->name, "%.1f GT/s x%llu, but the NIC supports %.1f GT/s x%llu", a,
               (unsigned long long)w_now, b, (unsigned long long)w_most);
        dr_mend(
            d,
            "lspci -vv   # compare LnkSta and LnkCap of the NIC and of its slot; reseat the card, or use another slot");
    } else
        dr_say(d, DR_PASS, n->name, "%.1f GT/s x%llu", a, (unsigned long long)w_now);
}

void dr_nic_pcie(struct dr_report *d)
{
    dr_each_nic(d, pcie_of);
}

static void check_nic_mtu(struct dr_report *d, const struct dr_nic *n)
{
    uint64_t mtu;
    if (hw_root_u64(d->m->root, &mtu, "sys/class/net/%s/mtu", n->name) < 0) {
        dr_say(d, DR_SKIP, n->name, "%s", hw_error());
        return;
    }
    if (mtu >= FULL_PAGE_MTU) {
        dr_say(d, DR_PASS, n->name, "%llu", (unsigned long long)mtu);
        return;
    }
    dr_say(d, mtu < 1280 ? DR_FAIL : DR_WARN, n->name, "%llu%s", (unsigned long long)mtu,
           mtu < 1280 ? ": too small for IPv6, which needs 1280" : "");
    dr_mend(d, "ip link set %s mtu %d   # if the whole network supports it", n->name,
            strcmp(n->driver, "gve") == 0 ? 8244 : 9000);
}

void dr_nic_mtu(struct dr_report *d)
{
    dr_each_nic(d, check_nic_mtu);
}

/*
 * Drivers that in Linux 7.3.4 receive into unreadable memory (rx: PP_FLAG_ALLOW_UNREADABLE_NETMEM) or send from it
 * (tx: netdev->netmem_tx). Linux's drivers do neither in 6.12, and gained support in different versions in between.
 * dmnic is hawser's own driver, in lab/dmnic.
 */
static const struct {
    const char *driver;
    bool rx, tx;
    unsigned sure; /* first kernel version in which the driver is known to support devmem */
} devmem_drivers[] = {{"gve", true, true, 7003},   {"bnxt_en", true, true, 7003}, {"mlx5_core", true, true, 7003},
                      {"fbnic", true, true, 7003}, {"netkit", true, true, 7003},  {"bnge", true, false, 7003},
                      {"dmnic", true, true, 6012}};

enum dr_can dr_devmem_driver(const char *driver, const char *release, bool tx)
{
    unsigned v = dr_kernel(release);
    for (size_t i = 0; i < HW_ARRAY_LEN(devmem_drivers); i++) {
        if (strcmp(devmem_drivers[i].driver, driver) != 0)
            continue;
        if (!(tx ? devmem_drivers[i].tx : devmem_drivers[i].rx) || v < (tx ? 6016 : 6012))
            return DR_CANNOT;
        return v >= devmem_drivers[i].sure ? DR_CAN : v > 6012 ? DR_MAY : DR_CANNOT;
    }
    return DR_CANNOT;
}

bool dr_has_devmem(const struct dr_nic *n)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(devmem_drivers); i++)
        if (strcmp(devmem_drivers[i].driver, n->driver) == 0)
            return true;
    return false;
}

static void devmem_of(struct dr_report *d, const struct dr_nic *n)
{
    unsigned v = dr_kernel(d->m->release);
    size_t i = 0;
    while (i < HW_ARRAY_LEN(devmem_drivers) && strcmp(devmem_drivers[i].driver, n->driver) != 0)
        i++;
    if (!n->driver[0] || v == 0)
        dr_say(d, DR_SKIP, n->name, "%s", n->driver[0] ? "the kernel version is unknown" : "the driver is unknown");
    else if (n->devmem_rc == 0 && v < 6012)
        dr_say(d, DR_PASS, n->name, "%s %s counts rx_devmem_pkts: Google's kernel with GPUDirect-TCPX", n->driver,
               n->version);
    else if (i == HW_ARRAY_LEN(devmem_drivers))
        dr_say(d, n->physical ? DR_WARN : DR_SKIP, n->name,
               "%s has no devmem support: GPU memory is staged through host memory", n->driver);
    else if (v >= devmem_drivers[i].sure)
        dr_say(d, DR_PASS, n->name, "%s: devmem receive%s", n->driver,
               devmem_drivers[i].tx && v >= 6016 ? " and send" : " only");
    else if (v > 6012)
        dr_say(d, DR_WARN, n->name, "%s has devmem in Linux 7.3, but not in 6.12; this node runs %s", n->driver,
               d->m->release);
    else
        dr_say(d, DR_WARN, n->name, "%s has devmem in Linux 7.3, but not in %s", n->driver, d->m->release);
    if (d->r && d->r[d->n - 1].outcome == DR_WARN) {
        if (i < HW_ARRAY_LEN(devmem_drivers))
            dr_mend(d, "apt install -t trixie-backports linux-image-amd64 && reboot   # or any kernel from 7.3 up");
        else
            dr_mend(d, "ethtool -i %s   # use a NIC with gve, bnxt_en, mlx5_core or fbnic instead if you need devmem",
                    n->name);
    }
}

void dr_nic_devmem(struct dr_report *d)
{
    dr_each_nic(d, devmem_of);
}

void dr_nic_hawserd(struct dr_report *d)
{
    const struct dr_machine *m = d->m;
    bool any = false;
    for (int i = 0; i < m->n_nics; i++)
        any |= dr_has_devmem(&m->nic[i]);
    if (m->hawserd == 0) {
        dr_say(d, DR_PASS, NULL, "hawserd accepts this user");
    } else if (!any) {
        dr_say(d, DR_SKIP, NULL, "not needed: no NIC has a driver that is known to support devmem");
    } else {
        dr_say(d, DR_WARN, NULL, "%s", m->hawserd_why);
        dr_mend(d, m->hawserd == -EACCES
                       ? "editor /etc/hawser/hawserd.conf && systemctl restart hawserd   # see hawserd(8)"
                   : m->hawserd == -ENOENT || m->hawserd == -ECONNREFUSED
                       ? "systemctl enable --now hawserd"
                       : "journalctl -u hawserd; systemctl restart hawserd");
    }
}

static void ntuple_of(struct dr_report *d, const struct dr_nic *n)
{
    if (n->ntuple < 0)
        dr_say(d, DR_SKIP, n->name, "the driver does not report whether n-tuple filters are on: %s",
               hw_errno_text(-n->ntuple));
    else if (n->ntuple && n->rules < 0)
        dr_say(d, DR_SKIP, n->name, "n-tuple filters are on, but the driver does not report the rules: %s",
               hw_errno_text(-n->rules));
    else if (n->ntuple)
        dr_say(d, DR_PASS, n->name, "n-tuple filters are on, %d rule%s", n->rules, hw_plural(n->rules));
    else if (n->rules < 0)
        dr_say(d, DR_SKIP, n->name, "n-tuple filters are off, and the driver does not report the rules: %s",
               hw_errno_text(-n->rules));
    else {
        dr_say(d, DR_WARN, n->name, "n-tuple filters are off");
        dr_mend(d, "ethtool -K %s ntuple on", n->name);
    }
}

void dr_nic_ntuple(struct dr_report *d)
{
    dr_each_nic(d, ntuple_of);
}

static void queues_of(struct dr_report *d, const struct dr_nic *n)
{
    if (n->queues < 0)
        dr_say(d, DR_SKIP, n->name, "the driver does not report its queues: %s", hw_errno_text(-n->queues));
    else if (n->queues == 0)
        dr_say(d, DR_SKIP, n->name, "the driver reports no receive queue");
    else if (n->queues > 1)
        dr_say(d, DR_PASS, n->name, "%d of at most %d", n->queues, n->queues_max);
    else if (n->queues_max > 1) {
        dr_say(d, DR_WARN, n->name, "1 of at most %d", n->queues_max);
        if (n->combined_max > 1)
            dr_mend(d, "ethtool -L %s combined %d", n->name, n->combined_max);
        else
            dr_mend(d, "ethtool -L %s rx %d", n->name, n->queues_max);
    } else if (n->physical && dr_has_devmem(n)) {
        dr_say(d, DR_WARN, n->name, "the NIC has only one queue");
        dr_mend(d, "ethtool -l %s   # the machine type or the hypervisor may limit the number of queues", n->name);
    } else
        dr_say(d, DR_SKIP, n->name, "the NIC has only one queue");
}

void dr_nic_queues(struct dr_report *d)
{
    dr_each_nic(d, queues_of);
}

static void rss_of(struct dr_report *d, const struct dr_nic *n)
{
    if (n->rss_queues <= 0 || n->queues <= 0)
        dr_say(d, DR_SKIP, n->name, "the driver reports no queues or no indirection table");
    else if (n->queues > 1 && n->rss_queues == 1 && n->queues > 2) {
        dr_say(d, DR_WARN, n->name, "all ordinary traffic uses only one of the %d queues", n->queues);
        dr_mend(d, "ethtool -X %s equal %d", n->name, n->queues - 1);
    } else if (dr_has_devmem(n) && n->split == DR_SPLIT_ON && n->rss_last == n->queues - 1) {
        dr_say(d, DR_WARN, n->name,
               "ordinary traffic uses queue %d, the last one, which must be removed from RSS before it can be bound",
               n->queues - 1);
        dr_mend(d, "ethtool -X %s equal %d   # hawserd does this itself while a queue is bound", n->name,
                HW_MAX(n->queues - 1, 1));
    } else
        dr_say(d, DR_PASS, n->name, "queues that ordinary traffic uses: %d of %d", n->rss_queues, n->queues);
}

void dr_nic_rss(struct dr_report *d)
{
    dr_each_nic(d, rss_of);
}

/* Stores the numbers of a NIC's interrupts in out, at most cap, and returns how many. Reads the interrupts of the
 * NIC's device, or for virtio of the parent device. If there are none, reads the lines of /proc/interrupts that
 * contain the NIC's name. */
static size_t irqs_of(int root, const char *nic, unsigned *out, size_t cap)
{
    struct hw_names l = {0};
    size_t n = 0;
    if (hw_root_list(root, &l, "sys/class/net/%s/device/msi_irqs", nic) < 0) {
        hw_names_free(&l);
        (void)hw_root_list(root, &l, "sys/class/net/%s/device/../msi_irqs", nic);
    }
    for (size_t i = 0; i < l.n && n < cap; i++) {
        uint64_t v;
        if (hw_text_u64(l.name[i], &v) == 0 && v <= INT32_MAX)
            out[n++] = (unsigned)v;
    }
    hw_names_free(&l);
    char *text = n ? NULL : malloc(INTERRUPTS_MAX), *save = NULL;
    if (text && hw_root_text(root, text, INTERRUPTS_MAX, "proc/interrupts") > 0)
        for (char *line = strtok_r(text, "\n", &save); line && n < cap; line = strtok_r(NULL, "\n", &save)) {
            char *end;
            unsigned long v = strtoul(line, &end, 10);
            const char *at = strstr(end, nic);
            size_t len = strlen(nic);
            /* for NIC eth1 accepts "eth1-TxRx-0" and "ntfy-block.3@eth1", but not "eth10" */
            if (end != line && *end == ':' && v <= INT32_MAX && at && strchr(" @,-", at[-1]) &&
                (at[len] == 0 || strchr("-@, :", at[len])))
                out[n++] = (unsigned)v;
        }
    free(text);
    return n;
}

static void interrupts_of(struct dr_report *d, const struct dr_nic *n)
{
    char text[HW_ATTR_MAX], near_text[HW_ATTR_MAX];
    unsigned irq[2048];
    int root = d->m->root;
    int64_t node = -1;
    cpu_set_t near, may, both, all;
    size_t count, far = 0, known = 0;
    if (hw_root_i64(root, &node, "sys/class/net/%s/device/numa_node", n->name) < 0 || node < 0 ||
        hw_root_text(root, near_text, sizeof near_text, "sys/class/net/%s/device/local_cpulist", n->name) < 0 ||
        hw_text_cpulist(near_text, &near, &count) < 0) {
        dr_say(d, DR_SKIP, n->name, "the machine does not report which CPUs are near the NIC");
        return;
    }
    size_t n_irqs = irqs_of(root, n->name, irq, HW_ARRAY_LEN(irq));
    unsigned first_far = 0;
    CPU_ZERO(&all);
    for (size_t i = 0; i < n_irqs; i++) {
        /* prefer the CPUs that the interrupt actually targets, if the kernel reports them */
        if ((hw_root_text(root, text, sizeof text, "proc/irq/%u/effective_affinity_list", irq[i]) < 0 &&
             hw_root_text(root, text, sizeof text, "proc/irq/%u/smp_affinity_list", irq[i]) < 0) ||
            hw_text_cpulist(text, &may, &count) < 0)
            continue;
        known++;
        CPU_OR(&all, &all, &may);
        CPU_AND(&both, &may, &near);
        if (!CPU_EQUAL(&both, &may) && far++ == 0)
            first_far = irq[i];
    }
    if (n_irqs == 0)
        dr_say(d, DR_SKIP, n->name, "no interrupt of this NIC is known");
    else if (known == 0)
        dr_say(d, DR_SKIP, n->name, "the affinity of the NIC's %zu interrupt%s cannot be read", n_irqs,
               hw_plural(n_irqs));
    else if (far > 0) {
        dr_say(d, DR_WARN, n->name, "%zu of %zu interrupts can go to CPUs outside the NIC's NUMA node %lld (CPUs %s)",
               far, known, (long long)node, near_text);
        dr_mend(
            d,
            "echo %s > /proc/irq/%u/smp_affinity_list   # repeat for the NIC's other interrupts; stop irqbalance first",
            near_text, first_far);
    } else if (known > 2 && CPU_COUNT(&all) == 1) {
        dr_say(d, DR_WARN, n->name, "all %zu interrupts go to one CPU", known);
        dr_mend(d, "echo %s > /proc/irq/%u/smp_affinity_list   # spread the interrupts, one per CPU", near_text,
                irq[0]);
    } else
        dr_say(d, DR_PASS, n->name, "%zu interrupt%s on CPUs of the NIC's NUMA node %lld", known, hw_plural(known),
               (long long)node);
}

void dr_nic_irqs(struct dr_report *d)
{
    dr_each_nic(d, interrupts_of);
}
