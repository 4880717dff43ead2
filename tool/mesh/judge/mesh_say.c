/* SPDX-License-Identifier: Apache-2.0 */
/* Formats findings as sentences. */
#include "tool/mesh/judge/mesh_judge.h"

#include <inttypes.h>
#include <string.h>

struct text {
    char *at;
    size_t left;
};

static void add_text(struct text *t, const char *fmt, ...) HW_PRINTF(2, 3);
static void add_text(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->at, t->left, fmt, ap);
    va_end(ap);
    size_t k = n < 0 || t->left == 0 ? 0 : HW_MIN((size_t)n, t->left - 1);
    t->at += k;
    t->left -= k;
}

static const char *get_nic_name(const struct mesh *m, int node, int nic)
{
    return nic >= 0 && nic < (int)m->node[node].n_nics ? m->node[node].nic[nic].name : "";
}

/* Appends the names of a node and its NIC, as in "node7 eth2". */
static void add_place(struct text *t, const struct mesh *m, int node, int nic)
{
    const char *name = get_nic_name(m, node, nic);
    add_text(t, "%s%s%s", m->node[node].name, *name ? " " : "", name);
}

/* Appends "41 % of the median" or "3.1 times the median latency". */
static void add_ratio(struct text *t, const struct mesh_finding *f)
{
    if (f->kind == MESH_K_LATENCY)
        add_text(t, "%.1f times the median latency", f->ratio);
    else
        add_text(t, "%.0f %% of the median", 100 * f->ratio);
}

static void add_when(struct text *t, const struct mesh_finding *f)
{
    if (f->kind == MESH_K_BOTH)
        add_text(t, " while both directions are in use");
    else if (f->kind == MESH_K_LOAD)
        add_text(t, " while every node transfers to several others at once");
}

static void say_state(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    static const char *const what[] = {[MESH_F_ABSENT] = "never arrived",
                                       [MESH_F_DIED] = "died: its process ended",
                                       [MESH_F_SILENT] =
                                           "stopped answering: its process hangs, or its connections are cut"};
    add_place(t, m, f->node, -1);
    add_text(t, " %s", what[f->what]);
    if (f->text && *f->text)
        add_text(t, " (%s)", f->text);
}

static void say_port(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    const bool latency = f->kind == MESH_K_LATENCY;
    add_place(t, m, f->node, f->nic);
    if (latency) {
        add_text(t, " has ");
        add_ratio(t, f);
        add_text(t, ", with most peers; check its CPU, power management, NIC and cable");
        return;
    }
    add_text(t, f->what == MESH_F_PORT    ? " sends and receives at "
                : f->what == MESH_F_SENDS ? " sends at "
                                          : " receives at ");
    add_ratio(t, f);
    add_when(t, f);
    add_text(t, f->what == MESH_F_SENDS  ? ", to most peers; check "
                : f->what == MESH_F_PORT ? ", with most peers; check "
                                         : ", from most peers; check ");
    add_text(t, f->kind == MESH_K_WAY || f->kind == MESH_K_RAIL ? "its NIC, cable and port"
                                                                : "the machine and its NICs, cables and ports");
}

static void say_some(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    add_place(t, m, f->node, f->nic);
    if (f->kind == MESH_K_LATENCY)
        add_text(t, " has ");
    else
        add_text(t, f->mutual ? " receives at " : " sends at ");
    add_ratio(t, f);
    add_when(t, f);
    add_text(
        t,
        ", with %u of %u peers only; check the paths to these peers, and whether there was other load during the test",
        f->count, f->of);
}

static void say_path(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    add_place(t, m, f->node, f->nic);
    add_text(t, f->mutual || f->kind == MESH_K_LATENCY ? " and " : " to ");
    add_place(t, m, f->peer, f->peer_nic);
    add_text(t, " only: ");
    add_ratio(t, f);
    add_when(t, f);
    add_text(t, "; check the path between them");
}

static void say_rail(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    add_text(t,
             "on most nodes, %s runs at %.0f %% of the median of all rails of the same speed; check the rail's "
             "switches, and the settings of its NICs",
             get_nic_name(m, f->node, f->nic), 100 * f->ratio);
}

static void say_fact(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    add_place(t, m, f->node, f->nic);
    if (f->what == MESH_F_SPEED)
        add_text(t,
                 " runs at %" PRIu64 " Mbit/s, while most others run at %" PRIu64
                 "; check its port, cable and autonegotiation",
                 f->number, f->usual);
    else if (f->what == MESH_F_MTU)
        add_text(t, " has an MTU of %" PRIu64 ", while most others have %" PRIu64, f->number, f->usual);
    else if (f->what == MESH_F_ERRORS)
        add_text(t, " counted %" PRIu64 " errors during the test; check its cable, transceiver and port", f->number);
    else if (f->nic < 0)
        add_text(t, " has no %s that is up and has an address, unlike most other nodes", f->text);
    else
        add_text(t, " carries nothing, unlike %s on most other nodes; check its link, address and routes", f->text);
}

