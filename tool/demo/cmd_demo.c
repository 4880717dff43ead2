/* SPDX-License-Identifier: Apache-2.0 */
/* hawser demo: two nodes of a lab, four NICs each, one of them slow; a benchmark beside plain sockets, then a drill
 * that loses a NIC in the middle and gets it back. */
#include "base/size.h"
#include "lab/lab.h"
#include "tool/opts.h"
#include "tool/report/report.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NICS       4
#define VICTIM     1     /* the NIC that goes down, on the benchmark's node */
#define READY_MS   10000 /* serve must say that it listens within this */
#define BENCH_MS   80000 /* no benchmark of the demo takes so long */
#define DOWN_AT_MS 3000
#define UP_AT_MS   5500
#define DRILL_RUN  "9s"
#define DOWN_TEXT  "taken down"
#define UP_TEXT    "back up"
#define PROVED     8
#define COLUMNS    78

static const uint64_t rates[NICS] = {1000000000, 1000000000, 1000000000, 250000000};

struct demo {
    char lab[HW_LAB_NAME_MAX + 1];
    char self[4096];
    const char *dir;
    char result[4200], lists[4200], second[4200], report[4200], faults[4200];
    char proved[PROVED][400]; /* what the run has shown */
    size_t n_proved;
    struct run run;
    bool up;
    pid_t serve, bench;
    int serve_out;
};

/* What a demo that was killed left behind: labs named demo-PID whose process is gone. */
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
            return hw_fail(-errno, "making folder %s: %s", part, strerror(errno));
    }
    return 0;
}

/* The exit status of pid once it is over, -ETIMEDOUT at the deadline, -EINTR after a signal. *pid becomes 0 when over.
 */
static int wait_for_demo_child(pid_t *pid, uint64_t deadline)
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
            return hw_fail(-ETIMEDOUT, "a process did not end in time");
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
}

static void end_child(pid_t *pid, int sig)
{
    if (*pid <= 0)
        return;
    kill(*pid, sig);
    int stop = tool_stop;
    tool_stop = 0; /* the way out is taken in any case */
    if (wait_for_demo_child(pid, hw_deadline(3000)) < 0 && *pid > 0) {
        kill(*pid, SIGKILL);
        wait_for_demo_child(pid, hw_deadline(3000));
    }
    tool_stop = stop;
}

static int start_serve(struct demo *d)
{
    char serve[] = "serve";
    char *argv[] = {d->self, serve, NULL};
    int fd[2];
    if (pipe2(fd, O_CLOEXEC) < 0)
        return hw_fail(-errno, "making a pipe: %s", strerror(errno));
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
        if (now > deadline || tool_stop || len == sizeof text - 1)
            return hw_fail(tool_stop ? -EINTR : -ETIMEDOUT, "`hawser serve` in node a did not say that it listens");
        if (poll(&p, 1, 100) <= 0)
            continue;
        ssize_t n = read(fd[0], text + len, sizeof text - 1 - len);
        if (n == 0)
            return hw_fail(-ECHILD, "`hawser serve` in node a ended at once: %.*s", (int)len, text);
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
    int rc = wait_for_demo_child(&d->bench, hw_deadline(BENCH_MS));
    return rc > 0 ? hw_fail(-EIO, "the benchmark failed (exit code %d)", rc) : rc;
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
    int rc = hw_lab_link(d->lab, "b", VICTIM, up);
    if (rc < 0)
        return rc;
    FILE *f = fopen(d->faults, "ae");
    if (!f)
        return hw_fail(-errno, "writing %s: %s", d->faults, strerror(errno));
    fprintf(f, "%.6f eth%d %s\n", (double)hw_now() / 1e9, VICTIM, up ? UP_TEXT : DOWN_TEXT);
    if (fclose(f) != 0)
        return hw_fail(-errno, "writing %s: %s", d->faults, strerror(errno));
    printf("  -- eth%d of node b %s\n", VICTIM, up ? "is back up" : "is taken down");
    fflush(stdout);
    return 0;
}

