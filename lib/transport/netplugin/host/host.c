/* SPDX-License-Identifier: Apache-2.0 */
/* How the parent controls the child: health checks, messages, and termination. host_open.c starts the child. */
#include "transport/netplugin/host/host_inner.h"

#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    CLOSE_MS = 2000,
    LOOK_MS = 10, /* minimum interval of the child's health checks */
    SLICE_MS = 100,
    WARN_MOST = 20, /* maximum number of logged plugin warnings per second */
};

int np_usable(struct np_host *h)
{
    if (!*h->mine)
        return hw_fail(-EPERM,
                       "plugin %s was opened before this process was forked, and cannot be used in the forked process",
                       h->name);
    const int dead = atomic_load_explicit(&h->dead, memory_order_acquire);
    return dead ? hw_fail_copy(dead, h->why) : 0;
}

const struct np_info *np_info(const struct np_host *h)
{
    return &h->info;
}

int np_number(struct np_host *h, bool *used, size_t n)
{
    int found = -1;
    pthread_mutex_lock(&h->lock);
    for (size_t i = 0; found < 0 && i < n; i++)
        if (!used[i]) {
            used[i] = true;
            found = (int)i;
        }
    pthread_mutex_unlock(&h->lock);
    return found;
}

void np_number_free(struct np_host *h, bool *used, uint32_t number)
{
    pthread_mutex_lock(&h->lock);
    used[number] = false;
    pthread_mutex_unlock(&h->lock);
}

/* ---- the child's end ------------------------------------------------------------------------ */

size_t np_output(struct np_host *h, char *buf, size_t cap)
{
    struct stat st;
    if (cap == 0)
        return 0;
    buf[0] = 0;
    if (fstat(h->log, &st) < 0 || st.st_size <= 0)
        return 0;
    const size_t n = HW_MIN(cap - 1, (size_t)st.st_size);
    const ssize_t got = pread(h->log, buf, n, st.st_size - (off_t)n);
    buf[HW_MAX(got, 0)] = 0;
    return (size_t)HW_MAX(got, 0);
}

/* Reaps the child if the child has exited, and writes a description of the exit to `how`. If `wait` is true, first
 * waits for the exit. Returns false if the child is still running. Called with the lock held. */
static bool has_child_ended(struct np_host *h, bool wait, char *how, size_t cap)
{
    int status = 0;
    pid_t got;
    if (h->pid <= 0) { /* kill(-0) would signal this process group */
        snprintf(how, cap, "has ended");
        return true;
    }
    siginfo_t info = {.si_pid = 0};
    int rc;
    while ((rc = waitid(P_PID, (id_t)h->pid, &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG))) < 0 && errno == EINTR)
        ;
    if (rc == 0 && info.si_pid == 0)
        return false;
    /* The child's process group may contain processes that the plugin left behind. The number of the group is not
     * reused until the child is reaped. */
    if (rc == 0)
        (void)kill(-h->pid, SIGKILL);
    while ((got = waitpid(h->pid, &status, WNOHANG)) < 0 && errno == EINTR)
        ;
    h->pid = 0;
    if (got < 0)
        snprintf(how, cap, "ended (another wait() in this process collected its exit status)");
    else if (WIFSIGNALED(status))
        snprintf(how, cap, "was killed by SIG%s",
                 sigabbrev_np(WTERMSIG(status)) ? sigabbrev_np(WTERMSIG(status)) : "?");
    else
        snprintf(how, cap, "exited with status %d", WEXITSTATUS(status));
    return true;
}

/* Returns the child's last output lines, joined into one line. */
static const char *get_last_plugin_output(struct np_host *h, char *buf, size_t cap)
{
    char text[1024];
    return np_log_line(text, np_output(h, text, sizeof(text)), buf, cap);
}

int np_blame(struct np_host *h, int rc, const char *what)
{
    char said[100];
    return hw_fail(rc, "plugin %s: %s%s%s", h->name, what,
                   *get_last_plugin_output(h, said, sizeof(said)) ? "; its last output: " : "", said);
}

static void pass_warnings(struct np_host *h, uint64_t now);

