/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/nccl/bench/nccl_args.h"

#include "base/knob.h"
#include "base/size.h"
#include "net/paths.h"
#include "net/rails.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>

#define CMD NB_CMD
#define OPS "all_reduce, sendrecv, alltoall, all_gather, reduce_scatter, broadcast"

static int parse_ops(void *args, const char *text)
{
    bool *ops = ((struct nb_args *)args)->op;
    const char *p = text;
    memset(ops, 0, NB_OPS * sizeof *ops);
    do {
        size_t n = strcspn(p, ",");
        int op = 0;
        while (op < NB_OPS && (strlen(nb_op_name(op)) != n || strncmp(nb_op_name(op), p, n) != 0))
            op++;
        if (op == NB_OPS)
            return hw_fail(-EINVAL, "unknown operation '%.*s'; the operations are " OPS, (int)HW_MIN(n, (size_t)40), p);
        ops[op] = true;
        p += n + (p[n] == ',');
    } while (*p || p[-1] == ',');
    return 0;
}

static int parse_raw(void *args, const char *text)
{
    struct nb_args *a = args;
    char word[16];
    for (const char *p = text;;) {
        size_t n = strcspn(p, ",");
        uint64_t v;
        if (a->n_raw == NB_RAWS)
            return hw_fail(-E2BIG, "too many numbers of sockets: at most %d are allowed", NB_RAWS);
        snprintf(word, sizeof word, "%.*s", (int)HW_MIN(n, sizeof word - 1), p);
        int rc = hw_parse_u64(word, 1, 256, &v);
        if (rc < 0)
            return rc;
        a->raw[a->n_raw++] = (uint32_t)v;
        if (!p[n])
            return 0;
        p += n + 1;
    }
}

static int parse_set(void *args, const char *text)
{
    struct nb_args *a = args;
    const char *eq = strchr(text, '=');
    if (!eq || eq == text)
        return hw_fail(-EINVAL, "must be NAME=VALUE, not '%s'", text);
    if (a->n_set == NB_SETS)
        return hw_fail(-E2BIG, "too many variables: at most %d", NB_SETS);
    char *copy = strdup(text);
    if (!copy)
        return hw_no_memory("'%s'", text);
    copy[eq - text] = 0;
    a->set_text[a->n_set] = copy;
    a->set[a->n_set++] = (struct nb_var){copy, copy + (eq - text) + 1};
    return 0;
}

/* Parses "NAME=VALUE[,..]" or "default". */
static int parse_sockets(void *args, const char *text)
{
    struct nb_args *a = args;
    if (a->n_sockets == NB_SOCKETS)
        return hw_fail(-E2BIG, "too many --sockets: at most %d", NB_SOCKETS);
    size_t i = a->n_sockets, n = 2;
    struct nb_config *c = &a->sockets[i];
    *c = (struct nb_config){.name = a->sockets_name[i],
                            .about = "",
                            .socket = true,
                            .tuned = true,
                            .set = {{"NCCL_NET", "Socket"}, {"NCCL_NET_PLUGIN", "none"}}};
    snprintf(a->sockets_name[i], sizeof a->sockets_name[i], "sockets-%zu", i + 1);
    char *rest = a->sockets_text[i] = strdup(strcmp(text, "default") == 0 ? "" : text);
    if (!rest)
        return hw_no_memory("'%s'", text);
    a->n_sockets++;
    for (char *word; rest && *rest;) {
        word = strsep(&rest, ",");
        char *eq = strchr(word, '=');
        if (!eq || eq == word)
            return hw_fail(-EINVAL, "must be NAME=VALUE[,..] or 'default', not '%s'", text);
        if (n == NB_SET - 1)
            return hw_fail(-E2BIG, "'%s' has too many variables: at most %d", text, NB_SET - 3);
        *eq = 0;
        c->set[n++] = (struct nb_var){word, eq + 1};
    }
    return 0;
}

