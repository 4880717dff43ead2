/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of the ranks of one configuration: starts them, sends orders, reads replies and output, and
 * ends them. */
#include "nccl/params.h"
#include "tool/child.h"
#include "tool/nccl/bench/nccl_hosts.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS 200  /* ms; maximum delay in noticing an interruption */
#define REAP_MS 5000 /* ms for a rank to exit at the end */

extern char **environ;

/* ---- starting -------------------------------------------------------------------------------- */

struct env {
    char **v;
    size_t n, cap;
};

static int env_add(struct env *e, const char *name, const char *value)
{
    size_t len = strlen(name);
    size_t k = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (strncmp(e->v[i], name, len) == 0 && e->v[i][len] == '=')
            free(e->v[i]);
        else
            e->v[k++] = e->v[i];
    }
    e->n = k;
    e->v[k] = NULL;
    if (!value)
        return 0;
    if (e->n + 1 >= e->cap || asprintf(&e->v[e->n], "%s=%s", name, value) < 0)
        return hw_no_memory("an environment");
    e->v[++e->n] = NULL;
    return 0;
}

static void env_free(struct env *e)
{
    for (size_t i = 0; i < e->n; i++)
        free(e->v[i]);
    free(e->v);
}

/* NCCL's parameters that affect the speed of its sockets, in addition to those that the plugin sets. A user's settings
 * of these parameters apply to runs with a plugin, and are removed for NCCL's own sockets, so that NCCL's defaults are
 * measured. */
static const char *const tuning[] = {
    "NCCL_MAX_NCHANNELS",     "NCCL_MIN_CTAS",          "NCCL_MAX_CTAS",
    "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_NSOCKS_PERTHREAD",  "NCCL_SOCKET_NTHREADS",   "NCCL_TUNER_PLUGIN",
};

typedef int change_fn(void *arg, const char *name, const char *value);

static int change_vars(const struct nb_var *v, change_fn *fn, void *arg)
{
    int rc = 0;
    for (; v->name && rc == 0; v++)
        rc = fn(arg, v->name, v->value);
    return rc;
}

/* Calls fn for each change of a rank's environment relative to this process's environment. A NULL value removes the
 * variable. */
static int each_change(const struct nb_config *config, const struct nb_start *s, unsigned rank, change_fn *fn,
                       void *arg)
{
    char host[32];
    int rc = change_vars(s->common, fn, arg);
    for (size_t i = 0; i < HW_ARRAY_LEN(tuning) && config->socket && rc == 0; i++)
        rc = fn(arg, tuning[i], NULL);
    for (const struct hn_param *p = hn_params; p->name && config->socket && rc == 0; p++)
        rc = fn(arg, p->name, NULL);
    if (rc < 0 || (rc = change_vars(config->set, fn, arg)) < 0)
        return rc;
    if (s->more && !config->socket && !config->theirs && (rc = change_vars(s->more, fn, arg)) < 0)
        return rc;
    /* on this host, each rank has its own host ID; on several hosts, the ranks of a node share an ID */
    snprintf(host, sizeof host, "hawser-bench-%u", s->hosts ? s->hosts->node[nb_host_of(s->hosts, rank)] : rank);
    return fn(arg, "NCCL_HOSTID", host);
}

static int change_env(void *arg, const char *name, const char *value)
{
    return env_add(arg, name, value);
}

/* Builds the environment of a local rank: a copy of this process's environment, with changes. */
static int env_make(struct env *e, const struct nb_config *config, const struct nb_start *s, unsigned rank)
{
    size_t n = 0;
    while (environ[n])
        n++;
    *e = (struct env){.cap = n + 2 * (size_t)NB_SET + 64};
    e->v = calloc(e->cap + 1, sizeof *e->v);
    if (!e->v)
        return hw_no_memory("an environment");
    for (size_t i = 0; i < n; i++)
        if (!(e->v[e->n++] = strdup(environ[i])))
            return hw_no_memory("an environment");
    int rc = each_change(config, s, rank, change_env, e);
    if (rc < 0 || !*s->library_path || config->socket || config->theirs)
        return rc;
    const char *was = getenv("LD_LIBRARY_PATH");
    HW_AUTO_FREE char *path = NULL;
    return asprintf(&path, "%s%s%s", s->library_path, was && *was ? ":" : "", was ? was : "") < 0
               ? hw_no_memory("an environment")
               : env_add(e, "LD_LIBRARY_PATH", path);
}

static int change_item(void *arg, const char *name, const char *value)
{
    if (value)
        nb_item(arg, 's', "%s=%s", name, value);
    else
        nb_item(arg, 'u', "%s", name);
    return 0;
}

/* Starts a rank through an agent. The rank's environment is that of its host, plus this process's LD_LIBRARY_PATH and
 * variables of NCCL and hawser, the changes of each_change() and, for hawser, the folder of our plugin. */