static int run_clean_benchmark(struct demo *d)
{
    const char *const extra[] = {"--size",        "1MiB,8MiB,64MiB", "--duration", "1s",
                                 "--compare-raw", "--json",          d->result,    NULL};
    printf("\nFirst, undisturbed, in turns with plain sockets over the same NICs:\n");
    fflush(stdout);
    int rc = start_client(d, "bench", extra);
    return rc < 0 ? rc : end_bench(d);
}

static int run_list_benchmark(struct demo *d)
{
    const char *const extra[] = {"--blocks", "1x64MiB,1024x64KiB", "--duration", "1s", "--json", d->lists, NULL};
    printf("\nThe same 64 MiB in one piece, and as a list of 1,024 scattered pieces, as a KV cache has them:\n");
    fflush(stdout);
    int rc = start_client(d, "bench", extra);
    return rc < 0 ? rc : end_bench(d);
}

static int run_fault_drill(struct demo *d)
{
    const char *const extra[] = {"--duration", DRILL_RUN, "--marks", d->faults, "--json", d->second, NULL};
    printf("\nThen writes of 128 KiB for " DRILL_RUN ", and eth%d goes down in the middle and comes back:\n", VICTIM);
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

/* ---- what came of it --------------------------------------------------------------------------- */

/* The lines of a result file as one array; NULL with hw_error(). */
static json_t *read_lines(const char *path)
{
    FILE *f = fopen(path, "re");
    json_t *all = json_array();
    json_error_t e;
    if (!f)
        hw_fail(-errno, "opening %s: %s", path, strerror(errno));
    else if (all)
        for (json_t *one; (one = json_loadf(f, JSON_DISABLE_EOF_CHECK, &e));)
            json_array_append_new(all, one);
    if (f)
        fclose(f);
    if (json_array_size(all) > 0)
        return all;
    if (f)
        hw_fail(-EIO, "%s holds no result", path);
    json_decref(all);
    return NULL;
}

static double get_result_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

static const char *get_result_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

/* Mean rate of the victim, GB/s, over the timeline's points of [from, to). */
static double victim_rate(const json_t *row, double from, double to)
{
    char name[HAWSER_NIC_NAME];
    double sum = 0;
    size_t i, n = 0;
    json_t *p;
    snprintf(name, sizeof name, "eth%d", VICTIM);
    json_array_foreach(json_object_get(row, "timeline"), i, p)
    {
        double t = get_result_number(p, "t_s");
        if (strcmp(get_result_text(p, "nic"), name) == 0 && t >= from && t < to) {
            sum += get_result_number(p, "GBps");
            n++;
        }
    }
    return n ? sum / (double)n : 0;
}

static double fault_time(const json_t *row, const char *what)
{
    size_t i;
    json_t *p;
    json_array_foreach(json_object_get(row, "faults"), i, p)
    {
        if (strstr(get_result_text(p, "text"), what))
            return get_result_number(p, "t_s");
    }
    return NAN;
}

/* How often connections of the run died. */
static double count_lost(const json_t *row)
{
    double lost = 0;
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(row, "per_channel"), i, c) lost += get_result_number(c, "lost");
    return lost;
}

/* Notes a sentence, and prints it in lines of COLUMNS. */
__attribute__((format(printf, 2, 3))) static void prove(struct demo *d, const char *fmt, ...)
{
    char *text = d->proved[HW_MIN(d->n_proved, (size_t)PROVED - 1)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof d->proved[0], fmt, ap);
    va_end(ap);
    d->n_proved += d->n_proved < PROVED;
    size_t column = 0;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, " ");
        if (column + n + 1 > COLUMNS) {
            putchar('\n');
            column = 0;
        }
        column += (size_t)printf("%s%.*s", column ? " " : at == text ? "- " : "  ", (int)n, at);
        at += n + (at[n] == ' ');
    }
    putchar('\n');
}

