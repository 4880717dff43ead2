/* SPDX-License-Identifier: Apache-2.0 */
/* A fake RDMA kernel: executes requests like uverbs, keeps the objects of each device inode, and creates eventfds. */
#include "verbs/stub/inject.h"
#include "verbs_fake_int.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

struct fake *fake;
int fake_channel, fake_events;

static int devices(struct vb_device *out, unsigned cap)
{
    static const struct vb_device d[] = {{"uverbs0", "fake0", 0}, {"uverbs1", "fake1", 0}};
    for (unsigned i = 0; i < 2 && i < cap; i++) {
        out[i] = d[i];
        out[i].rdev = makedev(1, i ? 5 : 3);
    }
    return 2;
}

static struct fake_file *file_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || !S_ISCHR(st.st_mode))
        return NULL;
    for (unsigned i = HW_MIN(fake->n_files, FAKE_FILES); i-- > 0;) {
        if (fake->file[i].dev == st.st_dev && fake->file[i].ino == st.st_ino)
            return &fake->file[i];
    }
    struct fake_file *f = &fake->file[fake->n_files++ % FAKE_FILES];
    memset(f, 0, sizeof *f);
    f->dev = st.st_dev;
    f->ino = st.st_ino;
    return f;
}

int fake_make(struct fake_file *f, enum vb_type t, uint32_t *number)
{
    for (unsigned i = 0; i < FAKE_NUMBERS; i++) {
        uint32_t n = f->next++ % FAKE_NUMBERS;
        if (!f->type[n]) {
            f->type[n] = (uint8_t)t;
            fake->live++;
            *number = n;
            return 0;
        }
    }
    return -ENOSPC;
}

int fake_unmake(struct fake_file *f, enum vb_type t, uint64_t number)
{
    if (number >= FAKE_NUMBERS || f->type[number] != t)
        return -ENOENT;
    f->type[number] = 0;
    if (t == VB_MR)
        fake->mr_bytes -= (long)f->length[number];
    fake->live--;
    return 0;
}

struct ib_uverbs_attr *fake_attr(struct ib_uverbs_ioctl_hdr *h, uint16_t id)
{
    for (unsigned i = 0; i < h->num_attrs; i++) {
        if (h->attrs[i].attr_id == id)
            return &h->attrs[i];
    }
    return NULL;
}

/* fake_stub: thread that makes the current request, or 0 for this process. base: window address with which the
 * request's addresses were computed. here: window address in this process. */
pid_t fake_stub;
static uint64_t base;
static uint8_t *here;

void *fake_bytes(struct ib_uverbs_attr *a, bool in)
{
    if (in && a->len <= 8)
        return &a->data;
    /* The program can overwrite the last output's address in its window, and the kernel reads the current value. */
    if (here && (a->data < base || a->data - base > (uint64_t)VB_WINDOW_SIZE - a->len))
        return NULL;
    return (void *)((uintptr_t)here + (a->data - base)); // NOLINT(performance-no-int-to-ptr): here may be NULL
}

int fake_give(struct ib_uverbs_attr *a, const void *src, size_t n)
{
    if (!a || a->len < n)
        return -ENOSPC;
    if (!fake_bytes(a, false))
        return -EFAULT;
    memset(fake_bytes(a, false), 0, a->len);
    memcpy(fake_bytes(a, false), src, n);
    a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
    return 0;
}

static int invoke(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, struct fake_op *op)
{
    struct ib_uverbs_attr *in = fake_attr(h, UVERBS_ATTR_CORE_IN), *out = fake_attr(h, UVERBS_ATTR_CORE_OUT),
                          *cmd = fake_attr(h, UVERBS_ATTR_WRITE_CMD);
    uint32_t number;
    if (!in || !cmd)
        return -EINVAL;
    op->command = (uint32_t)cmd->data;
    op->len = in->len;
    memcpy(op->in, fake_bytes(in, true), HW_MIN(in->len, sizeof op->in));
    switch (op->command) {
    case IB_USER_VERBS_CMD_ALLOC_PD: {
        int rc = fake_make(f, VB_PD, &number);
        return rc ? rc : fake_give(out, &(struct ib_uverbs_alloc_pd_resp){.pd_handle = number}, sizeof number);
    }
    case IB_USER_VERBS_CMD_REG_MR: {
        struct ib_uverbs_reg_mr reg;
        memcpy(&reg, op->in, sizeof reg);
        if (!here) /* the broker made the request with its own memory */
            fake->wrong++;
        int rc = fake_make(f, VB_MR, &number);
        if (rc)
            return rc;
        f->length[number] = reg.length;
        f->iova[number] = reg.hca_va;
        fake->mr_bytes += (long)reg.length;
        rc = fake_give(
            out, &(struct ib_uverbs_reg_mr_resp){.mr_handle = number, .lkey = number + 1, .rkey = number + 2}, 12);
        return rc ? fake_unmake(f, VB_MR, number), rc : 0;
    }
    case IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: {
        int fd = fcntl(fake_channel, F_DUPFD_CLOEXEC, 3);
        return fd < 0 ? -errno : fake_give(out, &(struct ib_uverbs_create_comp_channel_resp){.fd = (uint32_t)fd}, 4);
    }
    case IB_USER_VERBS_CMD_POST_SEND:
        return fake_give(out, &(struct ib_uverbs_post_send_resp){.bad_wr = 0}, 4);
    case IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:
    case IB_USER_VERBS_CMD_MODIFY_QP:
        return 0;
    default:
        return fake_invoke_mlx5(f, h, op);
    }
}

