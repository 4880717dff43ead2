/* SPDX-License-Identifier: Apache-2.0 */
/* Collects and prints the state for `hawser devmem status` and `plan`: each NIC's queues and their bindings, flow
 * rules, header split, and the capabilities of kernel and driver. */
#include "base/size.h"
#include "helper/kernel/ethtool.h"
#include "helper/kernel/netdev.h"
#include "sys/json.h"
#include "tool/devmem/cmd_devmem.h"

#include <linux/ethtool_netlink.h>
#include <linux/netdev.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- collecting the state ----------------------------------------------------------------------- */

static int rss_queues(const struct hd_kernel *k, int ifindex)
{
    struct hd_rss rss;
    struct hd_set seen = {0};
    int n = 0, rc = k->rss_get(k->arg, ifindex, &rss);
    for (uint32_t i = 0; rc == 0 && i < rss.n; i++) {
        n += !hd_has(&seen, rss.queue[i]);
        hd_put(&seen, rss.queue[i]);
    }
    free(rss.queue);
    return rc < 0 ? rc : n;
}

static int count_nic_flow_rules(const struct hd_kernel *k, int ifindex)
{
    struct hd_rule *r = NULL;
    unsigned n = 0;
    int rc = k->rules(k->arg, ifindex, &r, &n);
    free(r);
    return rc < 0 ? rc : (int)n;
}

static int probe_devmem_nic(struct devmem_nic *n, const struct devmem_view *v, const struct hd_kernel *k, int fd,
                            struct hw_genl *g)
{
    struct hd_split split;
    unsigned queues = 0;
    bool on = false;
    int at = n->link.ifindex, rc = k->split_get(k->arg, at, &split);
    n->split = rc < 0 ? rc : split.split;
    n->thresh = rc < 0 || !split.has_thresh ? -ENOENT : (int)split.thresh;
    n->buf_len = rc < 0 || !split.buf_len ? -ENOENT : (int)split.buf_len;
    enum hd_gro_hw gro = HD_GRO_NONE;
    rc = k->gro_hw_get(k->arg, at, &gro);
    n->gro_hw = rc < 0 ? rc : (int)gro;
    rc = k->ntuple_get(k->arg, at, &on);
    n->ntuple = rc < 0 ? rc : on;
    n->rss = rss_queues(k, at);
    n->rules = count_nic_flow_rules(k, at);
    (void)hd_eth_driver(fd, at, n->driver, sizeof(n->driver));
    n->queue = calloc(HD_QUEUES_MAX, sizeof(*n->queue));
    if (!n->queue)
        return hw_no_memory("the queues of %s", n->link.name);
    rc = k->queues(k->arg, at, n->queue, HD_QUEUES_MAX, &queues);
    n->n_queues = rc < 0 ? rc : (int)queues;
    (void)hd_netdev_pools(g, at, &n->pools, &n->inflight);
    n->rx = v->rx ? dr_devmem_driver(n->driver, v->release, false) : DR_CANNOT;
    n->tx = v->tx ? dr_devmem_driver(n->driver, v->release, true) : DR_CANNOT;
    for (unsigned i = 0; i < queues; i++)
        if (n->queue[i].user == HD_DMABUF)
            n->rx = DR_CAN; /* a bound queue proves that the driver can receive */
    return 0;
}

static bool is_selected_nic(const char *name, char **only)
{
    for (; *only; only++)
        if (strcmp(*only, name) == 0)
            return true;
    return false;
}

static bool has_devmem_nic(const struct devmem_view *v, const char *name)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->nic[i].link.name, name) == 0)
            return true;
    return false;
}

static int add_devmem_nic(struct devmem_view *v, const struct hd_kernel *k, const struct hd_state *journal,
                          const char *name, int fd, struct hw_genl *g)
{
    struct devmem_nic *n = &v->nic[v->n];
    int rc = k->link(k->arg, name, &n->link);
    if (rc == 0)
        rc = probe_devmem_nic(n, v, k, fd, g);
    if (rc)
        return rc;
    n->ours = hd_nic_find(journal, n->link.ifindex);
    v->n++;
    return 0;
}

static void free_interface_names(struct if_nameindex **all)
{
    if (*all)
        if_freenameindex(*all);
}

