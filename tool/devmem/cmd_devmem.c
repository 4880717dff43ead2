/* SPDX-License-Identifier: Apache-2.0 */
/* hawser devmem: the actions status, plan and undo. */
#include "tool/devmem/cmd_devmem.h"
#include "tool/opts.h"

#include <linux/ethtool_netlink.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct devmem_args {
    const char *state, *policy;
    unsigned queues;
    bool json;
};

static const struct opt state_opts[] = {
    OPT_TEXT("state", 0, "FILE", struct devmem_args, state, "hawserd's journal (default: /run/hawser/hawserd.state)"),
    {0},
};

static void print_undo_log(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    printf("%s\n", line);
}

static const struct hw_logger quiet;
static const struct hw_logger loud = {.fn = print_undo_log, .level = HAWSER_LOG_INFO};

/* ---- status ------------------------------------------------------------------------------------- */

static int devmem_status(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_FLAG("json", 'j', struct devmem_args, json, "print JSON"),
        OPT_ROWS(state_opts),
        {0},
    };
    static const struct opts o = {
        .cmd = "devmem status",
        .args = "[OPTION...] [NIC...]",
        .about =
            "Shows, for each NIC, its queues and their bindings, the number of its flow rules, whether header split "
            "is\non, and whether the kernel and the driver support devmem receive and send.",
        .rows = rows,
        .most = OPTS_ANY};
    struct devmem_args a = {.state = HD_STATE_FILE};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    struct hd_kernel k;
    struct hd_state journal;
    struct devmem_view v = {0};
    if (hd_kernel_open(&k) < 0)
        return tool_fail(o.cmd, "%s", hw_error());
    hd_state_init(&journal, &k, &quiet, a.state);
    v.pid = hd_journal_alive(a.state);
    v.journal = hd_journal_read(&journal);
    if (v.journal < 0) {
        snprintf(v.why, sizeof(v.why), "%s", hw_error());
        hd_state_forget(&journal);
    }
    rc = devmem_look(&v, &k, &journal, argv + optind);
    if (rc == 0 && a.json)
        rc = devmem_print_json(stdout, &v) < 0 ? hw_fail(-EIO, "writing to standard output failed") : 0;
    else if (rc == 0)
        devmem_print(stdout, &v);
    devmem_free(&v);
    hd_state_free(&journal);
    hd_kernel_close(&k);
    return rc < 0 ? tool_fail(o.cmd, "%s", hw_error()) : TOOL_OK;
}

/* ---- plan --------------------------------------------------------------------------------------- */

/* Prints an obstacle to the binding, and increments *n. */
static void print_bind_obstacle(unsigned *n, const char *fmt, ...) HW_PRINTF(2, 3);
static void print_bind_obstacle(unsigned *n, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("  prevented: ");
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    ++*n;
}

static void plan_queues(struct hd_state *s, const struct hd_link *link, const struct hd_rights *r, unsigned want,
                        unsigned *bad)
{
    struct hd_rss rss;
    uint32_t queue[HW_HELPER_QUEUES];
    bool in[HW_HELPER_QUEUES] = {false};
    int rc = s->k->rss_get(s->k->arg, link->ifindex, &rss);
    if (rc == 0)
        rc = hd_choose(s, link, r, want, queue, &rss);
    if (rc) {
        free(rss.queue);
        print_bind_obstacle(bad, "%s", hw_error());
        return;
    }
    unsigned out = 0;
    printf("  queues:");
    for (unsigned i = 0; i < want; i++) {
        for (uint32_t k = 0; k < rss.n; k++)
            in[i] |= rss.queue[k] == queue[i];
        printf("%s %u", i ? "," : "", queue[i]);
        out += in[i];
    }
    free(rss.queue);
    if (out == 0) {
        printf(", not used by ordinary traffic: RSS stays unchanged\n");
        return;
    }
    printf("; removed from RSS:");
    for (unsigned i = 0, said = 0; i < want; i++)
        if (in[i])
            printf("%s %u", said++ ? "," : "", queue[i]);
    putchar('\n');
}