/* Destroys an object. The second attribute, if present, receives the number of the object's unread events. */
static int destroy(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, enum vb_type t)
{
    uint64_t events = 0;
    int rc = fake_unmake(f, t, h->attrs[0].data);
    return rc || h->num_attrs < 2 ? rc : fake_give(&h->attrs[1], &events, HW_MIN(h->attrs[1].len, sizeof events));
}

/* Lists as many handles of a type as fit, like gather_objects_handle(). */
static int list_handles(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h)
{
    static const uint8_t types[] = {
        [UVERBS_OBJECT_PD] = VB_PD,   [UVERBS_OBJECT_CQ] = VB_CQ, [UVERBS_OBJECT_QP] = VB_QP,
        [UVERBS_OBJECT_SRQ] = VB_SRQ, [UVERBS_OBJECT_MR] = VB_MR, [UVERBS_OBJECT_WQ] = VB_WQ};
    static uint32_t list[FAKE_NUMBERS];
    uint32_t total = 0;
    struct ib_uverbs_attr *which = fake_attr(h, UVERBS_ATTR_INFO_OBJECT_ID),
                          *out = fake_attr(h, UVERBS_ATTR_INFO_HANDLES_LIST);
    if (!which || !out || which->data >= sizeof types || !types[which->data])
        return -EOPNOTSUPP;
    for (uint32_t i = 0; i < FAKE_NUMBERS && total < out->len / sizeof *list; i++) {
        if (f->type[i] == types[which->data])
            list[total++] = i;
    }
    int rc = fake_give(out, list, total * sizeof *list);
    return rc ? rc : fake_give(fake_attr(h, UVERBS_ATTR_INFO_TOTAL_HANDLES), &total, sizeof total);
}