/* Stores the map on one line, as the knob rails accepts it, so that ranks on other hosts need no file. */
static int parse_rails(void *args, const char *text)
{
    struct nb_args *a = args;
    HW_AUTO_FREE char *map = NULL;
    const struct hw_knobs *limit = NULL;
    int rc = hw_rails_read(text, &map);
    if (rc < 0 || (rc = hw_rails_check(map)) < 0)
        return rc;
    free(a->rails);
    char *to = a->rails = calloc(1, strlen(map) + 1);
    if (!to)
        return hw_no_memory("a map of rails");
    for (const char *at = map; *at;) {
        const size_t n = strcspn(at, ";\n#");
        if (strspn(at, " \t\r") < n) {
            to += sprintf(to, "%s%.*s", to == a->rails ? "" : ";", (int)n, at);
        }
        at += n;
        if (*at == '#')
            at += strcspn(at, "\n");
        at += *at != 0;
    }
    if (strlen(a->rails) >= sizeof limit->rails)
        return hw_fail(-E2BIG,
                       "the map of rails is too long (%zu bytes) to pass to the ranks: put the map in a file on "
                       "every host and use --set HAWSER_RAILS=@FILE",
                       strlen(a->rails));
    return setenv("HAWSER_RAILS", a->rails, 1) < 0 ? hw_fail(-errno, "setting HAWSER_RAILS: %s", strerror(errno)) : 0;
}

static int parse_nccl_sizes(void *args, const char *text)
{
    struct nb_args *a = args;
    return opts_sizes(text, a->size, NB_SIZES, &a->n_sizes);
}

