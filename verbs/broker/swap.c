/* SPDX-License-Identifier: Apache-2.0 */
/* Handles descriptors in requests. While a request runs, the application's descriptors are replaced with descriptors
 * of the broker or the stub. Descriptors that the kernel creates in the broker are moved to the application. */
#include "verbs/broker/broker_int.h"

#include <string.h>
#include <unistd.h>

static int swap_get(const struct vb_swap *s)
{
    int32_t fd;
    if (s->attr)
        return vb_attr_fd(s->attr);
    memcpy(&fd, s->field, sizeof fd);
    return fd;
}

void vb_swap_put(const struct vb_swap *s, int fd)
{
    int32_t narrow = fd;
    if (s->attr)
        vb_attr_set_fd(s->attr, fd);
    else
        memcpy(s->field, &narrow, sizeof narrow);
}

/* Finds the descriptors in a request: the output descriptors if made is true, otherwise the input descriptors. Fails
 * with -EINVAL if there are too many. */
static int swaps_find(struct vb_request *r, bool made, struct vb_swaps *s)
{
    const struct vb_core_fd *f = &r->command->fd;
    s->n = 0;
    for (unsigned i = 0; i <= r->n; i++) {
        struct vb_swap w = {.mine = -1};
        if (i < r->n && r->attr[i].rule) {
            uint8_t kind = r->attr[i].rule->kind;
            if (made ? kind == VB_FD_NEW : kind == VB_FD || kind == VB_RAW_FD)
                w.attr = &r->attr[i];
        } else if (i == r->n && f->place == VB_CORE_IN && !made && r->core_in) {
            w.field = (uint8_t *)r->core_in + f->at;
        } else if (i == r->n && f->place == VB_CORE_OUT && made && r->core_out && r->core_out_len >= f->at + 4u) {
            w.field = (uint8_t *)r->core_out + f->at;
        }
        if (!w.attr && !w.field)
            continue;
        if (s->n == VB_SWAPS_MAX)
            return hw_fail(-EINVAL, "the request contains more than %d descriptors", VB_SWAPS_MAX);
        s->swap[s->n++] = w;
    }
    return 0;
}

int vb_swap_in(struct vb_broker *b, const struct vb_call *call, struct vb_request *r, struct vb_swaps *s)
{
    pid_t tid = (pid_t)call->n.pid;
    int rc = swaps_find(r, false, s);
    for (unsigned i = 0; i < s->n && !rc; i++) {
        struct vb_swap *w = &s->swap[i];
        w->theirs = swap_get(w);
        if (w->theirs == -1)
            continue; /* no descriptor, or a probe */
        w->mine = vb_fetch_any(b, tid, w->theirs);
        if (w->mine < 0) {
            w->mine = -1;
            rc = -EBADF;
        } else {
            vb_swap_put(w, w->mine);
        }
    }
    /* The thread may have died and another process may have its number. The descriptors would then be from that
     * process. */
    if (!rc && s->n && !vb_notify_valid(call->listener, call->n.id))
        rc = -ENOENT;
    if (rc)
        vb_swap_back(s);
    return rc;
}

void vb_swap_back(struct vb_swaps *s)
{
    for (unsigned i = 0; i < s->n; i++) {
        if (s->swap[i].mine >= 0)
            vb_swap_put(&s->swap[i], s->swap[i].theirs);
        hw_close(&s->swap[i].mine);
    }
    s->n = 0;
}

/* The loop continues after an error, because the broker must close all of the descriptors. */
int vb_hand_over(const struct vb_call *call, struct vb_request *r)
{
    struct vb_swaps s;
    int rc = swaps_find(r, true, &s);
    for (unsigned i = 0; i < s.n; i++) {
        int mine = swap_get(&s.swap[i]);
        int theirs = rc ? rc : vb_notify_give(call->listener, call->n.id, mine, -1, true, false);
        if (theirs < 0)
            rc = theirs;
        close(mine);
        vb_swap_put(&s.swap[i], theirs < 0 ? -1 : theirs);
    }
    return rc;
}