static void add_checked(const json_t *rows, double *verified, double *bad)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row)
    {
        *verified += get_result_number(row, "verified_bytes");
        *bad += get_result_number(row, "bad_bytes");
    }
}

static int check_demo_results(struct demo *d)
{
    json_auto_t *first = read_lines(d->result);
    json_auto_t *lists = first ? read_lines(d->lists) : NULL;
    json_auto_t *second = lists ? read_lines(d->second) : NULL;
    double total = 0, verified = 0, bad = 0;
    if (!second)
        return -EIO;
    for (size_t i = 0; i < NICS; i++)
        total += (double)rates[i] / 8e9;
    add_checked(first, &verified, &bad);
    add_checked(lists, &verified, &bad);
    add_checked(second, &verified, &bad);
    const json_t *row = json_array_get(first, json_array_size(first) - 1); /* the largest size */
    const json_t *hit = json_array_get(second, 0);
    const json_t *fault = json_array_get(json_object_get(hit, "drill"), 0);
    double down = fault_time(hit, DOWN_TEXT), up = fault_time(hit, UP_TEXT), lost = count_lost(hit);
    double back = get_result_number(fault, "back_ms"), longest = get_result_number(fault, "longest_ms");
    double before = victim_rate(hit, 0, down), during = victim_rate(hit, down + 0.3, up);
    double after = victim_rate(hit, up + 1, INFINITY), best = get_result_number(row, "GBps");
    double one = get_result_number(json_array_get(lists, 0), "GBps");
    double many = get_result_number(json_array_get(lists, 1), "GBps");
    printf("\nIn short:\n");
    prove(d, "Every byte was right: %.2f GB were compared with what was sent, %.0f bytes differed.", verified / 1e9,
          bad);
    prove(d, "Four NICs are one: transfers of 64 MiB reached %.3f GB/s, %.0f %% of the NICs' %.3f GB/s together.", best,
          100 * best / total, total);
    prove(d, "Plain sockets over the same NICs and memory reached %.3f GB/s: hawser is at %.2f of them.",
          get_result_number(row, "raw_GBps"), get_result_number(row, "ratio_raw"));
    prove(d, "A list of 1,024 scattered pieces of 64 KiB moved at %.3f GB/s, one piece of 64 MiB at %.3f: %.2f of it.",
          many, one, many / one);
    prove(d,
          "A lost NIC costs no transfer: eth%d carried %.3f GB/s, went down at %.1f s, carried %.3f, came back at %.1f "
          "s and "
          "carried %.3f again; %.0f channels died, no transfer failed.",
          VICTIM, before, down, during, up, after, lost);
    prove(d,
          "The gap: goodput was back at 90 %% of what the other NICs carry after %.0f ms, the longest write took %.0f "
          "ms, and "
          "%.1f MiB were sent again.",
          back, longest, get_result_number(hit, "retaken_bytes") / (1 << 20));
    if (!(bad == 0) || !(verified > 0))
        return hw_fail(-EIO, "the data did not arrive right, or was not checked");
    if (!(many > 0) || !(one > 0))
        return hw_fail(-EIO, "the lists were not measured");
    if (!(lost > 0) || isnan(down) || isnan(up))
        return hw_fail(-EIO, "no channel died: the fault did not hit the transfer");
    if (isnan(back))
        return hw_fail(-EIO, "goodput did not come back while eth%d was down", VICTIM);
    if (!(after > 0))
        return hw_fail(-EIO, "eth%d was not used again after it came back", VICTIM);
    return 0;
}

/* The lines of another file join the first one. */
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
        return hw_fail(-EIO, "joining %s to %s: %s", path, d->result, strerror(errno));
    unlink(path);
    return 0;
}

