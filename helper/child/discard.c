/* SPDX-License-Identifier: Apache-2.0 */
#include "helper/child/discard.h"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

void hd_discard_init(struct hd_discard *d)
{
    memset(d, 0, sizeof(*d));
    d->due = HW_NEVER;
}

bool hd_discard_room(const struct hd_discard *d)
{
    return d->n < HD_DISCARD_ROOM;
}

void hd_discard_add(struct hd_discard *d, int *fd)
{
    (void)shutdown(*fd, SHUT_RDWR);
    d->due = HW_MIN(d->due, hw_deadline(HD_DISCARD_MS));
    d->fd[d->n++] = *fd;
    if (d->n >= HD_DISCARD_BATCH)
        d->due = 0;
    *fd = -1;
}

static void forget_gone_children(struct hd_discard *d)
{
    for (unsigned i = 0; i < d->n_children;) {
        struct pollfd p = {.fd = d->child[i]};
        if (poll(&p, 1, 0) == 1) {
            hw_close(&d->child[i]);
            d->child[i] = d->child[--d->n_children];
        } else {
            i++;
        }
    }
}

static void keep_them(int pair, void *arg)
{
    (void)pair;
    (void)arg;
}

void hd_discard_run(struct hd_discard *d)
{
    unsigned some = HW_MIN(d->n, HD_CHILD_FDS);
    int pair;
    if (hw_now() < d->due)
        return;
    forget_gone_children(d);
    if (some && d->n_children < HD_DISCARD_CHILDREN &&
        hd_child_start(d->fd + d->n - some, some, keep_them, NULL, &pair) == 0) {
        for (; some; some--)
            hw_close(&d->fd[--d->n]);
        (void)shutdown(pair, SHUT_WR); /* not SHUT_RDWR, which would look as if the child had exited */
        d->child[d->n_children++] = pair;
    }
    d->due = d->n || d->n_children ? hw_deadline(HD_DISCARD_MS) : HW_NEVER;
}
