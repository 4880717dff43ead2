/* SPDX-License-Identifier: Apache-2.0 */
/* hawser mesh checks whether a cluster is healthy. This file has the options, the key, and the choice of each process's
 * role. */
#include "tool/child.h"
#include "tool/mesh/run/mesh_hosts.h"
#include "tool/mesh/run/mesh_run.h"
#include "tool/mesh/show/mesh_json.h"
#include "tool/mesh/show/mesh_out.h"
#include "tool/opts.h"
#include "tool/report/files.h"

#include "net/nic.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define RANK_MS    10000 /* ms to wait for the rank process of rank 0 to exit */
#define HOSTS_WAIT 15000 /* maximum of the agents' --wait, in ms */

struct mesh_args {
    struct mesh_options o;
    struct mesh_hosts hosts;
    const char *meet, *json, *report, *baseline, *read;
    bool agent;
};

static const struct opt rows[] = {
    OPT_TEXT("hosts", 0, "FILE", struct mesh_args, hosts.file,
             "start hawser through ssh on the hosts in FILE, which has one name per line, optionally followed by "
             "rack=NAME and addr=ADDRESS"),
    OPT_TEXT(
        "ssh", 0, "COMMAND", struct mesh_args, hosts.ssh,
        "command that runs a program on a host; {} stands for the host's name (default: \"ssh -oBatchMode=yes {}\")"),
    OPT_TEXT("remote", 0, "PATH", struct mesh_args, hosts.remote,
             "path of hawser on the hosts (default: its path on this host)"),
    OPT_TEXT("meet", 0, "HOST[:PORT]", struct mesh_args, meet,
             "address of rank 0, if the launcher does not provide it"),
    OPT_FLAG("each-rail", 0, struct mesh_args, o.rails,
             "measure each rail separately in all rounds (default: in the first two, or three if the number of nodes "
             "is odd)"),
    OPT_FLAG("load", 0, struct mesh_args, o.load,
             "after the rounds, also measure all nodes at once: bisection, and all to all"),
    OPT_FLAG("quick", 0, struct mesh_args, o.quick, "skip measuring both directions at once in the rounds"),
    OPT_TIME("time", 0, "TIME", struct mesh_args, o.budget_ms, 1000, 86400000,
             "start no further round that would probably end more than TIME after the start (default: run all rounds)"),
    OPT_TIME("duration", 't', "TIME", struct mesh_args, o.duration_ms, 10, 60000,
             "duration of a measurement, in each direction (default: 250ms)"),
    OPT_SIZE("size", 0, "SIZE", struct mesh_args, o.size, 1, 1u << 30, "size of a transfer (default: 1MiB)"),
    OPT_NUMBER("depth", 0, "COUNT", struct mesh_args, o.depth, 1, TP_MAX_DEPTH,
               "number of transfers in flight at once (default: 16)"),
    OPT_NUMBER("pings", 0, "COUNT", struct mesh_args, o.pings, 1, MESH_PINGS,
               "round trips per measurement of the latency (default: 200)"),
    OPT_NUMBER("gpu", 0, "N", struct mesh_args, o.gpu, 0, 63,
               "use memory of this GPU on every node instead of host memory"),
    OPT_TIME("wait", 0, "TIME", struct mesh_args, o.wait_ms, 1000, 3600000,
             "how long to wait for all ranks (default: 60s); --hosts limits this to 15s"),
    OPT_TIME("deadline", 0, "TIME", struct mesh_args, o.deadline_ms, 500, 600000,
             "exclude a rank that is silent for this long (default: 10s)"),
    OPT_TEXT("json", 0, "FILE", struct mesh_args, json, "write JSON lines to FILE (on rank 0); -: standard output"),
    OPT_TEXT("report", 0, "FILE", struct mesh_args, report, "write an HTML file with a heat map (on rank 0)"),
    OPT_TEXT("baseline", 0, "FILE", struct mesh_args, baseline,
             "compare the results with those of another run, whose JSON lines are in FILE"),
    OPT_TEXT("read", 0, "FILE", struct mesh_args, read,
             "do not measure, but judge an earlier run, whose JSON lines are in FILE"),
    OPT_FLAG("agent", 0, struct mesh_args, agent, NULL),
    OPT_GROUP(common_opts, struct mesh_args, o.common),
    {0},
};

