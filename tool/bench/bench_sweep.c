/* SPDX-License-Identifier: Apache-2.0 */
/* bench with lists of channels or windows: runs each combination in its own process, and prints one table for all.
 * Each run has its own context, because the knobs of a context do not change, and its own process, because a plugin's
 * process must be started before CUDA is used. */
#include "base/size.h"
#include "tool/bench/bench.h"
#include "tool/report/report_data.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct best {
    double size, GBps;
    char what[96];
};

struct sweep {
    struct bench *b;
    FILE *table;
    struct best best[BENCH_SIZES];
    size_t n_best;
};

bool bench_one(const char *text, uint64_t v[2])
{
    char *end;
    for (int i = 0; i < 2; i++) {
        v[i] = strtoull(text, &end, 10);
        if (end == text || *end != (i < 1 ? ',' : 0))
            return false;
        text = end + 1;
    }
    return true;
}

bool bench_sweeps(const struct bench *b)
{
    return b->channels_list.n > 1 || b->window_list.n > 1;
}

int bench_list(const char *text, bool sizes, uint64_t least, uint64_t most, struct bench_list *out)
{
    *out = (struct bench_list){0};
    for (const char *p = text;;) {
        char word[32];
        const size_t len = strcspn(p, ",");
        if (len == 0 || len >= sizeof word || out->n == BENCH_LIST)
            return hw_fail(-EINVAL, "'%s' is not a list of up to %d values", text, BENCH_LIST);
        snprintf(word, sizeof word, "%.*s", (int)len, p);
        uint64_t *v = &out->v[out->n++];
        int rc = sizes ? hw_parse_size(word, v) : hw_parse_u64(word, least, most, v);
        if (rc < 0)
            return rc;
        p += len;
        if (!*p)
            return 0;
        p++;
    }
}

/* Starts this command again in a child process, for the combination in `one`. Returns 0 with *pid, or a negative errno
 * if the process could not be started. The child reports its own failures. */
static int start_one(const struct bench *b, int json, const char *one, pid_t *pid)
{
    static char self[] = "hawser", cmd[] = "bench";
    char out[64], arg[128];
    HW_AUTO_FREE char **argv = calloc((size_t)b->argc + 5, sizeof(char *));
    if (!argv)
        return hw_no_memory("a command line");
    snprintf(out, sizeof out, "--json=/proc/self/fd/%d", json);
    snprintf(arg, sizeof arg, "--one=%.95s", one);
    size_t n = 0;
    argv[n++] = self;
    argv[n++] = cmd;
    for (int i = 1; i < b->argc; i++)
        argv[n++] = b->argv[i];
    argv[n++] = out;
    argv[n] = arg;
    const pid_t parent = getpid();
    fflush(NULL);
    *pid = fork();
    if (*pid == 0) {
        const int null = open("/dev/null", O_WRONLY);
        if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent || null < 0)
            _exit(127);
        dup2(null, STDOUT_FILENO);
        execv("/proc/self/exe", argv);
        _exit(127);
    }
    return *pid < 0 ? hw_fail(-errno, "starting a run: %s", strerror(errno)) : 0;
}

static void print_sweep_head(struct sweep *s)
{
    const bool who = s->b->gpus_text || s->b->both;
    fprintf(s->table, "# hawser %s, peer %s port %u, %s, one run for each combination of channels and window\n",
            hawser_version(), s->b->host, s->b->port, s->b->both ? "write and read at once" : output_op_name(s->b->op));
    fprintf(s->table, "chan. %8s %10s%s %7s", "window", "size", who ? "    GPU/op" : "", "GB/s");
    if (!s->b->compare_raw)
        fprintf(s->table, " %7s %9s %8s %8s", "Gbit/s", "p50 us", "CPU s/GB", "there");
    else if (s->b->op == TP_PINGPONG)
        fprintf(s->table, " %9s %9s", "p50 us", "raw us");
    else
        fprintf(s->table, " %8s %7s %9s %8s", "raw GB/s", "ratio", "p50 us", "CPU s/GB");
    fprintf(s->table, " %5s %4s\n", "bad B", "lost");
}

static void print_sweep_number(FILE *out, int width, double v, int digits)
{
    if (isnan(v))
        fprintf(out, " %*s", width, "-");
    else
        fprintf(out, " %*.*f", width, digits, v);
}

static void note_best(struct sweep *s, const struct rep_row *r, const char *what)
{
    size_t i = 0;
    while (i < s->n_best && s->best[i].size != r->num[REP_SIZE])
        i++;
    if (i == BENCH_SIZES)
        return;
    if (i == s->n_best)
        s->best[s->n_best++] = (struct best){.size = r->num[REP_SIZE]};
    if (!(r->num[REP_GBPS] > s->best[i].GBps))
        return;
    s->best[i].GBps = r->num[REP_GBPS];
    snprintf(s->best[i].what, sizeof s->best[i].what, "%s", what);
}

/* Prints the columns between the throughput and the errors. With --compare-raw, the results of plain sockets take the
 * places of less important columns, so that the line does not become longer. */
static void print_sweep_rates(struct sweep *s, const struct rep_row *r)
{
    const bool raw = s->b->compare_raw, ping = s->b->op == TP_PINGPONG;
    if (!raw)
        print_sweep_number(s->table, 7, 8 * r->num[REP_GBPS], 2);
    if (raw && !ping) {
        print_sweep_number(s->table, 8, r->num[REP_RAW_GBPS], 3);
        print_sweep_number(s->table, 7, r->num[REP_RATIO], 3);
    }
    print_sweep_number(s->table, 9, r->num[REP_P50], 1);
    if (raw && ping) {
        print_sweep_number(s->table, 9, r->num[REP_RAW_SPIN], 1);
        return;
    }
    print_sweep_number(s->table, 8, r->num[REP_CPU], 3);
    if (!raw)
        print_sweep_number(s->table, 8, r->num[REP_PEER_CPU], 3);
}

