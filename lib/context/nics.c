/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NICs that lose their link. The kernel reports it, and the rails of such a NIC end at once; their unconfirmed frames
 * are sent again by other rails. TCP would notice much later, by missing acknowledgements. When the link is back the
 * client connects the rails again without further delay.
 *
 * The socket is on loop 0. Rails belong to their peer's home, where a task of the peer's does the rest.
 */
#include "context/context.h"

#include "base/fork.h"
#include "net/carrier.h"

#include <string.h>

enum { NIC_IS_AS_IT_WAS, NIC_IS_UP, NIC_IS_DOWN };

/* Notes it at all rails of that NIC, or, where it is NULL, of all NICs. */
static void note_nic(void *arg, const char *nic, bool up)
{
    struct hawser *h = arg;
    pthread_mutex_lock(&h->lock);
    hw_list_each(it, tmp, &h->peers)
    {
        struct hawser_peer *p = hw_container_of(it, struct hawser_peer, in_context);
        bool any = false;
        if (atomic_load(&p->state) != HW_PEER_LIVES) /* it has no rails yet, or no more */
            continue;
        for (unsigned i = 0; i < p->n_ways; i++) {
            struct hw_way *w = &p->way[i];
            if (nic && strcmp(w->nic, nic) != 0)
                continue;
            bool is_up = nic ? up : !hw_nic_is_down(h->carrier_fd, w->nic);
            atomic_store(&w->carrier, is_up ? NIC_IS_UP : NIC_IS_DOWN);
            any = true;
        }
        if (any)
            hw_loop_post(&p->home->loop, &p->nics); /* under the lock: the peer is not freed meanwhile */
    }
    pthread_mutex_unlock(&h->lock);
}

static void note_carrier_ready(struct hw_source *s, uint32_t events)
{
    struct hawser *h = hw_container_of(s, struct hawser, carrier);
    (void)events;
    hw_carrier_read(h->carrier_fd, note_nic, h);
}

void hw_nics_watch(struct hawser *h)
{
    struct hw_driver *d = &h->driver[0];
    h->carrier.ready = note_carrier_ready;
    h->carrier_fd = hw_fork_guard(hw_carrier_open());
    int rc = h->carrier_fd;
    if (rc >= 0) {
        hw_driver_enter(d);
        rc = hw_driver_watch(d, h->carrier_fd, &h->carrier);
        hw_driver_end(d);
    }
    if (rc < 0) { /* TCP finds out, later */
        hw_log(&h->log, HAWSER_LOG_DEBUG, "cannot watch for links that go down: %s", hw_error());
        hw_fork_close(&h->carrier_fd);
    }
}

void hw_nics_judge(struct hw_task *t)
{
    struct hawser_peer *p = hw_container_of(t, struct hawser_peer, nics);
    for (unsigned i = 0; i < p->n_ways; i++) {
        struct hw_way *w = &p->way[i];
        int carrier = atomic_exchange(&w->carrier, NIC_IS_AS_IT_WAS);
        bool up = atomic_load(&w->up);
        if (carrier == NIC_IS_DOWN && up) {
            hw_log(&p->h->log, HAWSER_LOG_INFO, "%s: %s has lost its link: ending rail %u", p->name, w->nic, w->index);
            hw_session_end_rail(&p->peer.session, w->index);
        } else if (carrier == NIC_IS_UP && !up && !w->dialling && w->timer.set) {
            w->failures = 0;
            hw_timer_set(&p->home->loop, &w->timer, p->home->loop.now);
        }
    }
}
