/* SPDX-License-Identifier: Apache-2.0 */
/* A request from its notification to its answer. */
#include "verbs/broker_int.h"
#include "verbs/newer.h"

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

static int write_app(void *arg, uint64_t address, const void *src, size_t n)
{
    return vb_mem_write(*(pid_t *)arg, address, src, n);
}

static int read_here(void *arg, uint64_t address, void *dst, size_t n)
{
    (void)arg;
    memcpy(dst, (const void *)(uintptr_t)address, n); // NOLINT(performance-no-int-to-ptr): made by undo() below
    return 0;
}

static void count_refused(struct vb_broker *b, struct vb_slot *slot)
{
    b->refused++;
    if (slot)
        slot->refused++;
}

void vb_refused(struct vb_broker *b, pid_t tid, struct vb_slot *slot, const char *command, const char *rule,
                const char *text, int rc)
{
    char path[64], comm[32] = "";
    snprintf(path, sizeof path, "/proc/%d/comm", (int)tid);
    FILE *f = fopen(path, "re");
    if (f) {
        size_t n = fread(comm, 1, sizeof comm - 1, f);
        comm[n] = 0;
        comm[strcspn(comm, "\n")] = 0;
        fclose(f);
    }
    count_refused(b, slot);
    vb_audit_refusal(b->o->audit, &(struct vb_refusal){.container = b->container->id,
                                                       .program = comm,
                                                       .device = slot ? slot->device.ibdev : NULL,
                                                       .pid = tid,
                                                       .command = command,
                                                       .rule = rule,
                                                       .text = text,
                                                       .rc = rc});
}

/* Once for each command: what the schema does not have is asked for again and again. */
static bool told(struct vb_broker *b, const struct vb_request *r)
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

/* Where descriptors are in a request: made false: that go in; true: that come out. -EINVAL: too many. */
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
            return hw_fail(-EINVAL, "more than %d descriptors", VB_SWAPS_MAX);
        s->swap[s->n++] = w;
    }
    return 0;
}