static int start_there(struct nb_crew *c, unsigned rank, const struct nb_config *config, const struct nb_start *s)
{
    struct nb_member *m = &c->m[rank];
    const int gpu = m->gpu;
    int rc = nb_agent_start(m, s->hosts, nb_host_of(s->hosts, rank));
    m->gpu = gpu;
    m->answered = true;
    if (rc < 0)
        return rc;
    struct nb_items items = {0};
    for (char **e = environ; *e; e++)
        if (strncmp(*e, "NCCL_", 5) == 0 || strncmp(*e, "HAWSER_", 7) == 0 || strncmp(*e, "LD_LIBRARY_PATH=", 16) == 0)
            nb_item(&items, 's', "%s", *e);
    (void)each_change(config, s, rank, change_item, &items);
    if (!config->socket && !config->theirs)
        nb_item(&items, 'd', "%s", "");
    nb_item(&items, 'a', "nccl");
    nb_item(&items, 'a', "bench");
    nb_item(&items, 'a', "--rank=%d,%u,%u,%d", NB_RANK_FD, rank, c->n, gpu);
    if (s->nccl)
        nb_item(&items, 'a', "--nccl=%s", s->nccl);
    rc = nb_agent_ask(m, NB_ASK_RANK, &items);
    free(items.at);
    return rc;
}

/* Runs between fork and exec, and therefore calls only functions that are safe there. */
static void exec_nccl_rank(char **argv, char **env, pid_t parent, int fd, int err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(127);
    child_take_ends(fd, NB_RANK_FD, err);
    execve("/proc/self/exe", argv, env);
    _exit(127);
}

static void close_rank_ends(int (*fd)[2])
{
    hw_close(&(*fd)[0]);
    hw_close(&(*fd)[1]);
}

static int start_local_rank(struct nb_crew *c, unsigned rank, const struct nb_config *config, const struct nb_start *s)
{
    struct nb_member *m = &c->m[rank];
    __attribute__((cleanup(close_rank_ends))) int talk[2] = {-1, -1}, err[2] = {-1, -1};
    struct env env __attribute__((cleanup(env_free))) = {0};
    static char self[] = "hawser", cmd[] = "nccl", action[] = "bench", lab[] = "lab", into[] = "exec", dashes[] = "--";
    char told[64], node[64], exe[4096];
    HW_AUTO_FREE char *nccl = NULL;
    char *plain[] = {self, cmd, action, told, NULL, NULL};
    char *inside[] = {self, lab, into, node, dashes, exe, cmd, action, told, NULL, NULL};
    char **argv = s->lab ? inside : plain;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    snprintf(node, sizeof node, "%s/%c", s->lab ? s->lab : "", (char)('a' + rank));
    snprintf(told, sizeof told, "--rank=%d,%u,%u,%d", NB_RANK_FD, rank, c->n, m->gpu);
    int rc = env_make(&env, config, s, rank);
    if (rc < 0)
        return rc;
    if (s->nccl && asprintf(&nccl, "--nccl=%s", s->nccl) < 0) {
        nccl = NULL;
        return hw_no_memory("a command line");
    }
    plain[4] = inside[9] = nccl;
    rc = child_ends(SOCK_SEQPACKET, NB_RANK_FD, "a rank", talk, err);
    if (rc < 0)
        return rc;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_nccl_rank(argv, env.v, parent, talk[1], err[1]);
    if (pid < 0)
        return hw_fail(-errno, "starting a rank: %s", strerror(errno));
    (void)fcntl(err[0], F_SETFL, O_NONBLOCK);
    m->fd = talk[0];
    m->err = err[0];
    m->pid = pid;
    talk[0] = err[0] = -1;
    return 0;
}

/* ---- hearing --------------------------------------------------------------------------------- */

/* Finds the network that NCCL reports in a line such as "NCCL INFO Using network Socket". */
static void look_at_line(struct nb_member *m)
{
    static const char mark[] = "Using network ";
    const char *at = strstr(m->tail + m->line, mark);
    if (at)
        snprintf(m->network, sizeof m->network, "%.*s", (int)strcspn(at + strlen(mark), " \r\n"), at + strlen(mark));
}

