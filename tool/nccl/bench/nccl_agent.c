/* SPDX-License-Identifier: Apache-2.0 */
/* The agent of `hawser nccl bench` on a host (see nccl_hosts.h). Executes the requests that arrive on its standard
 * input. */
#include "hawser.h"
#include "mem/cuda.h"
#include "tool/child.h"
#include "tool/nccl/bench/nccl_hosts.h"
#include "tool/nccl/nccl_conf.h"
#include "tool/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLL_MS  100
#define LEAVE_MS 3000

static int in, out; /* connection to the supervisor */

static void answer_host_probe(const char *items, size_t len)
{
    struct nb_probe p = {.gpus = hw_cuda_count()};
    unsigned number = 0;
    if (p.gpus < 0)
        snprintf(p.text, sizeof p.text, "%s", hw_error());
    for (const char *at = items; at < items + len; at += strlen(at) + 1)
        if (*at == 'f' && ++number && !p.file && access(at + 1, R_OK) == 0)
            p.file = number;
    (void)child_write(out, &p, sizeof p);
}

/* ---- a process ------------------------------------------------------------------------------- */

struct job {
    char *argv[NB_HOST_ARGS + 1];
    size_t n;
    bool plugin;
    char key[40];
};

/* Stores the key in a memory file that other users cannot read. The descriptor stays open across exec. */
static int make_key(struct job *j, const char *hex)
{
    int fd = memfd_create("hawser-key", 0);
    size_t n = strlen(hex);
    if (fd < 0 || fchmod(fd, 0600) < 0 || write(fd, hex, n) != (ssize_t)n)
        return hw_fail(-errno, "creating a memfd for the key: %s", strerror(errno));
    snprintf(j->key, sizeof j->key, "/proc/self/fd/%d", fd);
    return 0;
}

static int set_variable(char *text)
{
    char *eq = strchr(text, '=');
    if (!eq)
        return hw_fail(-EPROTO, "a variable has no value");
    *eq = 0;
    return setenv(text, eq + 1, 1) < 0 ? hw_fail(-errno, "setting %s: %s", text, strerror(errno)) : 0;
}

static int add_plugin_folder(void)
{
    char dir[NCCL_PATH];
    HW_AUTO_FREE char *path = NULL;
    const char *was = getenv("LD_LIBRARY_PATH");
    if (nccl_plugin_dir(dir, sizeof dir) < 0)
        return 0; /* NCCL's loader may find the plugin elsewhere; the supervisor checks which network NCCL uses */
    return asprintf(&path, "%s%s%s", dir, was && *was ? ":" : "", was ? was : "") < 0 ||
                   setenv("LD_LIBRARY_PATH", path, 1) < 0
               ? hw_no_memory("an environment")
               : 0;
}

static int read_job(struct job *j, char *items, size_t len)
{
    int rc = 0;
    j->argv[j->n++] = (char *)(uintptr_t) "hawser";
    for (char *at = items; at < items + len && rc == 0;) {
        char *next = at + strlen(at) + 1;
        if (*at == 'a' && j->n < NB_HOST_ARGS)
            j->argv[j->n++] = at + 1;
        else if (*at == 's')
            rc = set_variable(at + 1);
        else if (*at == 'u')
            unsetenv(at + 1);
        else if (*at == 'k')
            rc = make_key(j, at + 1);
        else if (*at == 'd')
            j->plugin = true;
        else
            rc = hw_fail(-EPROTO, "unexpected item '%c'", *at);
        at = next;
    }
    for (size_t i = 1; i < j->n; i++)
        if (strcmp(j->argv[i], NB_KEY_WORD) == 0)
            j->argv[i] = j->key;
    return rc == 0 && j->plugin ? add_plugin_folder() : rc;
}

static void exec_agent_job(const struct job *j, pid_t parent, int talk)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent || null < 0 || dup2(null, 0) < 0 ||
        (talk < 0 && dup2(out, 1) < 0) ||
        (talk >= 0 && (talk == NB_RANK_FD ? fcntl(talk, F_SETFD, 0) : dup2(talk, NB_RANK_FD)) < 0))
        _exit(127);
    execv("/proc/self/exe", j->argv);
    _exit(127);
}

