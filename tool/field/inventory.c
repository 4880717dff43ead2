/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/field/inventory.h"

#include "net/sysfs.h"
#include "node/node.h"
#include "sys/json.h"
#include "tool/build.h"
#include "tool/doctor/doctor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#define NOT_SAID (-1) /* value of an unknown field in struct hw_node */

static const char *const sysctls[] = {"net/core/default_qdisc",
                                      "net/core/netdev_max_backlog",
                                      "net/core/optmem_max",
                                      "net/core/rmem_max",
                                      "net/core/wmem_max",
                                      "net/core/busy_poll",
                                      "net/ipv4/tcp_available_congestion_control",
                                      "net/ipv4/tcp_congestion_control",
                                      "net/ipv4/tcp_mem",
                                      "net/ipv4/tcp_mtu_probing",
                                      "net/ipv4/tcp_rmem",
                                      "net/ipv4/tcp_wmem",
                                      "net/ipv4/tcp_timestamps",
                                      "kernel/numa_balancing"};

static void write_file(struct hw_json *j, const char *key, int root, const char *path)
{
    char text[256];
    hw_json_str(j, key, hw_root_text(root, text, sizeof text, "%s", path) > 0 ? text : NULL);
}

/* Writes the text that follows name in the first 4 KiB of path, up to the end of the line and without quotes. */
static void write_line_of(struct hw_json *j, const char *key, int root, const char *path, const char *name)
{
    char text[4096], value[128] = "";
    HW_AUTO_CLOSE int fd = hw_root_fd(root, O_RDONLY, "%s", path);
    const ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    text[HW_MAX(n, (ssize_t)0)] = 0;
    const char *at = strstr(text, name);
    if (at) {
        at += strlen(name);
        at += strspn(at, " \t:=\"");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\"\n"), at);
    }
    hw_json_str(j, key, *value ? value : NULL);
}

static void write_system(struct hw_json *j, int root, const struct hw_node *node)
{
    struct utsname u = {0};
    struct sysinfo i;
    hw_json_str(j, "hawser", build_name());
    hw_json_str(j, "kernel", uname(&u) == 0 ? u.release : NULL);
    hw_json_str(j, "arch", *u.machine ? u.machine : NULL);
    write_line_of(j, "system", root, "etc/os-release", "PRETTY_NAME=");
    hw_json_str(j, "machine", *node->machine ? node->machine : NULL);
    write_line_of(j, "cpu", root, "proc/cpuinfo", "model name");
    hw_json_str(j, "cpus_online", node->cpus);
    hw_json_u64(j, "memory_MiB", sysinfo(&i) == 0 ? (uint64_t)i.totalram * i.mem_unit >> 20 : 0);
    write_file(j, "nvidia_driver", root, "sys/module/nvidia/version");
    hw_json_object(j, "sysctls");
    for (size_t k = 0; k < HW_ARRAY_LEN(sysctls); k++) {
        char path[96];
        snprintf(path, sizeof path, "proc/sys/%s", sysctls[k]);
        write_file(j, sysctls[k], root, path);
    }
    hw_json_end(j);
}

static void write_number(struct hw_json *j, const char *key, int64_t v)
{
    if (v < 0)
        hw_json_null(j, key);
    else
        hw_json_i64(j, key, v);
}

static uint64_t count_queues(int root, const char *nic, const char *prefix)
{
    struct hw_names l = {0};
    uint64_t n = 0;
    if (hw_root_list(root, &l, "sys/class/net/%s/queues", nic) == 0)
        for (size_t i = 0; i < l.n; i++)
            n += strncmp(l.name[i], prefix, strlen(prefix)) == 0;
    hw_names_free(&l);
    return n;
}

static void write_addresses(struct hw_json *j, const char *nic, const struct hw_nic *addr, int n)
{
    hw_json_array(j, "addresses");
    for (int i = 0; i < n; i++) {
        char text[INET6_ADDRSTRLEN] = "", with[INET6_ADDRSTRLEN + 8];
        if (strcmp(addr[i].name, nic) != 0)
            continue;
        const bool v6 = addr[i].addr.sa.sa_family == AF_INET6;
        (void)inet_ntop(v6 ? AF_INET6 : AF_INET,
                        v6 ? (const void *)&addr[i].addr.in6.sin6_addr : (const void *)&addr[i].addr.in.sin_addr, text,
                        sizeof text);
        snprintf(with, sizeof with, "%s/%u", text, addr[i].prefix);
        hw_json_str(j, NULL, with);
    }
    hw_json_end(j);
}

/* Returns the driver's name as ethtool reports it, also for virtual NICs, or NULL. */
static const char *find_driver(const struct dr_machine *m, const char *nic)
{
    for (int i = 0; i < m->n_nics; i++)
        if (strcmp(m->nic[i].name, nic) == 0 && *m->nic[i].driver)
            return m->nic[i].driver;
    return NULL;
}

