/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares a context's counts with the kernel's list of objects. The result of a request that ran in the stub is read
 * from registers of the application's process, and a seccomp filter of the application can answer instead of the
 * kernel. The broker therefore does not trust the result. A new MR is verified with QUERY_MR. If the result is unknown,
 * the creation of an object has failed, an MR may have changed, or a new MR was not confirmed, the broker lists the
 * context's objects (INFO_HANDLES) and sets the counts to the kernel's numbers.
 */
#include "verbs/broker/broker_int.h"
#include "verbs/policy/policy_int.h"
#include "verbs/schema/newer.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of entries in a list, because the length of an attribute has 16 bits. */
#define HANDLES_MAX (UINT16_MAX / sizeof(uint32_t))

struct query {
    struct vb_header hdr;
    struct ib_uverbs_attr attr[5];
};

static void begin_query(struct query *q, const struct vb_context *c, const struct vb_request *r, uint16_t object,
                        uint16_t method)
{
    memset(q, 0, sizeof *q);
    q->hdr.length = sizeof q->hdr;
    q->hdr.object_id = object;
    q->hdr.method_id = method;
    if (c->driver || r)
        q->hdr.driver_id = c->driver ? c->driver->id : r->hdr.driver_id;
}

static void add_query_attr(struct query *q, uint16_t id, uint16_t len, uint64_t data)
{
    q->attr[q->hdr.num_attrs++] =
        (struct ib_uverbs_attr){.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data};
    q->hdr.length += sizeof q->attr[0];
}

static int run_query(const struct vb_broker *b, int fd, struct query *q)
{
    return b->o->kernel->ioctl(fd, (struct ib_uverbs_ioctl_hdr *)q);
}

/* Queries the kernel for the length and the first address of an MR. */
static int query_mr(const struct vb_broker *b, const struct vb_context *c, const struct vb_request *r, int fd,
                    uint32_t number, uint64_t *length, uint64_t *iova)
{
    struct query q;
    uint32_t lkey, rkey;
    *length = *iova = 0;
    begin_query(&q, c, r, UVERBS_OBJECT_MR, UVERBS_METHOD_QUERY_MR);
    add_query_attr(&q, UVERBS_ATTR_QUERY_MR_HANDLE, 0, number);
    add_query_attr(&q, UVERBS_ATTR_QUERY_MR_RESP_LKEY, sizeof lkey, (uintptr_t)&lkey);
    add_query_attr(&q, UVERBS_ATTR_QUERY_MR_RESP_RKEY, sizeof rkey, (uintptr_t)&rkey);
    add_query_attr(&q, UVERBS_ATTR_QUERY_MR_RESP_LENGTH, sizeof *length, (uintptr_t)length);
    add_query_attr(&q, UVERBS_ATTR_QUERY_MR_RESP_IOVA, sizeof *iova, (uintptr_t)iova);
    return run_query(b, fd, &q);
}

/* Stores the numbers of up to `most` + 1 objects of a type in *out, which the caller must free. Returns how many
 * objects there are; `most` + 1 means that there are more than `most`. Fails with -E2BIG if the list would be too long,
 * or with another -errno. */
static int list_handles(const struct vb_broker *b, const struct vb_context *c, const struct vb_request *r, int fd,
                        uint16_t object, uint64_t most, uint32_t **out)
{
    struct query q;
    uint32_t total = 0;
    if (most >= HANDLES_MAX)
        return -E2BIG;
    uint32_t *list = calloc(most + 1, sizeof *list); /* the additional entry shows whether there are more objects */
    if (!list)
        return -ENOMEM;
    begin_query(&q, c, r, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INFO_HANDLES);
    add_query_attr(&q, UVERBS_ATTR_INFO_OBJECT_ID, sizeof(uint64_t), object);
    add_query_attr(&q, UVERBS_ATTR_INFO_TOTAL_HANDLES, sizeof total, (uintptr_t)&total);
    add_query_attr(&q, UVERBS_ATTR_INFO_HANDLES_LIST, (uint16_t)((most + 1) * sizeof *list), (uintptr_t)list);
    int rc = run_query(b, fd, &q);
    if (rc >= 0)
        rc = (int)HW_MIN((uint64_t)total, most + 1);
    if (rc < 0)
        free(list);
    else
        *out = list;
    return rc;
}

/* The methods that destroy an object by its number, which is attribute 0. In some methods, attribute 1 is a result that
 * counts the events that the kernel has reported (<rdma/ib_user_ioctl_cmds.h>). */
