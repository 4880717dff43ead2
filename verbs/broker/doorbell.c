/* SPDX-License-Identifier: Apache-2.0 */
/* rxe and siw learn of new work by write() of a command in the old format, which the kernel accepts only from the
 * process that opened the file (ib_safe_file_access()): the broker. Any process may send the same command by ioctl. The
 * command's response stays unwritten: it would hold the position of the first bad inline work request, of which there
 * are none, and rdma-core's providers do not read it. */
#include "verbs/broker/broker_int.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

struct bell {
    struct ib_uverbs_cmd_hdr hdr;
    union {
        struct ib_uverbs_post_send post; /* POST_RECV and POST_SRQ_RECV have the same layout */
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
               "the three have their counts in the same place");

/* Returns the command's kind; NULL: it is more than a doorbell. */
static const struct kind *find_doorbell_kind(const struct bell *l, uint64_t count)
{
    for (unsigned i = 0; i < HW_ARRAY_LEN(kinds); i++) {
        const struct kind *k = &kinds[i];
        if (l->hdr.command != k->command)
            continue;
        if (count != sizeof l->hdr + k->in || l->hdr.in_words * 4ull != count || l->hdr.out_words * 4ull != k->out)
            return NULL;
        /* Work requests use mapped queues: inline ones would name memory. */
        return k->out && (l->u.post.wr_count || l->u.post.sge_count) ? NULL : k;
    }
    return NULL;
}

static int ring_doorbell(struct vb_broker *b, int fd, uint32_t driver, const struct kind *k, const struct bell *l)
{
    uint32_t bad; /* how many inline work requests were posted: there are none */
    struct {
        struct vb_header hdr;
        struct ib_uverbs_attr attr[3];
    } q;
    unsigned n = 0;
    memset(&q, 0, sizeof q);
    q.attr[n].attr_id = UVERBS_ATTR_CORE_IN;
    q.attr[n].len = k->in;
    /* Up to 8 bytes are stored in the attribute itself (drivers/infiniband/core/uverbs_ioctl.c,
     * uverbs_attr_ptr_is_inline()) */
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
        /* If it has become a device by the time the kernel looks, the kernel returns EACCES. */
        vb_notify_continue(call->listener, n->id);
        return;
    }
    int rc = -EACCES; /* the kernel's error for a descriptor that another process has opened */
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