/* ---- results ------------------------------------------------------------------------------------- */

static int write_file(const struct mesh *m, const struct mesh_findings *f, const char *path)
{
    FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!out)
        return hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    int rc = mesh_write(m, f, out);
    if (out != stdout && fclose(out) != 0 && rc == 0)
        rc = hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    return rc;
}

static int read_mesh(const char *path, struct mesh *m)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    if (!in)
        return hw_fail(-errno, "opening %s: %s", path, strerror(errno));
    int rc = mesh_read(in, path, m);
    if (in != stdin)
        fclose(in);
    return rc;
}

/* Returns how many of the nodes are also in the baseline. */
static uint32_t count_known(const struct mesh *m, const struct mesh *was)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n; i++)
        n += mesh_find_node(was, m->node[i].name) >= 0;
    return n;
}

/* Compares the results with those in the file, and prints the number of nodes in both. */
static int compare_with(const char *path, const struct mesh *m, struct mesh_findings *f, FILE *out)
{
    struct mesh was = {0};
    int rc = read_mesh(path, &was);
    if (rc == 0)
        rc = mesh_compare(m, &was, f);
    if (rc == 0)
        fprintf(out, "# compared with %s, which has %u of the %u nodes of this run\n", path, count_known(m, &was),
                m->n);
    HW_KEEP_ERROR();
    mesh_free(&was);
    return rc;
}

/* Prints and writes all requested results. An agent only writes JSON lines, which its starter reads. Returns the exit
 * code. */
static int show(const struct mesh_args *a, const struct mesh *m, struct mesh_findings *f)
{
    if (a->agent)
        return write_file(m, f, "-") < 0 ? TOOL_USAGE : TOOL_OK;
    FILE *out = a->json && strcmp(a->json, "-") == 0 ? stderr : stdout;
    int rc = a->baseline ? compare_with(a->baseline, m, f, out) : 0, code = f->n ? TOOL_FAILED : TOOL_OK;
    if (rc < 0)
        code = (tool_fail("mesh", "%s", hw_error()), TOOL_USAGE);
    if (mesh_print(m, f, out) < 0)
        code = (tool_fail("mesh", "%s", hw_error()), TOOL_USAGE);
    if (a->json && write_file(m, f, a->json) < 0)
        code = (tool_fail("mesh", "%s", hw_error()), TOOL_USAGE);
    if (a->report && mesh_html(m, f, a->report) < 0)
        code = (tool_fail("mesh", "%s", hw_error()), TOOL_USAGE);
    return code;
}

/* Checks, before anything is measured, that the files can be written. */
static int check_files(const struct mesh_args *a)
{
    const int rc = report_files_check(a->json);
    return rc < 0 ? rc : report_files_check(a->report);
}

/* Runs agents on the hosts, with the options of this command. */
static int run_hosts(const struct mesh_args *a, struct mesh *m)
{
    const struct mesh_options *p = &a->o;
    const struct {
        const char *name, *unit;
        uint64_t value;
    } number[] = {{"--duration", "ms", p->duration_ms},
                  {"--deadline", "ms", p->deadline_ms},
                  {"--time", "ms", p->budget_ms},
                  {"--size", "", p->size},
                  {"--depth", "", p->depth},
                  {"--pings", "", p->pings},
                  {"--gpu", "", p->has_gpu ? p->gpu + 1 : 0},
                  {"--wait", "ms", HW_MIN(p->wait_ms, (uint64_t)HOSTS_WAIT)}};
    char text[HW_ARRAY_LEN(number)][32];
    const char *args[2 * (HW_ARRAY_LEN(number) + COMMON_MAX_KNOBS) + 8];
    size_t n = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(number); i++) {
        if (!number[i].value)
            continue;
        const bool gpu = strcmp(number[i].name, "--gpu") == 0;
        snprintf(text[i], sizeof text[i], "%llu%s", (unsigned long long)number[i].value - gpu, number[i].unit);
        args[n++] = number[i].name;
        args[n++] = text[i];
    }
    for (size_t i = 0; i < p->common.n_knobs; i++) {
        args[n++] = "--knob";
        args[n++] = p->common.knobs[i];
    }
    if (p->rails)
        args[n++] = "--each-rail";
    if (p->load)
        args[n++] = "--load";
    if (p->quick)
        args[n++] = "--quick";
    if (p->common.verbose > 0)
        args[n++] = "-v";
    args[n] = NULL;
    return mesh_hosts_run(&a->hosts, args, m);
}