static void print_row(struct sweep *s, const struct rep_row *r, const char *what, bool one_gpu)
{
    char window[32], size[32];
    fprintf(s->table, "%5.0f %8s %10s", r->num[REP_CHANNELS],
            hw_format_size((uint64_t)r->num[REP_WINDOW], window, sizeof window),
            hw_format_size((uint64_t)r->num[REP_SIZE], size, sizeof size));
    if (s->b->gpus_text || s->b->both)
        fprintf(s->table, " %9s", r->sum ? "all" : r->mem && strncmp(r->mem, "GPU ", 4) == 0 ? r->mem + 4 : r->op);
    print_sweep_number(s->table, 7, r->num[REP_GBPS], 3);
    print_sweep_rates(s, r);
    print_sweep_number(s->table, 5, r->num[REP_BAD], 0);
    print_sweep_number(s->table, 4, r->num[REP_LOST], 0);
    fputc('\n', s->table);
    fflush(s->table);
    if (r->num[REP_BAD] > 0 && (r->sum || one_gpu))
        s->b->bad += (uint64_t)r->num[REP_BAD];
    if (r->sum || one_gpu)
        note_best(s, r, what);
}

/* Adds the JSON lines of one run to the table, and copies them to the file of --json. */
static int take_lines(struct sweep *s, int fd, const char *what)
{
    struct rep rep;
    char buf[65536];
    FILE *f = fdopen(dup(fd), "r");
    if (!f || lseek(fd, 0, SEEK_SET) < 0) {
        if (f)
            fclose(f);
        return hw_fail(-errno, "reading the output of a run: %s", strerror(errno));
    }
    int rc = rep_read(f, "the output of a run", &rep);
    if (rc == 0) {
        bool sums = false;
        uint64_t v[2] = {0}, used = 0;
        for (size_t i = 0; i < rep.n_row; i++) {
            const double channels = rep.row[i].num[REP_CHANNELS];
            sums |= rep.row[i].sum;
            used = HW_MAX(used, channels > 0 ? (uint64_t)channels : 0);
        }
        for (size_t i = 0; i < rep.n_row; i++)
            print_row(s, &rep.row[i], what, !sums);
        (void)bench_one(what, v);
        bench_print_channels(s->table, v[0] ? v[0] : s->b->knobs.channels, used);
        rep_free(&rep);
    }
    rewind(f);
    for (size_t n; rc == 0 && s->b->json_out && (n = fread(buf, 1, sizeof buf, f)) > 0;)
        if (fwrite(buf, 1, n, s->b->json_out) != n)
            rc = hw_fail(-EIO, "writing the JSON lines: %s", strerror(errno));
    fclose(f);
    return rc;
}

static int run_one(struct sweep *s, const char *one)
{
    int status = 0;
    pid_t pid = 0;
    HW_AUTO_CLOSE int fd = memfd_create("hawser-bench", 0); /* no MFD_CLOEXEC, because the run inherits the file */
    if (fd < 0)
        return hw_fail(-errno, "creating a file for the output of a run: %s", strerror(errno));
    int rc = start_one(s->b, fd, one, &pid);
    if (rc < 0)
        return rc;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        if (tool_stop)
            (void)kill(pid, SIGINT);
    if ((!WIFEXITED(status) || WEXITSTATUS(status) != 0) && !tool_stop) {
        s->b->failed = true;
        fprintf(s->table, "# the run with CHANNELS,WINDOW %s failed (0 means the knob's value)\n", one);
    }
    return lseek(fd, 0, SEEK_END) > 0 ? take_lines(s, fd, one) : 0;
}

int bench_sweep(struct bench *b)
{
    struct sweep s = {.b = b, .table = bench_table(b)};
    const struct bench_list none = {.n = 1};
    const struct bench_list *c = b->channels_list.n ? &b->channels_list : &none;
    const struct bench_list *w = b->window_list.n ? &b->window_list : &none;
    int rc = 0;
    snprintf(b->files.run.peer, sizeof b->files.run.peer, "%s", b->host);
    print_sweep_head(&s);
    for (size_t i = 0; i < c->n * w->n && rc == 0 && !tool_stop; i++) {
        char one[96];
        snprintf(one, sizeof one, "%" PRIu64 ",%" PRIu64, c->v[i / w->n], w->v[i % w->n]);
        rc = run_one(&s, one);
    }
    for (size_t i = 0; i < s.n_best && rc == 0; i++) {
        uint64_t v[2] = {0};
        char size[32], window[32];
        if (!bench_one(s.best[i].what, v)) /* empty if no run had a throughput */
            continue;
        fprintf(s.table, "# %s: best at", hw_format_size((uint64_t)s.best[i].size, size, sizeof size));
        if (v[0])
            fprintf(s.table, " channels %" PRIu64, v[0]);
        if (v[1])
            fprintf(s.table, " window %s", hw_format_size(v[1], window, sizeof window));
        fprintf(s.table, ": %.3f GB/s\n", s.best[i].GBps);
    }
    return tool_stop && rc == 0 ? hw_fail(-EINTR, "interrupted") : rc;
}
