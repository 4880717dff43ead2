/* SPDX-License-Identifier: Apache-2.0 */
/* Answers `hawser verbs status` with a line of JSON about the container. */
#include "sys/json.h"
#include "verbs/broker/broker_int.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

int vb_status_open(struct vb_broker *b)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *id = b->container->id;
    if (!id[0] || id[0] == '.' || strchr(id, '/'))
        return hw_fail(-EINVAL, "the container name '%s' cannot be used as a file name", id);
    HW_AUTO_CLOSE int dir = open(b->o->state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return hw_fail(-errno, "cannot open %s: %s", b->o->state_dir, strerror(errno));
    /* The path contains the folder's descriptor, because a socket's address has at most 107 bytes. */
    int n = snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d/%s.status", dir, id);
    if (n >= (int)sizeof a.sun_path)
        return hw_fail(-ENAMETOOLONG, "the container name %s is too long for the name of a socket", id);
    b->status = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (b->status < 0)
        return hw_fail(-errno, "cannot create a socket: %s", strerror(errno));
    unlink(a.sun_path); /* left by an earlier broker */
    if (bind(b->status, (struct sockaddr *)&a, sizeof a) == 0 && chmod(a.sun_path, 0600) == 0 &&
        listen(b->status, 8) == 0)
        return 0;
    int rc = hw_fail(-errno, "cannot listen on %s/%s.status: %s", b->o->state_dir, id, strerror(errno));
    hw_close(&b->status);
    return rc;
}

void vb_status_close(struct vb_broker *b)
{
    hw_close(&b->status); /* the process that started the broker removes the socket's file (vb_join_clean()) */
}

static void write_device_status(struct hw_json *j, const struct vb_broker *b, const struct vb_slot *s)
{
    unsigned opens = 0;
    hw_list_each(i, next, &b->contexts) opens += hw_container_of(i, struct vb_context, link)->slot == s;
    hw_json_object(j, NULL);
    hw_json_str(j, "device", s->device.ibdev);
    hw_json_str(j, "node", s->device.node);
    hw_json_bool(j, "allowed", s->rules.allowed);
    hw_json_u64(j, "opens", opens);
    hw_json_object(j, "objects");
    for (unsigned t = VB_PD; t < VB_TYPES; t++) {
        if (s->usage.n[t])
            hw_json_u64(j, vb_type_name((enum vb_type)t), s->usage.n[t]);
    }
    hw_json_end(j);
    hw_json_u64(j, "mr_bytes", s->usage.mr_bytes);
    hw_json_u64(j, "refused", s->refused);
    hw_json_end(j);
}

static void write_status(struct hw_json *j, const struct vb_broker *b)
{
    unsigned stubs = 0;
    hw_list_each(i, next, &b->workers) stubs++;
    hw_json_object(j, NULL);
    hw_json_str(j, "container", b->container->id);
    hw_json_i64(j, "pid", b->container->pid);
    hw_json_str(j, "section", b->container->section);
    hw_json_i64(j, "broker", b->o->shown ? b->o->shown : getpid());
    hw_json_u64(j, "seconds", (hw_now() - b->started) / 1000000000u);
    hw_json_u64(j, "opens", b->opens);
    hw_json_u64(j, "requests", b->requests);
    hw_json_u64(j, "doorbells", b->doorbells);
    hw_json_u64(j, "refused", b->refused);
    hw_json_u64(j, "redelivered", b->redelivered);
    hw_json_u64(j, "undone", b->undone);
    hw_json_u64(j, "reconciled", b->reconciled);
    hw_json_u64(j, "listeners", b->n_listeners);
    hw_json_u64(j, "stubs", stubs);
    hw_json_array(j, "devices");
    for (unsigned i = 0; i < b->n_slots; i++)
        write_device_status(j, b, b->slot[i]);
    hw_json_end(j);
    hw_json_end(j);
}

void vb_status_answer(struct vb_broker *b)
{
    struct hw_json j;
    char *text = NULL;
    size_t n = 0;
    int fd = accept4(b->status, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    FILE *f = open_memstream(&text, &n);
    if (f) {
        vb_cache_sweep(b, true, -1); /* closes files that only the cache keeps open, so that they are not counted */
        vb_contexts_ended(b);
        hw_json_init(&j, f);
        write_status(&j, b);
        int rc = hw_json_finish(&j);
        /* The text always fits into the socket's buffer, so a client that does not read cannot block the broker. */
        if (fclose(f) == 0 && !rc && send(fd, text, n, MSG_NOSIGNAL) != (ssize_t)n)
            hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: %s: could not send the status to `hawser verbs status`",
                   b->container->id);
    }
    free(text);
    close(fd);
}