/* Prints what hd_split_on() would change if no queue of the NIC is bound. */
static void plan_split(const struct devmem_nic *n, unsigned *bad)
{
    bool mlx5 = strcmp(n->driver, "mlx5_core") == 0;
    if (n->split < 0) {
        print_bind_obstacle(bad, "the driver does not report header split: %s", hw_errno_text(n->split));
        return;
    }
    if (n->split == ETHTOOL_TCP_DATA_SPLIT_UNKNOWN && n->rx == DR_CANNOT) {
        printf("  header split: the driver does not report any\n");
        return;
    }
    if (n->split == ETHTOOL_TCP_DATA_SPLIT_ENABLED && n->thresh <= 0)
        printf("  header split: on according to the driver; hawserd sets it anyway, in case this state is automatic\n");
    else if (n->split == ETHTOOL_TCP_DATA_SPLIT_ENABLED)
        printf("  header split: hawserd sets it with hds-thresh 0 (now %d); some drivers then reset the link for a "
               "moment\n",
               n->thresh);
    else
        printf("  header split: hawserd turns it on (now %s); some drivers then reset the link for a moment\n",
               n->split == ETHTOOL_TCP_DATA_SPLIT_DISABLED ? "off" : "automatic");
    if (mlx5 && n->gro_hw == HD_GRO_OFF)
        printf("  rx-gro-hw: hawserd turns it on (now off), because this driver needs it for header split\n");
    if (mlx5 && n->gro_hw == HD_GRO_NONE)
        print_bind_obstacle(
            bad, "rx-gro-hw cannot be turned on, but this driver needs rx-gro-hw for header split: see ethtool -k %s",
            n->link.name);
    struct hd_split now = {.buf_len = n->buf_len > 0 ? (uint32_t)n->buf_len : 0};
    uint32_t len = n->split == ETHTOOL_TCP_DATA_SPLIT_ENABLED ? 0 : hd_buf_len(&now, n->link.mtu);
    if (len)
        printf("  rx-buf-len: hawserd sets it to %u (now %d), so that a fragment can fill a page\n", len, n->buf_len);
}

static void plan_nic(struct hd_state *s, const struct devmem_nic *n, const struct devmem_view *v,
                     const struct hd_rights *r, unsigned want, unsigned *bad)
{
    printf("%s (%s), %u receive queue%s:\n", n->link.name, *n->driver ? n->driver : "driver unknown", want,
           hw_plural(want));
    if (!v->rx)
        print_bind_obstacle(bad,
                            "Linux %s cannot bind device memory: this needs Linux 6.12 or later with CONFIG_NET_DEVMEM",
                            v->release);
    if (v->rx && n->rx == DR_CANNOT)
        print_bind_obstacle(bad, "%s%s of Linux %s is not known to receive into device memory",
                            *n->driver ? "the driver " : "this NIC's driver", n->driver, v->release);
    if (v->rx && n->rx == DR_MAY)
        printf("  receiving into device memory: unknown; the driver supports it in Linux 7.3, but only a bind shows "
               "whether it does in %s\n",
               v->release);
    if (!n->link.up)
        print_bind_obstacle(bad, "%s is down; run: ip link set %s up", n->link.name, n->link.name);
    if (!hd_policy_nic(r, n->link.name))
        print_bind_obstacle(bad, "the policy grants %s no access to %s", r->who, n->link.name);
    if (want > r->max_queues)
        print_bind_obstacle(bad, "the policy grants %s at most %u queue%s", r->who, r->max_queues,
                            hw_plural(r->max_queues));

    plan_split(n, bad);
    if (n->link.up)
        plan_queues(s, &n->link, r, want, bad);
    if (n->rules < 0)
        print_bind_obstacle(bad, "the flow rules of %s cannot be read: %s", n->link.name, hw_errno_text(n->rules));
    else
        printf("  flow rules: %s; rules present: %d\n", n->ntuple == 1 ? "already on" : "turned on with the first rule",
               n->rules);
    printf("  sending from device memory: %s\n", !v->tx               ? "not with this kernel (needs Linux 6.16)"
                                                 : n->tx == DR_CANNOT ? "not with this driver"
                                                 : n->tx == DR_MAY    ? "unknown; only a bind shows whether it works"
                                                                      : "yes");
}

static int plan_policy(struct hd_policy *p, const char *file)
{
    if (file)
        return hd_policy_load(p, file);
    if (access(HD_POLICY_FILE, F_OK) == 0)
        return hd_policy_load(p, HD_POLICY_FILE);
    hd_policy_default(p, getuid());
    return 0;
}