int vb_swap_in(pid_t tid, struct vb_request *r, struct vb_swaps *s)
{
    int rc = swaps_find(r, false, s);
    for (unsigned i = 0; i < s->n && !rc; i++) {
        struct vb_swap *w = &s->swap[i];
        w->theirs = swap_get(w);
        if (w->theirs == -1)
            continue; /* "none", and a probe */
        w->mine = vb_fetch_any(tid, w->theirs);
        if (w->mine < 0) {
            w->mine = -1;
            rc = -EBADF;
        } else {
            vb_swap_put(w, w->mine);
        }
    }
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

/* Descriptors that the kernel made here become the application's. 0, or what it is told: then ours are closed, and
 * the objects gone with them. */
static int hand_over(struct vb_broker *b, const struct seccomp_notif *n, struct vb_request *r)
{
    struct vb_swaps s;
    int rc = swaps_find(r, true, &s);
    for (unsigned i = 0; i < s.n; i++) {
        int mine = swap_get(&s.swap[i]);
        int theirs = rc ? rc : vb_notify_give(b->listener, n->id, mine, -1, true, false);
        if (theirs < 0)
            rc = theirs;
        close(mine);
        vb_swap_put(&s.swap[i], theirs < 0 ? -1 : theirs);
    }
    return rc;
}

/* Its pointers lead into itself. */
static void *moved(struct vb_request *to, const struct vb_request *from, void *p)
{
    return p ? (uint8_t *)to + ((uint8_t *)p - (const uint8_t *)from) : NULL;
}

void vb_request_copy(struct vb_request *to, const struct vb_request *from)
{
    memcpy(to, from, offsetof(struct vb_request, copy) + from->used);
    to->core_in = moved(to, from, from->core_in);
    to->core_out = moved(to, from, from->core_out);
    to->uhw_in = moved(to, from, from->uhw_in);
    to->uhw_out = moved(to, from, from->uhw_out);
}

static int run_here(struct vb_broker *b, int fd, struct vb_request *r)
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

/* What a request that makes an MR in the stub asked for: REG_MR, by INVOKE_WRITE or as a method (Linux 6.17). */
static bool asked_for(struct vb_request *r, uint64_t *length, uint64_t *iova)
{
    struct ib_uverbs_reg_mr in;
    if (r->core_in && r->core_in_len >= sizeof in) {
        memcpy(&in, r->core_in, sizeof in);
        *length = in.length;
        *iova = in.hca_va;
        return true;
    }
    const struct vb_attr *l = vb_request_attr(r, REG_MR_LENGTH), *v = vb_request_attr(r, REG_MR_IOVA);
    if (r->core_in || !l || !v)
        return false;
    *length = l->raw.data; /* 8 bytes lie there */
    *iova = v->raw.data;
    return true;
}

/* Is there an MR of the number in the reply, with the address and length that were asked for? Else whoever wrote the
 * reply was not the kernel. */
static void confirm(struct vb_broker *b, struct vb_context *c, int fd, struct vb_request *r)
{
    struct {
        struct vb_header hdr;
        struct ib_uverbs_attr attr[5];
    } q;
    uint32_t number, lkey, rkey;
    uint64_t length = 0, iova = 0, asked_length, asked_iova;
    if (!asked_for(r, &asked_length, &asked_iova) || vb_request_number(r, &r->command->made, &number))
        return;
    memset(&q, 0, sizeof q);
    q.hdr.length = sizeof q;
    q.hdr.object_id = UVERBS_OBJECT_MR;
    q.hdr.method_id = UVERBS_METHOD_QUERY_MR;
    q.hdr.num_attrs = HW_ARRAY_LEN(q.attr);
    q.hdr.driver_id = r->hdr.driver_id;
    const struct {
        uint16_t id, len;
        uint64_t data;
    } a[HW_ARRAY_LEN(q.attr)] = {
        {UVERBS_ATTR_QUERY_MR_HANDLE, 0, number},
        {UVERBS_ATTR_QUERY_MR_RESP_LKEY, sizeof lkey, (uintptr_t)&lkey},
        {UVERBS_ATTR_QUERY_MR_RESP_RKEY, sizeof rkey, (uintptr_t)&rkey},
        {UVERBS_ATTR_QUERY_MR_RESP_LENGTH, sizeof length, (uintptr_t)&length},
        {UVERBS_ATTR_QUERY_MR_RESP_IOVA, sizeof iova, (uintptr_t)&iova},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(a); i++) {
        q.attr[i].attr_id = a[i].id;
        q.attr[i].len = a[i].len;
        q.attr[i].flags = UVERBS_ATTR_F_MANDATORY;
        q.attr[i].data = a[i].data;
    }
    if (b->o->kernel->ioctl(fd, (struct ib_uverbs_ioctl_hdr *)&q) >= 0 && length == asked_length && iova == asked_iova)
        vb_confirm(c->objects, VB_MR, number);
}

/* How an object is destroyed by its number: all of these have the number as attribute 0, and some an answer of events
 * that nobody has read (<rdma/ib_user_ioctl_cmds.h>). */
static const struct {
    uint16_t object, method;
    uint16_t events; /* bytes of the answer, attribute 1 */
} destroy[VB_TYPES] = {
    [VB_PD] = {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, 0},
    [VB_MR] = {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, 0},
    [VB_MW] = {UVERBS_OBJECT_MW, UVERBS_METHOD_MW_DESTROY, 0},
    [VB_CQ] = {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, sizeof(struct ib_uverbs_destroy_cq_resp)},
    [VB_QP] = {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, sizeof(struct ib_uverbs_destroy_qp_resp)},
    [VB_SRQ] = {UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, sizeof(struct ib_uverbs_destroy_srq_resp)},
    [VB_AH] = {UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, 0},
    [VB_XRCD] = {UVERBS_OBJECT_XRCD, UVERBS_METHOD_XRCD_DESTROY, 0},
    [VB_WQ] = {UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_DESTROY, sizeof(uint32_t)},
    [VB_RWQ_TABLE] = {UVERBS_OBJECT_RWQ_IND_TBL, UVERBS_METHOD_RWQ_IND_TBL_DESTROY, 0},
    [VB_FLOW] = {UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY, 0},
    [VB_DM] = {UVERBS_OBJECT_DM, UVERBS_METHOD_DM_FREE, 0},
    [VB_COUNTERS] = {UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_DESTROY, 0},
};

/* Destroys what request r made, as the application would, so that the accounts see it. */
static void undo(struct vb_broker *b, struct vb_context *c, int fd, const struct vb_request *r)
{
    struct {
        struct vb_header hdr;
        struct ib_uverbs_attr attr[2];
    } q;
    uint64_t events[4] = {0}, ticket;
    uint32_t number;
    enum vb_type t = r->command->makes;
    if (t == VB_NONE || !destroy[t].object || vb_request_number(r, &r->command->made, &number))
        return;
    unsigned n = destroy[t].events ? 2 : 1;
    memset(&q, 0, sizeof q);
    q.hdr.length = (uint16_t)(sizeof q.hdr + n * sizeof q.attr[0]);
    q.hdr.object_id = destroy[t].object;
    q.hdr.method_id = destroy[t].method;
    q.hdr.num_attrs = (uint16_t)n;
    q.hdr.driver_id = r->hdr.driver_id;
    q.attr[0].flags = q.attr[1].flags = UVERBS_ATTR_F_MANDATORY;
    q.attr[0].data = number;
    q.attr[1].attr_id = 1;
    q.attr[1].len = destroy[t].events;
    q.attr[1].data = (uintptr_t)events;
    struct vb_request *d = malloc(sizeof *d);
    int rc = d ? vb_request_take(d, (uintptr_t)&q, read_here, NULL) : -ENOMEM;
    if (!rc)
        rc = vb_reserve(c->objects, d, &ticket);
    if (!rc) {
        rc = run_here(b, fd, d);
        vb_settle(c->objects, d, ticket, rc, true);
    }
    if (rc < 0)
        hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: %s: %s %u that nobody knows of stays with its context: %s",
               b->container->id, vb_type_name(t), number, hw_errno_name(-rc));
    b->undone++;
    free(d);
}

