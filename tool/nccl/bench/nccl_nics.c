/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the traffic of the ranks' NICs while operations run. */
#include "base/size.h"
#include "net/nic.h"
#include "net/sysfs.h"
#include "sys/files.h"
#include "sys/json.h"
#include "tool/nccl/bench/nccl_bench.h"

#include <dirent.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- in a rank ------------------------------------------------------------------------------- */

uint64_t nb_node_id(void)
{
    char boot[HW_BOOT_ID];
    struct stat st = {0};
    (void)hw_boot_id(boot);
    (void)stat("/proc/self/ns/net", &st);
    return hw_hash(hw_hash(HW_HASH_START, boot, strlen(boot)), &st.st_ino, sizeof st.st_ino);
}

static uint64_t read_statistic(int root, const char *nic, const char *which)
{
    uint64_t v = 0;
    HW_KEEP_ERROR();
    return hw_root_u64(root, &v, "sys/class/net/%s/statistics/%s", nic, which) == 0 ? v : 0;
}

static struct nb_nic *find_counted_nic(struct nb_counts *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++)
        if (strcmp(c->nic[i].name, name) == 0)
            return &c->nic[i];
    return NULL;
}

/* Adds the retransmissions of the TCP connection fd to the NIC that has the connection's local address. */
static void count_connection(struct nb_counts *c, int fd, const struct hw_nic *nics, int n)
{
    struct tcp_info info = {0};
    union hw_addr addr = {0};
    socklen_t len = sizeof info, addr_len = sizeof addr;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0 || info.tcpi_total_retrans == 0 ||
        getsockname(fd, &addr.sa, &addr_len) < 0)
        return;
    hw_addr_unmap(&addr);
    for (int i = 0; i < n; i++) {
        struct nb_nic *nic = hw_addr_same_host(&nics[i].addr, &addr) ? find_counted_nic(c, nics[i].name) : NULL;
        if (nic) {
            nic->retransmits += info.tcpi_total_retrans;
            return;
        }
    }
}

void nb_count(struct nb_counts *c)
{
    struct hw_nic nics[HW_NIC_MAX];
    HW_KEEP_ERROR();
    HW_AUTO_CLOSE int root = hw_root_open("/");
    int n = hw_nics_list(nics, HW_NIC_MAX, true);
    *c = (struct nb_counts){.node = nb_node_id()};
    for (int i = 0; i < n && root >= 0; i++) {
        const char *name = nics[i].name;
        if (c->n == NB_NICS || find_counted_nic(c, name))
            continue;
        struct nb_nic *nic = &c->nic[c->n++];
        memcpy(nic->name, name, sizeof nic->name);
        nic->sent = read_statistic(root, name, "tx_bytes");
        nic->received = read_statistic(root, name, "rx_bytes");
        nic->dropped = read_statistic(root, name, "tx_dropped") + read_statistic(root, name, "rx_dropped");
    }
    DIR *fds = opendir("/proc/self/fd");
    for (struct dirent *e; fds && (e = readdir(fds));) {
        uint64_t fd;
        if (e->d_name[0] != '.' && hw_parse_u64(e->d_name, 0, INT32_MAX, &fd) == 0)
            count_connection(c, (int)fd, nics, n);
    }
    if (fds)
        closedir(fds);
}

static uint64_t grown(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0; /* counters decrease if connections close or the NIC is recreated */
}

void nb_count_since(struct nb_counts *c, struct nb_counts *before)
{
    for (uint32_t i = 0; i < c->n; i++) {
        struct nb_nic *now = &c->nic[i];
        const struct nb_nic *was = find_counted_nic(before, now->name);
        const struct nb_nic none = {0};
        was = was ? was : &none;
        now->sent = grown(now->sent, was->sent);
        now->received = grown(now->received, was->received);
        now->dropped = grown(now->dropped, was->dropped);
        now->retransmits = grown(now->retransmits, was->retransmits);
    }
}

/* ---- in the supervisor ----------------------------------------------------------------------- */