static int run_plan(const char *cmd, const char *path, const char *file, unsigned want, char **nics)
{
    static struct hd_policy policy;
    struct hd_kernel k;
    struct hd_state journal;
    struct devmem_view v = {0};
    unsigned bad = 0;
    gid_t groups[64];
    int n_groups = getgroups(HW_ARRAY_LEN(groups) - 1, groups + 1);
    groups[0] = getgid();
    if (plan_policy(&policy, file) < 0)
        return tool_fail(cmd, "%s", hw_error());
    const struct hd_rights *r = hd_policy_find(&policy, getuid(), groups, 1 + (unsigned)HW_MAX(n_groups, 0));
    if (!r)
        return tool_fail(cmd, "the policy grants user %u no rights", (unsigned)getuid());
    if (hd_kernel_open(&k) < 0)
        return tool_fail(cmd, "%s", hw_error());
    hd_state_init(&journal, &k, &quiet, path);
    if (hd_journal_read(&journal) < 0)
        hd_state_forget(&journal);
    int rc = devmem_look(&v, &k, &journal, nics);
    for (size_t i = 0; rc == 0 && i < v.n; i++)
        plan_nic(&journal, &v.nic[i], &v, r, want, &bad);
    devmem_free(&v);
    hd_state_free(&journal);
    hd_kernel_close(&k);
    if (rc < 0)
        return tool_fail(cmd, "%s", hw_error());
    return bad ? tool_fail(cmd, "%u obstacle%s", bad, hw_plural(bad)) : TOOL_OK;
}

static int devmem_plan(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_NUMBER("queues", 'q', "COUNT", struct devmem_args, queues, 1, HW_HELPER_QUEUES,
                   "queues per binding, 1 to 16 (default: 1)"),
        OPT_TEXT("policy", 'P', "FILE", struct devmem_args, policy,
                 "hawserd's policy (default: /etc/hawser/hawserd.conf; without that file: all NICs allowed)"),
        OPT_ROWS(state_opts),
        {0},
    };
    static const struct opts o = {
        .cmd = "devmem plan",
        .args = "[OPTION...] NIC...",
        .about =
            "Shows what binding device memory to queues of a NIC would change, and what prevents the binding.\nChanges "
            "nothing. Exit status: 1 if something prevents the binding, or the plan cannot be made.",
        .rows = rows,
        .least = 1,
        .most = OPTS_ANY,
        .too_few = "NIC is missing; `hawser topo` lists the NICs"};
    struct devmem_args a = {.state = HD_STATE_FILE, .queues = 1};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : run_plan(o.cmd, a.state, a.policy, a.queues, argv + optind);
}

/* ---- undo --------------------------------------------------------------------------------------- */

static int run_undo(const char *cmd, const char *path)
{
    struct hd_kernel k;
    struct hd_state s;
    if (access(path, F_OK) < 0 && errno == ENOENT) {
        printf("there is no journal %s, so there is nothing to undo\n", path);
        return TOOL_OK;
    }
    int lock = hd_journal_lock(path);
    if (lock < 0)
        return tool_fail(cmd, "%s", hw_error());
    int rc = hd_kernel_open(&k);
    if (rc < 0) {
        hw_close(&lock);
        return tool_fail(cmd, "%s", hw_error());
    }
    hd_state_init(&s, &k, &loud, path);
    rc = hd_recover(&s, 5000);
    hd_state_free(&s);
    hd_kernel_close(&k);
    hw_close(&lock);
    if (rc >= 0 && geteuid() == 0 && hd_journal_chown(path) < 0)
        rc = -1;
    if (rc < 0)
        return tool_fail(cmd, "%s", hw_error());
    if (rc > 0)
        return tool_fail(
            cmd, "not all changes could be undone (NICs and flow rules left: %d); the journal %s lists them", rc, path);
    printf("none of hawserd's changes remain\n");
    return TOOL_OK;
}

static int devmem_undo(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "devmem undo",
        .args = "[OPTION...]",
        .about = "Undoes the changes that an exited hawserd left on NICs, such as flow rules, RSS tables and "
                 "header split.\nRefuses to run while hawserd runs, because hawserd undoes its changes itself.",
        .rows = state_opts};
    struct devmem_args a = {.state = HD_STATE_FILE};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : run_undo(o.cmd, a.state);
}

static const struct tool_action actions[] = {
    {"status", devmem_status, "show queues, their bindings, rules, header split and capabilities"},
    {"plan", devmem_plan, "show what a binding would change, and what prevents it"},
    {"undo", devmem_undo, "undo changes left behind by a hawserd that has exited"},
    {0},
};

int cmd_devmem(int argc, char **argv)
{
    static const struct tool_actions t = {
        .cmd = "devmem",
        .about = "Shows NIC queues that receive into device memory, and plans or undoes hawserd's changes to NICs.",
        .action = actions};
    return tool_act(&t, argc, argv);
}
