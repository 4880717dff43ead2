/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that test aborts, killed ranks, forks, foreign connections, oversized messages, many short connections, and
 * unloading. */
#include "base/sanitizers.h"
#include "driver.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024u * 1024)

static const struct flow_spec stream = {.what = "a stream", .n = 100000, .depth = 8, .min = MIB, .max = MIB};
static const struct flow_spec talk = {
    .what = "a talk afterwards", .n = 40, .depth = 8, .min = 0, .max = 100000, .slack = 10};

int entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n - 2; /* "." and ".." */
}

int step_after(struct rank *r)
{
    int rc = 0;
    for (int i = 0; i < 3 && !rc; i++)
        rc = exchange(r, &talk);
    return rc;
}

/* ---- closing -------------------------------------------------------------------------------- */

/* The sender closes as soon as its sends of up to max bytes are done, and also unloads the plugin if `unload` is true.
 * The slow receiver must still get all data. */
static int leave_early(struct rank *r, size_t max, bool unload)
{
    struct flow_spec s = {.what = "messages of a sender who has closed", .n = 16, .depth = 8, .min = 0, .max = max};
    struct wait w = wait_for(s.what);
    struct comm *c;
    struct flow f;
    int rc = comm_open(r, 0, &c), n;

    if (rc || (rc = flow_open(&f, c, &s)))
        return rc;
    if (c->sends) {
        if ((rc = flow_run(r, &f, 1)) || (rc = flow_close(&f)) || (rc = comm_close(c)))
            return rc;
        if (unload && (rc = net_unload(r)))
            return rc;
        return barrier(r);
    }
    nap_ms(300);
    while (f.done < s.n) {
        if ((n = flow_step(&f)) < 0)
            return n;
        if (n)
            nap_ms(20);
        else if ((rc = wait_turn(r, &w)))
            return rc;
    }
    rc = flow_close(&f);
    return rc ? rc : barrier(r);
}

int step_close_late(struct rank *r)
{
    int rc = leave_early(r, 100000, false);
    return rc ? rc : leave_early(r, 1000, false);
}

int step_unload_late(struct rank *r)
{
    return leave_early(r, 100000, true);
}

int step_abort_both(struct rank *r)
{
    for (unsigned round = 0; round < 8; round++) {
        struct comm *c[2];
        struct flow f[2] = {{0}};
        int rc;
        for (int i = 0; i < 2; i++)
            if ((rc = comm_open(r, i, &c[i])) || (rc = flow_open(&f[i], c[i], &stream)))
                return rc;
        rc = flow_some(f, 2, 3 * round);
        /* The other rank may have closed by now, so an error from the plugin is not a failure. */
        if (rc && rc != -EREMOTEIO)
            return rc;
        for (int i = 0; i < 2; i++)
            if ((rc = flow_abandon(&f[i])))
                return rc;
        if ((rc = barrier(r)))
            return rc;
    }
    return opt.no_abort ? 0 : exchange(r, &talk);
}

/* One side closes with messages in flight. The other side must get an error in time. */
static int abort_one(struct rank *r, int closer, unsigned after)
{
    struct comm *c;
    struct flow f;
    int rc = comm_open(r, 0, &c);

    if (opt.no_abort)
        return SKIP("--no-abort");
    if (rc || (rc = flow_open(&f, c, &stream)))
        return rc;
    if (r->id == closer)
        rc = flow_some(&f, 1, after);
    else
        rc = flow_until_error(&f);
    if (!rc)
        rc = flow_abandon(&f);
    return rc ? rc : barrier(r);
}

int step_abort_receiver(struct rank *r)
{
    int rc = abort_one(r, 1, 0);
    return rc ? rc : abort_one(r, 1, 12);
}

int step_abort_sender(struct rank *r)
{
    int rc = abort_one(r, 0, 0);
    return rc ? rc : abort_one(r, 0, 12);
}