static const struct {
    uint16_t object, method;
    uint16_t events; /* length of the result in bytes, or 0 for none */
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

/* Replaces the recorded MRs with the MRs in list. Keeps sizes that are known and queries the kernel for the others. */
static int take_mrs(struct vb_broker *b, struct vb_context *c, const struct vb_request *r, int fd, const uint32_t *list,
                    int n)
{
    struct vb_mr_seen *seen = calloc((size_t)n + 1, sizeof *seen);
    if (!seen)
        return -ENOMEM;
    for (int i = 0; i < n; i++) {
        uint64_t length, iova;
        seen[i].number = list[i];
        seen[i].known = vb_objects_mr_known(c->objects, list[i], &seen[i].bytes);
        /* The iova can be used instead of the address, because the kernel accepts an MR only if both have the same
         * offset in a page (ib_uverbs_reg_mr()). */
        if (!seen[i].known && query_mr(b, c, r, fd, list[i], &length, &iova) >= 0 && length > 0) {
            seen[i].known = true;
            seen[i].bytes = vb_pinned_bytes(iova, length);
        }
    }
    vb_objects_set_mrs(c->objects, seen, (unsigned)n);
    free(seen);
    return 0;
}

/* Sets the counts to the kernel's numbers. r is a request of the context, from which the driver is taken if necessary,
 * or NULL. */
static void reconcile_context(struct vb_broker *b, struct vb_context *c, int fd, const struct vb_request *r)
{
    bool all = true;
    for (unsigned t = 0; t < VB_TYPES; t++) {
        uint32_t *list;
        uint64_t counted = vb_objects_count(c->objects, (enum vb_type)t);
        bool bytes = t == VB_MR && vb_objects_bytes(c->objects);
        if (!destroy[t].object || !(counted || bytes)) /* a count of 0 cannot be too high */
            continue;
        int n = list_handles(b, c, r, fd, destroy[t].object, counted, &list);
        if (n < 0) {
            hw_log(b->o->log, HAWSER_LOG_DEBUG, "verbs: %s: cannot list objects of type %s: %s", b->container->id,
                   vb_type_name((enum vb_type)t), hw_errno_name(-n));
            all = false;
            continue;
        }
        all &= (uint64_t)n <= counted;
        if (t == VB_MR)
            all &= take_mrs(b, c, r, fd, list, n) == 0;
        else
            vb_objects_set_count(c->objects, (enum vb_type)t, (uint64_t)n);
        free(list);
    }
    if (all)
        c->doubt = false;
    c->asked = hw_now();
    b->reconciled++;
}

bool vb_reconcile(struct vb_broker *b, struct vb_context *c, int fd, uint64_t age_ns)
{
    if (c->running || !c->driver || hw_now() - c->asked < age_ns)
        return false;
    reconcile_context(b, c, fd, NULL);
    return true;
}

/* Returns true if the MR in the reply is new and has the requested length and address. */
static bool confirm_mr(struct vb_broker *b, struct vb_context *c, int fd, struct vb_request *r)
{
    uint32_t number;
    uint64_t length, iova, known, asked_length, asked_iova;
    return vb_mr_place(r, &asked_length, &asked_iova) && vb_request_number(r, &r->command->made, &number) == 0 &&
           !vb_objects_mr_known(c->objects, number, &known) && query_mr(b, c, r, fd, number, &length, &iova) >= 0 &&
           length == asked_length && iova == asked_iova;
}

void vb_settle_stub(struct vb_broker *b, struct vb_context *c, int fd, struct vb_request *r, uint64_t ticket, int rc)
{
    struct vb_mr_ask m;
    vb_mr_ask(r, &m);
    bool makes = r->command->makes != VB_NONE;
    c->running--;
    if (rc == VB_UNKNOWN || m.kind == VB_MR_AGAIN || (rc < 0 && makes)) {
        vb_settle(c->objects, r, ticket, VB_UNKNOWN, false);
        if (m.kind == VB_MR_AGAIN)
            vb_objects_forget_mr(c->objects, m.number);
        c->doubt = true;
    } else {
        bool true_number = rc >= 0 && r->command->makes == VB_MR && confirm_mr(b, c, fd, r);
        vb_settle(c->objects, r, ticket, rc, true_number);
        c->doubt |= rc >= 0 && r->command->makes == VB_MR && !true_number;
    }
    if (c->doubt && !c->running)
        reconcile_context(b, c, fd, r);
}

static int read_here(void *arg, uint64_t address, void *dst, size_t n)
{
    (void)arg;
    memcpy(dst, (const void *)(uintptr_t)address, n); // NOLINT(performance-no-int-to-ptr): made by vb_undo() below
    return 0;
}

/* Destroys the object that r has created. Uses the request that an application would send, so that the counts are
 * updated as for such a request. */
void vb_undo(struct vb_broker *b, struct vb_context *c, int fd, const struct vb_request *r)
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
        rc = vb_run_here(b, fd, d);
        vb_settle(c->objects, d, ticket, rc, true);
    }
    if (rc < 0)
        hw_log(b->o->log, HAWSER_LOG_WARN, "verbs: %s: cannot destroy %s %u, which stays in its context: %s",
               b->container->id, vb_type_name(t), number, hw_errno_name(-rc));
    b->undone++;
    free(d);
}
