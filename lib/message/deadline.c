/* SPDX-License-Identifier: Apache-2.0 */
/* The deadlines of operations, and the time limits for the peer's answers about cancelled operations. */
#include "message/op.h"

void hw_op_time(struct hw_peer *p, struct hw_op *op)
{
    if (op->deadline == HW_NEVER)
        return;
    uint64_t tick = HW_MAX(op->deadline / HW_TICK, p->deadlines.looked);
    hw_list_append(&p->deadlines.at[tick % HW_TICKS], &op->timed);
    p->deadlines.n++;
    if (tick * HW_TICK < p->deadlines.next)
        hw_loop_post(p->session.home, &p->deadlines.arm);
}

/* Returns the time of the home loop's next check: the end of the next tick with a list that is not empty (ticks that
 * are HW_TICKS apart share a list), or HW_NEVER if no operation has a deadline. */
static uint64_t find_next_look(const struct hw_peer *p)
{
    for (uint64_t k = 0; k < HW_TICKS && p->deadlines.n; k++)
        if (!hw_list_empty(&p->deadlines.at[(p->deadlines.looked + k) % HW_TICKS]))
            return (p->deadlines.looked + k + 1) * HW_TICK;
    return HW_NEVER;
}

void hw_op_untime(struct hw_op *op)
{
    if (hw_list_empty(&op->timed))
        return;
    hw_list_remove(&op->timed);
    op->peer->deadlines.n--;
}

/* Returns true if the kernel may read the operation's memory until the peer has confirmed the bytes. Called on the home
 * loop. */
static bool is_read_by_kernel(const struct hw_op *op)
{
    bool sends = op->kind == HW_OP_WRITE || op->kind == HW_OP_SEND;
    return sends && op->peer->by_reference && !op->cut_off && hw_session_has_rails(&op->peer->session);
}

/* Returns the operation's memory to the caller without waiting for the peer's answer. Frames of a write may still
 * change the peer's memory, so later writes wait until the peer has answered. */
static void desert_op(struct hw_op *op)
{
    op->deserted = true;
    op->peer->deserted += op->kind == HW_OP_WRITE;
    hw_list_append(&op->peer->over, &op->queued);
    hw_ops_need_flush(op->peer);
}

/* Handles a cancelled operation that is due. The first call, right after the cancellation, sets the time limit for the
 * peer's answer according to this loop's clock. Returns true if the limit has passed. Sets *cut if rails must be
 * ended. */
static bool is_overdue(struct hw_op *op, uint64_t now, bool *cut)
{
    if (op->peer->dead)
        return false;
    if (!op->answer_by)
        op->answer_by = now + op->peer->answer_in;
    else if (now >= op->answer_by)
        return true;
    else if (op->let_go_over && !op->deserted && op->kind != HW_OP_SERVE && !is_read_by_kernel(op))
        desert_op(op);
    else if (is_read_by_kernel(op) && now + op->peer->answer_in >= op->answer_by + HW_CUT_OFF * op->peer->patience)
        *cut = op->cut_off = true; /* the next check finds that the kernel no longer reads the memory */
    op->deadline = op->deserted ? op->answer_by : HW_MIN(now + op->peer->patience, op->answer_by);
    hw_op_time(op->peer, op);
    return false;
}

/* Moves the operations whose deadline has passed to the list `due`. Examines the ticks since the last check, or the
 * last HW_TICKS ticks if more have passed. */
static void collect_due(struct hw_peer *p, uint64_t now, struct hw_list *due)
{
    uint64_t tick = now / HW_TICK;
    uint64_t first = tick - p->deadlines.looked < HW_TICKS ? p->deadlines.looked : tick - HW_TICKS + 1;
    for (uint64_t k = first; k <= tick; k++) {
        hw_list_each(it, tmp, &p->deadlines.at[k % HW_TICKS])
        {
            if (hw_container_of(it, struct hw_op, timed)->deadline > now)
                continue;
            hw_list_remove(it);
            hw_list_append(due, it);
        }
    }
    p->deadlines.looked = tick;
}

static int say_late(const struct hw_op *op)
{
    uint64_t left = HW_MIN(op->total, atomic_load(&op->left));
    if (op->kind == HW_OP_RECV)
        return hw_fail(-ETIMEDOUT, "the receive's deadline passed before a message had arrived completely");
    if (op->total == 0)
        return hw_fail(-ETIMEDOUT, "the operation's deadline passed before the peer had confirmed it");
    return hw_fail(-ETIMEDOUT, "the operation's deadline passed with %llu of %llu bytes %s",
                   (unsigned long long)(op->total - left), (unsigned long long)op->total,
                   op->kind == HW_OP_READ ? "received" : "confirmed");
}

/* Cancels the operations whose deadline has passed, and handles cancelled operations that are due. Ends the peer if the
 * peer did not answer in time. */
static void look_at_deadlines(struct hw_peer *p)
{
    uint64_t now = p->session.home->now;
    bool overdue = false, cut = false;
    struct hw_list due;
    struct hw_op *op;
    hw_list_init(&due);
    pthread_mutex_lock(&p->lock);
    collect_due(p, now, &due);
    while ((op = hw_list_first(&due, struct hw_op, timed))) {
        hw_op_untime(op);
        if (atomic_load(&op->off))
            overdue |= is_overdue(op, now, &cut);
        else
            hw_op_cancel_locked(op, say_late(op));
    }
    uint64_t next = p->deadlines.next = find_next_look(p);
    pthread_mutex_unlock(&p->lock);
    if (next != HW_NEVER)
        hw_timer_set(p->session.home, &p->deadlines.timer, next);
    hw_ops_flush(p);
    for (unsigned i = 0; cut && i < p->session.rails; i++)
        hw_session_end_rail(&p->session, i);
    if (!overdue || p->session.dead)
        return;
    int rc = hw_fail(-ETIMEDOUT, "the peer did not confirm the end of a cancelled operation within %llu ms",
                     (unsigned long long)(p->answer_in / HW_MS));
    hw_peer_die(p, rc);
    p->ops->died(p->up, rc);
}

static void arm_deadlines(struct hw_task *t)
{
    look_at_deadlines(hw_container_of(t, struct hw_peer, deadlines.arm));
}

static void fire_deadlines(struct hw_timer *t)
{
    look_at_deadlines(hw_container_of(t, struct hw_peer, deadlines.timer));
}

void hw_deadlines_init(struct hw_peer *p)
{
    for (int i = 0; i < HW_TICKS; i++)
        hw_list_init(&p->deadlines.at[i]);
    p->deadlines.arm.run = arm_deadlines;
    p->deadlines.next = HW_NEVER;
    p->deadlines.timer.fire = fire_deadlines;
}
