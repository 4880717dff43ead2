/* SPDX-License-Identifier: Apache-2.0 */
/* Collects the addresses at which other nodes reach this node. */
#include "nixl/blob.h"

#include "net/advertise.h"

#include <string.h>

static void put_address(const union hw_addr *a, struct hx_addr *out)
{
    bool six = a->sa.sa_family == AF_INET6;
    *out = (struct hx_addr){.family = six ? 6 : 4, .port = hw_addr_port(a)};
    memcpy(out->ip, six ? (const void *)&a->in6.sin6_addr : &a->in.sin_addr, six ? 16 : 4);
}

/* Parses the comma-separated list into out[]. Returns the number of addresses, or -EINVAL. */
static int read_advertised(const char *list, struct hx_addr out[HX_ADDRS])
{
    int n = 0;
    for (size_t len; *list; list += len + (list[len] == ',')) {
        char part[256];
        union hw_addr a;
        len = strcspn(list, ",");
        if (len == 0)
            continue;
        if (n == HX_ADDRS)
            return hw_fail(-EINVAL, "advertise: more than %d addresses", HX_ADDRS);
        memcpy(part, list, HW_MIN(len, sizeof(part) - 1));
        part[HW_MIN(len, sizeof(part) - 1)] = 0;
        if (!hw_advertise_read(part, &a))
            return hw_fail(-EINVAL, "advertise: '%s' is not [NIC=]ADDRESS[:PORT]", part);
        put_address(&a, &out[n++]);
    }
    return n;
}

/* NICs whose names begin with "docker" come last: docker's bridges often have the same address on every node. */
static bool is_docker(const struct hw_nic *n)
{
    return strncmp(n->name, "docker", 6) == 0;
}

int hx_list_addresses(const char *advertise, const char *nics, struct hx_addr out[HX_ADDRS])
{
    struct hw_nic nic[HW_NIC_MAX];
    memset(out, 0, HX_ADDRS * sizeof(out[0]));
    int n = read_advertised(advertise, out), all = n ? 0 : hw_nics_list(nic, HW_NIC_MAX, true);
    for (int docker = 0; docker < 2; docker++)
        for (int i = 0; i < all && n < HX_ADDRS; i++)
            if (!nic[i].loopback && is_docker(&nic[i]) == docker && (!*nics || hw_nic_listed(nics, nic[i].name)))
                put_address(&nic[i].addr, &out[n++]);
    return n < 0 ? n : 0;
}
