/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/metrics/gather.h"

#include "base/knob.h"
#include "base/rundir.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDERS 256

struct search {
    struct gather *g;
    int dir;
    unsigned n_seen;
    struct {
        dev_t dev;
        ino_t ino;
    } seen[FOLDERS];
};

/* ---- finding --------------------------------------------------------------------------------------------- */

static bool is_known(const struct gather *g, pid_t pid, unsigned number)
{
    for (size_t i = 0; i < g->n; i++)
        if (g->source[i].pid == pid && g->source[i].context == number)
            return true;
    return false;
}

static void note_socket(void *arg, const char *name, pid_t named, unsigned number)
{
    struct search *s = arg;
    struct gather *g = s->g;
    uid_t uid = 0;
    pid_t pid = 0;
    if (g->n == GATHER_SOURCES) {
        g->foreign++;
        return;
    }
    int fd = hw_rundir_connect(s->dir, name, &uid, &pid);
    pid = pid > 0 ? pid : named;
    if (fd == -ECONNREFUSED) {
        hw_rundir_remove_stale(s->dir, name);
    } else if ((fd < 0 && fd != -EAGAIN) || is_known(g, pid, number)) { /* contexts with equal labels would be merged */
        hw_close(&fd);
        g->foreign++;
    } else { /* -EAGAIN: the context's queue of waiting readers is full */
        g->source[g->n++] = (struct gather_source){
            .pid = pid, .uid = uid, .context = number, .fd = fd < 0 ? -1 : fd, .state = GATHER_SILENT};
    }
}

/* Searches one folder, unless it was already searched. The user `also` may own the folder, in addition to root and the
 * calling user. Returns 0 or -errno. */
static int look_into(struct search *s, const char *path, uid_t also)
{
    struct stat st;
    HW_AUTO_CLOSE int dir = hw_rundir_open(path, false, also);
    if (dir < 0)
        return dir;
    if (fstat(dir, &st) < 0 || s->n_seen == FOLDERS)
        return 0;
    for (unsigned i = 0; i < s->n_seen; i++)
        if (s->seen[i].dev == st.st_dev && s->seen[i].ino == st.st_ino)
            return 0;
    s->seen[s->n_seen].dev = st.st_dev;
    s->seen[s->n_seen++].ino = st.st_ino;
    s->dir = dir;
    hw_rundir_each(dir, note_socket, s);
    return 0;
}

/* Searches the folders PARENT/PREFIX<uid>SUFFIX of all users. */
static void look_at_users(struct search *s, const char *parent, const char *prefix, const char *suffix)
{
    char path[HW_RUNDIR_PATH];
    DIR *d = opendir(parent);
    const struct dirent *e;
    while (d && (e = readdir(d))) {
        char *end;
        size_t n = strlen(prefix);
        if (strncmp(e->d_name, prefix, n) != 0)
            continue;
        unsigned long uid = strtoul(e->d_name + n, &end, 10);
        if (end == e->d_name + n || *end)
            continue;
        snprintf(path, sizeof path, "%s/%.40s%s", parent, e->d_name, suffix);
        (void)look_into(s, path, (uid_t)uid);
    }
    if (d)
        closedir(d);
}

static int find_sockets(const char *dir, struct gather *g)
{
    struct search s = {.g = g};
    struct hw_knobs k;
    char path[HW_RUNDIR_PATH];
    if (dir)
        return look_into(&s, dir, geteuid());
    int rc = hw_knobs_load(&k, NULL);
    if (rc < 0)
        return rc;
    if (*k.metrics_dir) {
        rc = look_into(&s, k.metrics_dir, geteuid());
        return rc == -ENOENT ? 0 : rc;
    }
    for (unsigned i = 0; hw_rundir_path(i, NULL, path); i++)
        (void)look_into(&s, path, geteuid());
    if (geteuid() == 0) {
        look_at_users(&s, "/run/user", "", "/hawser-metrics");
        look_at_users(&s, "/tmp", "hawser-metrics-", "");
    }
    return 0;
}

/* ---- asking ----------------------------------------------------------------------------------------------- */

static void judge_text(struct gather_source *s)
{
    hw_close(&s->fd);
    int rc = prom_parse(s->text ? s->text : "", s->len, &s->data);
    free(s->text);
    s->text = NULL;
    s->state = rc < 0 ? GATHER_BAD : GATHER_ANSWERED;
    if (rc < 0) {
        snprintf(s->why, sizeof s->why, "%s", hw_error());
        prom_free(&s->data);
    }
    for (size_t i = 0; i < s->data.n; i++)
        if (s->data.sample[i].metric == HW_METRIC_INFO) {
            memcpy(s->process, s->data.sample[i].label[2], sizeof s->process);
            memcpy(s->kind, s->data.sample[i].label[3], sizeof s->kind);
        }
}

