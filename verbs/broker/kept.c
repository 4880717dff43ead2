/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the results of requests that a signal interrupted before the broker could answer. If the application repeats
 * the call, it gets the kept results. Otherwise the broker tries to destroy the object that the request has created. */
#include "verbs/broker/broker_int.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <stdlib.h>
#include <string.h>

/* Returns true if a is the same call as k, with the same inputs. The contents of outputs are not compared. */
static bool is_same_request(const struct vb_request *a, const struct vb_request *k)
{
    if (a->address != k->address || memcmp(&a->hdr, &k->hdr, sizeof a->hdr) != 0 || a->command != k->command ||
        a->n != k->n)
        return false;
    for (unsigned i = 0; i < a->n; i++) {
        const struct vb_attr *x = &a->attr[i], *y = &k->attr[i];
        if (x->raw.attr_id != y->raw.attr_id || x->raw.len != y->raw.len || x->rule != y->rule || x->len != y->len)
            return false;
        if (x->rule && (x->rule->kind == VB_HANDLE_NEW || x->rule->kind == VB_FD_NEW))
            continue;
        if (x->raw.data != y->raw.data)
            return false;
        bool out = (x->rule && x->rule->kind == VB_OUT) || x->raw.attr_id == UVERBS_ATTR_UHW_OUT ||
                   (a->core_in && x->raw.attr_id == UVERBS_ATTR_CORE_OUT);
        if (!out && x->len && memcmp(a->copy + x->at, k->copy + y->at, x->len) != 0)
            return false;
    }
    return true;
}

static void kept_free(struct vb_broker *b, struct vb_kept *k)
{
    hw_list_remove(&k->link);
    b->n_kept--;
    free(k);
}

/* Destroys the object of a kept request, and frees the entry. */
static void kept_undo(struct vb_broker *b, struct vb_kept *k)
{
    struct vb_context *c;
    int fd;
    /* If the thread no longer has the device open, the object remains in its context. */
    if (k->rc >= 0 && vb_fetch(b, k->tid, k->theirs, &fd, &c) == 0 && c == k->context)
        vb_undo(b, c, fd, &k->r);
    kept_free(b, k);
}

static struct vb_kept *kept_by_tid(struct vb_broker *b, pid_t tid)
{
    hw_list_each(i, next, &b->kept)
    {
        struct vb_kept *k = hw_container_of(i, struct vb_kept, link);
        if (k->tid == tid)
            return k;
    }
    return NULL;
}

void vb_keep(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, const struct vb_request *r, int rc)
{
    struct vb_kept *oldest = hw_list_first(&b->kept, struct vb_kept, link);
    if (oldest && b->n_kept == VB_KEPT_MAX)
        kept_undo(b, oldest);
    struct vb_kept *k = malloc(offsetof(struct vb_kept, r) + vb_request_size(r));
    if (!k)
        return; /* the object remains in its context */
    k->tid = (pid_t)call->n.pid;
    k->theirs = (int)call->n.data.args[0];
    k->rc = rc;
    k->context = c;
    k->since = hw_now();
    vb_request_copy(&k->r, r);
    hw_list_append(&b->kept, &k->link);
    b->n_kept++;
}

void vb_kept_forget(struct vb_broker *b, const struct vb_context *c)
{
    hw_list_each(i, next, &b->kept)
    {
        struct vb_kept *k = hw_container_of(i, struct vb_kept, link);
        if (k->context == c)
            kept_free(b, k);
    }
}

void vb_kept_sweep(struct vb_broker *b, bool all)
{
    uint64_t now = b->n_kept ? hw_now() : 0;
    hw_list_each(i, next, &b->kept)
    {
        struct vb_kept *k = hw_container_of(i, struct vb_kept, link);
        if (all || now - k->since >= VB_KEPT_NS)
            kept_undo(b, k);
    }
}

bool vb_redeliver(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                  const struct vb_request *r)
{
    struct vb_kept *k = kept_by_tid(b, (pid_t)call->n.pid);
    if (!k)
        return false;
    if (k->context != c || k->theirs != (int)call->n.data.args[0] || !is_same_request(r, &k->r)) {
        kept_undo(b, k);
        return false;
    }
    b->redelivered++;
    hw_list_remove(&k->link); /* vb_finish() may keep the result again, if a signal interrupts this call too */
    b->n_kept--;
    vb_finish(b, call, c, fd, &k->r, k->rc);
    free(k);
    return true;
}