void nb_overhear(struct nb_member *m, bool verbose)
{
    char text[512];
    for (;;) {
        ssize_t k = m->err < 0 ? -1 : read(m->err, text, sizeof text);
        if (k <= 0) {
            if (k == 0)
                hw_close(&m->err);
            return;
        }
        size_t n = (size_t)k;
        if (verbose)
            fprintf(stderr, "%.*s", (int)n, text);
        if (m->tail_len + n > NB_TAIL) {
            size_t drop = m->tail_len + n - NB_TAIL;
            const char *nl = memchr(m->tail + drop, '\n', m->tail_len - drop);
            drop = nl ? (size_t)(nl + 1 - m->tail) : m->tail_len;
            memmove(m->tail, m->tail + drop, m->tail_len - drop);
            m->tail_len -= drop;
            m->line = m->line > drop ? m->line - drop : 0;
        }
        for (size_t i = 0; i < n; i++) {
            if (!text[i])
                text[i] = '?';
            m->tail[m->tail_len++] = text[i];
            m->tail[m->tail_len] = 0;
            if (text[i] == '\n') {
                look_at_line(m);
                m->line = m->tail_len;
            }
        }
    }
}

void nb_last_line(const struct nb_member *m, char line[NB_LINE])
{
    const char *nl = m->tail_len > 1 ? memrchr(m->tail, '\n', m->tail_len - 1) : NULL;
    snprintf(line, NB_LINE, "%.*s", NB_LINE - 1, nl ? nl + 1 : m->tail);
    line[strcspn(line, "\n")] = 0;
}

void nb_show_tail(const struct nb_member *m, const char *who)
{
    if (m->tail_len)
        fprintf(stderr, "  last output of %s:\n", who);
    for (const char *at = m->tail; *at;) {
        int n = (int)strcspn(at, "\n");
        fprintf(stderr, "    %.*s\n", n, at);
        at += n + (at[n] == '\n');
    }
}

/* Formats "1 (GPU 1)" or "1 (host b, GPU 0)". */
static const char *rank_text(const struct nb_crew *c, unsigned rank, char buf[96])
{
    const struct nb_member *m = &c->m[rank];
    snprintf(buf, 96, "%u (%s%.60s%sGPU %d)", rank, m->host ? "host " : "", m->host ? m->host : "", m->host ? ", " : "",
             m->gpu);
    return buf;
}