/* Sends a message that is larger than its receive. Runs only on request, because the ABI does not define this case. */
int step_oversize(struct rank *r)
{
    struct flow_spec s = {.what = "a message larger than its receive", .n = 1, .depth = 1, .min = 1000, .max = 1000};
    struct comm *c;
    struct flow f;
    int rc;

    if (!opt.strict)
        return SKIP("only with --strict");
    if ((rc = comm_open(r, 0, &c)))
        return rc;
    if (c->sends)
        s.min = s.max = 100000;
    if ((rc = flow_open(&f, c, &s)))
        return rc;
    if (!c->sends) {
        rc = flow_until_error(&f); /* the loop below checks for writes outside the buffer */
        for (size_t i = 0; !rc && i < 64; i++)
            if (f.slot[0].p[f.slot[0].room + i] != 0xee)
                rc = hw_fail(-EBADMSG, "bytes outside the receive were written");
    } else {
        struct wait w = wait_for("the end of a send that is too large");
        int n = 0;
        while (f.done < 1 && (n = flow_step(&f)) >= 0 && atomic_load(&r->sh->gone) != r->step + 1)
            if (!n && (rc = wait_turn(r, &w)))
                break;
        rc = rc == -ETIMEDOUT ? rc : 0;
        if (rc == 0 && f.done && opt.ends)
            rc = hw_fail(-EPROTO, "a send that is larger than its receive was done well");
    }
    if (!rc)
        rc = flow_abandon(&f);
    if (!rc)
        rc = barrier(r);
    return rc ? rc : exchange(r, &talk);
}

int step_churn(struct rank *r)
{
    struct flow_spec s = {.what = "a short-lived connection", .n = 2, .depth = 2, .min = 0, .max = 1000};
    int fds = 0, now = 0;

    for (uint64_t i = 0; i < opt.churn; i++) {
        struct comm *c;
        int rc = comm_open(r, (int)(i % 2), &c);
        if (!rc && i % 3)
            rc = flow_all(c, &s);
        if (!rc)
            rc = comm_close(c);
        if (rc)
            return hw_wrap(rc, "connection %llu of %llu", (unsigned long long)i, (unsigned long long)opt.churn);
        if (i == 20)
            fds = entries("/proc/self/fd");
    }
    if (opt.churn < 40)
        return 0;
    for (int i = 0; i < 200 && (now = entries("/proc/self/fd")) > fds + 8; i++)
        nap_ms(10); /* closing may take a while */
    if (now > fds + 8)
        return hw_fail(-EMFILE, "%d descriptors after 20 connections, %d after %llu", fds, now,
                       (unsigned long long)opt.churn);
    return barrier(r);
}

/* ---- death ----------------------------------------------------------------------------------- */

static int dead(struct rank *r, int sender)
{
    struct comm *c;
    struct flow f;
    int rc = comm_open(r, sender, &c);

    if (opt.no_death && !rc)
        return SKIP("--no-death");
    if (rc || (rc = flow_open(&f, c, &stream)))
        return rc;
    if (r->id == 1) {
        rc = flow_some(&f, 1, 10);
        if (!rc)
            (void)raise(SIGKILL);
        return rc;
    }
    rc = flow_until_error(&f);
    return rc ? rc : flow_abandon(&f);
}

int step_dead_sender(struct rank *r)
{
    return dead(r, 1);
}

int step_dead_receiver(struct rank *r)
{
    return dead(r, 0);
}

/* Rank 1 dies without traffic: rank 0 waits for a message on one connection, and for receives on the other. */
int step_dead_idle(struct rank *r)
{
    struct comm *c[2];
    struct flow f[2];
    int rc = 0;

    for (int i = 0; i < 2 && !rc; i++)
        rc = comm_open(r, i, &c[i]);
    if (opt.no_death && !rc)
        return SKIP("--no-death");
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_open(&f[i], c[i], &stream);
    for (int i = 0; i < 200 && !rc && r->id == 0; i++) {
        int n = 0;
        for (int k = 0; k < 2 && n >= 0; k++)
            n = flow_step(&f[k]);
        rc = n < 0 ? n : 0;
    }
    if (!rc)
        rc = barrier(r);
    if (rc)
        return rc;
    if (r->id == 1)
        return raise(SIGKILL);
    for (int i = 0; i < 2 && !rc; i++)
        rc = hw_wrap(flow_until_error(&f[i]), i ? "receiving" : "sending");
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_abandon(&f[i]);
    return rc;
}

/* ---- fork ------------------------------------------------------------------------------------ */

enum { CHILD_EXITS, CHILD_EXECS, CHILD_EXITS_WELL };

static int fork_one(int kind)
{
    static const char *const words[] = {"calls _exit()", "executes another program", "calls exit()"};
    struct wait w = wait_for("the child's end");
    pid_t pid, got;
    int st = 0;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        return hw_fail(-errno, "fork");
    if (pid == 0) {
        if (kind == CHILD_EXECS)
            execl("/bin/true", "true", (char *)NULL);
        if (kind == CHILD_EXITS_WELL)
            exit(0); /* runs the plugin's destructors in a process without its threads */
        _exit(kind == CHILD_EXECS);
    }
    while ((got = waitpid(pid, &st, WNOHANG)) == 0 && hw_now() < w.end)
        nap_ms(1);
    if (got == 0) {
        kill(pid, SIGKILL);
        (void)waitpid(pid, &st, 0);
        return hw_fail(-ETIMEDOUT, "a child that %s does not end", words[kind]);
    }
    if (st != 0)
        return hw_fail(-ECHILD, "a child that %s ended with status %#x", words[kind], (unsigned)st);
    return 0;
}