static void say_changed(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    if (f->node < 0)
        add_text(t, "the median of %s", mesh_kind_name(f->kind));
    else
        add_place(t, m, f->node, f->nic);
    if (f->node >= 0)
        add_text(t, ", %s,", mesh_kind_name(f->kind));
    if (f->kind == MESH_K_LATENCY)
        add_text(t, " is at %.1f times its value in the baseline", f->ratio);
    else
        add_text(t, " is at %.0f %% of its value in the baseline", 100 * f->ratio);
}

static void say_pair(struct text *t, const struct mesh *m, const struct mesh_finding *f)
{
    add_place(t, m, f->node, -1);
    if (f->what == MESH_F_VERSION) {
        add_text(t, " has hawser %s, but %s has %s: install the same version on both", m->node[f->node].version,
                 m->node[f->peer].name, m->node[f->peer].version);
        return;
    }
    add_text(t, " and %s", m->node[f->peer].name);
    if (f->what == MESH_F_WRONG)
        add_text(t,
                 ": %" PRIu64
                 " byte%s arrived with wrong contents; check the memory, and the checksum offload of the NICs",
                 f->number, hw_plural(f->number));
    else
        add_text(t, ": a transfer failed: %s", f->text ? f->text : "");
}

void mesh_say(const struct mesh *m, const struct mesh_finding *f, char *buf, size_t cap)
{
    struct text t = {buf, cap};
    switch (f->what) {
    case MESH_F_ABSENT:
    case MESH_F_DIED:
    case MESH_F_SILENT:
        say_state(&t, m, f);
        break;
    case MESH_F_CUT:
        add_place(&t, m, f->node, -1);
        add_text(&t, " answers, but no transfer with it worked: %s", f->text ? f->text : "");
        break;
    case MESH_F_CORRUPT:
        add_place(&t, m, f->node, -1);
        add_text(&t,
                 ": %" PRIu64
                 " bytes to or from it arrived with wrong contents, in transfers with %u nodes; check its memory, and "
                 "the checksum offload of its NICs",
                 f->number, f->count);
        break;
    case MESH_F_NODE:
        add_place(&t, m, f->node, -1);
        add_text(&t, " is at ");
        add_ratio(&t, f);
        add_text(&t, " on every NIC; check the machine (CPU, memory, PCIe, power), not the cables");
        break;
    case MESH_F_SENDS:
    case MESH_F_RECEIVES:
    case MESH_F_PORT:
        say_port(&t, m, f);
        break;
    case MESH_F_SOME:
        say_some(&t, m, f);
        break;
    case MESH_F_PATH:
        say_path(&t, m, f);
        break;
    case MESH_F_RAIL:
        say_rail(&t, m, f);
        break;
    case MESH_F_MANY:
        add_text(&t, "%u of %u paths stand out (%s): perhaps groups of nodes differ; see the heat map (--report)",
                 f->count, f->of, mesh_kind_name(f->kind));
        break;
    case MESH_F_CHANGED:
        say_changed(&t, m, f);
        break;
    case MESH_F_BROKEN:
    case MESH_F_WRONG:
    case MESH_F_VERSION:
        say_pair(&t, m, f);
        break;
    default:
        say_fact(&t, m, f);
        break;
    }
}

const char *mesh_fault_name(enum mesh_fault_kind what)
{
    static const char *const names[MESH_FAULTS] = {
        [MESH_F_ABSENT] = "absent", [MESH_F_DIED] = "died",         [MESH_F_SILENT] = "silent",
        [MESH_F_CUT] = "cut-off",   [MESH_F_CORRUPT] = "corrupt",   [MESH_F_NODE] = "node",
        [MESH_F_SENDS] = "sends",   [MESH_F_RECEIVES] = "receives", [MESH_F_PORT] = "port",
        [MESH_F_IDLE] = "idle",     [MESH_F_SOME] = "some",         [MESH_F_SPEED] = "speed",
        [MESH_F_MTU] = "mtu",       [MESH_F_ERRORS] = "errors",     [MESH_F_RAIL] = "rail",
        [MESH_F_PATH] = "path",     [MESH_F_BROKEN] = "broken",     [MESH_F_WRONG] = "wrong",
        [MESH_F_MANY] = "groups",   [MESH_F_VERSION] = "version",   [MESH_F_CHANGED] = "changed"};
    return what < MESH_FAULTS && names[what] ? names[what] : "?";
}