static int look_at_nics(struct devmem_view *v, const struct hd_kernel *k, const struct hd_state *journal, char **only,
                        int fd, struct hw_genl *g)
{
    uint64_t ops = 0;
    if (hw_genl_ops(g, NETDEV_FAMILY_NAME, &ops) == 0) {
        v->rx = ops >> NETDEV_CMD_BIND_RX & 1;
        v->tx = ops >> NETDEV_CMD_BIND_TX & 1;
    }
    __attribute__((cleanup(free_interface_names))) struct if_nameindex *all = if_nameindex();
    size_t n = 0;
    while (all && all[n].if_index)
        n++;
    v->nic = calloc(n + 1, sizeof(*v->nic));
    if (!all || !v->nic)
        return hw_fail(-ENOMEM, "the list of network devices cannot be read");
    for (size_t i = 0; i < n; i++) {
        if (only && *only ? !is_selected_nic(all[i].if_name, only) : strcmp(all[i].if_name, "lo") == 0)
            continue;
        int rc = add_devmem_nic(v, k, journal, all[i].if_name, fd, g);
        if (rc < 0 && rc != -ENODEV) /* -ENODEV: the NIC has disappeared in the meantime */
            return rc;
    }
    for (; only && *only; only++)
        if (!has_devmem_nic(v, *only))
            return hw_fail(-ENODEV, "there is no NIC %s; `hawser topo` lists the NICs", *only);
    return 0;
}

int devmem_look(struct devmem_view *v, const struct hd_kernel *k, const struct hd_state *journal, char **only)
{
    struct utsname u;
    struct hw_genl g;
    if (uname(&u) == 0)
        snprintf(v->release, sizeof(v->release), "%s", u.release);
    int rc = hw_genl_open(&g, NULL);
    HW_AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (rc == 0)
        rc = look_at_nics(v, k, journal, only, fd, &g);
    hw_genl_close(&g);
    return rc;
}

void devmem_free(struct devmem_view *v)
{
    for (size_t i = 0; i < v->n; i++)
        free(v->nic[i].queue);
    free(v->nic);
}

/* ---- printing the state ------------------------------------------------------------------------- */

static const char *get_ability_name(enum dr_can c)
{
    static const char *const names[] = {"no", "perhaps", "yes"};
    return names[c];
}

/* Returns the state of header split, or NULL if there is none. The kernel reports nothing if the driver decides, and
 * also if the driver has no header split. The driver decides only if it supports devmem. */
static const char *split_name(const struct devmem_nic *n)
{
    return n->split == ETHTOOL_TCP_DATA_SPLIT_ENABLED    ? "on"
           : n->split == ETHTOOL_TCP_DATA_SPLIT_DISABLED ? "off"
           : n->split < 0 || n->rx == DR_CANNOT          ? NULL
                                                         : "auto";
}

static const char *user_name(enum hd_user u)
{
    static const char *const names[] = {"free", "dma-buf", "io_uring", "xsk", "leased"};
    return names[u];
}

static const char *format_nic_count(int n, char buf[12])
{
    if (n < 0)
        return "-";
    snprintf(buf, 12, "%d", n);
    return buf;
}

/* Prints the last column of the table, such as "6: dma-buf 3 by hawserd, 7: xsk", or "-" if no queue is bound. */
static void print_bound(FILE *out, const struct devmem_nic *n)
{
    bool any = false;
    for (int i = 0; i < n->n_queues; i++) {
        if (n->queue[i].user == HD_FREE)
            continue;
        fprintf(out, "%s%d: %s", any ? ", " : "", i, user_name(n->queue[i].user));
        if (n->queue[i].user == HD_DMABUF)
            fprintf(out, " %u", n->queue[i].dmabuf_id);
        if (n->ours && hd_has(&n->ours->taken, (uint32_t)i))
            fprintf(out, " by hawserd");
        any = true;
    }
    fprintf(out, "%s\n", any ? "" : "-");
}