static int add_counted(struct nb_counted_list *l, uint64_t node, const char *host, const struct nb_nic *nic)
{
    struct nb_counted *at = NULL;
    for (size_t i = 0; i < l->n && !at; i++)
        if (l->at[i].node == node && strcmp(l->at[i].nic.name, nic->name) == 0)
            at = &l->at[i];
    if (!at) {
        struct nb_counted *more = realloc(l->at, (l->n + 1) * sizeof *more);
        if (!more)
            return hw_no_memory("counters of NICs");
        l->at = more;
        at = &l->at[l->n++];
        *at = (struct nb_counted){.node = node};
        snprintf(at->host, sizeof at->host, "%s", host);
        memcpy(at->nic.name, nic->name, sizeof at->nic.name);
        at->nic.name[sizeof at->nic.name - 1] = 0;
    }
    at->nic.sent += nic->sent;
    at->nic.received += nic->received;
    at->nic.dropped += nic->dropped;
    at->nic.retransmits += nic->retransmits;
    return 0;
}

int nb_counted_add(struct nb_counted_list *l, const struct nb_crew *c, unsigned rank)
{
    const struct nb_counts *counts = &c->m[rank].reply.counts;
    const char *host = c->m[rank].host;
    char text[32];
    bool first = true;
    int rc = 0;
    for (unsigned i = 0; i < rank; i++)
        first = first && c->m[i].reply.counts.node != counts->node;
    snprintf(text, sizeof text, "rank %u's", rank);
    for (uint32_t i = 0; i < HW_MIN(counts->n, (uint32_t)NB_NICS) && rc == 0; i++) {
        struct nb_nic nic = counts->nic[i];
        if (!first) /* the first rank of a node has already reported the traffic of the node's NICs */
            nic.sent = nic.received = nic.dropped = 0;
        rc = add_counted(l, counts->node, host ? host : text, &nic);
    }
    return rc;
}

/* Returns true unless the NIC is the loopback and has no traffic. */
static bool is_shown(const struct nb_nic *nic)
{
    return nic->sent || nic->received || strcmp(nic->name, "lo") != 0;
}

void nb_print_nics(FILE *out, const struct nb_table *t)
{
    bool any = false;
    for (size_t k = 0; k < t->n_configs; k++) {
        struct nb_counted_list all = {0};
        for (size_t i = 0; i < t->n_rows; i++) {
            const struct nb_counted_list *l = &t->row[i].cell[k].nics;
            for (size_t j = 0; j < l->n; j++)
                (void)add_counted(&all, l->at[j].node, l->at[j].host, &l->at[j].nic);
        }
        for (size_t j = 0; j < all.n; j++) {
            const struct nb_nic *nic = &all.at[j].nic;
            if (!is_shown(nic))
                continue;
            if (!any)
                fputs("\n# Counters of each node's NICs: their increase while operations ran, in all rounds (sent, "
                      "received and\n# dropped include the traffic of all programs; retransmits are segments of the "
                      "ranks' "
                      "connections)\n"
                      "#  network          host                NIC              sent (B)    received (B)  retransmits  "
                      "dropped\n",
                      out);
            any = true;
            fprintf(out, "#  %-16s %-19s %-8s %16" PRIu64 "%16" PRIu64 " %12" PRIu64 " %8" PRIu64 "\n",
                    t->config[k].name, all.at[j].host, nic->name, nic->sent, nic->received, nic->retransmits,
                    nic->dropped);
        }
        free(all.at);
    }
}

void nb_json_nics(struct hw_json *j, const struct nb_cell *cell)
{
    hw_json_array(j, "nics");
    for (size_t i = 0; i < cell->nics.n; i++) {
        const struct nb_counted *c = &cell->nics.at[i];
        hw_json_object(j, NULL);
        hw_json_str(j, "host", c->host);
        hw_json_str(j, "nic", c->nic.name);
        hw_json_u64(j, "sent_bytes", c->nic.sent);
        hw_json_u64(j, "received_bytes", c->nic.received);
        hw_json_u64(j, "retransmits", c->nic.retransmits);
        hw_json_u64(j, "dropped", c->nic.dropped);
        hw_json_end(j);
    }
    hw_json_end(j);
}
