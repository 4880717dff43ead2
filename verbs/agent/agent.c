/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs/agent/agent.h"
#include "verbs/broker/join.h"

#include <dirent.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 8    /* maximum number of descriptors in a message; the specification defines one */
#define END_MS  5000 /* time for brokers to exit when the agent exits */
#define KILL_MS 1000 /* time for a broker to exit after SIGKILL */
#define GONE_MS 300  /* time for a container to end after its broker is killed */
#define SAID_MS 1000 /* an error that recurs within this time is not logged again */

/* A runtime whose message is still incomplete. */
struct half {
    int fd; /* -1 if the entry is free */
    uint64_t until;
    char *text;
    size_t len;
    int fds[FDS_MAX];
    unsigned n_fds;
    struct vb_state_scan scan;
};

struct child {
    pid_t pid;
    int pidfd;
    char id[sizeof(((struct vb_container *)0)->id)];
};

struct agent {
    struct vb_agent_options o;
    struct vb_policy *policy; /* the policy after a reload, or NULL if o.policy is the caller's */
    int listener, stop;       /* stop is an eventfd that ends the brokers; if the agent dies, stop is not signalled */
    bool leaving;             /* the agent exits after it has served all waiting runtimes; the brokers continue */
    bool ending;              /* the brokers exit too, even if programs are still running */
    struct half half[VB_AGENT_HALVES];
    struct child *child;
    unsigned n_children;
    uint64_t said; /* time at which a failing accept() was last logged, or 0 */
};

#define SAY(a, level, ...) hw_log((a)->o.log, level, __VA_ARGS__)

/* Returns hw_error() with '?' for each byte that is not printable ASCII, because the text may contain a container's
 * annotations and may be printed on a terminal. */
static const char *error_text(char out[HW_ERR_TEXT])
{
    snprintf(out, HW_ERR_TEXT, "%s", hw_error());
    for (char *s = out; *s; s++)
        if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f)
            *s = '?';
    return out;
}

/* ---- listening ------------------------------------------------------------------------------------ */

static int fill_agent_address(struct sockaddr_un *a, const char *path)
{
    *a = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof(a->sun_path))
        return hw_fail(-ENAMETOOLONG, "'%s' is not a valid path of a UNIX socket: the path must have 1 to %zu bytes",
                       path, sizeof(a->sun_path) - 1);
    memcpy(a->sun_path, path, strlen(path) + 1);
    return 0;
}

/* Returns true if a process is listening on the socket. */
static bool has_socket_listener(const char *path)
{
    struct sockaddr_un a;
    if (fill_agent_address(&a, path) < 0)
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool yes = fd >= 0 && (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN);
    hw_close(&fd);
    return yes;
}

static int open_agent_listener(const char *path)
{
    struct sockaddr_un a;
    struct stat st;
    int rc = fill_agent_address(&a, path);
    if (rc < 0)
        return rc;
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            return hw_fail(-EEXIST, "%s already exists and is not a socket", path);
        if (has_socket_listener(path))
            return hw_fail(-EADDRINUSE, "another program already listens on %s", path);
        if (unlink(path) < 0)
            return hw_fail(-errno, "cannot remove the old socket %s: %s", path, hw_errno_text(errno));
    }
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t was = umask(0177);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 64) < 0) {
        rc = hw_fail(-errno, "cannot listen on %s: %s", path, hw_errno_text(errno));
        hw_close(&fd);
    }
    umask(was);
    return rc < 0 ? rc : fd;
}

/* ---- brokers -------------------------------------------------------------------------------------- */

/* Returns true if the program for which the broker was started exits within GONE_MS of the broker being killed. When
 * the first process of a PID namespace ends, the kernel kills all other processes in it, including the broker, and
 * waits until they are reaped. */
static bool goes_with_container(const struct agent *a, const char *id)
{
    for (int ms = 0; ms < GONE_MS; ms += 5) {
        if (!vb_join_owned(a->o.state_dir, id))
            return true;
        (void)poll(NULL, 0, 5);
    }
    return false;
}