void devmem_print(FILE *out, const struct devmem_view *v)
{
    char a[12], b[12], c[12];
    fprintf(
        out, "Linux %s: %s\n", v->release,
        v->rx && v->tx ? "the kernel has the commands to bind device memory for receiving and for sending"
        : v->rx
            ? "the kernel has the command to bind device memory for receiving, but not for sending (needs Linux 6.16)"
            : "the kernel cannot bind device memory (needs Linux 6.12 for receiving, 6.16 for sending)");
    if (v->pid > 1)
        fprintf(out, "hawserd: process %d\n", v->pid);
    else if (v->pid == 1)
        fprintf(out, "hawserd: running\n");
    else
        fprintf(out, "hawserd: %s%s\n", v->pid < 0 ? "unknown: " : "not running",
                v->pid < 0 ? hw_errno_text(v->pid) : "");
    if (v->journal < 0 && v->journal != -ENOENT)
        fprintf(out, "%s\n", v->why);
    fprintf(out, "\n%-15s %-10s %-4s %6s %5s %-5s %-6s %5s %-8s %-8s %s\n", "NIC", "driver", "up", "queues", "RSS",
            "split", "ntuple", "rules", "receive", "send", "bound queues");
    for (size_t i = 0; i < v->n; i++) {
        const struct devmem_nic *n = &v->nic[i];
        fprintf(out, "%-15s %-10.10s %-4s %6s %5s %-5s %-6s %5s %-8s %-8s ", n->link.name, *n->driver ? n->driver : "-",
                n->link.up ? "yes" : "no", format_nic_count((int)n->link.rx_queues, a), format_nic_count(n->rss, b),
                split_name(n) ? split_name(n) : "-",
                n->ntuple < 0 ? "-"
                : n->ntuple   ? "on"
                              : "off",
                format_nic_count(n->rules, c), get_ability_name(n->rx), get_ability_name(n->tx));
        print_bound(out, n);
    }
    bool stale = false;
    for (size_t i = 0; i < v->n; i++)
        stale |= v->nic[i].ours != NULL;
    if (stale && v->pid == 0)
        fprintf(out, "\nA hawserd that has exited left changes on NICs: `hawser devmem undo` undoes the changes, as "
                     "does the next start of hawserd.\n");
}

static void json_int(struct hw_json *j, const char *key, int n)
{
    if (n < 0)
        hw_json_null(j, key);
    else
        hw_json_i64(j, key, n);
}

static void json_nic(struct hw_json *j, const struct devmem_nic *n)
{
    hw_json_object(j, NULL);
    hw_json_str(j, "name", n->link.name);
    hw_json_i64(j, "ifindex", n->link.ifindex);
    hw_json_str(j, "driver", *n->driver ? n->driver : NULL);
    hw_json_bool(j, "up", n->link.up);
    hw_json_u64(j, "rx_queues", n->link.rx_queues);
    json_int(j, "rss_queues", n->rss);
    hw_json_str(j, "header_split", split_name(n));
    json_int(j, "hds_thresh", n->thresh);
    json_int(j, "rx_buf_len", n->buf_len);
    if (n->gro_hw == HD_GRO_ON || n->gro_hw == HD_GRO_OFF)
        hw_json_bool(j, "rx_gro_hw", n->gro_hw == HD_GRO_ON);
    else
        hw_json_null(j, "rx_gro_hw");
    if (n->ntuple < 0)
        hw_json_null(j, "ntuple");
    else
        hw_json_bool(j, "ntuple", n->ntuple);
    json_int(j, "rules", n->rules);
    hw_json_str(j, "receive", get_ability_name(n->rx));
    hw_json_str(j, "send", get_ability_name(n->tx));
    hw_json_array(j, "bound");
    for (int i = 0; i < n->n_queues; i++) {
        if (n->queue[i].user == HD_FREE)
            continue;
        hw_json_object(j, NULL);
        hw_json_i64(j, "queue", i);
        hw_json_str(j, "by", user_name(n->queue[i].user));
        if (n->queue[i].user == HD_DMABUF)
            hw_json_u64(j, "dmabuf_id", n->queue[i].dmabuf_id);
        hw_json_end(j);
    }
    hw_json_end(j);
    hw_json_u64(j, "pools", n->pools);
    hw_json_u64(j, "inflight_bytes", n->inflight);
    hw_json_array(j, "taken");
    for (uint32_t q = 0; n->ours && q < HD_QUEUES_MAX; q++)
        if (hd_has(&n->ours->taken, q))
            hw_json_u64(j, NULL, q);
    hw_json_end(j);
    hw_json_end(j);
}

int devmem_print_json(FILE *out, const struct devmem_view *v)
{
    struct hw_json j;
    hw_json_init(&j, out);
    hw_json_object(&j, NULL);
    hw_json_str(&j, "schema", "hawser-devmem-1");
    hw_json_str(&j, "kernel", v->release);
    hw_json_bool(&j, "kernel_receive", v->rx);
    hw_json_bool(&j, "kernel_send", v->tx);
    if (v->pid > 0)
        hw_json_i64(&j, "hawserd", v->pid);
    else
        hw_json_null(&j, "hawserd");
    hw_json_array(&j, "nics");
    for (size_t i = 0; i < v->n; i++)
        json_nic(&j, &v->nic[i]);
    hw_json_end(&j);
    hw_json_end(&j);
    return hw_json_finish(&j);
}
