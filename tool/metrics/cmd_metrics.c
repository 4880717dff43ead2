/* SPDX-License-Identifier: Apache-2.0 */
/* hawser metrics: the metrics of the contexts on this machine, for Prometheus. */
#include "tool/metrics/gather.h"
#include "tool/metrics/http.h"
#include "tool/opts.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_PORT        9420
#define DEFAULT_INTERVAL_MS 15000
#define ANSWER_MS           2000 /* ms for contexts to answer */

struct metrics_args {
    const char *dir, *textfile;
    bool once, listens;
    union {
        struct sockaddr sa;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } addr;
    uint64_t interval_ms;
    bool failed; /* the last write failed, and the failure was logged */
};

static int parse_listen(void *args, const char *text)
{
    struct metrics_args *a = args;
    char host[INET6_ADDRSTRLEN];
    uint16_t port = DEFAULT_PORT;
    int rc = opts_host(text, host, sizeof host, &port);
    if (rc < 0)
        return rc;
    a->listens = true;
    if (inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, &a->addr.in.sin_addr) == 1) {
        a->addr.in.sin_family = AF_INET;
        a->addr.in.sin_port = htons(port);
    } else if (inet_pton(AF_INET6, host, &a->addr.in6.sin6_addr) == 1) {
        a->addr.in6.sin6_family = AF_INET6;
        a->addr.in6.sin6_port = htons(port);
    } else {
        return hw_fail(-EINVAL, "must be a loopback address such as 127.0.0.1:%d, not '%s'", DEFAULT_PORT, text);
    }
    return 0;
}

static const struct opt rows[] = {
    OPT_CALL("listen", 0, "ADDR[:PORT]", parse_listen,
             "answer GET /metrics on this loopback address until interrupted (default port: 9420)"),
    OPT_TEXT("textfile", 0, "FILE", struct metrics_args, textfile,
             "at each --interval, replace FILE atomically with the current counters, until interrupted; node_exporter "
             "needs a name that ends with .prom"),
    OPT_TIME("interval", 'i', "TIME", struct metrics_args, interval_ms, 1000, 3600000,
             "time between two replacements of --textfile (default: 15s)"),
    OPT_FLAG("once", '1', struct metrics_args, once, "write --textfile once and exit"),
    OPT_TEXT("dir", 0, "FOLDER", struct metrics_args, dir,
             "look for the processes' sockets only in FOLDER, which is the value of their knob metrics_dir"),
    {0},
};

/* Writes the current metrics to f. Returns 0 or -errno. */
static int write_metrics(const struct metrics_args *a, FILE *f)
{
    struct gather g;
    int rc = gather_all(a->dir, ANSWER_MS, &g);
    if (rc == 0)
        gather_write(f, &g);
    gather_free(&g);
    return rc;
}

/* Replaces the file atomically, so that node_exporter never reads a partial file. */
static int write_textfile(const struct metrics_args *a)
{
    char path[PATH_MAX];
    int rc = tool_check_replace(a->textfile);
    if (rc < 0)
        return rc;
    /* node_exporter ignores the temporary file, because its name does not end with .prom */
    if (snprintf(path, sizeof path, "%s.%d.tmp", a->textfile, getpid()) >= (int)sizeof path)
        return hw_fail(-ENAMETOOLONG, "the path %.60s... is too long", a->textfile);
    (void)unlink(path); /* may be left over from a killed process with the same PID */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FILE *f = fd < 0 || fchmod(fd, 0644) < 0 ? NULL : fdopen(fd, "w");
    if (!f) {
        hw_close(&fd);
        return hw_fail(-errno, "writing %s: %s", path, strerror(errno));
    }
    rc = write_metrics(a, f);
    bool bad = ferror(f);
    if ((fclose(f) != 0 || bad) && rc == 0)
        rc = hw_fail(-EIO, "writing %s failed", path);
    if (rc == 0 && rename(path, a->textfile) < 0)
        rc = hw_fail(-errno, "writing %s: %s", a->textfile, strerror(errno));
    if (rc < 0)
        (void)unlink(path);
    return rc;
}

static void write_page(void *arg, FILE *f)
{
    if (write_metrics(arg, f) < 0)
        fprintf(f, "# %s\n", hw_error());
}

/* Rewrites the file, and returns the time of the next write. Logs a failure only if the previous write succeeded. */
static uint64_t renew_textfile(void *arg)
{
    struct metrics_args *a = arg;
    int rc = write_textfile(a);
    if (rc < 0 && !a->failed)
        tool_fail("metrics", "%s", hw_error());
    a->failed = rc < 0;
    return hw_deadline((int)a->interval_ms);
}

static int run_metrics(struct metrics_args *a)
{
    HW_AUTO_CLOSE int fd = -1;
    if (!a->listens && !a->textfile)
        return write_metrics(a, stdout);
    if (!a->listens && a->once)
        return write_textfile(a);
    if (a->listens)
        fd = http_listen(&a->addr.sa, a->addr.sa.sa_family == AF_INET ? sizeof a->addr.in : sizeof a->addr.in6);
    if (a->listens && fd < 0)
        return fd;
    /* a failure of the first write, such as a wrong path, is an error; later failures are only logged */
    int rc = a->textfile ? write_textfile(a) : 0;
    if (rc < 0)
        return rc;
    tool_catch_signals();
    return http_serve(&(struct http_server){
        .fd = fd, .page = write_page, .idle = a->textfile ? renew_textfile : NULL, .arg = a, .stop = &tool_stop});
}

int cmd_metrics(int argc, char **argv)
{
    static const struct opts o = {
        .cmd = "metrics",
        .args = "[OPTION...]",
        .about = "Prints the counters of the contexts of this user's processes on this machine (for root, of all "
                 "users' processes) in Prometheus's format, by default to standard output.",
        .rows = rows,
        .too_many = "use --textfile FILE to write a file"};
    struct metrics_args a = {.interval_ms = DEFAULT_INTERVAL_MS};
    int rc = opts_parse(&o, &a, argc, argv);
    if (rc != OPTS_GO)
        return rc;
    if (a.once && (a.listens || !a.textfile))
        return tool_usage("metrics", "--once needs --textfile, and cannot be combined with --listen");
    rc = run_metrics(&a);
    return rc < 0 ? tool_fail("metrics", "%s", hw_error()) : TOOL_OK;
}