/* Judges and shows the results of other processes: those in a file, or those of agents on hosts. */
static int judge_others(const struct mesh_args *a)
{
    struct mesh m = {0};
    struct mesh_findings f = {0};
    int rc = check_files(a), code = TOOL_USAGE;
    if (rc == 0)
        rc = a->read ? read_mesh(a->read, &m) : run_hosts(a, &m);
    if (rc == 0)
        rc = mesh_judge(&m, &f);
    if (rc < 0)
        (void)tool_fail("mesh", "%s", hw_error());
    else
        code = show(a, &m, &f);
    mesh_findings_free(&f);
    mesh_free(&m);
    return code;
}

/* ---- rank 0: the lead, and a rank process beside it -------------------------------------------------- */

/* Runs in the child process of rank 0: waits until the lead has sent its port through the pipe, and then runs the rank.
 * Does not return. */
static void become_rank(const struct mesh_args *a, const struct launch_seat *seat, pid_t parent, int from)
{
    struct launch_place place = {.n = 1, .ports = 1};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent ||
        read(from, &place.port, sizeof place.port) != sizeof place.port)
        _exit(TOOL_USAGE);
    close(from);
    snprintf(place.host[0], sizeof place.host[0], "127.0.0.1");
    exit(mesh_rank(&a->o, seat, &place));
}

/* Runs the lead. The caller closes *h and frees own only after reporting the result: closing takes time, and a launcher
 * that ends the job might not wait for it. */
static int lead(const struct mesh_args *a, struct launch_seat *seat, const struct launch_place *place, int to,
                struct common *own, hawser **h, struct mesh *m, struct mesh_findings *f)
{
    struct launch_pmix *pmix = NULL;
    uint16_t port = 0;
    uint32_t rank, size = 0;
    int rc = launch_open(&a->o.common, a->o.deadline_ms, own, h);
    if (rc == 0)
        rc = launch_listen(*h, place, &port);
    if (rc == 0 && !place->n) {
        rc = launch_pmix_open(&pmix, &rank, &size);
        if (rc == 0)
            rc = launch_publish(pmix, port);
        seat->size = seat->size ? seat->size : size;
    }
    if (rc == 0 && write(to, &port, sizeof port) != sizeof port)
        rc = hw_fail(-EPIPE, "the other process of rank 0 has ended");
    close(to);
    if (rc == 0)
        rc = mesh_lead(&a->o, seat, *h, pmix, m, f);
    HW_KEEP_ERROR();
    if (!tool_stop)
        launch_pmix_close(pmix);
    return rc;
}

static void describe_run(const struct mesh_args *a, const struct launch_seat *seat, struct mesh *m)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    strftime(m->date, sizeof m->date, "%Y-%m-%d %H:%M UTC", &tm);
    snprintf(m->what, sizeof m->what, "started by %s, %llu ms in each direction, %s memory%s", seat->launcher,
             (unsigned long long)a->o.duration_ms, a->o.has_gpu ? "GPU" : "host",
             a->o.budget_ms ? ", with a time limit" : "");
}

