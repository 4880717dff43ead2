/* SPDX-License-Identifier: Apache-2.0 */
#include "message/peer.h"

#include "base/thread.h"
#include "message/op.h"
#include "message/queue.h"

#include <stdlib.h>
#include <string.h>

int hw_peer_init(struct hw_peer *p, struct hw_domain *domain, bool client, struct hw_loop *home,
                 struct hw_loop *const *loop, unsigned n, const struct hw_peer_ops *ops, const struct hw_rail_io *io,
                 void *up, const struct hw_rail_limits *limits, const uint8_t binding[HW_BINDING])
{
    memset(p, 0, sizeof *p);
    int rc = hw_session_init(&p->session, client, home, loop, n, &hw_peer_session_ops, io, p, limits);
    if (rc < 0)
        return rc;
    p->domain = domain;
    p->ops = ops;
    p->up = up;
    p->answer_in = 2 * limits->dead;
    p->patience = HW_PATIENCE;
    memcpy(p->imports.binding, binding, HW_BINDING);
    for (unsigned i = 0; i < HW_SESSION_RAILS; i++) {
        p->pace[i].path = i;
        p->pace[i].has_others = n > 1;
    }
    hw_ops_init(p);
    hw_control_init(p);
    hw_queues_init(&p->queues);
    hw_lock_init(&p->lock);
    return 0;
}

void hw_peer_pair(struct hw_peer *p, unsigned i, unsigned pair)
{
    hw_pace_pair(p->pace, p->session.rails, i, pair);
    hw_session_pair(&p->session, i, pair);
}

void hw_peer_die(struct hw_peer *p, int why)
{
    pthread_mutex_lock(&p->lock);
    bool first = !p->dead;
    if (first)
        p->dead = why;
    pthread_mutex_unlock(&p->lock);
    if (!first)
        return;
    hw_session_die(&p->session, why);
    hw_ops_die(p);
    hw_control_die(p);
}

static bool is_outgoing(const struct hw_op *op)
{
    return op->kind == HW_OP_WRITE || op->kind == HW_OP_SEND || op->kind == HW_OP_SERVE;
}

void hw_peer_call_off(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    hw_list_each(it, tmp, &p->all)
    {
        struct hw_op *op = hw_container_of(it, struct hw_op, all);
        if (is_outgoing(op))
            hw_op_cancel_locked(op, hw_fail(-ESHUTDOWN, "closed by this side"));
    }
    hw_ops_unlock(p);
}

bool hw_peer_is_quiet(struct hw_peer *p)
{
    bool quiet = true;
    pthread_mutex_lock(&p->lock);
    hw_list_each(it, tmp, &p->all) quiet &= !is_outgoing(hw_container_of(it, struct hw_op, all));
    pthread_mutex_unlock(&p->lock);
    return quiet;
}

bool hw_peer_is_gone(struct hw_peer *p)
{
    pthread_mutex_lock(&p->lock);
    bool gone = hw_list_empty(&p->all) && hw_list_empty(&p->over) && hw_list_empty(&p->filling);
    pthread_mutex_unlock(&p->lock);
    return gone && hw_session_is_gone(&p->session) && !atomic_load(&p->in.read.posted) &&
           !atomic_load(&p->deadlines.arm.posted);
}

void hw_peer_free(struct hw_peer *p)
{
    for (unsigned i = 0; i < p->session.rails; i++)
        if (p->current[i])
            hw_op_put(p->current[i]);
    hw_handles_free(p);
    hw_imports_free(&p->imports);
    hw_control_free(p);
    hw_counts_free(p);
    hw_queues_free(&p->queues);
    hw_ops_free(p);
    hw_landings_free(&p->landings);
    hw_session_free(&p->session);
    pthread_mutex_destroy(&p->lock);
}

void hw_peer_took(struct hw_peer *p, uint32_t len)
{
    pthread_mutex_lock(&p->lock);
    p->took += len + HW_NOTE_COST;
    atomic_fetch_sub(&p->notes_held, len + HW_NOTE_COST);
    pthread_mutex_unlock(&p->lock);
    hw_taken_tell(p);
}