static void reap_broker(struct agent *a, unsigned i)
{
    struct child *c = &a->child[i];
    int status;
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    bool over = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        over = goes_with_container(a, c->id);
    if (over)
        SAY(a, HAWSER_LOG_INFO, "%s: broker process %d has ended", c->id, (int)c->pid);
    else if (WIFEXITED(status) && WEXITSTATUS(status) == VB_JOINED)
        SAY(a, HAWSER_LOG_INFO, "%s: the container's broker now serves another program, too", c->id);
    else if (WIFSIGNALED(status))
        SAY(a, HAWSER_LOG_ERROR,
            "%s: broker process %d was killed by signal %d%s: RDMA calls of the container fail with ENOSYS", c->id,
            (int)c->pid, WTERMSIG(status), vb_broker_signal(WTERMSIG(status)));
    else
        SAY(a, HAWSER_LOG_ERROR,
            "%s: broker process %d has ended with an error: RDMA calls of its programs fail with ENOSYS", c->id,
            (int)c->pid);
    vb_join_clean(a->o.state_dir, c->id, over && !a->ending);
    hw_close(&c->pidfd);
    *c = a->child[--a->n_children];
}

static int check_container(const struct agent *a, const struct vb_container *c)
{
    uint64_t none = 0;
    struct vb_rules rules;
    if (ioctl(c->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &none) == 0 || errno != ENOENT)
        return hw_fail(-EINVAL, "the runtime did not send a seccomp listener");
    if (*c->section && !vb_policy_has(a->o.policy, c->section))
        return hw_fail(-EINVAL, "the annotation hawser.verbs.policy selects section '%s', which is not in the policy",
                       c->section);
    /* Checks the annotations without a device. A conflict with the section of a device is detected when the device is
     * opened. */
    int rc = vb_policy_rules(a->o.policy, c->section, c->annotations, c->n_annotations, "", &rules);
    if (rc < 0)
        return rc;
    if (a->n_children >= a->o.containers_max)
        return hw_fail(-EUSERS, "the limit of %u containers is reached (--containers)", a->n_children);
    return 0;
}

/* Starts a broker for c. Takes ownership of the members of c. */
static void start_container_broker(struct agent *a, struct vb_container *c)
{
    struct child *k = &a->child[a->n_children];
    char id[sizeof(c->id)], why[HW_ERR_TEXT];
    if (a->o.section) {
        if (*c->section && strcmp(c->section, a->o.section) != 0)
            SAY(a, HAWSER_LOG_WARN,
                "%s: ignoring the annotation hawser.verbs.policy, because section '%s' applies to all containers",
                c->id, a->o.section);
        snprintf(c->section, sizeof(c->section), "%s", a->o.section);
    }
    int rc = check_container(a, c);
    memcpy(id, c->id, sizeof(id));
    if (rc == 0) {
        rc = vb_broker_start(&a->o, c, a->stop, false, &k->pid);
    } else {
        vb_container_free(c);
    }
    if (rc < 0) {
        SAY(a, HAWSER_LOG_ERROR, "%s: no broker was started for a program, so its RDMA calls fail with ENOSYS: %s", id,
            error_text(why));
        return;
    }
    memcpy(k->id, id, sizeof(id));
    k->pidfd = (int)syscall(SYS_pidfd_open, k->pid, 0);
    if (k->pidfd < 0) { /* the agent could not detect that the broker has exited */
        SAY(a, HAWSER_LOG_ERROR,
            "%s: killed the broker, because the agent could not notice its end (pidfd_open: %s); RDMA calls of its "
            "programs fail with ENOSYS",
            id, hw_errno_text(errno));
        kill(k->pid, SIGKILL);
        (void)waitpid(k->pid, NULL, 0);
        return;
    }
    a->n_children++;
}

/* ---- runtimes ------------------------------------------------------------------------------------- */

static void close_runtime(struct half *h)
{
    while (h->n_fds)
        hw_close(&h->fds[--h->n_fds]);
    free(h->text);
    hw_close(&h->fd);
    *h = (struct half){.fd = -1};
}

