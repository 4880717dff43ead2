/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/move/again.h"
#include "sandbox/move/move_int.h"

#include <stdlib.h>
#include <string.h>

/* Returns a hash of the GIDs of the planned devices. */
static uint64_t sum_gids(const struct sbx_plan *p, const struct sbx_snapshot *s)
{
    uint64_t h = HW_HASH_START;
    for (size_t i = 0; i < s->n_rdma; i++)
        for (size_t k = 0; !p->rdma[i].why[0] && k < s->rdma[i].n_port; k++) {
            const struct sbx_port *port = &s->rdma[i].port[k];
            for (size_t g = 0; g < port->n_gid; g++) {
                char text[2 * SBX_NAME + 64];
                int n = snprintf(text, sizeof(text), "%u %u %s %s %s;", port->port, port->gid[g].index,
                                 port->gid[g].gid, port->gid[g].type, port->gid[g].ndev);
                h = hw_hash(h, text, (size_t)HW_MIN(n, (int)sizeof(text) - 1));
            }
        }
    return h;
}

/* Warns about each planned device that is no longer usable. before[i] is true if device i was planned before the
 * move. */
static void warn_unusable_rdma(const struct sbx_plan *p, const bool *before, const struct hw_logger *log)
{
    for (size_t i = 0; i < p->n_rdma; i++)
        if (before[i] && p->rdma[i].why[0])
            sb_log(log, HAWSER_LOG_WARN,
                   "the RDMA device %s is left out, because after the move it has no GID of a NIC in the container; "
                   "see `rdma link` and `ip addr` in the container",
                   p->rdma[i].name);
}

int sbx_again(struct sbx_snapshot *s, struct sbx_plan *p, const struct sbx_want *want, int sysfs,
              const struct hw_logger *log)
{
    const struct timespec pause = {.tv_nsec = 20 * HW_MS};
    HW_AUTO_FREE bool *moved = calloc(s->n_net + 1, sizeof(*moved)), *planned = calloc(p->n_rdma + 1, sizeof(*planned));
    bool any = false;
    uint64_t deadline = hw_deadline(SBX_AGAIN_MS), stable = hw_deadline(SBX_STABLE_MS);
    size_t wanted = sbx_plan_gids(p, s);
    if (!moved || !planned)
        return hw_no_memory("the check of the NICs after their move");
    for (size_t i = 0; i < s->n_net; i++)
        moved[i] = sbx_nic_in(p, i);
    for (size_t i = 0; i < p->n_rdma; i++)
        any |= planned[i] = !p->rdma[i].why[0];
    for (uint64_t was = 0;;) {
        int rc = sbx_snapshot_again(s, sysfs, moved);
        if (rc < 0)
            return rc;
        uint64_t sum = sum_gids(p, s);
        if (sum != was)
            stable = hw_deadline(SBX_STABLE_MS);
        was = sum;
        if (!any || hw_now() > deadline || (sbx_plan_gids(p, s) >= wanted && hw_now() > stable))
            break;
        nanosleep(&pause, NULL);
    }
    int rc = sbx_plan_again(p, s, want);
    if (rc == 0)
        warn_unusable_rdma(p, planned, log);
    return rc;
}

int sbx_again_in(struct sbx_snapshot *s, struct sbx_plan *p, const struct sbx_want *want, const char *netns,
                 uint64_t start, const struct hw_logger *log)
{
    struct sb_ns ns __attribute__((cleanup(sb_ns_close))) = SB_NS_NONE;
    char path[256];
    pid_t holder;
    uint64_t began = start;
    int rc = netns ? sb_ns_open(netns, &ns, path, &holder, &began) : sb_ns_own(&ns);
    if (rc < 0)
        return rc;
    if (start && began != start)
        return hw_fail(-ESRCH, "the container's process %s has ended", netns);
    int sys = sb_ns_sysfs(&ns);
    return sys < 0 ? sys : sbx_again(s, p, want, sys, log);
}