static int write_demo_report(struct demo *d)
{
    const char *sentence[PROVED + 1] = {0};
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

static int run_demo_benchmarks(struct demo *d)
{
    struct hw_lab_spec spec = {.name = d->lab, .nodes = 2, .nics = NICS};
    memcpy(spec.rate, rates, sizeof rates);
    ssize_t n = readlink("/proc/self/exe", d->self, sizeof d->self - 1);
    if (n < 0)
        return hw_fail(-errno, "finding the own executable: %s", strerror(errno));
    int rc = make_result_dirs(d->dir);
    if (rc < 0)
        return rc;
    const char *const old[] = {d->result, d->lists, d->second, d->report, d->faults};
    for (size_t i = 0; i < HW_ARRAY_LEN(old); i++)
        unlink(old[i]); /* a report must be this run's */
    remove_stale_labs();
    printf("A lab of two nodes, four NICs each: three of 1 Gbit/s, one of 250 Mbit/s.\n");
    fflush(stdout);
    rc = hw_lab_up(&spec);
    d->up = rc == 0;
    if (rc < 0 || (rc = start_serve(d)) < 0)
        return rc;
    rc = run_clean_benchmark(d);
    if (rc == 0)
        rc = run_list_benchmark(d);
    return rc < 0 ? rc : run_fault_drill(d);
}

static int run_demo(const char *dir)
{
    struct demo *d = calloc(1, sizeof *d);
    if (!d)
        return tool_fail("demo", "out of memory");
    d->dir = dir;
    d->serve_out = -1;
    snprintf(d->lab, sizeof d->lab, "demo-%d", (int)getpid());
    snprintf(d->result, sizeof d->result, "%s/result.jsonl", dir);
    snprintf(d->lists, sizeof d->lists, "%s/lists.jsonl", dir);
    snprintf(d->second, sizeof d->second, "%s/fault.jsonl", dir);
    snprintf(d->report, sizeof d->report, "%s/report.html", dir);
    snprintf(d->faults, sizeof d->faults, "%s/faults.txt", dir);
    tool_catch_signals();
    uint64_t start = hw_now();
    int exit = TOOL_OK, rc = run_demo_benchmarks(d);
    if (rc < 0)
        exit = tool_failed("demo", rc);
    end_child(&d->bench, SIGTERM);
    end_child(&d->serve, SIGTERM);
    hw_close(&d->serve_out);
    if (d->up && hw_lab_down(d->lab) < 0)
        rc = -(exit = tool_fail("demo", "%s", hw_error()));
    if (rc == 0 && ((rc = check_demo_results(d)) < 0 || (rc = write_demo_report(d)) < 0))
        exit = tool_fail("demo", "%s", hw_error());
    if (rc == 0)
        printf("  Results: %s\n  Report:  %s\n  (%.0f s; the lab is gone)\n", d->result, d->report,
               (double)(hw_now() - start) / 1e9);
    free(d);
    return exit;
}

struct demo_args {
    const char *dir;
};

static int parse_out(void *args, const char *text)
{
    ((struct demo_args *)args)->dir = text;
    return *text && strlen(text) <= 4000 ? 0 : hw_fail(-EINVAL, "it takes a folder, not '%s'", text);
}

int cmd_demo(int argc, char **argv)
{
    static const struct opt rows[] = {
        OPT_CALL("out", 'o', "DIR", parse_out, "where result.jsonl and report.html go (default hawser-demo)"), {0}};
    static const struct opts o = {
        .cmd = "demo",
        .args = "[--out DIR]",
        .about = "Makes a lab of two nodes on this machine, measures verified transfers between them beside "
                 "plain\nsockets, in one piece and as lists, then takes a NIC down in the middle of a drill and brings "
                 "it back. About a "
                 "minute.",
        .rows = rows};
    struct demo_args a = {.dir = "hawser-demo"};
    int rc = opts_parse(&o, &a, argc, argv);
    return rc != OPTS_GO ? rc : run_demo(a.dir);
}