static int exit_code(int status)
{
    if (WIFSIGNALED(status)) {
        fprintf(stderr, "hawser agent: its child process was killed by signal %d (%s)\n", WTERMSIG(status),
                strsignal(WTERMSIG(status)));
        return 128 + WTERMSIG(status);
    }
    return WEXITSTATUS(status);
}

/* Forwards orders and replies until the connection or the rank ends. */
static int bridge_rank(pid_t pid, int talk)
{
    struct nb_order o;
    struct nb_reply r;
    size_t got = 0;
    for (;;) {
        struct pollfd p[2] = {{.fd = in, .events = POLLIN}, {.fd = talk, .events = POLLIN}};
        (void)poll(p, 2, -1);
        if (p[1].revents) {
            ssize_t k = recv(talk, &r, sizeof r, MSG_DONTWAIT);
            if (k == sizeof r && child_write(out, &r, sizeof r))
                continue;
            if (k < 0 && (errno == EAGAIN || errno == EINTR))
                continue;
            if (k == sizeof r)
                kill(pid, SIGKILL);
            break;
        }
        if (p[0].revents) {
            ssize_t k = read(in, (uint8_t *)&o + got, sizeof o - got);
            if (k < 0 && errno == EINTR)
                continue;
            if (k <= 0) {
                kill(pid, SIGKILL);
                break;
            }
            got += (size_t)k;
            if (got == sizeof o) {
                got = 0;
                (void)send(talk, &o, sizeof o, MSG_NOSIGNAL);
            }
        }
    }
    return exit_code(child_reap(&pid, LEAVE_MS));
}

/* Waits for the command to end, and terminates the command if the connection closes. */
static int watch_command(pid_t pid)
{
    for (;;) {
        struct pollfd p = {.fd = in, .events = POLLIN};
        int status;
        char ignored[64];
        if (waitpid(pid, &status, WNOHANG) == pid)
            return exit_code(status);
        if (poll(&p, 1, POLL_MS) > 0 && read(in, ignored, sizeof ignored) <= 0) {
            kill(pid, SIGTERM);
            return exit_code(child_reap(&pid, LEAVE_MS));
        }
    }
}

static int start_job(enum nb_ask_type type, char *items, size_t len)
{
    struct job j = {0};
    int talk[2] = {-1, -1};
    if (read_job(&j, items, len) < 0)
        return tool_fail("agent", "%s", hw_error());
    if (type == NB_ASK_RANK && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, talk) < 0)
        return tool_fail("agent", "creating sockets for a rank: %s", strerror(errno));
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_agent_job(&j, parent, talk[1]);
    hw_close(&talk[1]);
    if (pid < 0)
        return tool_fail("agent", "starting a process: %s", strerror(errno));
    return type == NB_ASK_RANK ? bridge_rank(pid, talk[0]) : watch_command(pid);
}

int nb_agent(void)
{
    struct nb_greeting g = {
        .magic = NB_MAGIC, .order_size = sizeof(struct nb_order), .reply_size = sizeof(struct nb_reply)};
    struct nb_ask ask;
    signal(SIGPIPE, SIG_IGN);
    in = fcntl(0, F_DUPFD_CLOEXEC, NB_RANK_FD + 1);
    out = fcntl(1, F_DUPFD_CLOEXEC, NB_RANK_FD + 1);
    /* Keep the output of libraries separate from the replies. */
    if (in < 0 || out < 0 || dup2(2, 1) < 0)
        return tool_fail("agent", "duplicating descriptors: %s", strerror(errno));
    snprintf(g.version, sizeof g.version, "%s", hawser_version());
    if (!child_write(out, &g, sizeof g))
        return TOOL_FAILED;
    while (child_read(in, &ask, sizeof ask)) {
        char *items = ask.len < NB_ASK_MOST ? calloc(1, (size_t)ask.len + 1) : NULL;
        if (!items || !child_read(in, items, ask.len))
            return tool_fail("agent", "an order of %u bytes is too long or did not arrive", ask.len);
        if (ask.type != NB_ASK_PROBE) {
            int rc = start_job(ask.type, items, ask.len);
            free(items);
            return rc;
        }
        answer_host_probe(items, ask.len);
        free(items);
    }
    return TOOL_OK;
}