static void refuse_runtime(struct agent *a, struct half *h)
{
    char why[HW_ERR_TEXT];
    SAY(a, HAWSER_LOG_WARN, "refused a runtime%s: %s",
        h->n_fds ? ", so RDMA calls of its container fail with ENOSYS" : "", error_text(why));
    close_runtime(h);
}

/* Handles a complete message. */
static void process_runtime_state(struct agent *a, struct half *h)
{
    struct vb_container c;
    unsigned which = 0;
    bool whole;
    int rc = vb_state_parse(h->text, h->len, h->n_fds, &c, &which, &whole);
    if (rc < 0) {
        (void)hw_wrap(rc, "container process state");
        refuse_runtime(a, h);
        return;
    }
    c.listener = h->fds[which];
    h->fds[which] = -1;
    close_runtime(h); /* closed before the fork(), so that the broker does not inherit the connection */
    start_container_broker(a, &c);
}

static void keep_fds(struct half *h, struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (h->n_fds < FDS_MAX)
                h->fds[h->n_fds++] = fd;
            else {
                hw_close(&fd);
                m->msg_flags |= MSG_CTRUNC;
            }
        }
    }
}

/* Receives the next part of a message. */
static void receive_runtime_data(struct agent *a, struct half *h)
{
    enum { STEP = 16384 };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    char *more = realloc(h->text, h->len + STEP);
    if (!more) {
        hw_no_memory("a runtime's message");
        refuse_runtime(a, h);
        return;
    }
    h->text = more;
    struct iovec iov = {.iov_base = h->text + h->len, .iov_len = STEP};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(h->fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 && h->len == 0 && h->n_fds == 0) {
        close_runtime(h); /* either the runtime has failed, or the peer is not a runtime */
        return;
    }
    if (n > 0)
        keep_fds(h, &m);
    if (n > 0 && !(m.msg_flags & MSG_CTRUNC)) {
        bool whole = vb_state_whole(&h->scan, h->text + h->len, (size_t)n);
        h->len += (size_t)n;
        if (whole)
            process_runtime_state(a, h);
        if (whole || h->len < VB_STATE_MAX)
            return;
        hw_fail(-E2BIG, "the message has more than %u bytes", VB_STATE_MAX);
    } else if (n > 0) {
        hw_fail(-E2BIG, "the message has more than %d descriptors, or the agent cannot open more files", FDS_MAX);
    } else {
        hw_fail(-EPROTO, "the message is incomplete: it ended after %zu bytes", h->len);
    }
    refuse_runtime(a, h);
}

static struct half *free_half(struct agent *a)
{
    for (unsigned i = 0; i < VB_AGENT_HALVES; i++)
        if (a->half[i].fd < 0)
            return &a->half[i];
    return NULL;
}

static void accept_one(struct agent *a)
{
    struct half *h = free_half(a);
    int fd = h ? accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    if (fd >= 0) {
        *h = (struct half){.fd = fd, .until = hw_deadline(VB_AGENT_TALK_MS)};
    } else if (h && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
        struct timespec t = {.tv_nsec = 100000000};
        if (hw_now() - a->said > SAID_MS * HW_MS || a->said == 0) {
            SAY(a, HAWSER_LOG_ERROR, "cannot accept a runtime's connection: %s", hw_errno_text(errno));
            a->said = hw_now();
        }
        nanosleep(&t, NULL); /* the socket stays readable, so the loop would not block */
    }
}

/* ---- the loop ------------------------------------------------------------------------------------- */

/* Refuses runtimes that have not sent a complete message in time. Returns the time until the next deadline in
 * milliseconds, or -1 if there is none. */
static int refuse_overdue_runtimes(struct agent *a)
{
    uint64_t now = hw_now(), next = HW_NEVER;
    for (unsigned i = 0; i < VB_AGENT_HALVES; i++) {
        struct half *h = &a->half[i];
        if (h->fd < 0)
            continue;
        if (now >= h->until) {
            hw_fail(-ETIMEDOUT, "the message was not complete within %d s", VB_AGENT_TALK_MS / 1000);
            refuse_runtime(a, h);
        } else {
            next = HW_MIN(next, h->until);
        }
    }
    return next == HW_NEVER ? -1 : (int)((next - now) / HW_MS + 1);
}