static const struct opt rows[] = {
    OPT_CALL("op", 0, "OP[,..]", parse_ops, "operations to measure: " OPS " (default: the first two)"),
    OPT_CALL("size", 0, "SIZE[,..]", parse_nccl_sizes,
             "sizes to measure, or a range in which each size is twice the previous one, as in 8:256MiB (default: "
             "8,1KiB,64KiB,1MiB,16MiB,64MiB,256MiB)"),
    OPT_NUMBER("gpus", 0, "N", struct nb_args, gpus, 1, NB_RANKS,
               "number of ranks, one for each GPU, beginning with GPU 0; with --hosts, the number on each host "
               "(default: all GPUs)"),
    OPT_TEXT("hosts", 0, "A,B[,..]", struct nb_args, hosts,
             "run ranks on these hosts, and measure NCCL over hawser, over NCCL's own sockets and (if installed) over "
             "TCPX, and hawser's own "
             "transfer from B to A"),
    OPT_TEXT("ssh", 0, "COMMAND", struct nb_args, ssh,
             "command that runs a program on a host; the host's name replaces {}, or is appended to a command without "
             "{} (default: ssh -oBatchMode=yes)"),
    OPT_TEXT("remote", 0, "PATH", struct nb_args, remote,
             "path of this program on the hosts (default: its path on this host)"),
    OPT_TEXT("tcpx", 0, "PATH", struct nb_args, tcpx,
             "path of the TCPX plugin on the hosts (default: /usr/local/tcpx/lib64/libnccl-net.so)"),
    OPT_TEXT(
        "key-file", 0, "FILE", struct nb_args, common.key_file,
        "read from FILE the job key of the processes that a launcher started (default: the key in HAWSER_MESH_KEY)"),
    OPT_TEXT("meet", 0, "HOST[:PORT]", struct nb_args, meet, "address of rank 0, if the launcher does not provide it"),
    OPT_TIME("wait", 0, "TIME", struct nb_args, wait_ms, 1000, 3600000,
             "how long to wait for all processes (default: 60s)"),
    OPT_FLAG("local", 0, struct nb_args, local, "use only this host's GPUs, even if a launcher started this process"),
    OPT_CALL("rails", 0, "MAP", parse_rails,
             "connect only NICs of the same rail, as with HAWSER_RAILS: 'eth1;eth2', or @FILE with one rail per line"),
    OPT_FLAG(
        "vs-socket", 0, struct nb_args, vs,
        "also measure NCCL's own sockets, with the default settings and with two tuned ones, alternating with hawser"),
    OPT_CALL("sockets", 0, "NAME=VALUE[,..]", parse_sockets,
             "also measure NCCL's own sockets with these variables; 'default' sets none; may be repeated"),
    OPT_CALL("raw", 0, "N[,..]", parse_raw, "also measure N plain sockets over loopback"),
    OPT_NUMBER("rounds", 0, "N", struct nb_args, rounds, 1, NB_ROUNDS,
               "number of rounds; medians are printed (default: 1; 3 with --vs-socket, --hosts or a launcher)"),
    OPT_NUMBER("iters", 0, "N", struct nb_args, iters, 1, 1000000,
               "number of operations in a measurement (default: enough for 1GiB, at least 10, at most 500)"),
    OPT_NUMBER("warmup", 0, "N", struct nb_args, warmup, 0, 1000000,
               "number of operations before the measured ones (default: a tenth of those, at least 3)"),
    OPT_TEXT("plugin", 0, "NAME", struct nb_args, plugin,
             "set NCCL_NET_PLUGIN to NAME for hawser's runs (default: hawser)"),
    OPT_CALL("set", 0, "NAME=VALUE", parse_set, "set a variable for hawser's runs only; may be repeated"),
    OPT_TEXT("nccl", 0, "FILE", struct nb_args, nccl, "load NCCL's library from FILE (default: libnccl.so.2)"),
    OPT_TEXT("lab", 0, "LAB", struct nb_args, lab,
             "run rank 0 in node a of this lab, rank 1 in node b, and so on (see `hawser lab`)"),
    OPT_TIME("timeout", 0, "TIME", struct nb_args, timeout_ms, 1000, 3600000,
             "give up on a rank that does not answer for this long (default: 120s)"),
    OPT_TEXT("json", 0, "FILE", struct nb_args, json,
             "write one JSON line per measurement to FILE; -: standard output"),
    OPT_TEXT("report", 0, "FILE", struct nb_args, report, "write one HTML file with the results"),
    OPT_FLAG("verbose", 'v', struct nb_args, verbose, "show all output of the ranks and of NCCL, on standard error"),
    OPT_TEXT("rank", 0, "FD,RANK,RANKS,GPU", struct nb_args, rank, NULL),
    OPT_FLAG("agent", 0, struct nb_args, agent, NULL),
    OPT_TEXT("via", 0, "FD,SEAT", struct nb_args, via, NULL),
    {0},
};

int nb_args_parse(struct nb_args *a, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = CMD,
        .args = "[OPTION...]",
        .about =
            "Measures NCCL over hawser, as nccl-tests does, and with --vs-socket, --sockets, --hosts or a launcher "
            "also "
            "over NCCL's own sockets. On one host, starts a process for each GPU, and each process acts as a separate "
            "node. For several nodes, start this command with "
            "mpirun, srun or torchrun --no_python, one process per node or per GPU. Every element of the last timed "
            "result is checked.",
        .rows = rows,
        .too_many = "bench takes options only"};
    int rc = opts_parse(&o, a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (a->lab && a->n_raw)
        return tool_usage(CMD, "--raw cannot be combined with --lab, because --raw uses this host's loopback");
    if (a->hosts && (a->lab || a->n_raw))
        return tool_usage(CMD, "--hosts cannot be combined with --lab or --raw");
    if (!a->hosts && (a->ssh || a->remote || a->tcpx))
        return tool_usage(CMD, "--ssh, --remote and --tcpx need --hosts");
    return OPTS_GO;
}

void nb_args_free(struct nb_args *a)
{
    for (size_t i = 0; i < a->n_set; i++)
        free(a->set_text[i]);
    for (size_t i = 0; i < a->n_sockets; i++)
        free(a->sockets_text[i]);
    common_free(&a->common);
    free(a->rails);
    free(a);
}