/* Returns the plugin call that the child is in. A hung call takes precedence over the loop's call, which takes
 * precedence over a call of a connection's thread. */
static uint32_t doing_now(struct np_host *h)
{
    const uint32_t hung = atomic_load_explicit(&h->s->hung, memory_order_relaxed);
    const uint32_t doing = atomic_load_explicit(&h->s->doing, memory_order_relaxed);
    return hung ? hung : doing ? doing : atomic_load_explicit(&h->s->joining, memory_order_relaxed);
}

/* Sets the host's error on the first call: how the child ended, in which plugin call, and the consequence `then`. If
 * `then` is NULL, the plugin call is unrelated and is omitted. Called with the lock held. */
static int record_child_death(struct np_host *h, int rc, const char *how, const char *then)
{
    const uint32_t doing = doing_now(h);
    char said[160];
    (void)get_last_plugin_output(h, said, sizeof(said));
    const bool in = then && doing > NP_NOTHING && doing < NP_CALLS;
    hw_fail(rc, "plugin %s %s%s%s%s; %s%s", h->name, how, in ? " in " : "", in ? np_call_names[doing] : "",
            then ? then : "", *said ? "its last output: " : "it printed nothing", said);
    if (!h->dead) {
        pass_warnings(h, hw_now_coarse());
        snprintf(h->why, sizeof(h->why), "%s", hw_error());
        atomic_store_explicit(&h->dead, rc, memory_order_release);
        if (h->o.log)
            hw_log(h->o.log, HAWSER_LOG_ERROR, "%s", h->why);
    }
    return hw_fail_copy(h->dead, h->why);
}

/* Sets the host's error and kills the child. Called with the lock held. */
static int end_it(struct np_host *h, int rc, const char *how, const char *then)
{
    char ignored[80];
    record_child_death(h, rc, how, then);
    /* The pid cannot be reused before waitpid(). */
    if (!has_child_ended(h, false, ignored, sizeof(ignored))) {
        (void)kill(h->pid, SIGKILL);
        (void)has_child_ended(h, true, ignored, sizeof(ignored));
    }
    return hw_fail_copy(h->dead, h->why);
}

