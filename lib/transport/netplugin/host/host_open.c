/* SPDX-License-Identifier: Apache-2.0 */
/* Opens and closes a host. To open a host, creates the memory shared with the child, forks, and loads the plugin in the
 * child. */
#include "transport/netplugin/host/host_inner.h"

#include "transport/netplugin/table/abi.h"
#include "transport/netplugin/table/table.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    OPEN_MS = 30000,
    CALL_MS = 15000,
    SPIN_US = 2000,
};

static void unmap_page(const uint32_t *page)
{
    munmap((void *)(uintptr_t)page, (size_t)sysconf(_SC_PAGESIZE));
}

int np_shared_memory(const char *name, size_t len, int *fd, void **at)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd < 0)
        return hw_fail(-errno, "creating a memfd: %s", strerror(errno));
    /* Sealed, because a truncation by the child would kill the parent with SIGBUS. */
    if (ftruncate(*fd, (off_t)len) == 0 && fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
        (*at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0)) != MAP_FAILED)
        return 0;
    int rc = hw_fail(-errno, "sharing %zu bytes of memory: %s", len, strerror(errno));
    hw_close(fd);
    return rc;
}

extern char **environ;

/* Not for the plugin's process: a plugin that is built on hawser would start a process with a plugin again. */
#define TRANSPORT "HAWSER_TRANSPORT="

/* Returns the environment without TRANSPORT, and with the options' variables added or replaced. The caller frees the
 * array. Returns NULL if out of memory. */
static char **merge_plugin_env(const char *const *more)
{
    size_t n = 0, at = 0;
    for (char **e = environ; e && *e; e++)
        n++;
    for (const char *const *e = more; e && *e; e++)
        n++;
    char **all = calloc(n + 1, sizeof(*all));
    for (const char *const *e = more; all && e && *e; e++)
        all[at++] = (char *)(uintptr_t)*e;
    const size_t ours = at;
    for (char **e = environ; all && e && *e && at < n; e++) {
        bool over = strncmp(*e, TRANSPORT, strlen(TRANSPORT)) == 0;
        for (size_t i = 0; i < ours; i++)
            over |= strncmp(all[i], *e, strcspn(*e, "=") + 1) == 0;
        if (!over)
            all[at++] = *e;
    }
    return all;
}

static int fork_plugin_child(struct np_host *h, char **env)
{
    int pair[2];
    sigset_t all, old;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return hw_fail(-errno, "creating a pair of sockets: %s", strerror(errno));
    const struct np_child child = {
        .shared = h->s,
        .plugin = h->plugin,
        .socket = pair[1],
        .log = h->log,
        .warnings = h->warnings,
        .parent = getpid(),
        .newest = h->o.newest ? h->o.newest : NP_NEWEST,
        .spin_us = (unsigned)h->o.spin_us,
        .call_ms = (unsigned)h->o.call_ms,
        .one_thread = h->o.one_thread,
        .trace = h->trace,
        .trace_polls = h->o.trace_polls,
        .unpack = h->o.unpack,
    };
    /* No signal handler of the application may run in the child. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    h->pid = fork();
    if (h->pid == 0) {
        environ = env; /* not setenv(), because another thread may have held its lock during the fork */
        np_child_main(&child);
    }
    int rc = h->pid < 0 ? hw_fail(-errno, "forking a process for plugin %s: %s", h->name, strerror(errno)) : 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    hw_close(&pair[1]);
    h->socket = pair[0];
    return rc;
}

struct env_log {
    const struct hw_logger *log;
    bool any_env;
};

static void log_env(void *arg, enum np_grade grade, const char *line)
{
    const struct env_log *e = arg;
    if (e->log)
        hw_log(e->log, grade == NP_GOOD ? HAWSER_LOG_DEBUG : HAWSER_LOG_WARN, "%s", line);
}

static int load_plugin_in_child(struct np_host *h, char **env)
{
    struct np_message m = {.op = NP_OP_LOAD};
    struct np_reply r;
    int rc = np_ask(h, &m, NULL, 0, &r);
    if (rc < 0)
        return rc;
    snprintf(h->table, sizeof(h->table), "%s", r.u.hello.table);
    h->info.table = h->table;
    h->info.version = r.u.hello.version;
    h->info.quirk = np_quirk_of(h->table);
    h->info.window = h->info.version == 6 ? NCCL_NET_MAX_REQUESTS_V6 : NCCL_NET_MAX_REQUESTS;
    if (h->info.quirk->max_requests)
        h->info.window = HW_MIN(h->info.window, h->info.quirk->max_requests);
    h->info.wait_ms = np_quirk_wait_ms(h->info.quirk, (const char *const *)env);

    struct env_log e = {.log = h->o.again ? NULL : h->o.log};
    if (np_check_env(h->info.quirk, (const char *const *)env, log_env, &e) > 0 && !h->o.any_env)
        return hw_wrap(-EINVAL, "plugin %s was not started", h->name);

    m = (struct np_message){.op = NP_OP_INIT};
    rc = np_ask(h, &m, NULL, 0, &r);
    if (rc == 0)
        h->info.devices = r.u.hello.devices;
    return rc;
}

