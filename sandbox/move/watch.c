/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits for a container to end. The namespace outlives the container, because the pin (see move_ns.c) keeps the
 * namespace and the NICs in it until the NICs are restored.
 */
#include "sandbox/move/move.h"
#include "sandbox/move/move_int.h"

#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_MS 500

/* A pidfd becomes readable when its process exits. No file descriptor reports that the last process has left a
 * namespace, so this is checked every LOOK_MS. */
static int wait_for_container_end(const struct sb_journal *j, int dir, const char *id, int stop_fd)
{
    HW_AUTO_CLOSE int pidfd = j->holder ? (int)syscall(SYS_pidfd_open, j->holder, 0) : -1;
    /* sb_ended() is called after pidfd_open(), because the PID might have been reused before pidfd_open(). */
    while (!sb_ended(j) && sb_journal_there(dir, id)) {
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
        int n = poll(p, 2, LOOK_MS);
        if (n < 0 && errno != EINTR)
            return hw_fail(-errno, "waiting for the container to end: %s", strerror(errno));
        if (n > 0 && p[1].revents)
            return hw_fail(-ECANCELED, "stopped by a signal");
    }
    return 0;
}

int sb_watch(const struct sb_restore_options *o, int stop_fd, unsigned *lost)
{
    struct sb_journal j;
    int rc = sb_id_check(o->id);
    if (rc < 0)
        return rc;
    int dir = sb_dir_open(o->journal_dir, false);
    if (dir < 0)
        return dir;
    rc = sb_journal_load(&j, dir, o->id, false);
    if (rc == 0) {
        rc = wait_for_container_end(&j, dir, o->id, stop_fd);
        sb_journal_free(&j);
    }
    hw_close(&dir);
    return rc < 0 ? rc : sb_restore(o, lost);
}
