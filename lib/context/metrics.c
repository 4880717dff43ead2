/* SPDX-License-Identifier: Apache-2.0 */
/* The local metrics socket and its readers, which are served one at a time. */
#include "context/context.h"

#include "base/fork.h"
#include "base/rundir.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define BACKLOG 32 /* readers that may wait in the kernel's queue */

static struct hawser *get_context(struct hw_metrics *m)
{
    return hw_container_of(m, struct hawser, metrics);
}

static struct hw_driver *get_driver(struct hw_metrics *m)
{
    return &get_context(m)->driver[0];
}

/* ---- a reader ---------------------------------------------------------------------------------------- */

static void end_reader(struct hw_metrics *m)
{
    struct hw_driver *d = get_driver(m);
    if (m->reader.fd < 0)
        return;
    hw_driver_forget(d, m->reader.fd, &m->reader.source);
    hw_fork_close(&m->reader.fd);
    free(m->reader.text);
    m->reader.text = NULL;
    m->next = d->loop.now + HW_METRICS_APART_MS * HW_MS;
    hw_timer_set(&d->loop, &m->timer, m->next); /* other readers may wait */
}

/* Writes as much as the socket accepts. Returns 0 if everything is written, -EAGAIN if the reader must read first, or
 * -EPIPE. */
static int write_text(struct hw_metrics *m)
{
    while (m->reader.at < m->reader.len) {
        ssize_t n = send(m->reader.fd, m->reader.text + m->reader.at, m->reader.len - m->reader.at,
                         MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? -EAGAIN : -EPIPE;
        m->reader.at += (size_t)n;
    }
    return 0;
}

static void note_reader_ready(struct hw_source *s, uint32_t events)
{
    struct hw_metrics *m = hw_container_of(s, struct hw_metrics, reader.source);
    (void)events;
    if (m->reader.fd >= 0 && write_text(m) != -EAGAIN)
        end_reader(m);
}

/* Checks the reader's user ID. The socket's mode has the same effect, but some file systems ignore modes. */
static bool may_read(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && (who.uid == 0 || who.uid == geteuid());
}

static void serve_reader(struct hw_metrics *m, int fd)
{
    struct hw_driver *d = get_driver(m);
    m->reader.fd = hw_fork_guard(fd);
    m->reader.at = m->reader.len = 0;
    m->reader.text = may_read(fd) ? hw_metrics_text(get_context(m), &m->reader.len) : NULL;
    if (m->reader.text && write_text(m) == -EAGAIN && hw_driver_watch(d, fd, &m->reader.source) == 0)
        hw_timer_set(&d->loop, &m->timer, d->loop.now + HW_METRICS_READ_MS * HW_MS);
    else
        end_reader(m);
}

static void accept_reader(struct hw_task *t)
{
    struct hw_metrics *m = hw_container_of(t, struct hw_metrics, task);
    struct hw_loop *l = &get_driver(m)->loop;
    if (m->fd < 0 || m->reader.fd >= 0)
        return;
    if (l->now < m->next) {
        hw_timer_set(l, &m->timer, m->next);
        return;
    }
    int fd = accept4(m->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0)
        serve_reader(m, fd);
    else if (errno != EAGAIN) /* usually out of descriptors or memory */
        hw_timer_set(l, &m->timer, l->now + HW_METRICS_READ_MS * HW_MS);
}

static void note_reader(struct hw_source *s, uint32_t events)
{
    struct hw_metrics *m = hw_container_of(s, struct hw_metrics, source);
    (void)events;
    hw_loop_post(&get_driver(m)->loop, &m->task);
}

static void fire_metrics(struct hw_timer *t)
{
    struct hw_metrics *m = hw_container_of(t, struct hw_metrics, timer);
    if (m->reader.fd >= 0)
        end_reader(m); /* the reader is too slow */
    else
        hw_loop_post(&get_driver(m)->loop, &m->task);
}

/* ---- the socket ---------------------------------------------------------------------------------------- */

/* Creates a socket in the first usable folder. */
static int open_socket(struct hw_metrics *m, const char *knob)
{
    int rc = -ENOENT;
    for (unsigned i = 0; m->fd < 0 && hw_rundir_path(i, knob, m->dir); i++) {
        struct stat st;
        HW_AUTO_CLOSE int dir = *m->dir ? hw_rundir_open(m->dir, true, geteuid()) : -ENOENT;
        rc = dir;
        if (dir < 0)
            continue;
        hw_rundir_sweep(dir);
        rc = hw_rundir_listen(dir, BACKLOG, m->name);
        if (rc < 0)
            continue;
        m->fd = hw_fork_guard(rc);
        m->ino = fstatat(dir, m->name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
    }
    return m->fd < 0 ? rc : 0;
}

static void remove_socket(struct hw_metrics *m)
{
    if (m->fd < 0)
        return;
    hw_fork_close(&m->fd);
    HW_AUTO_CLOSE int dir = m->owner == getpid() ? hw_rundir_open(m->dir, false, geteuid()) : -1;
    if (dir >= 0)
        hw_rundir_remove(dir, m->name, (ino_t)m->ino);
}

void hw_metrics_start(struct hawser *h)
{
    struct hw_metrics *m = &h->metrics;
    HW_KEEP_ERROR();
    m->opened = (uint64_t)time(NULL);
    m->owner = getpid();
    m->source.ready = note_reader;
    m->reader.source.ready = note_reader_ready;
    m->task.run = accept_reader;
    m->timer.fire = fire_metrics;
    if (!h->k.metrics)
        return;
    int rc = open_socket(m, h->k.metrics_dir);
    if (rc == 0) {
        hw_driver_enter(&h->driver[0]);
        rc = hw_driver_watch(&h->driver[0], m->fd, &m->source);
        hw_driver_end(&h->driver[0]);
    }
    if (rc < 0) {
        hw_log(&h->log, *h->k.metrics_dir ? HAWSER_LOG_WARN : HAWSER_LOG_DEBUG,
               "no metrics socket, so hawser top and hawser metrics do not see this context: %s", hw_error());
        remove_socket(m);
    }
}

void hw_metrics_stop(struct hawser *h)
{
    struct hw_metrics *m = &h->metrics;
    HW_KEEP_ERROR();
    if (m->fd < 0)
        return;
    end_reader(m);
    hw_timer_stop(&h->driver[0].loop, &m->timer);
    hw_driver_forget(&h->driver[0], m->fd, &m->source);
    remove_socket(m);
}
