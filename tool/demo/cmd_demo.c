/* SPDX-License-Identifier: Apache-2.0 */
/* hawser demo: runs two labs. The first lab has two nodes with four NICs each, three fast and one slow. There the demo
 * runs a benchmark that alternates between hawser and plain sockets; a benchmark of lists; a KV cache transfer through
 * NIXL, if --kv-push was given; and a drill in which a NIC goes down and comes back up. In the second lab, of eight
 * nodes, mesh finds the one bad NIC. */
#include "tool/demo/demo.h"

#include "base/size.h"
#include "tool/opts.h"
#include "tool/report/report.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS   10000 /* ms within which serve must print that it listens */
#define BENCH_MS   80000 /* ms; longer than any measurement between the two nodes takes */
#define DOWN_AT_MS 3000
#define UP_AT_MS   5500
#define DRILL_RUN  "9s"

const uint64_t demo_rates[DEMO_NICS] = {1000000000, 1000000000, 1000000000, 250000000};

/* Removes labs that a killed demo left behind: labs named demo-PID whose process no longer exists. */
static void remove_stale_labs(void)
{
    char(*name)[HW_LAB_NAME_MAX + 1] = calloc(64, sizeof *name);
    int n = name ? hw_lab_names(name, 64) : 0;
    for (int i = 0; i < HW_MIN(n, 64); i++) {
        uint64_t pid;
        if (strncmp(name[i], "demo-", 5) == 0 && hw_parse_u64(name[i] + 5, 2, INT32_MAX, &pid) == 0 &&
            kill((pid_t)pid, 0) < 0 && errno == ESRCH)
            hw_lab_down(name[i]);
    }
    free(name);
}

static int make_result_dirs(const char *path)
{
    char part[4096];
    for (const char *at = path; *at;) {
        at += strspn(at, "/");
        at += strcspn(at, "/");
        snprintf(part, sizeof part, "%.*s", (int)(at - path), path);
        if (mkdir(part, 0777) < 0 && errno != EEXIST)
            return hw_fail(-errno, "creating folder %s: %s", part, strerror(errno));
    }
    return 0;
}

