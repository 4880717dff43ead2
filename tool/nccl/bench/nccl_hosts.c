/* SPDX-License-Identifier: Apache-2.0 */
/* The supervisor's side of agents on hosts: starts them with ssh or another command, reads their greetings, sends
 * requests, and ends them. */
#include "tool/nccl/bench/nccl_launch.h"

#include "hawser.h"
#include "tool/child.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define SSH        "ssh -oBatchMode=yes"
#define POLL_MS    200
#define CHATTER    (64u << 10) /* bytes that a shell may print before the greeting */
#define HOST_PLACE "{}"

/* ---- names ----------------------------------------------------------------------------------- */

/* Returns true if the word is not empty, does not begin with a dash, and has no characters that are special to a shell,
 * except brackets. */
static bool plain_word(const char *word)
{
    return *word && *word != '-' &&
           strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/:@%+=,-[]") == strlen(word);
}

static int split_list(struct nb_hosts *hosts, const char *list)
{
    hosts->text = strdup(list);
    if (!hosts->text)
        return hw_no_memory("names of hosts");
    for (char *at = hosts->text, *word; (word = strsep(&at, ","));) {
        if (hosts->n == NB_RANKS)
            return hw_fail(-E2BIG, "too many hosts: at most %d", NB_RANKS);
        if (!plain_word(word))
            return hw_fail(-EINVAL, "'%s' is not a host name", word);
        for (unsigned i = 0; i < hosts->n; i++)
            if (strcmp(hosts->host[i], word) == 0)
                return hw_fail(-EINVAL, "host %s appears twice", word);
        hosts->node[hosts->n] = hosts->n;
        hosts->host[hosts->n++] = word;
    }
    hosts->other = 1;
    hosts->via = -1;
    return hosts->n < 2 ? hw_fail(-EINVAL, "--hosts needs at least two hosts, not '%s'", list) : 0;
}

int nb_hosts_parse(struct nb_hosts *hosts, const char *list, const char *ssh, const char *remote)
{
    size_t n = 0;
    int rc = split_list(hosts, list);
    if (rc < 0)
        return rc;
    hosts->ssh_text = strdup(ssh ? ssh : SSH);
    if (!hosts->ssh_text)
        return hw_no_memory("a command");
    for (char *at = hosts->ssh_text, *word; (word = strsep(&at, " "));) {
        if (*word && n == HW_ARRAY_LEN(hosts->ssh) - 1)
            return hw_fail(-E2BIG, "--ssh has too many words: at most %zu", n);
        if (*word)
            hosts->ssh[n++] = word;
    }
    if (n == 0)
        return hw_fail(-EINVAL, "--ssh needs a command");
    ssize_t k = readlink("/proc/self/exe", hosts->remote, sizeof hosts->remote - 1);
    hosts->remote[k > 0 ? k : 0] = 0;
    if (remote)
        snprintf(hosts->remote, sizeof hosts->remote, "%s", remote);
    if (!plain_word(hosts->remote))
        return hw_fail(-EINVAL, "a shell would change the path '%s': give a different path with --remote",
                       hosts->remote);
    return 0;
}

int nb_hosts_launched(struct nb_hosts *hosts, const struct nb_seat_row *row, uint32_t n, int via)
{
    enum { NAME = LAUNCH_NAME + 16 };
    bool several = false; /* several processes on the same node */
    if (n > NB_RANKS)
        return hw_fail(-E2BIG, "too many processes: %u (at most %d are supported)", n, NB_RANKS);
    hosts->text = calloc(n, NAME);
    if (!hosts->text)
        return hw_no_memory("names of hosts");
    hosts->n = n;
    hosts->via = via;
    for (uint32_t i = 0; i < n; i++) {
        bool twice = false;
        hosts->node[i] = i;
        for (uint32_t k = n; k-- > 0;) {
            if (k < i && row[k].node == row[i].node)
                hosts->node[i] = k;
            twice = twice || (k != i && strcmp(row[k].name, row[i].name) == 0);
        }
        several = several || hosts->node[i] != i;
        if (!hosts->other && hosts->node[i] != 0)
            hosts->other = i;
        char *name = hosts->text + (size_t)i * NAME;
        snprintf(name, NAME, twice ? "%s:%u" : "%s", row[i].name, i);
        hosts->host[i] = name;
    }
    hosts->per_host = several ? 1 : 0;
    const size_t room = (size_t)n * NAME;
    hosts->label = calloc(1, room);
    for (uint32_t i = 0, at = 0; i < n && hosts->label; i++)
        at += (uint32_t)snprintf(hosts->label + at, room - at, "%s%s", i ? "," : "", hosts->host[i]);
    return hosts->label ? 0 : hw_no_memory("names of hosts");
}