static int reap_dead_rank(struct nb_crew *c, unsigned rank)
{
    struct nb_member *m = &c->m[rank];
    char who[96];
    rank_text(c, rank, who);
    int status = child_reap(&m->pid, 1000);
    nb_overhear(m, c->verbose);
    if (WIFSIGNALED(status))
        return hw_fail(-EPIPE, "%s: rank %s was killed by signal %d (%s)", c->config, who, WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    return hw_fail(-EPIPE, "%s: rank %s ended with status %d before its work was done", c->config, who,
                   WEXITSTATUS(status));
}

/* Reads a rank's reply, or notices that the rank has ended. */
static int read_rank_reply(struct nb_crew *c, unsigned rank)
{
    struct nb_member *m = &c->m[rank];
    char who[96];
    /* a reply from another host may arrive in pieces */
    ssize_t k = recv(m->fd, (uint8_t *)&m->reply + m->got, sizeof m->reply - m->got, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    nb_overhear(m, c->verbose);
    if (k <= 0)
        return reap_dead_rank(c, rank);
    m->got += (size_t)k;
    if (m->got < sizeof m->reply)
        return 0;
    m->answered = true;
    m->reply.text[sizeof m->reply.text - 1] = 0;
    if (m->reply.rc < 0)
        return hw_fail(m->reply.rc, "%s: rank %s: %s", c->config, rank_text(c, rank, who), m->reply.text);
    return 0;
}

static const char *order_text(const struct nb_order *o, char *buf, size_t cap)
{
    if (o->type == NB_RUN)
        snprintf(buf, cap, "%s of %llu bytes", nb_op_name(o->op), (unsigned long long)o->size);
    else
        snprintf(buf, cap, "%s", o->type == NB_END ? "the exit" : "the creation of the communicator");
    return buf;
}

static int fail_late_ranks(const struct nb_crew *c, const struct nb_order *o, int ms)
{
    char who[192] = "", what[64], one[96];
    for (unsigned i = 0; i < c->n; i++)
        if (!c->m[i].answered) {
            size_t at = strlen(who);
            snprintf(who + at, sizeof who - at, "%s%s", at ? ", " : "rank ", rank_text(c, i, one));
        }
    return hw_fail(-ETIMEDOUT, "%s: no answer from %s within %d s during %s; giving up", c->config, who, ms / 1000,
                   order_text(o, what, sizeof what));
}

/* Waits up to ms for the replies of the first n ranks. */
static int collect_rank_replies(struct nb_crew *c, unsigned n, const struct nb_order *o, int ms)
{
    uint64_t deadline = hw_deadline(ms);
    int rc = 0;
    for (;;) {
        struct pollfd p[2 * NB_RANKS];
        unsigned left = 0;
        for (size_t i = 0; i < c->n; i++) {
            /* a rank that has replied may still die, and the other ranks would then wait for it forever */
            p[2 * i] = (struct pollfd){.fd = c->m[i].fd, .events = c->m[i].answered ? 0 : POLLIN};
            p[2 * i + 1] = (struct pollfd){.fd = c->m[i].err, .events = POLLIN};
            if (c->m[i].answered && o->type == NB_END)
                p[2 * i].fd = -1;
            left += i < n && !c->m[i].answered;
        }
        if (left == 0)
            return 0;
        if (hw_now() >= deadline)
            return fail_late_ranks(c, o, ms);
        (void)poll(p, 2 * (nfds_t)c->n, POLL_MS);
        for (size_t i = 0; i < c->n; i++) {
            if (p[2 * i + 1].revents)
                nb_overhear(&c->m[i], c->verbose);
            if (p[2 * i].revents &&
                (rc = c->m[i].answered ? reap_dead_rank(c, (unsigned)i) : read_rank_reply(c, (unsigned)i)) < 0)
                return rc;
        }
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
    }
}

static int run_rank_order(struct nb_crew *c, unsigned n, const struct nb_order *o, int ms)
{
    for (unsigned i = 0; i < n; i++) {
        c->m[i].answered = false;
        c->m[i].got = 0;
        if (send(c->m[i].fd, o, sizeof *o, MSG_NOSIGNAL) != sizeof *o)
            return reap_dead_rank(c, i);
    }
    return collect_rank_replies(c, n, o, ms);
}

int nb_crew_order(struct nb_crew *c, const struct nb_order *o, int ms)
{
    return run_rank_order(c, c->n, o, ms);
}

/* Fails if a rank does not report its network, or if NCCL uses a different network than requested: any other network
 * instead of its sockets, or a built-in network instead of a plugin. */
static int check_networks(struct nb_crew *c, const struct nb_config *config)
{
    for (unsigned i = 0; i < c->n; i++) {
        const struct nb_member *m = &c->m[i];
        bool socket = strcmp(m->network, "Socket") == 0, builtin = socket || strcmp(m->network, "IB") == 0;
        if (!*m->network)
            return hw_fail(-EPROTO,
                           "%s: rank %u did not report which network it uses: this version of NCCL is not supported",
                           c->config, i);
        if (config->socket && !socket)
            return hw_fail(-ENODEV, "%s: rank %u uses the network %s instead of NCCL's sockets", c->config, i,
                           m->network);
        if (!config->socket && builtin)
            return hw_fail(-ENODEV, "%s: rank %u uses NCCL's network %s instead of the plugin%s", c->config, i,
                           m->network, config->theirs ? "" : "; `hawser nccl check` says why");
    }
    return 0;
}

int nb_crew_start(struct nb_crew *c, const struct nb_config *config, const struct nb_start *s, uint64_t most)
{
    struct nb_order o = {.type = NB_MAKE_UID, .size = most};
    int rc = 0;
    *c = (struct nb_crew){.config = config->name, .n = s->n, .verbose = s->verbose};
    for (unsigned i = 0; i < c->n; i++)
        c->m[i] = (struct nb_member){
            .fd = -1, .err = -1, .gpu = s->hosts ? nb_gpu_of(s->hosts, i) : (int)i, .answered = true};
    fflush(NULL); /* otherwise each child would inherit output that is not yet written */
    for (unsigned i = 0; i < c->n && rc == 0; i++)
        rc = s->hosts ? start_there(c, i, config, s) : start_local_rank(c, i, config, s);
    if (rc < 0 || (rc = run_rank_order(c, 1, &o, s->timeout_ms)) < 0)
        return rc;
    o.type = NB_JOIN_COMM;
    memcpy(o.uid, c->m[0].reply.uid, sizeof o.uid);
    rc = run_rank_order(c, c->n, &o, s->timeout_ms);
    c->version = c->m[0].reply.version;
    return rc < 0 ? rc : check_networks(c, config);
}

int nb_crew_end(struct nb_crew *c, int rc)
{
    const struct nb_order o = {.type = NB_END};
    if (rc == 0 && (rc = run_rank_order(c, c->n, &o, NB_LEAVE)) < 0 && rc != -EINTR)
        tool_fail("nccl bench", "%s", hw_error());
    bool well = rc == 0;
    HW_KEEP_ERROR();
    for (unsigned i = 0; i < c->n; i++)
        if (!well && c->m[i].pid > 0)
            kill(c->m[i].pid, SIGKILL);
    for (unsigned i = 0; i < c->n; i++) {
        struct nb_member *m = &c->m[i];
        (void)child_reap(&m->pid, REAP_MS);
        nb_overhear(m, c->verbose);
        if (!well && rc != -EINTR && !c->verbose) {
            char who[96];
            snprintf(who, sizeof who, "rank %u%s%.60s", i, m->host ? " on " : "", m->host ? m->host : "");
            nb_show_tail(m, who);
        }
        hw_close(&m->fd);
        hw_close(&m->err);
    }
    return rc;
}