int inherited(void)
{
    int n = 0;
    for (int fd = 3; fd < 4096; fd++) {
        int flags = fcntl(fd, F_GETFD);
        n += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return n;
}

int step_fork(struct rank *r)
{
    struct flow_spec s = {.what = "messages around a fork", .n = 120, .depth = 8, .min = 0, .max = 600000};
    struct comm *c[2];
    struct flow f[2] = {{0}};
    int rc = 0, before, kinds = CHILD_EXITS_WELL;

#if HW_ASAN || HW_TSAN
    kinds = CHILD_EXECS; /* the sanitizers' exit handlers fail in a child */
#endif
    if (opt.no_fork)
        return SKIP("--no-fork");
    before = r->inherited;
    for (int i = 0; i < 2 && !rc; i++)
        if (!(rc = comm_open(r, i, &c[i])))
            rc = flow_open(&f[i], c[i], &s);
    for (int kind = 0; kind <= kinds && !rc; kind++) {
        rc = flow_some(f, 2, 20 * (unsigned)(kind + 1));
        if (!rc)
            rc = fork_one(kind);
    }
    if (!rc)
        rc = flow_run(r, f, 2);
    if (!rc && opt.strict && inherited() > before)
        rc = hw_fail(-EMFILE, "%d descriptors are open for every program that is started from here (no O_CLOEXEC)",
                     inherited() - before);
    for (int i = 0; i < 2 && !rc; i++)
        rc = flow_close(&f[i]);
    return rc ? rc : exchange(r, &talk);
}

/* ---- strangers ------------------------------------------------------------------------------- */

struct door {
    struct sockaddr_in6 a; /* holds a sockaddr_in for IPv4 */
    socklen_t len;
    unsigned long inode;
};

/* Parses one line of /proc/net/tcp{,6}. The kernel prints addresses as 32-bit words in host byte order. */
static bool parse_door(const char *line, bool six, struct door *d)
{
    unsigned w[4], port, state;
    unsigned long inode;
    char addr[33];

    if (sscanf(line, " %*d: %32[0-9A-F]:%4x %*[0-9A-F]:%*x %2x %*x:%*x %*x:%*x %*x %*u %*u %lu", addr, &port, &state,
               &inode) != 4 ||
        state != 0x0a)
        return false;
    *d = (struct door){.inode = inode};
    if (!six) {
        struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        if (sscanf(addr, "%8x", &w[0]) != 1)
            return false;
        in.sin_addr.s_addr = w[0] ? w[0] : htonl(INADDR_LOOPBACK);
        memcpy(&d->a, &in, sizeof(in));
        d->len = sizeof(in);
        return true;
    }
    if (sscanf(addr, "%8x%8x%8x%8x", &w[0], &w[1], &w[2], &w[3]) != 4)
        return false;
    d->a = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    if (w[0] | w[1] | w[2] | w[3])
        memcpy(&d->a.sin6_addr, w, sizeof(w));
    else
        d->a.sin6_addr = in6addr_loopback;
    d->len = sizeof(d->a);
    return true;
}

static bool is_mine(unsigned long inode)
{
    char want[64], path[64], got[64];
    bool found = false;
    struct dirent *e;
    DIR *d = opendir("/proc/self/fd");

    snprintf(want, sizeof(want), "socket:[%lu]", inode);
    while (d && !found && (e = readdir(d))) {
        snprintf(path, sizeof(path), "/proc/self/fd/%.20s", e->d_name);
        ssize_t n = readlink(path, got, sizeof(got) - 1);
        if (n < 0)
            continue;
        got[n] = 0;
        found = strcmp(got, want) == 0;
    }
    if (d)
        closedir(d);
    return found;
}

/* Lists the TCP addresses on which this process listens. */
static size_t doors(struct door *list, size_t cap)
{
    size_t n = 0;
    for (int six = 0; six < 2; six++) {
        char line[512];
        FILE *f = fopen(six ? "/proc/self/net/tcp6" : "/proc/self/net/tcp", "re");
        while (f && n < cap && fgets(line, sizeof(line), f))
            if (parse_door(line, six, &list[n]) && is_mine(list[n].inode))
                n++;
        if (f)
            fclose(f);
    }
    return n;
}

#define DOORS   8
#define STRAYS  4
#define GARBAGE 8192

static int knock(const struct door *d, int kind)
{
    static const char get[] = "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: Prometheus/2.0\r\n\r\n";
    static const struct linger reset = {.l_onoff = 1};
    uint8_t garbage[GARBAGE];
    int fd = socket(d->a.sin6_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return fd;
    (void)connect(fd, (const struct sockaddr *)&d->a, d->len);
    nap_ms(2);
    for (size_t i = 0; i < sizeof(garbage); i++)
        garbage[i] = (uint8_t)(i * 131 + (size_t)kind);
    switch (kind) {
    case 0:
        (void)!send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL);
        break;
    case 1:
        (void)!send(fd, garbage, sizeof(garbage), MSG_NOSIGNAL);
        break;
    case 2: /* connects and disconnects */
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        hw_close(&fd);
        break;
    default: /* sends nothing */
        break;
    }
    return fd;
}

/* Foreign programs connect to the listener before the peer does, and again while the peer sends messages. */
int step_stray(struct rank *r)
{
    struct door d[DOORS];
    int fds[2][DOORS * STRAYS], rc, found = 0, theirs = 0;
    struct comm *c = comm_new(r, 0);
    struct flow f;
    size_t n = 0;

    if (opt.no_stray)
        return SKIP("--no-stray");
    memset(fds, -1, sizeof(fds));
    rc = c->sends ? 0 : comm_listen(c);
    if (!rc && !c->sends)
        n = doors(d, DOORS);
    for (size_t i = 0; i < n * STRAYS; i++)
        fds[0][i] = knock(&d[i / STRAYS], (int)(i % STRAYS));
    found = (int)n;
    if (!rc)
        rc = comm_handle(c); /* the peer gets the handle after the foreign connections */
    if (!rc)
        rc = comm_link(c);
    if (!rc)
        rc = flow_open(&f, c, &talk);
    if (!rc)
        rc = flow_some(&f, 1, 10);
    for (size_t i = 0; i < n * STRAYS && !rc; i++)
        fds[1][i] = knock(&d[i / STRAYS], (int)(i % STRAYS));
    if (!rc)
        rc = flow_run(r, &f, 1);
    if (!rc)
        rc = flow_close(&f);
    if (!rc)
        rc = swap(r, &found, &theirs, sizeof(found));
    if (!rc)
        rc = exchange(r, &talk);
    for (size_t i = 0; i < n * STRAYS; i++) {
        hw_close(&fds[0][i]);
        hw_close(&fds[1][i]);
    }
    if (!rc && !found && !theirs)
        return SKIP("the plugin has no listening TCP socket");
    return rc;
}

/* ---- unloading -------------------------------------------------------------------------------- */

static int unloaded(struct rank *r)
{
    int tasks = 0, fds = 0, version = net_version(), rc = barrier(r); /* unload_late unloads without a barrier */

    if (!rc && r->loaded)
        rc = net_unload(r);
    if (rc || (rc = barrier(r)) || (r->threads && r->id))
        return rc ? rc : barrier(r);
    for (int i = 0; i < 200; i++) { /* a joined thread may remain in /proc for a moment */
        tasks = entries("/proc/self/task");
        fds = entries("/proc/self/fd");
        if (tasks <= r->tasks && fds <= r->fds)
            break;
        nap_ms(10);
    }
    if (r->cuda) { /* the CUDA driver's resources remain, but must not increase */
        r->cuda = false;
        r->tasks = HW_MAX(tasks, r->tasks);
        r->fds = HW_MAX(fds, r->fds);
    }
    if ((rc = barrier(r)) || (tasks <= r->tasks && fds <= r->fds))
        return rc;
    (void)hw_fail(0, "%d threads and %d descriptors before the load, %d and %d after the unload", r->tasks, r->fds,
                  tasks, fds);
    return version < 11 ? STEP_SKIPPED : -EMFILE; /* unavoidable for a table without finalize */
}

/* NCCL unloads the plugin after the last communicator, and may load it again. */
int step_reload(struct rank *r)
{
    int rc = unloaded(r), skipped = rc;
    for (int i = 0; i < 3 && rc >= 0; i++) {
        if ((rc = net_load(r)) || (rc = exchange(r, &talk)))
            return rc;
        rc = unloaded(r);
        skipped |= rc;
    }
    return rc < 0 ? rc : skipped;
}
