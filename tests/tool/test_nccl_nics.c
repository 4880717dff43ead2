/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which NICs `hawser nccl env` lists in HAWSER_NICS, on simulated nodes. */
#include "tests/tap.h"
#include "tool/nccl/nccl.h"

#define NICS 20

static struct hw_netdev netdev[NICS];
static const char *why[NICS];

static bool choose(const char *names[NICS], const char *serve, char list[NCCL_NICS], char left[NCCL_NICS])
{
    struct hw_node n = {.live = true, .netdev = netdev};
    struct hw_plan p = {.why = why};
    for (; n.n_netdev < NICS && names[n.n_netdev]; n.n_netdev++) {
        const char *name = names[n.n_netdev];
        struct hw_netdev *d = &netdev[n.n_netdev];
        *d = (struct hw_netdev){.pci = -1, .address = name[0] != '-', .loopback = strcmp(name, "lo") == 0};
        snprintf(d->name, sizeof d->name, "%s", name + (name[0] == '-'));
        why[n.n_netdev] = strstr(serve, d->name) ? NULL : "not this one";
    }
    return nccl_nics(&n, &p, list, left);
}

int main(void)
{
    char list[NCCL_NICS], left[NCCL_NICS], name[NICS][16], serve[512] = "", want[512] = "";
    const char *names[NICS];
    ok(choose((const char *[NICS]){"eth0", "eth1", "eth2", "lo"}, "eth1 eth2", list, left), "a NIC that serves no GPU");
    is_str(list, "eth1,eth2", "those that do are named");
    is_str(left, "eth0", "and the other in the reason");
    ok(!choose((const char *[NICS]){"eth0", "eth1", "lo"}, "eth0 eth1", list, left),
       "all of them serve: nothing to say");
    ok(!choose((const char *[NICS]){"eth0", "-eth1", "lo"}, "eth0", list, left),
       "one with no address is not used anyway");
    ok(!choose((const char *[NICS]){"docker0", "eth0", "lo"}, "eth0", list, left), "nor is docker's bridge");
    ok(!choose((const char *[NICS]){"virbr0", "eth0", "lo"}, "eth0", list, left), "nor is libvirt's");
    ok(!choose((const char *[NICS]){"eth0", "lo"}, "lo", list, left), "the loopback serves: nothing to name");
    for (size_t i = 0; i < NICS; i++) {
        snprintf(name[i], sizeof name[i], "net-%011zu", i);
        names[i] = name[i];
        if (i == 0)
            continue;
        snprintf(serve + strlen(serve), sizeof serve - strlen(serve), "%s ", name[i]);
        snprintf(want + strlen(want), sizeof want - strlen(want), "%s%s", i > 1 ? "," : "", name[i]);
    }
    ok(choose(names, serve, list, left), "many long names");
    is_str(list, want, "all of them are listed");
    return tap_done();
}