static int create_host_memory(struct np_host *h)
{
    int fd;
    void *at = MAP_FAILED;
    h->log = memfd_create("hawser-plugin-log", MFD_CLOEXEC);
    h->warnings = memfd_create("hawser-plugin-warnings", MFD_CLOEXEC);
    if (h->log < 0 || fcntl(h->log, F_SETFL, O_APPEND) < 0 || h->warnings < 0 ||
        fcntl(h->warnings, F_SETFL, O_APPEND) < 0)
        return hw_fail(-errno, "creating a file for the plugin's output: %s", strerror(errno));
    void *page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return hw_fail(-errno, "allocating a page of memory: %s", strerror(errno));
    h->mine = page;
    if (madvise(page, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK) < 0) /* fails before Linux 4.14 */
        return hw_fail(-errno, "setting MADV_WIPEONFORK on a page: %s", strerror(errno));
    *(uint32_t *)page = 1;
    int rc = np_shared_memory("hawser-plugin", sizeof(struct np_shared), &fd, &at);
    if (rc < 0)
        return rc;
    hw_close(&fd);
    h->s = at;
    return 0;
}

static int start_plugin_child(struct np_host *h, const struct np_options *o)
{
    HW_AUTO_FREE char **env = merge_plugin_env(o->env);
    int rc = env ? create_host_memory(h) : hw_no_memory("the plugin's environment");
    if (rc < 0)
        return rc;
    if (o->trace && *o->trace) {
        h->trace = open(o->trace, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
        if (h->trace < 0)
            return hw_fail(-errno, "plugin %s: opening its trace file %s: %s", h->name, o->trace, strerror(errno));
    }
    rc = fork_plugin_child(h, env);
    hw_close(&h->trace); /* used only by the child */
    return rc < 0 ? rc : load_plugin_in_child(h, env);
}

int np_open(const char *plugin, const struct np_options *o, struct np_host **out)
{
    struct np_host *h = calloc(1, sizeof(*h));
    if (!h)
        return hw_no_memory("plugin %s", plugin);
    if ((size_t)snprintf(h->plugin, sizeof(h->plugin), "%s", plugin) >= sizeof(h->plugin) || !*plugin) {
        free(h);
        return hw_fail(-EINVAL, "'%.60s' is not a valid plugin path or name", plugin);
    }
    h->name = strrchr(h->plugin, '/') ? strrchr(h->plugin, '/') + 1 : h->plugin;
    h->o = *o;
    h->o.open_ms = o->open_ms > 0 ? o->open_ms : OPEN_MS;
    h->o.call_ms = o->call_ms > 0 ? o->call_ms : CALL_MS;
    h->o.spin_us = o->spin_us > 0 ? o->spin_us : SPIN_US;
    h->o.env = NULL;
    h->o.trace = NULL;
    h->socket = h->log = h->warnings = h->trace = -1;
    pthread_mutex_init(&h->lock, NULL);
    pthread_mutex_init(&h->devices_lock, NULL);
    hw_list_init(&h->comms);
    hw_list_init(&h->listeners);
    hw_list_init(&h->mems);
    int rc = start_plugin_child(h, o);
    if (rc < 0) {
        HW_KEEP_ERROR();
        np_close(h);
        return rc;
    }
    h->info.pid = h->pid;
    *out = h;
    return 0;
}

void np_close(struct np_host *h)
{
    if (!h)
        return;
    if (h->mine && *h->mine)
        np_stop_child(h);
    hw_close(&h->socket);
    hw_list_each(it, tmp, &h->comms) np_comm_drop(hw_container_of(it, struct np_comm, link));
    hw_list_each(it, tmp, &h->listeners) free(hw_container_of(it, struct np_listener, link));
    hw_list_each(it, tmp, &h->mems) np_mem_drop(hw_container_of(it, struct np_mem, link));
    hw_close(&h->log);
    hw_close(&h->warnings);
    if (h->s)
        munmap(h->s, sizeof(*h->s));
    if (h->mine)
        unmap_page(h->mine);
    pthread_mutex_destroy(&h->lock);
    pthread_mutex_destroy(&h->devices_lock);
    free(h);
}
