/* SPDX-License-Identifier: Apache-2.0 */
/* Processes a request from its notification to its answer. */
#include "verbs/broker/broker_int.h"
#include "verbs/schema/newer.h"
#include "verbs/stub/lookup.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_app(void *arg, uint64_t address, void *dst, size_t n)
{
    return vb_mem_read(*(pid_t *)arg, address, dst, n);
}

static void count_refused(struct vb_broker *b, struct vb_slot *slot)
{
    b->refused++;
    if (slot)
        slot->refused++;
}

static void report_refusal(struct vb_broker *b, pid_t tid, const char *program, struct vb_slot *slot,
                           const char *command, const char *rule, const char *text, int rc)
{
    count_refused(b, slot);
    vb_audit_refusal(b->o->audit, &(struct vb_refusal){.container = b->container->id,
                                                       .program = program,
                                                       .device = slot ? slot->device.ibdev : NULL,
                                                       .pid = tid,
                                                       .command = command,
                                                       .rule = rule,
                                                       .text = text,
                                                       .rc = rc});
}

void vb_refused(struct vb_broker *b, pid_t tid, struct vb_slot *slot, const char *command, const char *rule,
                const char *text, int rc)
{
    const struct vb_lookup q = {.kind = VB_LOOKUP_NAME, .tid = tid};
    struct vb_found f;
    int none;
    char why[HW_ERR_TEXT];
    snprintf(why, sizeof why, "%s", text); /* copied because text may be hw_error(), which the query overwrites */
    (void)vb_tracer_ask(&b->tracer, &q, -1, &f, &none);
    report_refusal(b, tid, f.text, slot, command, rule, why, rc);
}

void vb_refused_unnamed(struct vb_broker *b, pid_t tid, const char *command, const char *text, int rc)
{
    report_refusal(b, tid, NULL, NULL, command, "", text, rc);
}

/* Returns true if the refusal of a command by the schema was reported before, or if the list is full. Otherwise records
 * the command. Applications repeat such commands, and one report is enough. */
static bool was_command_reported(struct vb_broker *b, const struct vb_request *r)
{
    uint32_t command = r->command ? r->command->command : 0;
    if (!r->command && r->hdr.object_id == UVERBS_OBJECT_DEVICE && r->hdr.method_id == UVERBS_METHOD_INVOKE_WRITE) {
        for (unsigned i = 0; i < r->n; i++) {
            if (r->attr[i].raw.attr_id == UVERBS_ATTR_WRITE_CMD)
                command = (uint32_t)r->attr[i].raw.data;
        }
    }
    for (unsigned i = 0; i < b->n_told; i++) {
        if (b->told[i].object == r->hdr.object_id && b->told[i].method == r->hdr.method_id &&
            b->told[i].command == command)
            return true;
    }
    if (b->n_told == VB_TOLD_MAX)
        return true;
    b->told[b->n_told].object = r->hdr.object_id;
    b->told[b->n_told].method = r->hdr.method_id;
    b->told[b->n_told++].command = command;
    return false;
}

/* Returns the pointer into *to that corresponds to p, a pointer into *from or NULL. */
static void *relocate_pointer(struct vb_request *to, const struct vb_request *from, void *p)
{
    return p ? (uint8_t *)to + ((uint8_t *)p - (const uint8_t *)from) : NULL;
}

void vb_request_copy(struct vb_request *to, const struct vb_request *from)
{
    memcpy(to, from, offsetof(struct vb_request, copy) + from->used);
    to->core_in = relocate_pointer(to, from, from->core_in);
    to->core_out = relocate_pointer(to, from, from->core_out);
    to->uhw_in = relocate_pointer(to, from, from->uhw_in);
    to->uhw_out = relocate_pointer(to, from, from->uhw_out);
}

int vb_run_here(struct vb_broker *b, int fd, struct vb_request *r)
{
    struct vb_layout l;
    int rc = vb_request_build(r, b->built, sizeof b->built, (uintptr_t)b->built, 0, &l);
    if (rc)
        return rc;
    rc =
        b->o->kernel->ioctl(fd, (struct ib_uverbs_ioctl_hdr *)(uintptr_t)l.header); // NOLINT(performance-no-int-to-ptr)
    if (rc >= 0)
        vb_request_collect(r, b->built, &l);
    return rc;
}

void vb_finish(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd, struct vb_request *r,
               int rc)
{
    if (rc >= 0)
        vb_filter_reply(&c->slot->rules, r);
    if (rc >= 0 && vb_request_gives(r))
        vb_give(b, call, c, fd, r, rc);
    else if (vb_notify_answer(call->listener, call->n.id, rc >= 0 ? rc : 0, rc < 0 ? -rc : 0) == -ENOENT)
        vb_keep(b, call, c, r, rc);
}

