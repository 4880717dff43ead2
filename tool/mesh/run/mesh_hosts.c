/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/run/mesh_hosts.h"

#include "tool/child.h"
#include "tool/launch/launch_env.h"
#include "tool/mesh/show/mesh_json.h"
#include "tool/report/output.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#define SSH      "ssh -oBatchMode=yes {}"
#define GREETING "hawser-mesh-agent"
#define GREET_MS 30000
#define END_MS   10000 /* ms for the agents to end */
#define LOST_MS  1000  /* ms for the agents to end if a rank is lost: a hung process does not exit */
#define WORDS    64
#define LINE     4096
#define PLAIN    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._/:@%+=,-[]"

struct host {
    char *name, *rack, *addr; /* name in ssh's syntax; rack and addr are NULL if not given */
    pid_t pid;
    int in, out; /* standard input and output of the agent; -1 if closed */
    bool greeted;
    char tail[64]; /* last bytes that the agent printed, up to the end of the greeting */
    size_t n_tail;
};

struct starter {
    const struct mesh_hosts *o;
    char remote[LINE];
    struct host *host;
    uint32_t n;
    uint32_t *seat; /* index of each rank's host */
};

/* ---- the file --------------------------------------------------------------------------------- */

/* Returns true if the word is not empty, consists of characters of PLAIN, and does not begin with a dash. */
static bool is_plain(const char *word)
{
    return *word && *word != '-' && strspn(word, PLAIN) == strlen(word);
}

static void free_host(struct host *h)
{
    free(h->name);
    free(h->rack);
    free(h->addr);
}

/* Parses the words of a line into h. The caller frees h in any case. */
static int parse_host(struct host *h, char *line)
{
    for (char *at = line, *word; (word = strsep(&at, " \t\r\n"));) {
        if (!*word)
            continue;
        if (*word == '#')
            break;
        if (!is_plain(word))
            return hw_fail(-EINVAL, "'%s' contains a character that is not allowed, or begins with a dash", word);
        char **to = !h->name                         ? &h->name
                    : strncmp(word, "rack=", 5) == 0 ? &h->rack
                    : strncmp(word, "addr=", 5) == 0 ? &h->addr
                                                     : NULL;
        if (!to)
            return hw_fail(-EINVAL, "'%s' is neither rack=NAME nor addr=ADDRESS", word);
        free(*to);
        *to = strdup(to == &h->name ? word : word + 5);
        if (!*to)
            return hw_no_memory("'%s'", word);
    }
    return 0;
}

static int read_host(struct starter *s, char *line)
{
    struct host h = {.in = -1, .out = -1};
    int rc = parse_host(&h, line);
    if (rc < 0 || !h.name) {
        free_host(&h);
        return rc;
    }
    struct host *more = s->n < MESH_RANKS ? realloc(s->host, (s->n + 1) * sizeof *more) : NULL;
    if (!more) {
        free_host(&h);
        return s->n < MESH_RANKS ? hw_no_memory("names of hosts")
                                 : hw_fail(-E2BIG, "too many hosts: at most %d", MESH_RANKS);
    }
    s->host = more;
    s->host[s->n++] = h;
    return 0;
}

static int read_hosts(struct starter *s)
{
    FILE *f = fopen(s->o->file, "re");
    char line[LINE];
    unsigned n = 0;
    int rc = 0;
    if (!f)
        return hw_fail(-errno, "opening %s: %s", s->o->file, strerror(errno));
    while (rc == 0 && fgets(line, sizeof line, f)) {
        n++;
        rc = read_host(s, line);
    }
    fclose(f);
    if (rc < 0)
        return hw_wrap(rc, "%s, line %u", s->o->file, n);
    return s->n < 2
               ? hw_fail(-EINVAL, "%s has %u host%s, but at least two are needed", s->o->file, s->n, hw_plural(s->n))
               : 0;
}

/* Returns the host's name without the "user@" prefix of ssh. */
static const char *get_bare_name(const struct host *h)
{
    const char *at = strchr(h->name, '@');
    return at ? at + 1 : h->name;
}

/* ---- agents ------------------------------------------------------------------------------------- */

/* Builds the command line: the program and its options, after the words of --ssh, in which {} is replaced with the
 * host's name. The caller frees the strings. */
