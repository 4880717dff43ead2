/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/daemon.h"
#include "helper/client.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SAY(d, level, ...) hw_log((d)->state.log, level, __VA_ARGS__)

/* ---- listening ---------------------------------------------------------------------------------- */

int hd_listen(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat st;
    if (!*path || strlen(path) >= sizeof(a.sun_path))
        return hw_fail(-ENAMETOOLONG, "'%s' is not a valid path of a UNIX socket: the path must have 1 to %zu bytes",
                       path, sizeof(a.sun_path) - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return hw_fail(-errno, "cannot create a UNIX socket: %s", hw_errno_text(errno));
    int rc = 0;
    if (lstat(path, &st) == 0) {
        if (!S_ISSOCK(st.st_mode))
            rc = hw_fail(-EEXIST, "%s already exists and is not a socket", path);
        else if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 || errno == EAGAIN)
            rc = hw_fail(-EADDRINUSE, "another program already listens on %s", path);
        else if (unlink(path) < 0)
            rc = hw_fail(-errno, "cannot remove the old socket %s: %s", path, hw_errno_text(errno));
    }
    /* umask() sets the mode atomically. A later chmod() could change another file at the same path. */
    mode_t mask = umask(0111);
    if (rc == 0 && (bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, 512) < 0))
        rc = hw_fail(-errno, "cannot listen on %s: %s", path, hw_errno_text(errno));
    umask(mask);
    if (rc)
        hw_close(&fd);
    return rc ? rc : fd;
}

/* ---- the loop ----------------------------------------------------------------------------------- */

enum { STOP, LISTENER, EVENTS, FIRST_CLIENT };

/* The poll set and the owner of each entry. Clients precede inspections. */
struct set {
    struct pollfd p[FIRST_CLIENT + HD_CLIENTS_MAX + HD_INSPECT_MAX];
    void *who[FIRST_CLIENT + HD_CLIENTS_MAX + HD_INSPECT_MAX];
    nfds_t clients, n; /* index after the last client, and after the last entry */
};

/* Fills the poll set. Returns the time by which poll() must return. */
static uint64_t fill_set(struct hd_daemon *d, struct set *s)
{
    uint64_t now = hw_now(), wake = d->discard.due;
    s->p[STOP] = (struct pollfd){.fd = d->stop, .events = POLLIN};
    /* No new connections are accepted while too many ended connections wait to be closed. */
    s->p[LISTENER] = (struct pollfd){.fd = d->listener, .events = hd_discard_room(&d->discard) ? POLLIN : 0};
    s->p[EVENTS] = (struct pollfd){.fd = d->state.k->events, .events = POLLIN};
    s->n = FIRST_CLIENT;
    hw_list_each(it, tmp, &d->clients)
    {
        struct hd_client *c = hw_container_of(it, struct hd_client, node);
        s->who[s->n] = c;
        s->p[s->n++] = (struct pollfd){.fd = c->fd, .events = hd_client_events(c, now, &wake)};
    }
    s->clients = s->n;
    hw_list_each(it, tmp, &d->inspections)
    {
        struct hd_inspection *i = hw_container_of(it, struct hd_inspection, node);
        s->who[s->n] = i;
        s->p[s->n++] = (struct pollfd){.fd = i->pair, .events = i->client ? POLLIN : 0};
    }
    return wake;
}

static int milliseconds_to(uint64_t when)
{
    uint64_t now = hw_now();
    if (when == HW_NEVER)
        return -1;
    return when <= now ? 0 : (int)HW_MIN((when - now) / HW_MS + 1, 60000ull);
}

static void serve_set(struct hd_daemon *d, struct set *s)
{
    for (nfds_t i = s->clients; i < s->n; i++)
        if (s->p[i].revents)
            hd_inspection_serve(d, s->who[i], s->p[i].revents);
    for (nfds_t i = FIRST_CLIENT; i < s->clients; i++) {
        struct hd_client *c = s->who[i];
        if (s->p[i].revents && !c->ended)
            hd_client_serve(d, c, s->p[i].revents);
    }
    if (s->p[EVENTS].revents)
        hd_take_reports(&d->state);
    if (s->p[LISTENER].revents)
        hd_client_accept(d);
}

static void retry_undoing(struct hd_daemon *d, uint64_t *retry)
{
    if (hd_left(&d->state) == 0) {
        *retry = HW_NEVER;
    } else if (*retry == HW_NEVER) {
        *retry = hw_deadline(HD_RETRY_MS);
    } else if (hw_now() >= *retry) {
        d->state.retrying = true;
        (void)hd_settle_all(&d->state);
        d->state.retrying = false;
        *retry = hw_deadline(HD_RETRY_MS);
    }
}

/* Serves until stop is readable. Returns 0, or -errno if poll() fails. */
static int serve_rounds(struct hd_daemon *d, struct set *s)
{
    uint64_t retry = HW_NEVER;
    for (;;) {
        hd_clients_reap(d);
        hd_discard_run(&d->discard);
        retry_undoing(d, &retry);
        uint64_t look = hd_look(&d->state), wake = fill_set(d, s);
        if (poll(s->p, s->n, milliseconds_to(HW_MIN(wake, HW_MIN(retry, look)))) < 0) {
            if (errno == EINTR)
                continue;
            return hw_fail(-errno, "waiting for clients: %s", hw_errno_text(errno));
        }
        if (s->p[STOP].revents)
            return 0;
        serve_set(d, s);
    }
}

int hd_serve(struct hd_daemon *d)
{
    struct set *s = calloc(1, sizeof(*s));
    if (!s)
        return hw_no_memory("the clients");
    (void)signal(SIGCHLD, SIG_IGN); /* prevents zombies, because hawserd does not wait for its children */
    hd_clients_init(d);
    int rc = serve_rounds(d, s);
    HW_KEEP_ERROR();
    free(s);
    hd_clients_end(d);
    unsigned left = hd_settle_all(&d->state);
    if (left)
        SAY(d, HAWSER_LOG_ERROR,
            "not all changes could be undone (NICs and flow rules left: %u); run `hawser devmem undo` or start hawserd "
            "again to retry",
            left);
    return rc < 0 ? rc : (int)left;
}