static void write_nics(struct hw_json *j, int root, const struct hw_node *node, const struct dr_machine *m)
{
    struct hw_nic addr[HW_NIC_MAX];
    const int n = hw_nics_list(addr, HW_NIC_MAX, true);
    hw_json_array(j, "nics");
    for (size_t i = 0; i < node->n_netdev; i++) {
        const struct hw_netdev *d = &node->netdev[i];
        const struct hw_pci_dev *p = d->pci >= 0 ? &node->pci[d->pci] : NULL;
        if (d->loopback)
            continue;
        hw_json_object(j, NULL);
        hw_json_str(j, "nic", d->name);
        hw_json_str(j, "driver", *d->driver ? d->driver : find_driver(m, d->name));
        hw_json_str(j, "state", *d->state ? d->state : NULL);
        hw_json_str(j, "master", *d->master ? d->master : NULL);
        hw_json_str(j, "rdma", *d->rdma ? d->rdma : NULL);
        write_number(j, "speed_Mbps", d->speed);
        write_number(j, "mtu", d->mtu);
        hw_json_u64(j, "rx_queues", count_queues(root, d->name, "rx-"));
        hw_json_u64(j, "tx_queues", count_queues(root, d->name, "tx-"));
        write_number(j, "numa", p ? p->numa : NOT_SAID);
        write_number(j, "pcie_MTps", p && p->mts ? (int64_t)p->mts : NOT_SAID);
        write_number(j, "pcie_lanes", p && p->lanes ? (int64_t)p->lanes : NOT_SAID);
        write_addresses(j, d->name, addr, n);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static void write_gpus(struct hw_json *j, int root, const struct hw_node *node)
{
    hw_json_array(j, "gpus");
    for (size_t i = 0; i < node->n_gpu; i++) {
        const struct hw_pci_dev *p = node->gpu[i].pci >= 0 ? &node->pci[node->gpu[i].pci] : NULL;
        char bdf[HW_BDF_TEXT], path[96], id[16];
        if (!p || node->gpu[i].ordinal < 0)
            continue; /* not a compute GPU */
        hw_bdf_text(node->gpu[i].at, bdf);
        snprintf(path, sizeof path, "proc/driver/nvidia/gpus/%s/information", bdf);
        snprintf(id, sizeof id, "%04x:%04x", p->vendor, p->device);
        hw_json_object(j, NULL);
        hw_json_str(j, "pci_id", id);
        write_line_of(j, "model", root, path, "Model");
        write_number(j, "numa", p->numa);
        hw_json_end(j);
    }
    hw_json_end(j);
}

static int examine_node(struct hw_json *j, struct dr_machine *m)
{
    static const char *const nothing[] = {NULL}; /* no environment, because checks print values of variables */
    struct dr_report report = {0};
    m->env = nothing;
    int rc = dr_run(&report, m, NULL, 1u << DR_KERNEL | 1u << DR_NIC | 1u << DR_LIMITS | 1u << DR_TCPX | 1u << DR_RDMA);
    if (rc == 0)
        dr_write_json(j, "doctor", &report);
    dr_free(&report);
    return rc;
}

static int write_node(struct hw_json *j, int root, const struct hw_node *node)
{
    HW_AUTO_FREE struct dr_machine *m = calloc(1, sizeof *m);
    if (!m)
        return hw_no_memory("the checks");
    dr_probe(m, root, false);
    hw_json_object(j, NULL);
    write_system(j, root, node);
    hw_json_array(j, "numa");
    for (size_t i = 0; i < node->n_numa; i++) {
        hw_json_object(j, NULL);
        hw_json_i64(j, "id", node->numa[i].id);
        hw_json_str(j, "cpus", node->numa[i].cpus);
        hw_json_end(j);
    }
    hw_json_end(j);
    write_nics(j, root, node, m);
    write_gpus(j, root, node);
    int rc = examine_node(j, m);
    hw_json_end(j);
    return rc;
}

static int write_inventory(FILE *f, int root)
{
    struct hw_node node;
    struct hw_json j;
    const struct hw_scan scan = {.live = true};
    int rc = hw_node_scan(&node, root, &scan);
    hw_json_init(&j, f);
    if (rc == 0)
        rc = write_node(&j, root, &node);
    hw_node_free(&node);
    if (rc < 0)
        return rc;
    rc = hw_json_finish(&j);
    return rc < 0 ? hw_wrap(rc, "the inventory") : 0;
}

int inventory_make(int root, char **text, size_t *len)
{
    *text = NULL;
    FILE *f = open_memstream(text, len);
    if (!f)
        return hw_no_memory("the inventory");
    int rc = write_inventory(f, root);
    if (fclose(f) != 0 && rc == 0)
        rc = hw_no_memory("the inventory");
    if (rc == 0 && *len > TP_INVENTORY_MOST)
        rc = hw_fail(-E2BIG, "the inventory has %zu bytes, which is more than the protocol allows", *len);
    if (rc < 0) {
        free(*text);
        *text = NULL;
    }
    return rc;
}
