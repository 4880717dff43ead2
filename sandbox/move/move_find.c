/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds a NIC. A container with CAP_NET_ADMIN can delete a virtual device and create another with the same kind, index,
 * name and addresses. It can give its NICs new indices and names, and move them to other namespaces. It can forge
 * neither an identity (see ident.h) nor the bus address of hardware. A driver that restarts registers its device again
 * with a new identity, so hardware is also recognised by its bus address.
 */
#include "sandbox/move/move_int.h"

#include <string.h>

bool sb_link_hardware(const struct sb_link *l)
{
    return !*l->kind && *l->parent;
}

static bool is_same_hardware_id(const uint8_t *a, size_t n, const uint8_t *b, size_t m)
{
    return n == m && memcmp(a, b, n) == 0;
}

/* Returns true if both links are the same port of the same hardware. */
static bool same_hardware(const struct sb_link *a, const struct sb_link *b)
{
    return sb_link_hardware(a) && sb_link_hardware(b) && strcmp(a->parent, b->parent) == 0 &&
           strcmp(a->port, b->port) == 0 &&
           is_same_hardware_id(a->port_id, a->port_id_len, b->port_id, b->port_id_len) &&
           is_same_hardware_id(a->perm, a->perm_len, b->perm, b->perm_len);
}

struct search {
    const struct sb_link *want;
    struct sb_link found;
    unsigned n;
};

static int match_hardware_link(const struct sb_link *l, void *arg)
{
    struct search *s = arg;
    if (same_hardware(l, s->want)) {
        s->found = *l;
        s->n++;
    }
    return 0;
}

/* Maximum number of scans. A container that keeps renaming its devices can hide a device from a single scan of all
 * names, but is unlikely to hide it from several scans. */
#define LOOKS 5

static int find_by_ident(struct sb_ns *n, const struct sb_jnic *k, const char *hint, struct sb_link *l)
{
    char name[IFNAMSIZ];
    int rc = -ENODEV, index, sys = k->ident ? sb_ns_sysfs(n) : -ENODEV;
    if (sys < 0)
        return sys;
    for (int i = 0; rc == -ENODEV && i < LOOKS; i++)
        rc = sb_ident_find(sys, k->ident, hint, name, &index);
    return rc < 0 ? rc : sb_netdev_find(&n->rt, index, NULL, l);
}

int sb_nic_find(struct sb_ns *n, const struct sb_jnic *k, const char *hint, struct sb_link *l)
{
    struct search s = {.want = &k->link};
    int rc = find_by_ident(n, k, hint, l);
    if (rc == 0 || !sb_link_hardware(&k->link))
        return rc;
    rc = sb_netdev_links(&n->rt, match_hardware_link, &s);
    if (rc == 0 && s.n != 1)
        return -ENODEV;
    *l = s.found;
    return rc;
}