void nb_hosts_free(struct nb_hosts *hosts)
{
    free(hosts->text);
    free(hosts->ssh_text);
    free(hosts->label);
    hosts->text = hosts->ssh_text = hosts->label = NULL;
}

/* ---- asks ------------------------------------------------------------------------------------ */

void nb_item(struct nb_items *items, char tag, const char *fmt, ...)
{
    va_list ap;
    char *text = NULL;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    char *more =
        n < 0 || items->len + (size_t)n + 2 >= NB_ASK_MOST ? NULL : realloc(items->at, items->len + (size_t)n + 2);
    if (more) {
        items->at = more;
        items->at[items->len] = tag;
        memcpy(items->at + items->len + 1, text, (size_t)n + 1);
        items->len += (size_t)n + 2;
    } else
        items->full = true;
    if (n >= 0)
        free(text);
}

/* Sends all bytes, even if the socket's buffer is smaller. Fails if the agent has exited or does not read in time, or
 * after a signal. */
static int send_to_agent(struct nb_member *m, const void *data, size_t len)
{
    const uint8_t *at = data;
    const uint64_t deadline = hw_deadline(NB_GREET_MS);
    while (len) {
        struct pollfd p = {.fd = m->fd, .events = POLLOUT};
        ssize_t k = send(m->fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            len -= (size_t)k;
        } else if (k == 0 || (errno != EAGAIN && errno != EINTR))
            return hw_fail(-EPIPE, "host %s: the connection is lost: %s", m->host, strerror(errno));
        else if (hw_now() > deadline || tool_stop)
            return hw_fail(tool_stop ? -EINTR : -ETIMEDOUT, "host %s does not accept orders", m->host);
        else
            (void)poll(&p, 1, POLL_MS);
    }
    return 0;
}

int nb_agent_ask(struct nb_member *m, enum nb_ask_type type, const struct nb_items *items)
{
    const struct nb_ask ask = {.type = type, .len = (uint32_t)items->len};
    if (items->full)
        return hw_fail(-E2BIG, "host %s: the variables of an order exceed %u bytes", m->host, NB_ASK_MOST);
    int rc = send_to_agent(m, &ask, sizeof ask);
    return rc < 0 ? rc : send_to_agent(m, items->at, items->len);
}

/* ---- agents ---------------------------------------------------------------------------------- */

static bool is_here(const char *host)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    return strcmp(host, "localhost") == 0 || strcmp(host, name) == 0;
}