int np_distrust(struct np_host *h)
{
    char how[HW_ERR_TEXT];
    snprintf(how, sizeof(how), "violated the protocol and was ended: %.150s", hw_error());
    pthread_mutex_lock(&h->lock);
    int rc = end_it(h, -EPROTO, how, NULL);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* ---- the plugin's own warnings --------------------------------------------------------------- */

/* Logs how many warnings were suppressed. Called with the lock held. */
static void tell_again(struct np_host *h)
{
    if (h->warning.again)
        hw_log(h->o.log, HAWSER_LOG_WARN, "plugin %s: %u more warning%s suppressed", h->name, h->warning.again,
               h->warning.again == 1 ? " was" : "s were");
    h->warning.again = 0;
}

/* Logs at most WARN_MOST lines per second, and consecutive equal lines only once. Called with the lock held. */
static void log_plugin_warning(struct np_host *h, const char *text, size_t n, uint64_t now)
{
    char line[sizeof(h->warning.last)];
    if (now - h->warning.window > 1000 * HW_MS) {
        tell_again(h);
        h->warning.window = now;
        h->warning.told = 0;
    }
    if (!*np_log_line(text, n, line, sizeof(line)))
        return;
    if (strcmp(line, h->warning.last) == 0 || h->warning.told >= WARN_MOST) {
        h->warning.again++;
        return;
    }
    tell_again(h);
    h->warning.told++;
    memcpy(h->warning.last, line, sizeof(line));
    hw_log(h->o.log, HAWSER_LOG_WARN, "plugin %s: %s", h->name, line);
}

/* Logs new warnings of the plugin. Called with the lock held. */
static void pass_warnings(struct np_host *h, uint64_t now)
{
    char text[4096];
    struct stat st;
    if (!h->o.log || h->warnings < 0 || fstat(h->warnings, &st) < 0 || st.st_size <= h->warning.at)
        return;
    /* After a flood of warnings, only the end of the file is read. */
    h->warning.at = HW_MAX(h->warning.at, st.st_size - (off_t)NP_LOG / 2);
    for (;;) {
        const ssize_t got = pread(h->warnings, text, sizeof(text), h->warning.at);
        const char *end = got > 0 ? memrchr(text, '\n', (size_t)got) : NULL;
        if (!end) /* nothing is left; the child writes no line that is longer than the buffer */
            break;
        for (const char *p = text; p <= end;) {
            const char *nl = memchr(p, '\n', (size_t)(end - p) + 1);
            log_plugin_warning(h, p, (size_t)(nl - p), now);
            p = nl + 1;
        }
        h->warning.at += end + 1 - text;
    }
}

/* Returns the time limit in ms of a plugin call on the loop. For calls that open, register or close an object, adds the
 * time that the plugin's listen, connect or accept may take, because such calls may wait that long for the plugin's
 * locks. */
static int patience_ms(const struct np_host *h, uint32_t call)
{
    const bool opens = call == NP_LISTEN || call == NP_CONNECT || call == NP_ACCEPT || call == NP_REGMR ||
                       call == NP_DEREGMR || call == NP_CLOSE;
    return h->o.call_ms + (opens ? (int)h->info.wait_ms : 0);
}

/* Called with the lock held. */
static int check_child_health(struct np_host *h, uint64_t now)
{
    char how[96];
    const int ms = patience_ms(h, atomic_load_explicit(&h->s->doing, memory_order_relaxed));
    if (h->dead)
        return hw_fail_copy(h->dead, h->why);
    pass_warnings(h, now);
    if (has_child_ended(h, false, how, sizeof(how)))
        return record_child_death(h, -EIO, how, "");
    const uint64_t beat = atomic_load_explicit(&h->s->beat, memory_order_relaxed);
    if (beat != h->beat || atomic_load_explicit(&h->s->asleep, memory_order_relaxed)) {
        h->beat = beat;
        h->beat_at = now;
    } else if (now > h->beat_at && now - h->beat_at > (uint64_t)ms * HW_MS) {
        snprintf(how, sizeof(how), "hung for %d ms", ms);
        return end_it(h, -ETIMEDOUT, how, " and was ended");
    }
    if (atomic_load_explicit(&h->s->hung, memory_order_relaxed)) {
        snprintf(how, sizeof(how), "hung for %d ms", h->o.call_ms + (int)h->info.wait_ms);
        return end_it(h, -ETIMEDOUT, how, " and was ended");
    }
    return 0;
}

int np_health(struct np_host *h)
{
    int rc = np_usable(h);
    const uint64_t now = hw_now_coarse();
    if (rc < 0 || now - atomic_load_explicit(&h->looked_at, memory_order_relaxed) < LOOK_MS * HW_MS)
        return rc;
    if (pthread_mutex_trylock(&h->lock) != 0) /* a holder that waits for a reply checks the health itself */
        return 0;
    /* After a long time without checks, the previous beat does not show that the child hangs. */
    if (now - atomic_load_explicit(&h->looked_at, memory_order_relaxed) > 1000 * HW_MS)
        h->beat_at = now;
    atomic_store_explicit(&h->looked_at, now, memory_order_relaxed);
    rc = check_child_health(h, now);
    pthread_mutex_unlock(&h->lock);
    return rc;
}

/* ---- messages ------------------------------------------------------------------------------- */

void np_wake(struct np_host *h)
{
    /* Either this operation finds the child asleep, or the child's exchange comes later. In the latter case the child
     * sees all earlier writes in the round that precedes its sleep. */
    if (!atomic_fetch_or(&h->s->asleep, 0))
        return;
    atomic_fetch_add(&h->s->bell, 1);
    (void)syscall(SYS_futex, &h->s->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static int send_message(struct np_host *h, const struct np_message *m, const int *fds, size_t n)
{
    union {
        char room[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } control = {.room = {0}};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)m, .iov_len = sizeof(*m)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n > 0) {
        msg.msg_control = &control;
        msg.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        *c = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(n * sizeof(int))};
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    return sendmsg(h->socket, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*m) ? 0 : -errno;
}

/* Returns the size of the reply in bytes, or sets hw_error() and returns 0 if the child is dead. Called with the lock
 * held. */
static ssize_t await_child_reply(struct np_host *h, const struct np_message *m, struct np_reply *r)
{
    /* For any message, the child's loop may first have to finish another call. */
    const int ms = m->op == NP_OP_LOAD || m->op == NP_OP_INIT ? h->o.open_ms
                   : m->op == NP_OP_QUIT                      ? CLOSE_MS
                                                              : patience_ms(h, NP_LISTEN);
    const uint64_t deadline = hw_deadline(ms);
    for (;;) {
        struct pollfd p = {.fd = h->socket, .events = POLLIN};
        const uint64_t now = hw_now();
        char how[96];
        int n = poll(&p, 1, now < deadline ? (int)HW_MIN((deadline - now) / HW_MS + 1, (uint64_t)SLICE_MS) : 0);
        if (n > 0) {
            ssize_t got = recv(h->socket, r, sizeof(*r), MSG_DONTWAIT);
            if (got > 0)
                return got;
            if (got == 0 || errno != EAGAIN) { /* the child closed its socket and is exiting */
                bool over = false;
                for (int ms_left = 1000; ms_left > 0 && !(over = has_child_ended(h, false, how, sizeof(how)));
                     ms_left--)
                    (void)usleep(1000);
                if (over)
                    record_child_death(h, -EIO, how, "");
                else
                    end_it(h, -EIO, "closed its socket", " and was ended");
                return 0;
            }
        }
        if (n <= 0 &&
            has_child_ended(h, false, how, sizeof(how))) { /* another process may still have the child's socket open */
            record_child_death(h, -EIO, how, "");
            return 0;
        }
        if (hw_now() >= deadline) {
            snprintf(how, sizeof(how), "hung for %d ms", ms);
            end_it(h, -ETIMEDOUT, how, " and was ended");
            return 0;
        }
    }
}

/* Returns the size of the reply in bytes, or -errno. Called with the lock held. */
static ssize_t ask_child(struct np_host *h, struct np_message *m, const int *fds, size_t n_fds, struct np_reply *r)
{
    int rc = np_usable(h); /* checked again, because the child may have died while another thread held the lock */
    if (rc < 0)
        return rc;
    m->seq = ++h->seq;
    rc = send_message(h, m, fds, n_fds);
    if (rc < 0 && rc != -EPIPE && rc != -ECONNRESET)
        return hw_fail(rc, "plugin %s: sending to its process: %s", h->name, strerror(-rc));
    atomic_fetch_add_explicit(&h->s->messages, rc == 0, memory_order_release);
    np_wake(h);
    ssize_t got = await_child_reply(h, m, r);
    return got > 0 ? got : h->dead;
}

int np_ask(struct np_host *h, struct np_message *m, const int *fds, size_t n_fds, struct np_reply *out)
{
    struct np_reply raw, mine;
    out = out ? out : &mine;
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&h->lock);
    const ssize_t got = ask_child(h, m, fds, n_fds, &raw);
    h->beat_at = hw_now_coarse(); /* the child has just answered */
    pthread_mutex_unlock(&h->lock);
    if (got < 0)
        return (int)got;
    if (np_check_reply(&raw, (size_t)got, m->seq, (enum np_op)m->op, out) < 0)
        return np_distrust(h);
    return out->rc < 0 ? np_blame(h, out->rc, out->text) : 0;
}

/* ---- close ---------------------------------------------------------------------------------- */

void np_stop_child(struct np_host *h)
{
    struct np_message m = {.op = NP_OP_QUIT};
    char ignored[80];
    if (h->pid <= 0)
        return;
    (void)np_ask(h, &m, NULL, 0, NULL);
    pthread_mutex_lock(&h->lock);
    if (h->pid > 0 && !has_child_ended(h, h->dead == 0, ignored, sizeof(ignored)))
        end_it(h, -EIO, "did not exit", " and was killed");
    pthread_mutex_unlock(&h->lock);
}
