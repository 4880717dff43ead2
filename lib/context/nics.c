/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Detects NICs that lose their link. The kernel reports the loss, and the NIC's rails end at once, so that other rails
 * send the unconfirmed frames again. TCP would notice the loss much later, from missing acknowledgements. When the link
 * is restored, the client reconnects the rails without further delay.
 *
 * The socket that receives the reports belongs to loop 0. The state of a peer's rails belongs to the peer's home, where
 * a task evaluates the reports.
 */
#include "context/context.h"

#include "base/fork.h"
#include "net/carrier.h"

#include <string.h>

enum { NIC_IS_AS_IT_WAS, NIC_IS_UP, NIC_IS_DOWN };

/* Stores the report in all rails of the NIC. If nic is NULL, reads the state of every rail's NIC instead. */
static void note_nic(void *arg, const char *nic, bool up)
{
    struct hawser *h = arg;
    pthread_mutex_lock(&h->lock);
    hw_list_each(it, tmp, &h->peers)
    {
        struct hawser_peer *p = hw_container_of(it, struct hawser_peer, in_context);
        bool any = false;
        if (atomic_load(&p->state) != HW_PEER_LIVES) /* the peer has no rails yet, or is dead */
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
            hw_loop_post(&p->home->loop, &p->nics); /* under the lock, so that the peer is not freed in the meantime */
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
    if (rc < 0) { /* TCP detects the loss later */
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