int demo_await(pid_t *pid, uint64_t deadline)
{
    for (;;) {
        int status;
        pid_t got = waitpid(*pid, &status, WNOHANG);
        if (got == *pid) {
            *pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        if (got < 0 && errno != EINTR)
            return hw_fail(-errno, "waiting for a process: %s", strerror(errno));
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        if (hw_now() > deadline)
            return hw_fail(-ETIMEDOUT, "a process that the demo started did not end in time");
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

void demo_end(pid_t *pid, int sig)
{
    if (*pid <= 0)
        return;
    kill(*pid, sig);
    int stop = tool_stop;
    tool_stop = 0; /* the cleanup must run even after a signal */
    if (demo_await(pid, hw_deadline(3000)) < 0 && *pid > 0) {
        kill(*pid, SIGKILL);
        demo_await(pid, hw_deadline(3000));
    }
    tool_stop = stop;
}

static int start_serve(struct demo *d)
{
    char serve[] = "serve";
    char *argv[] = {d->self, serve, NULL};
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) < 0)
        return hw_fail(-errno, "creating a pipe: %s", strerror(errno));
    int rc = hw_lab_spawn(d->lab, "a", argv, fd[1], &d->serve);
    hw_close(&fd[1]);
    d->serve_out = fd[0];
    if (rc < 0)
        return rc;
    char text[4096];
    size_t len = 0;
    uint64_t deadline = hw_deadline(READY_MS);
    for (;;) {
        struct pollfd p = {.fd = fd[0], .events = POLLIN};
        uint64_t now = hw_now();
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        if (now > deadline || len == sizeof text - 1)
            return hw_fail(-ETIMEDOUT, "`hawser serve` in node a did not print that it is listening");
        if (poll(&p, 1, 100) <= 0)
            continue;
        ssize_t n = read(fd[0], text + len, sizeof text - 1 - len);
        if (n == 0)
            return hw_fail(-ECHILD, "`hawser serve` in node a exited before it was listening%s%.*s", len ? ": " : "",
                           (int)len, text);
        if (n > 0)
            len += (size_t)n;
        text[len] = 0;
        if (strstr(text, "hawser bench 198.18.0.1"))
            return 0;
    }
}

static int start_client(struct demo *d, const char *command, const char *const *extra)
{
    char *argv[32] = {d->self, (char *)command, (char *)"198.18.0.1"};
    size_t n = 3;
    for (; *extra && n + 1 < HW_ARRAY_LEN(argv); extra++)
        argv[n++] = (char *)*extra;
    return hw_lab_spawn(d->lab, "b", argv, -1, &d->bench);
}

static int end_bench(struct demo *d)
{
    int rc = demo_await(&d->bench, hw_deadline(BENCH_MS));
    return rc > 0 ? hw_fail(-EIO, "the measurement failed (exit code %d)", rc) : rc;
}

static int pause_until(uint64_t when)
{
    while (hw_now() < when) {
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return 0;
}

static int link_and_note(struct demo *d, bool up)
{
    int rc = hw_lab_link(d->lab, "b", DEMO_VICTIM, up);
    if (rc < 0)
        return rc;
    FILE *f = fopen(d->faults, "ae");
    if (!f)
        return hw_fail(-errno, "writing %s: %s", d->faults, strerror(errno));
    fprintf(f, "%.6f eth%d %s\n", (double)hw_now() / 1e9, DEMO_VICTIM, up ? DEMO_UP : DEMO_DOWN);
    if (fclose(f) != 0)
        return hw_fail(-errno, "writing %s: %s", d->faults, strerror(errno));
    printf("  -- eth%d of node b %s\n", DEMO_VICTIM, up ? "is back up" : "is taken down");
    fflush(stdout);
    return 0;
}

static int run_clean_benchmark(struct demo *d)
{
    const char *const extra[] = {"--size",        "1MiB,8MiB,64MiB", "--duration", "1s",
                                 "--compare-raw", "--json",          d->result,    NULL};
    printf("\nFirst a benchmark without faults, alternating with plain sockets over the same NICs:\n");
    fflush(stdout);
    int rc = start_client(d, "bench", extra);
    return rc < 0 ? rc : end_bench(d);
}

static int run_list_benchmark(struct demo *d)
{
    const char *const extra[] = {"--blocks", "1x64MiB,1024x64KiB", "--duration", "1s", "--json", d->lists, NULL};
    printf("\nThen 64 MiB as one block, and as a list of 1,024 scattered blocks, like those of a KV cache:\n");
    fflush(stdout);
    int rc = start_client(d, "bench", extra);
    return rc < 0 ? rc : end_bench(d);
}

static int run_fault_drill(struct demo *d)
{
    const char *const extra[] = {"--duration", DRILL_RUN, "--marks", d->faults, "--json", d->second, NULL};
    printf("\nThen writes of 128 KiB for " DRILL_RUN "; eth%d goes down in the middle and comes back up:\n",
           DEMO_VICTIM);
    fflush(stdout);
    uint64_t start = hw_now();
    int rc = start_client(d, "drill", extra);
    if (rc < 0 || (rc = pause_until(start + DOWN_AT_MS * HW_MS)) < 0)
        return rc;
    rc = link_and_note(d, false);
    if (rc < 0 || (rc = pause_until(start + UP_AT_MS * HW_MS)) < 0)
        return rc;
    rc = link_and_note(d, true);
    return rc < 0 ? rc : end_bench(d);
}

/* ---- report, cleanup and main program ------------------------------------------------------------ */

/* Appends the lines of the result file at path to d->result, and removes the file at path. */
static int append_results(struct demo *d, const char *path)
{
    FILE *from = fopen(path, "re"), *to = fopen(d->result, "ae");
    char buf[65536];
    size_t n;
    bool good = from && to;
    while (good && (n = fread(buf, 1, sizeof buf, from)) > 0)
        good = fwrite(buf, 1, n, to) == n;
    good = good && !ferror(from);
    if (from)
        fclose(from);
    if (to && fclose(to) != 0)
        good = false;
    if (!good)
        return hw_fail(-EIO, "appending %s to %s: %s", path, d->result, strerror(errno));
    unlink(path);
    return 0;
}

static int write_demo_report(struct demo *d)
{
    const char *sentence[DEMO_PROVED + 1] = {0};
    for (size_t i = 0; i < d->n_proved; i++)
        sentence[i] = d->proved[i];
    run_note(&d->run);
    const struct report_frame frame = {.run = &d->run, .title = "hawser demo", .proved = sentence};
    int rc = append_results(d, d->lists);
    if (rc == 0)
        rc = append_results(d, d->second);
    if (rc == 0)
        unlink(d->faults);
    return rc < 0 ? rc : report_html(d->result, d->report, &frame);
}

static int run_on_two_nodes(struct demo *d)
{
    struct hw_lab_spec spec = {.name = d->lab, .nodes = 2, .nics = DEMO_NICS};
    memcpy(spec.rate, demo_rates, sizeof demo_rates);
    printf("A lab of two nodes with four NICs each: three of 1 Gbit/s and one of 250 Mbit/s.\n");
    fflush(stdout);
    int rc = hw_lab_up(&spec);
    d->up = rc == 0;
    if (rc < 0 || (rc = start_serve(d)) < 0)
        return rc;
    rc = run_clean_benchmark(d);
    if (rc == 0)
        rc = run_list_benchmark(d);
    if (rc == 0)
        rc = demo_push_kv(d);
    return rc < 0 ? rc : run_fault_drill(d);
}

/* Ends the processes that still run, and removes the lab. */
static int clean_demo(struct demo *d)
{
    demo_end(&d->bench, SIGTERM);
    demo_end(&d->decode, SIGTERM);
    demo_end(&d->serve, SIGTERM);
    hw_close(&d->serve_out);
    int rc = d->up ? hw_lab_down(d->lab) : 0;
    d->up = rc < 0;
    return rc;
}

static int run_demo_parts(struct demo *d)
{
    ssize_t n = readlink("/proc/self/exe", d->self, sizeof d->self - 1);
    if (n < 0)
        return hw_fail(-errno, "finding the path of this executable: %s", strerror(errno));
    int rc = make_result_dirs(d->dir);
    if (rc < 0)
        return rc;
    const char *const old[] = {d->result, d->lists, d->second, d->report,   d->faults,
                               d->kv,     d->hosts, d->mesh,   d->mesh_page};
    for (size_t i = 0; i < HW_ARRAY_LEN(old); i++)
        unlink(old[i]); /* so that no result of an earlier run remains */
    remove_stale_labs();
    rc = run_on_two_nodes(d);
    if (rc == 0)
        rc = clean_demo(d);
    return rc < 0 ? rc : demo_run_mesh(d);
}

static int check_all(struct demo *d)
{
    printf("\nSummary:\n");
    int rc = demo_check(d);
    if (rc == 0)
        rc = demo_check_kv(d);
    return rc < 0 ? rc : demo_check_mesh(d);
}

static void name_files(struct demo *d)
{
    const struct {
        char *path;
        const char *name;
    } file[] = {{d->result, "result.jsonl"}, {d->lists, "lists.jsonl"}, {d->second, "fault.jsonl"},
                {d->report, "report.html"},  {d->faults, "faults.txt"}, {d->kv, "kv_push.txt"},
                {d->hosts, "hosts"},         {d->mesh, "mesh.jsonl"},   {d->mesh_page, "mesh.html"}};
    for (size_t i = 0; i < HW_ARRAY_LEN(file); i++)
        snprintf(file[i].path, DEMO_PATH, "%s/%s", d->dir, file[i].name);
}

struct demo_args {
    const char *dir, *kv_push;
};

static int run_demo(const struct demo_args *a)
{
    struct demo *d = calloc(1, sizeof *d);
    if (!d)
        return tool_fail("demo", "out of memory");
    d->dir = a->dir;
    d->kv_push = a->kv_push;
    d->serve_out = -1;
    snprintf(d->lab, sizeof d->lab, "demo-%d", (int)getpid());
    name_files(d);
    tool_catch_signals();
    uint64_t start = hw_now();
    int exit = TOOL_OK, rc = run_demo_parts(d);
    if (rc < 0)
        exit = tool_failed("demo", rc);
    if (clean_demo(d) < 0)
        rc = -(exit = tool_fail("demo", "%s", hw_error()));
    if (rc == 0 && ((rc = check_all(d)) < 0 || (rc = write_demo_report(d)) < 0))
        exit = tool_fail("demo", "%s", hw_error());
    if (rc == 0)
        printf("  Results: %s, %s\n  Reports: %s, %s\n  (The demo took %.0f s and removed its labs.)\n", d->result,
               d->mesh, d->report, d->mesh_page, (double)(hw_now() - start) / 1e9);
    free(d);
    return exit;
}

static int parse_out(void *args, const char *text)
{
    ((struct demo_args *)args)->dir = text;
    return *text && strlen(text) <= 4000
               ? 0
               : hw_fail(-EINVAL, "must be the path of a folder, with 1 to 4000 characters, not '%s'", text);
}

int cmd_demo(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_CALL("out", 'o', "DIR", parse_out, "folder for the results and the reports (default: hawser-demo)"),
        OPT_TEXT("kv-push", 0, "FILE", struct demo_args, kv_push,
                 "also run FILE, a program that transfers a KV cache through NIXL, such as examples/nixl/kv_push.py"),
        {0}};
    static const struct opts o = {
        .cmd = "demo",
        .args = "[OPTION...]",
        .about = "Creates a lab of two nodes on this machine. Measures verified transfers between the nodes, "
                 "alternating with\nplain sockets, and runs a drill in which a NIC goes down and comes back up. Then "
                 "mesh finds the one bad NIC\nin a lab of eight nodes. Takes about 90 seconds.",
        .rows = rows};
    struct demo_args a = {.dir = "hawser-demo"};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : run_demo(&a);
}
