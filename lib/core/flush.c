/* SPDX-License-Identifier: Apache-2.0 */
/* Flushes a session: shows that the peer has received all confirmations and small parcels that were due. A confirmation
 * is not confirmed itself. A barrier is, and travels behind the confirmations of its rail. */
#include "core/session.h"

void hw_session_flush(struct hw_session *s)
{
    atomic_store(&s->flush.asked, true);
    hw_loop_post(s->home, &s->sort);
}

/* Returns true if a rail has ended, or is about to, and is not down yet. Its parcels that the peer did not receive have
 * not been given back. */
static bool is_any_ending(const struct hw_session *s)
{
    bool is = false;
    for (unsigned i = 0; i < s->rails; i++) {
        const struct session_rail *sr = &s->rail[i];
        is |= sr->state != RAIL_IS_DOWN && (sr->state != RAIL_IS_UP || !atomic_load(&sr->live));
    }
    return is;
}

/* Sends a barrier on each rail. Does nothing if no rail is up, or if a parcel must be sent before the barriers: a task
 * of the session is then posted, or will be, and performs this step again. */
static void send_barriers(struct hw_session *s)
{
    atomic_store(&s->flush.again, false);
    if (atomic_load(&s->returned) || !hw_session_has_rails(s)) {
        atomic_store(&s->flush.again, true);
        return;
    }
    for (unsigned i = 0; i < s->rails; i++) {
        struct session_rail *sr = &s->rail[i];
        if (!atomic_load(&sr->live))
            continue;
        atomic_fetch_add(&s->flush.left, 1);
        sr->barrier = (struct session_note){.rail = i};
        sr->barrier.parcel.small = sr->barrier.parcel.session = sr->barrier.parcel.barrier = true;
        hw_rail_send(&sr->rail, &sr->barrier.parcel);
    }
}

void hw_flush_step(struct hw_session *s)
{
    if (atomic_exchange(&s->flush.asked, false)) {
        s->flush.active = true;
        atomic_store(&s->flush.again, true);
    }
    if (!s->flush.active || s->dead || atomic_load(&s->flush.left) || is_any_ending(s))
        return;
    if (atomic_load(&s->flush.again)) {
        send_barriers(s);
    } else {
        s->flush.active = false;
        s->ops->flushed(s->up);
    }
}

bool hw_session_is_settling(const struct hw_session *s)
{
    bool is = false;
    for (unsigned i = 0; i < s->rails; i++) {
        const struct session_rail *sr = &s->rail[i];
        bool told = sr->peers.gen == sr->gen;
        is |= sr->state == RAIL_IS_SETTLING || (sr->state != RAIL_IS_DOWN && told);
    }
    return is;
}