/* Reads the policy again. The new policy applies to new containers only; running brokers keep the policy that they
 * started with. */
static void reload_agent_policy(struct agent *a)
{
    char events[sizeof(struct signalfd_siginfo)];
    struct vb_policy *p;
    if (read(a->o.reload, events, sizeof(events)) < 0)
        return;
    int rc = vb_policy_load(a->o.policy_file, &p);
    if (rc == 0 && a->o.section && !vb_policy_has(p, a->o.section)) {
        rc = hw_fail(-ENOENT, "%s has no section [container %s]", a->o.policy_file, a->o.section);
        vb_policy_free(p);
    }
    if (rc < 0) {
        SAY(a, HAWSER_LOG_ERROR, "cannot use the new policy, so the old policy stays in use: %s", hw_error());
        return;
    }
    vb_policy_free(a->policy);
    a->o.policy = a->policy = p;
    SAY(a, HAWSER_LOG_INFO, "reloaded %s for containers that start from now on", a->o.policy_file);
}

/* Positions in the poll set of run_agent_loop(). Runtimes begin at P_HALVES, and brokers at P_CHILDREN. */
enum { P_STOP, P_LEAVE, P_RELOAD, P_LISTENER, P_HALVES, P_CHILDREN = P_HALVES + VB_AGENT_HALVES };

static bool has_pending_runtimes(const struct agent *a)
{
    for (unsigned i = 0; i < VB_AGENT_HALVES; i++)
        if (a->half[i].fd >= 0)
            return true;
    return false;
}

/* Returns 0 if the agent and its brokers must exit, 1 if only the agent must exit, or -errno. */
static int run_agent_loop(struct agent *a, struct pollfd *p)
{
    for (;;) {
        nfds_t n = P_HALVES;
        int wait = refuse_overdue_runtimes(a);
        /* Before it exits, the agent still serves the runtimes that are waiting on the socket. */
        bool last = a->leaving && !has_pending_runtimes(a);
        p[P_STOP] = (struct pollfd){.fd = a->o.stop, .events = POLLIN};
        p[P_LEAVE] = (struct pollfd){.fd = a->leaving ? -1 : a->o.leave, .events = POLLIN};
        p[P_RELOAD] = (struct pollfd){.fd = a->o.reload, .events = POLLIN};
        p[P_LISTENER] = (struct pollfd){.fd = free_half(a) ? a->listener : -1, .events = POLLIN};
        for (unsigned i = 0; i < VB_AGENT_HALVES; i++)
            p[n++] = (struct pollfd){.fd = a->half[i].fd, .events = POLLIN};
        for (unsigned i = 0; i < a->n_children; i++)
            p[n++] = (struct pollfd){.fd = a->child[i].pidfd, .events = POLLIN};
        unsigned children = a->n_children;
        int ready = poll(p, n, last ? 0 : wait);
        if (ready < 0 && errno != EINTR)
            return hw_fail(-errno, "poll: %s", hw_errno_text(errno));
        if (ready < 0)
            continue;
        if (p[P_STOP].revents)
            return 0;
        if (last && !p[P_LISTENER].revents)
            return 1;
        if (p[P_LEAVE].revents) {
            a->leaving = true;
            unlink(a->o.socket);
        }
        if (p[P_RELOAD].revents)
            reload_agent_policy(a);
        /* The loop runs backwards, because reap_broker() moves the last entry to the position of the removed entry. */
        for (unsigned i = children; i-- > 0;)
            if (p[P_CHILDREN + i].revents)
                reap_broker(a, i);
        for (unsigned i = 0; i < VB_AGENT_HALVES; i++)
            if (p[P_HALVES + i].revents && a->half[i].fd >= 0)
                receive_runtime_data(a, &a->half[i]);
        if (p[P_LISTENER].revents)
            accept_one(a);
    }
}

