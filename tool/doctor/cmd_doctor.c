/* SPDX-License-Identifier: Apache-2.0 */
/* hawser doctor: finds problems of this machine, or between this machine and another, and prints how to fix them. */
#include "net/sysfs.h"
#include "tool/doctor/doctor_pair.h"
#include "tool/nccl/nccl_look.h"
#include "tool/nixl/nixl_look.h"
#include "tool/opts.h"
#include "tool/page/run.h"

#include <stdlib.h>
#include <string.h>

struct doctor {
    struct common common;
    char host[256];
    uint16_t port;
    uint64_t reverse_port;
    unsigned groups;
    bool list;
    struct dr_finish how;
    struct run run;
    struct dr_machine m;
    struct dr_pair pair;
    struct nccl_look nccl;
    struct nixl_look nixl;
};

/* Parses a list of groups such as "nic,gpu" and sets their bits in d->groups. */
static int parse_groups(void *args, const char *text)
{
    struct doctor *d = args;
    const char *p = text;
    do {
        size_t n = strcspn(p, ",");
        int g = 0;
        while (g < DR_GROUPS && (strlen(dr_group_name(g)) != n || strncmp(dr_group_name(g), p, n) != 0))
            g++;
        if (g == DR_GROUPS)
            return hw_fail(
                -EINVAL, "unknown group '%.*s'; the groups are kernel, nic, gpu, limits, tcpx, rdma, pair, nccl, nixl",
                (int)HW_MIN(n, (size_t)40), p);
        d->groups |= 1u << g;
        p += n + (p[n] == ',');
    } while (*p || p[-1] == ',');
    return 0;
}

static void list_checks(unsigned groups)
{
    for (size_t i = 0; i < dr_n_checks; i++)
        if (groups & 1u << dr_checks[i].group)
            printf("%-18s %s: %s\n", dr_checks[i].id, dr_checks[i].title, dr_checks[i].why);
}

static int ask_peer(struct doctor *d, int root)
{
    struct session s = {0};
    hawser *h = NULL;
    static char name[HAWSER_ADDR_TEXT + 256];
    snprintf(name, sizeof name, "%s", d->host);
    d->pair.peer = name;
    int rc = common_open(&d->common, &h);
    if (rc < 0)
        return rc; /* for example, the key or a knob is invalid; the peer was not contacted */
    d->pair.connected = session_open(&s, h, d->host, d->port, NULL);
    if (d->pair.connected < 0) {
        snprintf(d->pair.why, sizeof d->pair.why, "%s", hawser_error());
        d->pair.asked = d->pair.connected;
    } else {
        snprintf(name, sizeof name, "%s", hawser_peer_name(s.peer));
        dr_pair_ask(&d->pair, root, &s, d->port, (uint16_t)d->reverse_port);
        d->run.there = d->pair.there;
        d->run.asked = d->pair.asked == 0;
        session_close(&s);
    }
    hawser_close(h);
    return tool_stop ? hw_fail(-EINTR, "interrupted") : 0;
}

static int run_doctor(struct doctor *d)
{
    struct dr_report report = {0};
    bool pair = d->host[0] && d->groups & 1u << DR_PAIR;
    int root = hw_root_open("/");
    int rc = root;
    if (rc >= 0 && d->groups & 1u << DR_NCCL)
        rc = nccl_look(&d->nccl, NULL); /* before CUDA starts: the children must not inherit CUDA */
    if (rc >= 0 && d->groups & 1u << DR_NIXL)
        rc = nixl_look(&d->nixl, NULL, NULL);
    if (rc >= 0) {
        dr_probe(&d->m, root, d->groups & 1u << DR_GPU);
        d->m.nccl = d->groups & 1u << DR_NCCL ? &d->nccl : NULL;
        d->m.nixl = d->groups & 1u << DR_NIXL ? &d->nixl : NULL;
        rc = pair ? ask_peer(d, root) : 0;
    }
    if (rc >= 0)
        rc = dr_run(&report, &d->m, pair ? &d->pair : NULL, d->groups);
    snprintf(d->run.peer, sizeof d->run.peer, "%s", pair ? d->host : "");
    d->how.run = &d->run;
    int exit = dr_finish(&report, rc, "doctor", &d->how);
    nccl_look_free(&d->nccl);
    nixl_look_free(&d->nixl);
    hw_close(&root);
    return exit;
}

static const struct opt rows[] = {
    OPT_CALL("only", 0, "GROUP[,..]", parse_groups,
             "run only the checks of these groups: kernel, nic, gpu, limits, tcpx, rdma, pair, nccl, nixl (default: "
             "pair if HOST is given, otherwise all except pair, nccl and nixl)"),
    OPT_GROUP(dr_finish_opts, struct doctor, how),
    OPT_FLAG("list", 0, struct doctor, list, "list the checks and run none"),
    OPT_NUMBER("reverse-port", 0, "PORT", struct doctor, reverse_port, 1024, 65535,
               "port on which this node accepts the connections back from the peer (default: any free port)"),
    OPT_GROUP(common_opts, struct doctor, common),
    {0},
};

static int parse_and_examine(struct doctor *d, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "doctor",
        .args = "[HOST[:PORT]] [OPTION...]",
        .about = "Checks this machine, or the paths between this machine and a node that runs `hawser serve`. "
                 "Prints\nthe results of each check: PASS (good), WARN (could be better), FAIL (broken) or SKIP (does "
                 "not apply, or cannot be determined).\nAfter a WARN or FAIL, prints why the check matters and how to "
                 "fix or examine the problem, usually with a command. Changes nothing.",
        .rows = rows,
        .most = 1};
    int rc = opts_parse(&o, d, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    d->port = HAWSER_DEFAULT_PORT;
    if (optind < argc && opts_host(argv[optind], d->host, sizeof d->host, &d->port) < 0)
        return tool_usage("doctor", "%s", hw_error());
    if (d->list) {
        list_checks(d->groups ? d->groups : (1u << DR_GROUPS) - 1);
        return TOOL_OK;
    }
    if (!d->host[0] && d->groups & 1u << DR_PAIR)
        return tool_usage("doctor", "group pair needs HOST, a node that runs `hawser serve`");
    if (!d->groups)
        d->groups = d->host[0] ? 1u << DR_PAIR : (1u << DR_PAIR) - 1;
    tool_catch_signals();
    return run_doctor(d);
}

int cmd_doctor(int argc, char **argv)
{
    struct doctor *d = calloc(1, sizeof *d);
    if (!d)
        return tool_fail("doctor", "out of memory");
    int rc = parse_and_examine(d, argc, argv);
    common_free(&d->common);
    free(d);
    return rc;
}