/* Runs the request in the broker and answers the notification. */
static void run_broker_request(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                               struct vb_request *r, uint64_t ticket)
{
    struct vb_swaps swaps;
    bool gone = false; /* a signal interrupted the program, so there is nothing to answer */
    int rc = vb_swap_in(b, call, r, &swaps);
    if (rc) {
        gone = rc == -ENOENT;
    } else {
        rc = vb_run_here(b, fd, r);
        vb_swap_back(&swaps);
        if (rc >= 0) {
            c->driver = r->driver;
            int handed = vb_hand_over(call, r);
            rc = handed ? handed : rc; /* after an error the descriptor is closed and the object no longer exists */
            gone = handed == -ENOENT;
        }
    }
    vb_settle(c->objects, r, ticket, rc, true);
    if (!gone)
        vb_finish(b, call, c, fd, r, rc);
}

/* Checks a request against the policy. After a refusal, updates the counts and checks again, because contexts that only
 * the cache keeps open and objects that no longer exist may still be counted. */
static int judge_request(struct vb_broker *b, const struct vb_call *call, struct vb_context *c, int fd,
                         const struct vb_request *r)
{
    struct vb_verdict v;
    char text[256];
    vb_judge(&c->slot->rules, &c->slot->usage, c->objects, r, &v);
    if (v.rc) {
        vb_cache_sweep(b, true, fd);
        vb_contexts_ended(b);
        vb_reconcile(b, c, fd, c->doubt ? 0 : VB_RECONCILE_SOON_NS);
        vb_judge(&c->slot->rules, &c->slot->usage, c->objects, r, &v);
    }
    if (v.rc && v.rule[0])
        vb_refused(b, (pid_t)call->n.pid, c->slot, vb_request_text(r, text, sizeof text), v.rule, v.text, v.rc);
    return v.rc;
}

/* Handles a request. Returns the error that the application must get, or 1 if the request has been answered, will be
 * answered, or is no longer waiting. */
static int handle_verbs_request(struct vb_broker *b, const struct vb_call *call)
{
    struct vb_request *r = &b->request;
    const struct seccomp_notif *n = &call->n;
    struct vb_context *c;
    struct vb_worker *w = NULL;
    pid_t tid = (pid_t)n->pid;
    uint64_t ticket;
    int fd;
    int rc = vb_fetch(b, tid, (int)n->data.args[0], &fd, &c);
    if (rc)
        return rc == -EBADF || rc == -ENOTTY ? rc : -EIO;
    rc = vb_request_take(r, n->data.args[2], read_app, &tid);
    if (!vb_notify_valid(call->listener, n->id))
        return 1; /* the data may have been read from another process */
    if (rc) {
        if (rc == -ENOSPC || rc == -EFAULT)
            return rc; /* not logged, because the application may be probing the kernel */
        if ((rc == -EOPNOTSUPP || rc == -EPROTONOSUPPORT) && was_command_reported(b, r))
            count_refused(b, c->slot);
        else
            vb_refused(b, tid, c->slot, r->command ? r->command->name : "?", "schema", hw_error(), rc);
        return rc;
    }
    if (b->n_kept) {
        if (vb_redeliver(b, call, c, fd, r))
            return 1;
        if (vb_fetch(b, tid, (int)n->data.args[0], &fd,
                     &c)) /* vb_redeliver() may have removed the descriptor from the cache */
            return -EBADF;
        if (!vb_notify_valid(call->listener, n->id))
            return 1; /* the descriptor may be from another process */
    }
    vb_reconcile(b, c, fd, c->doubt ? VB_RECONCILE_SOON_NS : VB_RECONCILE_NS);
    rc = judge_request(b, call, c, fd, r);
    if (rc)
        return rc;
    if (r->where == VB_MEMORY || vb_request_gives(r)) {
        rc = vb_worker_for(b, call, c, r, &w);
        if (rc)
            return rc;
    }
    rc = vb_reserve(c->objects, r, &ticket);
    if (rc)
        return rc;
    if (r->where == VB_MEMORY)
        vb_run_in_stub(b, w, call, c, fd, r, ticket);
    else
        run_broker_request(b, call, c, fd, r, ticket);
    return 1;
}

void vb_ioctl(struct vb_broker *b, const struct vb_call *call)
{
    int rc = (uint32_t)call->n.data.args[1] == RDMA_VERBS_IOCTL ? handle_verbs_request(b, call) : -ENOTTY;
    b->requests++;
    if (rc <= 0)
        vb_notify_answer(call->listener, call->n.id, 0, -rc);
}