static int method(struct fake_file *f, struct ib_uverbs_ioctl_hdr *h, struct fake_op *op)
{
    struct ib_uverbs_attr *a;
    uint32_t number;
    int rc;
    switch (h->object_id << 16 | h->method_id) {
    case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_INVOKE_WRITE:
        return invoke(f, h, op);
    case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_GET_CONTEXT:
        return 0;
    case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_INFO_HANDLES:
        return list_handles(f, h);
    case UVERBS_OBJECT_DEVICE << 16 | UVERBS_METHOD_QUERY_PORT:
        a = fake_attr(h, UVERBS_ATTR_QUERY_PORT_PORT_NUM);
        if (!a)
            return -EINVAL;
        op->len = 1;
        op->in[0] = *(uint8_t *)fake_bytes(a, true);
        struct ib_uverbs_query_port_resp_ex resp = {.legacy_resp.state = op->in[0]};
        return fake_give(fake_attr(h, UVERBS_ATTR_QUERY_PORT_RESP), &resp, sizeof resp);
    case UVERBS_OBJECT_PD << 16 | UVERBS_METHOD_PD_DESTROY:
        return destroy(f, h, VB_PD);
    case UVERBS_OBJECT_CQ << 16 | UVERBS_METHOD_CQ_DESTROY:
        return destroy(f, h, VB_CQ);
    case UVERBS_OBJECT_QP << 16 | UVERBS_METHOD_QP_DESTROY:
        return destroy(f, h, VB_QP);
    case UVERBS_OBJECT_SRQ << 16 | UVERBS_METHOD_SRQ_DESTROY:
        return destroy(f, h, VB_SRQ);
    case UVERBS_OBJECT_WQ << 16 | UVERBS_METHOD_WQ_DESTROY:
        return destroy(f, h, VB_WQ);
    case UVERBS_OBJECT_CQ << 16 | UVERBS_METHOD_CQ_CREATE:
        a = fake_attr(h, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
        if (a && !fake_is_channel(a->data_s64))
            return -EBADF;
        rc = fake_make(f, VB_CQ, &number);
        if (!rc)
            fake_attr(h, UVERBS_ATTR_CREATE_CQ_HANDLE)->data = number;
        number = 64;
        return rc ? rc : fake_give(fake_attr(h, UVERBS_ATTR_CREATE_CQ_RESP_CQE), &number, sizeof number);
    case UVERBS_OBJECT_ASYNC_EVENT << 16 | UVERBS_METHOD_ASYNC_EVENT_ALLOC:
        a = fake_attr(h, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE);
        rc = fcntl(fake_events, F_DUPFD_CLOEXEC, 3);
        a->data_s64 = rc;
        return rc < 0 ? -errno : 0;
    case UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_QUERY_MR:
        number = (uint32_t)fake_attr(h, UVERBS_ATTR_QUERY_MR_HANDLE)->data;
        if (number >= FAKE_NUMBERS || f->type[number] != VB_MR)
            return -ENOENT;
        rc = fake_give(fake_attr(h, UVERBS_ATTR_QUERY_MR_RESP_LENGTH), &f->length[number], 8);
        return rc ? rc : fake_give(fake_attr(h, UVERBS_ATTR_QUERY_MR_RESP_IOVA), &f->iova[number], 8);
    case UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_MR_DESTROY:
        return destroy(f, h, VB_MR);
    case UVERBS_OBJECT_MR << 16 | UVERBS_METHOD_REG_DMABUF_MR:
        return fake_reg_dmabuf(f, h);
    case UVERBS_OBJECT_MR << 16 | METHOD_REG_MR:
        return fake_reg_method(f, h);
    default:
        return -EPROTONOSUPPORT;
    }
}

/* Acts like a compromised broker. */
static void breach(int which)
{
    static char name[] = "/bin/true";
    char *const argv[] = {name, NULL};
    switch (which) {
    case BREACH_EXEC:
        execve(name, argv, argv + 1);
        break;
    case BREACH_FORK:
        if (fork() == 0)
            _exit(0);
        break;
    case BREACH_SOCKET:
        close(socket(AF_UNIX, SOCK_STREAM, 0));
        break;
    case BREACH_PTRACE:
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        break;
    case BREACH_MOUNT:
        mount("none", "/nowhere", "tmpfs", 0, NULL);
        break;
    case BREACH_IOCTL: {
        int n;
        ioctl(0, FIONREAD, &n);
        break;
    }
    case BREACH_CODE:
        (void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        break;
    case BREACH_OPEN:
        close(open("/dev/null", O_RDONLY | O_CLOEXEC));
        break;
    case BREACH_NODE:
        mknod("/nowhere/null", S_IFCHR | 0600, makedev(1, 3));
        break;
    case BREACH_WRITE: {
        char byte = 0;
        struct iovec v = {&byte, 1};
        process_vm_writev(getppid(), &v, 1, &v, 1, 0);
        break;
    }
    case BREACH_WATCH:
        inotify_add_watch(0, "/etc", IN_ACCESS);
        break;
    default:
        break;
    }
}

/* The file of the latest request and, for a stub's request, the file's state before the request. */
static struct fake_file *latest, before;
static unsigned live_before;
static long bytes_before;

void fake_undo(void)
{
    *latest = before;
    fake->live = live_before;
    fake->mr_bytes = bytes_before;
}

int fake_run(int fd, struct ib_uverbs_ioctl_hdr *h, pid_t stub, uint64_t was, void *is)
{
    fake_stub = stub;
    base = was;
    here = is;
    struct fake_file *f = latest = file_of(fd);
    if (stub && f) {
        before = *f;
        live_before = fake->live;
        bytes_before = fake->mr_bytes;
    }
    unsigned at = fake->ran % FAKE_OPS;
    struct fake_op *op = &fake->op[at];
    *op = (struct fake_op){.object = h->object_id, .method = h->method_id};
    fake->ran++;
    if (!f || h->length != sizeof *h + h->num_attrs * sizeof h->attrs[0] || h->reserved1 || h->reserved2)
        fake->wrong++;
    if (fake->ms)
        (void)poll(NULL, 0, fake->ms);
    breach(fake->breach);
    if (fake->fail)
        return fake->fail;
    if (h->driver_id != fake_driver())
        return -EINVAL;
    op->taken = true;
    return f ? method(f, h, op) : -ENOTTY;
}

static int run(int fd, struct ib_uverbs_ioctl_hdr *h)
{
    return fake_run(fd, h, 0, 0, NULL);
}

const struct vb_kernel fake_kernel = {.devices = devices, .ioctl = run};