/* Reads the data that is available. *total is the size of all sources' buffers, including freed ones. */
static void read_some(struct gather_source *s, size_t *total)
{
    for (;;) {
        if (s->len == s->room) {
            /* one byte more than is accepted */
            size_t room = s->room ? HW_MIN(2 * s->room, (size_t)PROM_TEXT + 1) : 16384;
            char *more = room > s->room && *total + room <= GATHER_BYTES ? realloc(s->text, room) : NULL;
            if (!more) { /* the texts are too long or memory is exhausted; judge_text() reports an error */
                judge_text(s);
                return;
            }
            *total += room - s->room;
            s->text = more;
            s->room = room;
        }
        ssize_t n = read(s->fd, s->text + s->len, s->room - s->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            judge_text(s);
            return;
        }
        s->len += (size_t)n;
    }
}

static void ask_all(struct gather *g, int ms)
{
    struct pollfd p[GATHER_SOURCES];
    struct gather_source *of[GATHER_SOURCES];
    uint64_t deadline = hw_deadline(ms);
    size_t total = 0;
    for (;;) {
        nfds_t n = 0;
        uint64_t now = hw_now();
        for (size_t i = 0; i < g->n; i++)
            if (g->source[i].fd >= 0) {
                of[n] = &g->source[i];
                p[n++] = (struct pollfd){.fd = g->source[i].fd, .events = POLLIN};
            }
        if (n == 0 || now >= deadline)
            return;
        if (poll(p, n, (int)((deadline - now) / HW_MS) + 1) < 0 && errno != EINTR)
            return;
        for (nfds_t i = 0; i < n; i++)
            if (p[i].revents)
                read_some(of[i], &total);
    }
}

static int order_sources(const void *a, const void *b)
{
    const struct gather_source *x = a, *y = b;
    return x->pid != y->pid ? (x->pid < y->pid ? -1 : 1) : x->context < y->context ? -1 : x->context > y->context;
}

int gather_all(const char *dir, int ms, struct gather *g)
{
    *g = (struct gather){.source = calloc(GATHER_SOURCES, sizeof *g->source)};
    if (!g->source)
        return hw_no_memory("a list of processes");
    int rc = find_sockets(dir, g);
    if (rc < 0)
        return rc;
    ask_all(g, ms);
    g->when = hw_now();
    qsort(g->source, g->n, sizeof *g->source, order_sources);
    return 0;
}

void gather_free(struct gather *g)
{
    for (size_t i = 0; i < g->n; i++) {
        hw_close(&g->source[i].fd);
        free(g->source[i].text);
        prom_free(&g->source[i].data);
    }
    free(g->source);
    *g = (struct gather){0};
}

/* ---- passing on ------------------------------------------------------------------------------------------- */

static void write_sample(FILE *f, const struct gather_source *s, const struct prom_sample *x)
{
    char name[PROM_LABEL];
    fprintf(f, "%s{pid=\"%d\",context=\"%u\",process=\"%s\",kind=\"%s\"", hw_metrics[x->metric].name, s->pid,
            s->context, s->process, s->kind);
    for (unsigned k = 0; k < PROM_LABELS; k++) {
        prom_label_name(x->metric, k, name, sizeof name);
        if (*name && strcmp(name, "process") != 0 && strcmp(name, "kind") != 0)
            fprintf(f, ",%s=\"%s\"", name, x->label[k]);
    }
    fprintf(f, "} %s\n", x->text);
}

static void write_sockets(FILE *f, const struct gather *g)
{
    size_t of[3] = {0};
    for (size_t i = 0; i < g->n; i++)
        of[g->source[i].state]++;
    fprintf(
        f,
        "# HELP hawser_exporter_contexts Contexts of processes on this machine, by how they answered the exporter.\n# "
        "TYPE hawser_exporter_contexts gauge\nhawser_exporter_contexts{state=\"answered\"} "
        "%zu\nhawser_exporter_contexts{state=\"silent\"} %zu\nhawser_exporter_contexts{state=\"bad\"} "
        "%zu\nhawser_exporter_contexts{state=\"foreign\"} %zu\n",
        of[GATHER_ANSWERED], of[GATHER_SILENT], of[GATHER_BAD], g->foreign);
}

void gather_write(FILE *f, const struct gather *g)
{
    for (int m = 0; m < HW_METRICS; m++) {
        fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", hw_metrics[m].name, hw_metrics[m].help, hw_metrics[m].name,
                hw_metrics[m].counter ? "counter" : "gauge");
        for (size_t i = 0; i < g->n; i++)
            for (size_t k = 0; k < g->source[i].data.n; k++)
                if ((int)g->source[i].data.sample[k].metric == m)
                    write_sample(f, &g->source[i], &g->source[i].data.sample[k]);
    }
    write_sockets(f, g);
}
