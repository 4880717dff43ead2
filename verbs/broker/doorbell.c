/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries of rxe and siw announce new work requests, or request a CQ's notification, by write(), the interface
 * that preceded ioctl(). The kernel accepts such a write() only with the credentials of the process that opened the
 * file (ib_safe_file_access()), which is the tracer. Any process may send the same command by ioctl(), so the broker
 * does this for the application.
 *
 * The response is not written to the application. It would contain the position of the first bad inline work request,
 * and there are no inline work requests. rdma-core's providers do not read the response. */
#include "verbs/broker/broker_int.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

struct bell {
    struct ib_uverbs_cmd_hdr hdr;
    union {
        struct ib_uverbs_post_send post; /* also for POST_RECV and POST_SRQ_RECV, which have the same layout */
        struct ib_uverbs_req_notify_cq notify;
    } u;
};

static const struct kind {
    uint32_t command;
    uint16_t in, out;
} kinds[] = {
    {IB_USER_VERBS_CMD_POST_SEND, sizeof(struct ib_uverbs_post_send), sizeof(struct ib_uverbs_post_send_resp)},
    {IB_USER_VERBS_CMD_POST_RECV, sizeof(struct ib_uverbs_post_recv), sizeof(struct ib_uverbs_post_recv_resp)},
    {IB_USER_VERBS_CMD_POST_SRQ_RECV, sizeof(struct ib_uverbs_post_srq_recv),
     sizeof(struct ib_uverbs_post_srq_recv_resp)},
    {IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, sizeof(struct ib_uverbs_req_notify_cq), 0},
};
_Static_assert(sizeof(struct ib_uverbs_post_send) == 24 && sizeof(struct ib_uverbs_post_recv) == 24 &&
                   sizeof(struct ib_uverbs_post_srq_recv) == 24,
               "the three structs must have their counts at the same offset");

/* Returns the kind of a doorbell, or NULL if the command is not a valid doorbell. */
static const struct kind *find_doorbell_kind(const struct bell *l, uint64_t count)
{
    for (unsigned i = 0; i < HW_ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        if (l->hdr.command != k->command)
            continue;
        if (count != sizeof l->hdr + k->in || l->hdr.in_words * 4ull != count || l->hdr.out_words * 4ull != k->out)
            return NULL;
        /* Work requests must be in the mapped queues. Inline work requests would contain addresses of memory. */
        return k->out && (l->u.post.wr_count || l->u.post.sge_count) ? NULL : k;
    }
    return NULL;
}

static int ring_doorbell(struct vb_broker *b, int fd, uint32_t driver, const struct kind *k, const struct bell *l)
{
    uint32_t bad; /* position of the first bad inline work request; never used, because there are none */
    struct {
        struct vb_header hdr;
        struct ib_uverbs_attr attr[3];
    } q;
    unsigned n = 0;
    memset(&q, 0, sizeof q);
    q.attr[n].attr_id = UVERBS_ATTR_CORE_IN;
    q.attr[n].len = k->in;
    /* Up to 8 bytes are stored in the attribute (uverbs_attr_ptr_is_inline() in
     * drivers/infiniband/core/uverbs_ioctl.c). */
    if (k->in <= sizeof q.attr[n].data)
        memcpy(&q.attr[n].data, &l->u, k->in);
    else
        q.attr[n].data = (uintptr_t)&l->u;
    q.attr[n++].flags = UVERBS_ATTR_F_MANDATORY;
    if (k->out) {
        q.attr[n].attr_id = UVERBS_ATTR_CORE_OUT;
        q.attr[n].len = k->out;
        q.attr[n].data = (uintptr_t)&bad;
        q.attr[n++].flags = UVERBS_ATTR_F_MANDATORY;
    }
    q.attr[n].attr_id = UVERBS_ATTR_WRITE_CMD;
    q.attr[n].len = sizeof q.attr[n].data;
    q.attr[n].data = k->command;
    q.attr[n++].flags = UVERBS_ATTR_F_MANDATORY;
    q.hdr.length = (uint16_t)(sizeof q.hdr + n * sizeof q.attr[0]);
    q.hdr.object_id = UVERBS_OBJECT_DEVICE;
    q.hdr.method_id = UVERBS_METHOD_INVOKE_WRITE;
    q.hdr.num_attrs = (uint16_t)n;
    q.hdr.driver_id = driver;
    return b->o->kernel->ioctl(fd, (struct ib_uverbs_ioctl_hdr *)&q);
}

void vb_doorbell(struct vb_broker *b, const struct vb_call *call)
{
    const struct seccomp_notif *n = &call->n;
    pid_t tid = (pid_t)n->pid;
    uint64_t count = n->data.args[2];
    const struct kind *k = NULL;
    struct vb_context *c;
    struct bell l;
    int fd;
    if (vb_fetch(b, tid, (int)n->data.args[0], &fd, &c)) {
        /* If another thread replaces this descriptor with a device before the kernel continues, the kernel returns
         * EACCES. */
        vb_notify_continue(call->listener, n->id);
        return;
    }
    int rc = -EACCES; /* same as the kernel's error for a file that another process has opened */
    if (c->driver && c->driver->doorbells && count >= sizeof l.hdr && count <= sizeof l) {
        rc = vb_mem_read(tid, n->data.args[1], &l, count);
        if (!vb_notify_valid(call->listener, n->id))
            return;
        if (!rc) {
            k = find_doorbell_kind(&l, count);
            rc = k ? ring_doorbell(b, fd, c->driver->id, k, &l) : -EACCES;
        }
    }
    b->doorbells++;
    vb_notify_answer(call->listener, n->id, rc >= 0 ? (int64_t)count : 0, rc < 0 ? -rc : 0);
}