/* Ends all brokers, with SIGKILL if necessary. */
static void end_all(struct agent *a)
{
    uint64_t until = hw_deadline(END_MS);
    a->ending = true;
    if (eventfd_write(a->stop, 1) < 0)
        until = 0;
    while (a->n_children) {
        uint64_t now = hw_now();
        struct pollfd p = {.fd = a->child[0].pidfd, .events = POLLIN};
        if (now >= until && kill(a->child[0].pid, SIGKILL) < 0)
            SAY(a, HAWSER_LOG_ERROR, "%s: cannot kill broker process %d: %s", a->child[0].id, (int)a->child[0].pid,
                hw_errno_text(errno));
        if (poll(&p, 1, now >= until ? KILL_MS : (int)((until - now) / HW_MS + 1)) > 0) {
            reap_broker(a, 0);
        } else if (now >= until) { /* a page fault in the container's memory may block the broker, but must not block
                                      the agent */
            SAY(a, HAWSER_LOG_ERROR, "%s: broker process %d was killed but does not end: ignoring it", a->child[0].id,
                (int)a->child[0].pid);
            hw_close(&a->child[0].pidfd);
            a->child[0] = a->child[--a->n_children];
        }
    }
}

static int make_state_dir(const char *path)
{
    struct stat st;
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return hw_fail(-errno, "cannot create the folder %s: %s", path, hw_errno_text(errno));
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) ? 0 : hw_fail(-ENOTDIR, "%s is not a folder", path);
}

/* Removes files left behind by brokers that have exited. */
static void clean_state_dir(const char *state_dir)
{
    static const char *const suffixes[] = {".join", ".status", ".lock"};
    char id[256];
    DIR *d = opendir(state_dir);
    for (const struct dirent *e; d && (e = readdir(d));) {
        snprintf(id, sizeof(id), "%s", e->d_name);
        char *end = strrchr(id, '.');
        bool ours = false;
        for (unsigned i = 0; end && i < HW_ARRAY_LEN(suffixes); i++)
            ours |= strcmp(end, suffixes[i]) == 0;
        if (!ours)
            continue;
        *end = 0;
        vb_join_clean(state_dir, id, false);
    }
    if (d)
        closedir(d);
}

/* Listens on the socket and serves runtimes until the agent must exit. */
static int serve_runtimes(struct agent *a, struct pollfd *p)
{
    int rc = make_state_dir(a->o.state_dir);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < VB_AGENT_HALVES; i++)
        a->half[i].fd = -1;
    a->stop = eventfd(0, EFD_CLOEXEC);
    if (a->stop < 0)
        return hw_fail(-errno, "cannot create an eventfd: %s", hw_errno_text(errno));
    a->listener = open_agent_listener(a->o.socket);
    if (a->listener < 0)
        return a->listener;
    clean_state_dir(a->o.state_dir);
    SAY(a, HAWSER_LOG_INFO, "listening on %s for up to %u container%s", a->o.socket, a->o.containers_max,
        hw_plural(a->o.containers_max));
    rc = run_agent_loop(a, p);
    if (!a->leaving) /* otherwise the path may already be the socket of the next agent */
        unlink(a->o.socket);
    for (unsigned i = 0; i < VB_AGENT_HALVES; i++)
        close_runtime(&a->half[i]);
    if (rc == 1)
        SAY(a, HAWSER_LOG_INFO, "the agent ends; number of brokers that continue: %u", a->n_children);
    else
        end_all(a);
    return HW_MIN(rc, 0);
}

int vb_agent(const struct vb_agent_options *o)
{
    HW_AUTO_FREE struct agent *a = calloc(1, sizeof(*a));
    HW_AUTO_FREE struct pollfd *p = calloc(P_CHILDREN + o->containers_max, sizeof(*p));
    HW_AUTO_FREE struct child *children = calloc(o->containers_max + 1, sizeof(*children));
    if (!a || !p || !children)
        return hw_no_memory("the agent");
    *a = (struct agent){.o = *o, .child = children, .listener = -1, .stop = -1};
    int rc = serve_runtimes(a, p);
    hw_close(&a->listener);
    hw_close(&a->stop);
    vb_policy_free(a->policy);
    return rc;
}