static int run_rank_0(const struct mesh_args *a, struct launch_seat *seat, const struct launch_place *place)
{
    if (check_files(a) < 0)
        return tool_fail("mesh", "%s", hw_error()), TOOL_USAGE;
    struct mesh m = {0};
    struct mesh_findings f = {0};
    struct common own = {0};
    hawser *h = NULL;
    int pipes[2], code = TOOL_USAGE, rc;
    pid_t parent = getpid(), pid;
    if (pipe(pipes) < 0 || (pid = fork()) < 0)
        return tool_fail("mesh", "starting a process for rank 0: %s", strerror(errno)), TOOL_USAGE;
    if (pid == 0) {
        close(pipes[1]);
        become_rank(a, seat, parent, pipes[0]);
    }
    close(pipes[0]);
    if (a->agent)
        mesh_follow_starter();
    rc = lead(a, seat, place, pipes[1], &own, &h, &m, &f);
    kill(pid, rc < 0 ? SIGTERM : 0);
    describe_run(a, seat, &m);
    if (rc < 0)
        (void)tool_fail("mesh", "%s", hw_error());
    else
        code = show(a, &m, &f);
    fflush(stdout);
    hawser_close(h);
    common_free(&own);
    (void)child_reap(&pid, RANK_MS); /* last, because it takes time, and a launcher may kill this process soon */
    mesh_findings_free(&f);
    mesh_free(&m);
    return code;
}

/* ---- other ranks -------------------------------------------------------------------------------------- */

static int run_other_rank(const struct mesh_args *a, struct launch_seat *seat, struct launch_place *place)
{
    if (!place->n && launch_look_up(seat, place, a->o.wait_ms) < 0)
        return tool_fail("mesh", "%s", hw_error()), TOOL_USAGE;
    if (a->agent)
        mesh_follow_starter();
    return mesh_rank(&a->o, seat, place);
}

extern char **environ;

static int run_seated(struct mesh_args *a)
{
    struct launch_seat seat;
    struct launch_place place;
    int rc = a->agent ? mesh_take_orders() : 0;
    if (rc == 0)
        rc = launch_key(&a->o.common);
    if (rc < 0)
        return tool_fail("mesh", "%s", hw_error()), TOOL_USAGE;
    rc = launch_env((const char *const *)environ, &seat);
    if (rc == 0 && a->meet)
        rc = opts_host(a->meet, seat.meet, sizeof seat.meet, &seat.port);
    int code = TOOL_USAGE;
    launch_place_of(&seat, &place);
    if (rc == -ENOENT)
        code = tool_usage("mesh", "%s", hw_error());
    else if (rc < 0)
        (void)tool_fail("mesh", "%s", hw_error());
    else
        code = seat.rank == 0 ? run_rank_0(a, &seat, &place) : run_other_rank(a, &seat, &place);
    launch_seat_free(&seat);
    return code;
}

static int parse_args(struct mesh_args *a, int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "mesh",
        .args = "[OPTION...]",
        .about =
            "Measures every pair of nodes of a cluster, and reports the node, NIC, rail or path that stands out. "
            "Start it on every node with mpirun, srun or torchrun --no_python, or use --hosts. Without "
            "--hosts, the key is read from --key-file or HAWSER_MESH_KEY. Exit status: 0 if there are no findings, "
            "1 if there are findings, 2 if mesh could not run, or could not read or write a file.",
        .rows = rows};
    a->o.gpu = UINT32_MAX;
    int rc = opts_parse(&o, a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (a->hosts.file && (a->read || a->meet || a->o.common.key_file))
        return tool_usage("mesh", "--hosts cannot be combined with --%s",
                          a->read   ? "read"
                          : a->meet ? "meet"
                                    : "key-file: --hosts creates a key and sends it through ssh");
    struct mesh_options *p = &a->o;
    p->has_gpu = p->gpu != UINT32_MAX;
    p->wait_ms = p->wait_ms ? p->wait_ms : 60000;
    p->deadline_ms = p->deadline_ms ? p->deadline_ms : 10000;
    p->duration_ms = p->duration_ms ? p->duration_ms : 250;
    p->size = p->size ? p->size : 1 << 20;
    p->depth = p->depth ? p->depth : 16;
    p->pings = p->pings ? p->pings : 200;
    return OPTS_GO;
}

int cmd_mesh(int argc, char **argv)
{
    struct mesh_args *a = calloc(1, sizeof *a);
    if (!a)
        return tool_fail("mesh", "out of memory");
    int rc = parse_args(a, argc, argv);
    if (rc == OPTS_GO) {
        tool_catch_signals();
        rc = a->read || a->hosts.file ? judge_others(a) : run_seated(a);
    }
    common_free(&a->o.common);
    free(a);
    return rc;
}