static void become_agent(char **argv, pid_t parent, int fd, int err)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || dup2(fd, 0) < 0 || dup2(fd, 1) < 0 ||
        dup2(err, 2) < 0)
        _exit(127);
    execvp(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

/* Builds the command line. Words that contain {} are expanded into room. */
static void agent_command(const struct nb_hosts *hosts, unsigned host, char *argv[NB_HOST_ARGS], char *room, size_t cap)
{
    static char nccl[] = "nccl", bench[] = "bench", agent[] = "--agent", self[] = "/proc/self/exe";
    size_t n = 0;
    const bool here = hosts->via < 0 && is_here(hosts->host[host]);
    bool placed = here;
    if (hosts->via >= 0) {
        snprintf(room, cap, "--via=%d,%u", hosts->via, host);
        memcpy(argv, (char *[]){self, nccl, bench, room, NULL}, 5 * sizeof *argv);
        return;
    }
    if (here)
        argv[n++] = self;
    for (size_t i = 0; hosts->ssh[i] && !here; i++) {
        const char *at = strstr(hosts->ssh[i], HOST_PLACE);
        argv[n++] = hosts->ssh[i];
        if (!at)
            continue;
        int k = snprintf(room, cap, "%.*s%s%s", (int)(at - hosts->ssh[i]), hosts->ssh[i], hosts->host[host],
                         at + strlen(HOST_PLACE));
        argv[n - 1] = room;
        room += HW_MIN((size_t)k + 1, cap);
        cap -= HW_MIN((size_t)k + 1, cap);
        placed = true;
    }
    if (!placed)
        argv[n++] = (char *)(uintptr_t)hosts->host[host];
    if (!here)
        argv[n++] = (char *)(uintptr_t)hosts->remote;
    argv[n++] = nccl;
    argv[n++] = bench;
    argv[n++] = agent;
    argv[n] = NULL;
}

static int agent_gone(struct nb_member *m, const char *what)
{
    char tail[NB_LINE];
    nb_overhear(m, false);
    nb_last_line(m, tail);
    return hw_fail(-EPIPE, "host %s: %s%s%s", m->host, what, *tail ? "; its last output: " : "", tail);
}

/* Reads exactly len bytes of the agent's answer. */
static int hear_answer(struct nb_member *m, void *data, size_t len, uint64_t deadline, const char *what)
{
    uint8_t *at = data;
    while (len) {
        struct pollfd p[2] = {{.fd = m->fd, .events = POLLIN}, {.fd = m->err, .events = POLLIN}};
        ssize_t k = recv(m->fd, at, len, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            len -= (size_t)k;
            continue;
        }
        if (k == 0 || (errno != EAGAIN && errno != EINTR))
            return agent_gone(
                m, "the command that starts hawser on this host has ended (with --hosts, see --ssh and --remote)");
        if (tool_stop)
            return hw_fail(-EINTR, "interrupted");
        if (hw_now() > deadline)
            return hw_fail(-ETIMEDOUT, "host %s: no %s within %d s", m->host, what, NB_GREET_MS / 1000);
        (void)poll(p, 2, POLL_MS);
        if (p[1].revents)
            nb_overhear(m, false);
    }
    return 0;
}

/* Reads the greeting, and skips text that a login shell may have printed before the greeting. */
static int hear_greeting(struct nb_member *m)
{
    static const char magic[] = NB_MAGIC;
    struct nb_greeting g;
    const uint64_t deadline = hw_deadline(NB_GREET_MS);
    size_t have = 0, seen = 0;
    while (have < sizeof magic) {
        char c;
        int rc = hear_answer(m, &c, 1, deadline, "greeting");
        if (rc < 0)
            return rc;
        have = c == magic[have] ? have + 1 : c == magic[0];
        if (++seen > CHATTER)
            return hw_fail(-EPROTO,
                           "host %s: the command that should start hawser there prints text, but does not start it",
                           m->host);
    }
    memcpy(g.magic, magic, sizeof magic);
    int rc = hear_answer(m, (uint8_t *)&g + sizeof magic, sizeof g - sizeof magic, deadline, "greeting");
    if (rc < 0)
        return rc;
    g.version[sizeof g.version - 1] = 0;
    if (strcmp(g.version, hawser_version()) != 0 || g.order_size != sizeof(struct nb_order) ||
        g.reply_size != sizeof(struct nb_reply))
        return hw_fail(-EPROTO,
                       "host %s runs hawser %s, but this host runs %s%s: install the same build on both (with --hosts, "
                       "specify its path with --remote)",
                       m->host, g.version, hawser_version(),
                       strcmp(g.version, hawser_version()) ? "" : " (a different build)");
    return 0;
}

int nb_agent_process(char **argv, pid_t *pid, int *fd, int *err)
{
    int talk[2], pipes[2];
    int rc = child_ends(SOCK_STREAM, 3, "an agent", talk, pipes);
    fflush(NULL);
    pid_t parent = getpid(), child = rc == 0 ? fork() : -1;
    if (child == 0)
        become_agent(argv, parent, talk[1], pipes[1]);
    if (rc == 0 && child < 0)
        rc = hw_fail(-errno, "starting %s: %s", argv[0], strerror(errno));
    hw_close(&talk[1]);
    hw_close(&pipes[1]);
    if (rc < 0) {
        hw_close(&talk[0]);
        hw_close(&pipes[0]);
        return rc;
    }
    (void)fcntl(pipes[0], F_SETFL, O_NONBLOCK);
    *pid = child;
    *fd = talk[0];
    *err = pipes[0];
    return 0;
}

int nb_agent_start(struct nb_member *m, const struct nb_hosts *hosts, unsigned host)
{
    char *argv[NB_HOST_ARGS], room[4096];
    *m = (struct nb_member){.fd = -1, .err = -1, .host = hosts->host[host]};
    agent_command(hosts, host, argv, room, sizeof room);
    int rc = nb_agent_process(argv, &m->pid, &m->fd, &m->err);
    return rc < 0 ? rc : hear_greeting(m);
}

int nb_agent_end(struct nb_member *m, int ms, bool show)
{
    if (m->fd >= 0)
        (void)shutdown(m->fd, SHUT_WR);
    int status = child_reap(&m->pid, ms);
    nb_overhear(m, false);
    if (show)
        nb_show_tail(m, m->host);
    hw_close(&m->fd);
    hw_close(&m->err);
    return status;
}

static int hear_probe(const struct nb_hosts *hosts, unsigned host, struct nb_member *m, struct nb_probe *p)
{
    int rc = hear_answer(m, p, sizeof *p, hw_deadline(NB_GREET_MS), "report of its GPUs");
    if (rc < 0)
        return rc;
    p->text[sizeof p->text - 1] = 0;
    if (p->gpus < 0)
        return hw_fail(p->gpus, "host %s: %s", hosts->host[host], p->text);
    return p->gpus == 0 ? hw_fail(-ENODEV, "host %s has no GPU", hosts->host[host]) : 0;
}

/* Chooses the host's GPU. Hosts on the same node get different GPUs if each host detects enough GPUs. */
static void choose_gpu(struct nb_hosts *hosts, unsigned host, int gpus)
{
    int before = 0;
    for (unsigned i = 0; i < host; i++)
        before += hosts->node[i] == hosts->node[host];
    hosts->gpu[host] = before % gpus;
}

int nb_hosts_probe(struct nb_hosts *hosts, const char *tcpx, int *gpus)
{
    unsigned with = 0, started = 0;
    struct nb_items items = {0};
    HW_AUTO_FREE struct nb_member *m = calloc(hosts->n, sizeof *m);
    snprintf(hosts->tcpx_path, sizeof hosts->tcpx_path, "%s", tcpx);
    nb_item(&items, 'f', "%s", hosts->tcpx_path);
    int rc = m ? 0 : hw_no_memory("%u hosts", hosts->n);
    *gpus = NB_RANKS;
    /* a host counts its GPUs while the next host is started */
    for (; started < hosts->n && rc == 0; started++) {
        rc = nb_agent_start(&m[started], hosts, started);
        if (rc == 0)
            rc = nb_agent_ask(&m[started], NB_ASK_PROBE, &items);
    }
    for (unsigned i = 0; i < hosts->n && rc == 0; i++) {
        struct nb_probe p = {0};
        rc = hear_probe(hosts, i, &m[i], &p);
        if (rc < 0)
            break;
        *gpus = HW_MIN(*gpus, p.gpus);
        with += p.file != 0;
        choose_gpu(hosts, i, p.gpus);
    }
    HW_KEEP_ERROR();
    for (unsigned i = 0; i < started; i++)
        (void)nb_agent_end(&m[i], rc < 0 ? 0 : 2000, false);
    free(items.at);
    hosts->tcpx = with == hosts->n ? hosts->tcpx_path : NULL;
    return rc;
}