/* Same call, same inputs? Results of the kept one lie where only the kernel writes. */
static bool same(const struct vb_request *a, const struct vb_request *k)
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

/* The application will not ask for it again. */
static void kept_undo(struct vb_broker *b, struct vb_kept *k)
{
    struct vb_context *c;
    int fd;
    /* Where its thread has no descriptor of the device any more, its context takes what was made. */
    if (k->rc >= 0 && vb_fetch(b, k->tid, k->theirs, &fd, &c) == 0 && c == k->context)
        undo(b, c, fd, &k->r);
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

static void keep(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c, const struct vb_request *r,
                 int rc)
{
    struct vb_kept *oldest = hw_list_first(&b->kept, struct vb_kept, link);
    if (oldest && b->n_kept == VB_KEPT_MAX)
        kept_undo(b, oldest);
    struct vb_kept *k = malloc(sizeof *k);
    if (!k)
        return; /* it stays with its context */
    k->tid = (pid_t)n->pid;
    k->theirs = (int)n->data.args[0];
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

/* Results to the application, and the answer. -ENOENT: it does not wait any more. */
static int deliver(struct vb_broker *b, const struct seccomp_notif *n, const struct vb_request *r, int rc)
{
    pid_t tid = (pid_t)n->pid;
    if (!vb_notify_valid(b->listener, n->id))
        return -ENOENT;
    if (rc >= 0 && vb_request_give(r, write_app, &tid))
        return -EFAULT;
    return vb_notify_answer(b->listener, n->id, rc >= 0 ? rc : 0, rc < 0 ? -rc : 0);
}

void vb_finish(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c, int fd, struct vb_request *r,
               uint64_t ticket, int rc, bool trusted)
{
    int handed = 0;
    if (rc >= 0) {
        handed = trusted ? hand_over(b, n, r) : 0;
        if (handed) /* closed: there is no object any more */
            rc = handed;
        else
            c->driver = r->driver;
    }
    vb_settle(c->objects, r, ticket, rc, trusted);
    if (handed == -ENOENT)
        return; /* a signal took it: it is as if it had not been */
    if (rc >= 0 && !trusted && r->command->makes == VB_MR)
        confirm(b, c, fd, r);
    if (rc >= 0)
        vb_filter_reply(&c->slot->rules, r);
    int told_rc = deliver(b, n, r, rc);
    if (told_rc == -EFAULT) { /* as the kernel, which would have taken it back */
        if (rc >= 0)
            undo(b, c, fd, r);
        vb_notify_answer(b->listener, n->id, 0, EFAULT);
    } else if (told_rc == -ENOENT) {
        keep(b, n, c, r, rc);
    }
}

/* The same call again, after a signal took its answer. */
static bool redeliver(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c,
                      const struct vb_request *r)
{
    struct vb_kept *k = kept_by_tid(b, (pid_t)n->pid);
    if (!k)
        return false;
    if (k->context != c || k->theirs != (int)n->data.args[0] || !same(r, &k->r)) {
        kept_undo(b, k);
        return false;
    }
    int rc = deliver(b, n, &k->r, k->rc);
    if (rc == -ENOENT)
        return true; /* again: it stays kept */
    if (rc == -EFAULT) {
        kept_undo(b, k);
        vb_notify_answer(b->listener, n->id, 0, EFAULT);
        return true;
    }
    b->redelivered++;
    kept_free(b, k);
    return true;
}

static int judge(struct vb_broker *b, const struct seccomp_notif *n, struct vb_context *c, int fd,
                 const struct vb_request *r)
{
    struct vb_verdict v;
    char text[256];
    vb_judge(&c->slot->rules, &c->slot->usage, c->objects, r, &v);
    if (v.rc) { /* perhaps only for what a context has that has ended, but for a descriptor of ours */
        vb_cache_sweep(b, true, fd);
        vb_contexts_ended(b);
        vb_judge(&c->slot->rules, &c->slot->usage, c->objects, r, &v);
    }
    if (v.rc && v.rule[0])
        vb_refused(b, (pid_t)n->pid, c->slot, vb_request_text(r, text, sizeof text), v.rule, v.text, v.rc);
    return v.rc;
}

/* What the application is told at once; 1: it is answered, or will be. */
static int request(struct vb_broker *b, const struct seccomp_notif *n)
{
    struct vb_request *r = &b->request;
    struct vb_context *c;
    struct vb_swaps swaps;
    pid_t tid = (pid_t)n->pid;
    uint64_t ticket;
    int fd;
    int rc = vb_fetch(b, tid, (int)n->data.args[0], &fd, &c);
    if (rc)
        return rc == -EBADF || rc == -ENOTTY ? rc : -EIO;
    rc = vb_request_take(r, n->data.args[2], read_app, &tid);
    if (!vb_notify_valid(b->listener, n->id))
        return 1; /* what was read may be another's */
    if (rc) {
        if (rc == -ENOSPC || rc == -EFAULT)
            return rc; /* a probe */
        if ((rc == -EOPNOTSUPP || rc == -EPROTONOSUPPORT) && told(b, r))
            count_refused(b, c->slot);
        else
            vb_refused(b, tid, c->slot, r->command ? r->command->name : "?", "schema", hw_error(), rc);
        return rc;
    }
    if (b->n_kept) {
        if (redeliver(b, n, c, r))
            return 1;
        if (vb_fetch(b, tid, (int)n->data.args[0], &fd, &c)) /* undoing may have dropped it from the cache */
            return -EBADF;
    }
    rc = judge(b, n, c, fd, r);
    if (rc)
        return rc;
    rc = vb_reserve(c->objects, r, &ticket);
    if (rc)
        return rc;
    if (r->where == VB_MEMORY) {
        vb_memory(b, n, c, fd, r, ticket);
        return 1;
    }
    rc = vb_swap_in(tid, r, &swaps);
    if (rc) {
        vb_settle(c->objects, r, ticket, rc, true);
        return rc;
    }
    rc = run_here(b, fd, r);
    vb_swap_back(&swaps);
    vb_finish(b, n, c, fd, r, ticket, rc, true);
    return 1;
}

void vb_ioctl(struct vb_broker *b, const struct seccomp_notif *n)
{
    int rc = (uint32_t)n->data.args[1] == RDMA_VERBS_IOCTL ? request(b, n) : -ENOTTY;
    b->requests++;
    if (rc <= 0)
        vb_notify_answer(b->listener, n->id, 0, -rc);
}