static int make_command(const struct starter *s, const struct host *h, const char *const *args, char *argv[WORDS])
{
    HW_AUTO_FREE char *text = strdup(s->o->ssh ? s->o->ssh : SSH);
    size_t n = 0;
    bool full = !text;
    for (char *at = text, *word; !full && (word = strsep(&at, " "));) {
        const char *place = strstr(word, "{}");
        if (!*word)
            continue;
        full = n == WORDS - 1 || (place ? asprintf(&argv[n], "%.*s%s%s", (int)(place - word), word, h->name, place + 2)
                                        : asprintf(&argv[n], "%s", word)) < 0;
        n += !full;
    }
    const char *const own[] = {s->remote, "mesh", "--agent", NULL};
    for (unsigned k = 0; k < 2 && !full; k++)
        for (const char *const *a = k ? args : own; *a && !full; a++) {
            full = n == WORDS - 1 || !(argv[n] = strdup(*a));
            n += !full;
        }
    argv[n] = NULL;
    return full ? hw_fail(-E2BIG, "the command for %s has too many words, or memory is exhausted", h->name) : 0;
}

static void become_agent(char **argv, pid_t parent, int in, int out)
{
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent || dup2(in, 0) < 0 || dup2(out, 1) < 0)
        _exit(127);
    execvp(argv[0], argv);
    dprintf(2, "%s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int start_agent(const struct starter *s, struct host *h, const char *const *args)
{
    char *argv[WORDS] = {0};
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    const pid_t parent = getpid();
    int rc = make_command(s, h, args, argv);
    if (rc == 0 && (pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0))
        rc = hw_fail(-errno, "creating pipes for %s: %s", h->name, strerror(errno));
    fflush(NULL);
    h->pid = rc == 0 ? fork() : 0;
    if (rc == 0 && h->pid == 0)
        become_agent(argv, parent, in[0], out[1]);
    if (rc == 0 && h->pid < 0)
        rc = hw_fail(-errno, "starting a process for %s: %s", h->name, strerror(errno));
    for (size_t i = 0; argv[i]; i++)
        free(argv[i]);
    hw_close(&in[0]);
    hw_close(&out[1]);
    h->in = in[1];
    h->out = out[0];
    return rc;
}

/* Reads one byte of the agent's output, and sets greeted at the end of the greeting. Returns false if the output has
 * ended. */
static bool hear_greeting(struct host *h)
{
    static const char want[] = GREETING "\n";
    char c;
    ssize_t k = read(h->out, &c, 1);
    if (k < 0 && errno == EINTR)
        return true;
    if (k <= 0)
        return false;
    if (h->n_tail == sizeof want - 1) {
        memmove(h->tail, h->tail + 1, h->n_tail - 1);
        h->n_tail--;
    }
    h->tail[h->n_tail++] = c;
    h->greeted = h->n_tail == sizeof want - 1 && memcmp(h->tail, want, sizeof want - 1) == 0;
    return true;
}

/* Waits up to GREET_MS for the greetings of all hosts, and reports each host without a greeting. Returns how many
 * greetings arrived. */
static uint32_t hear_greetings(struct starter *s)
{
    const uint64_t end = hw_deadline(GREET_MS);
    HW_AUTO_FREE struct pollfd *p = calloc(s->n, sizeof *p);
    uint32_t came = 0, open = s->n;
    while (p && open > 0 && hw_now() < end && !tool_stop) {
        open = came = 0;
        for (uint32_t i = 0; i < s->n; i++) {
            struct host *h = &s->host[i];
            p[i] = (struct pollfd){.fd = h->greeted ? -1 : h->out, .events = POLLIN};
            open += p[i].fd >= 0;
            came += h->greeted;
        }
        output_progress("hawser started on %u of %u hosts", came, s->n);
        if (open && poll(p, s->n, 200) <= 0)
            continue;
        for (uint32_t i = 0; i < s->n; i++)
            if (p[i].fd >= 0 && p[i].revents && !hear_greeting(&s->host[i]))
                hw_close(&s->host[i].out);
    }
    output_progress(NULL);
    came = 0;
    for (uint32_t i = 0; i < s->n; i++)
        if (s->host[i].greeted)
            came++;
        else
            tool_fail("mesh", "hawser was not started on %s: `%s` %s", s->host[i].name, s->o->ssh ? s->o->ssh : SSH,
                      s->host[i].out < 0 ? "ended before hawser answered"
                      : tool_stop        ? "was interrupted before hawser answered"
                                         : "did not start hawser in time");
    return came;
}

/* ---- seats ---------------------------------------------------------------------------------------- */

static int write_orders(const struct starter *s, uint32_t rank, const char *key, uint16_t port, const char *names)
{
    const struct host *h = &s->host[s->seat[rank]], *first = &s->host[s->seat[0]];
    HW_AUTO_FREE char *text = NULL;
    int n = asprintf(&text,
                     "HAWSER_MESH_KEY=%s\nHAWSER_MESH_RANK=%u\nHAWSER_MESH_SIZE=%u\nHAWSER_MESH_MEET=%s:%u\n"
                     "HAWSER_MESH_NAME=%s\nHAWSER_MESH_RACK=%s\nHAWSER_MESH_NAMES=%s\n\n",
                     key, rank, s->n, first->addr ? first->addr : get_bare_name(first), port, get_bare_name(h),
                     h->rack ? h->rack : "", names);
    if (n < 0)
        return hw_no_memory("orders");
    int rc = 0;
    for (ssize_t k = 0, at = 0; at < n && rc == 0; at += k) {
        k = write(h->in, text + at, (size_t)(n - at));
        if (k < 0 && errno == EPIPE)
            break; /* the agent has ended */
        if (k < 0)
            rc = hw_fail(-errno, "sending orders to %s: %s", h->name, strerror(errno));
    }
    explicit_bzero(text, (size_t)n);
    return rc;
}

/* Assigns the first ranks to the hosts that sent a greeting, and sends them their orders. The lead reports the other
 * hosts as missing. */
static int seat_hosts(struct starter *s)
{
    uint8_t random[32];
    char key[2 * sizeof random + 1];
    HW_AUTO_FREE char *names = calloc(s->n, MESH_NAME + 1);
    uint32_t rank = 0;
    int rc = 0;
    if (!names)
        return hw_no_memory("names of hosts");
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return hw_fail(-EIO, "creating a random key failed");
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(key + 2 * i, 3, "%02x", random[i]);
    for (unsigned pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < s->n; i++)
            if (s->host[i].greeted == !pass)
                s->seat[rank++] = i;
    for (uint32_t i = 0; i < s->n; i++)
        snprintf(names + strlen(names), MESH_NAME + 1, "%s%s", i ? "," : "", get_bare_name(&s->host[s->seat[i]]));
    const uint16_t port = (uint16_t)(LAUNCH_PORT + random[0] * 2 * LAUNCH_PORTS);
    for (uint32_t i = 0; i < s->n && rc == 0 && s->host[s->seat[i]].greeted; i++)
        rc = write_orders(s, i, key, port, names);
    explicit_bzero(key, sizeof key);
    return rc;
}

/* ---- the run ---------------------------------------------------------------------------------------- */

static void *end_at_signal(void *arg)
{
    struct host *first = arg;
    while (!tool_stop)
        usleep(100000);
    hw_close(&first->in); /* rank 0 then ends early and reports its results so far */
    return NULL;
}

static int read_results(struct starter *s, struct mesh *m)
{
    struct host *first = &s->host[s->seat[0]];
    pthread_t watch;
    FILE *f = fdopen(first->out, "r");
    if (!f)
        return hw_fail(-errno, "reading rank 0's output: %s", strerror(errno));
    int e = pthread_create(&watch, NULL, end_at_signal, first);
    /* a signal must not interrupt the reading of the results that rank 0 reports because of the signal */
    sigset_t signals, old;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    if (e == 0)
        (void)pthread_sigmask(SIG_BLOCK, &signals, &old);
    int rc = mesh_read(f, "rank 0's output", m);
    if (e == 0)
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    fclose(f);
    first->out = -1;
    if (e == 0) {
        tool_stop = 1;
        pthread_join(watch, NULL);
    }
    return m->n == 0 ? hw_wrap(rc < 0 ? rc : hw_fail(-EIO, "its output is empty"), "rank 0 on %s returned no results",
                               first->name)
                     : rc;
}

static bool is_any_lost(const struct mesh *m)
{
    for (uint32_t i = 0; i < m->n; i++)
        if (m->node[i].state != MESH_WELL)
            return true;
    return false;
}

static void end_agents(struct starter *s, int wait_ms)
{
    for (uint32_t i = 0; i < s->n; i++)
        hw_close(&s->host[i].in);
    const uint64_t end = hw_deadline(wait_ms);
    for (uint32_t i = 0; i < s->n; i++) {
        uint64_t now = hw_now();
        if (s->host[i].pid > 0 && now > end)
            kill(s->host[i].pid, SIGTERM);
        (void)child_reap(&s->host[i].pid, now > end ? 1000 : (int)((end - now) / HW_MS));
        hw_close(&s->host[i].out);
        free_host(&s->host[i]);
    }
    free(s->host);
    free(s->seat);
}

static int start_all(struct starter *s, const char *const *args)
{
    ssize_t k = readlink("/proc/self/exe", s->remote, sizeof s->remote - 1);
    s->remote[k > 0 ? k : 0] = 0;
    if (s->o->remote)
        snprintf(s->remote, sizeof s->remote, "%s", s->o->remote);
    if (!is_plain(s->remote))
        return hw_fail(-EINVAL, "a shell would change the path '%s': give a different path with --remote", s->remote);
    for (const char *const *a = args; *a; a++)
        if (strspn(*a, PLAIN) != strlen(*a))
            return hw_fail(-EINVAL, "a shell would change the argument '%s'", *a);
    int rc = read_hosts(s);
    s->seat = calloc(s->n + 1, sizeof *s->seat);
    if (!s->seat)
        return hw_no_memory("%u hosts", s->n);
    for (uint32_t i = 0; i < s->n && rc == 0; i++)
        rc = start_agent(s, &s->host[i], args);
    return rc;
}

int mesh_hosts_run(const struct mesh_hosts *o, const char *const *args, struct mesh *m)
{
    struct starter s = {.o = o};
    *m = (struct mesh){0};
    int rc = start_all(&s, args);
    if (rc == 0 && hear_greetings(&s) < 2)
        rc = hw_fail(-ENODEV, "hawser has started on fewer than two hosts");
    if (rc == 0)
        rc = seat_hosts(&s);
    if (rc == 0)
        rc = read_results(&s, m);
    HW_KEEP_ERROR();
    end_agents(&s, is_any_lost(m) ? LOST_MS : END_MS);
    return rc;
}

/* ---- the agent's side -------------------------------------------------------------------------------- */

int mesh_take_orders(void)
{
    char line[2 * LINE * 16];
    size_t n = 0;
    if (write(STDOUT_FILENO, GREETING "\n", strlen(GREETING) + 1) < 0)
        return hw_fail(-EPIPE, "the `hawser mesh` that started this process has ended");
    for (;;) {
        ssize_t k = read(STDIN_FILENO, line + n, 1);
        if (k < 0 && errno == EINTR && !tool_stop)
            continue;
        if (k <= 0 || n == sizeof line - 1)
            return hw_fail(-EPIPE, "the `hawser mesh` that started this process sent no complete orders");
        if (line[n] != '\n') {
            n++;
            continue;
        }
        line[n] = 0;
        char *value = strchr(line, '=');
        if (n == 0)
            return 0;
        if (!value || strncmp(line, "HAWSER_MESH_", 12) != 0)
            return hw_fail(-EPROTO, "unexpected line from the `hawser mesh` that started this process: '%s'", line);
        *value++ = 0;
        if (setenv(line, value, 1) < 0)
            return hw_no_memory("the environment");
        explicit_bzero(line, sizeof line);
        n = 0;
    }
}

static void *follow(void *arg)
{
    char c;
    ssize_t k;
    (void)arg;
    do
        k = read(STDIN_FILENO, &c, 1);
    while (k > 0 || (k < 0 && errno == EINTR));
    kill(getpid(), SIGTERM);
    return NULL;
}

void mesh_follow_starter(void)
{
    pthread_t t;
    if (pthread_create(&t, NULL, follow, NULL) == 0)
        pthread_detach(t);
}
