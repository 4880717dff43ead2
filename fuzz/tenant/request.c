/* SPDX-License-Identifier: Apache-2.0 */
/* Composes requests in the memory of the tenant's programs: any command of the schema, mostly well formed. */
#include "fuzz/tenant/steps.h"
#include "verbs/policy/policy.h"
#include "verbs/schema/newer.h"

#include <linux/audit.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/mlx5-abi.h>
#include <sys/syscall.h>

#define SLOT     0x400u /* bytes of a slot in page 0 for a request, and in the page of its outputs */
#define INPUTS   0x200u /* offset of the inputs in a slot */
#define UNMAPPED 0x5000u

#define WRITE(c) UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, IB_USER_VERBS_CMD_##c
#define EX(c) \
    UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##c
static const struct {
    uint16_t object, method;
    uint32_t command;
} often[] = {
    {WRITE(ALLOC_PD)},
    {WRITE(REG_MR)},
    {WRITE(REREG_MR)},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, 0},
    {WRITE(CREATE_COMP_CHANNEL)},
    {WRITE(CREATE_CQ)},
    {WRITE(CREATE_QP)},
    {UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, 0},
    {UVERBS_OBJECT_MR, METHOD_REG_MR, 0},
    {WRITE(DEREG_MR)},
    {WRITE(REG_MR)},
    {WRITE(ALLOC_MW)},
    {WRITE(CREATE_AH)},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, 0},
    {UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, 0},
    {WRITE(MODIFY_QP)},
    {UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, 0},
    {EX(CREATE_CQ)},
    {WRITE(CREATE_SRQ)},
    {UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, 0},
    {UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, 0},
    {UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, 0},
    {EX(CREATE_QP)},
    {EX(CREATE_WQ)},
};

struct composer {
    struct t_thread *th;
    struct t_mm *mm;
    const struct vb_command *c;
    const struct vb_driver_part *part;
    uint8_t how, which; /* how: variants of the outputs; which: the choice of objects */
    uint32_t slot, in, out;
    struct vb_header h;
};

static void put(const struct composer *c, uint32_t at, const void *src, size_t n)
{
    if (at + n <= T_MEMORY)
        memcpy(c->mm->byte + at, src, n);
}

static void add_attr(struct composer *c, uint16_t id, uint16_t len, uint64_t data)
{
    const struct ib_uverbs_attr a = {.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY, .data = data};
    put(c, c->slot + (uint32_t)sizeof c->h + c->h.num_attrs++ * (uint32_t)sizeof a, &a, sizeof a);
}

/* Adds an input. Up to 8 bytes are stored in the attribute itself. */
static void add_input(struct composer *c, uint16_t id, const void *src, uint32_t n)
{
    uint64_t data = 0;
    if (n <= sizeof data) {
        memcpy(&data, src, n);
    } else {
        if (c->in + n > c->slot + SLOT)
            return;
        put(c, c->in, src, n);
        data = t_address(c->mm, c->in);
        c->in += (n + 7) & ~7u;
    }
    add_attr(c, id, (uint16_t)n, data);
}

static void add_output(struct composer *c, uint16_t id, uint32_t n)
{
    static const uint32_t pages[] = {[13] = T_READ_ONLY * T_PAGE, [14] = T_DELAYED * T_PAGE, [15] = UNMAPPED};
    uint32_t base = pages[c->how & 15] && !t.honest ? pages[c->how & 15] : T_PAGE;
    uint32_t at = base + (c->slot + c->out) % T_PAGE;
    if (n > 8 && c->how & 16 && !t.honest) /* crosses the end of a page */
        at = base + T_PAGE - 8;
    add_attr(c, id, (uint16_t)n, t_address(c->mm, at));
    c->out += (n + 7) & ~7u;
}

/* Chooses memory of the program, or of the stub's window. */
static uint64_t choose_memory(const struct composer *c, uint8_t b)
{
    uint32_t at = (b & 3u) * (uint32_t)T_PAGE + (b >> 6) * 16u;
    return t_address(c->mm, b & 4 ? T_WINDOW_AT + at : at);
}

static uint64_t choose_length(uint8_t b)
{
    return (uint64_t)(b & 7) * T_PAGE / 2 + (b >> 6);
}

static uint32_t choose_access(uint8_t b)
{
    return b >= 0xf0 ? IB_UVERBS_ACCESS_ON_DEMAND | (b & 7) : b & (b & 0x40 ? 0xf : IB_UVERBS_ACCESS_REMOTE_READ);
}

/* Fills the core part, mostly with sensible values. */
static uint32_t fill_core(const struct composer *c, uint8_t core[INPUTS])
{
    union {
        struct ib_uverbs_reg_mr reg;
        struct ib_uverbs_rereg_mr rereg;
        struct ib_uverbs_create_qp qp;
        struct ib_uverbs_create_cq cq;
        struct ib_uverbs_ex_create_cq ex_cq;
        struct ib_uverbs_modify_qp modify;
        struct ib_uverbs_create_ah ah;
        struct ib_uverbs_open_xrcd xrcd;
        uint8_t bytes[INPUTS];
    } u = {.bytes = {0}};
    static const uint8_t flags[] = {4, 1, 5, 4, 1, 7, 2, 0}; /* IB_MR_REREG_ACCESS, IB_MR_REREG_TRANS ... */
    const struct vb_command *cmd = c->c;
    uint32_t n = HW_MIN(cmd->in_min, INPUTS), number = c->which % 6;
    uint8_t b;
    switch (cmd->command) {
    case IB_USER_VERBS_CMD_REG_MR:
        u.reg.start = choose_memory(c, t_byte());
        u.reg.length = choose_length(t_byte());
        u.reg.hca_va = u.reg.start;
        u.reg.access_flags = choose_access(t_byte());
        break;
    case IB_USER_VERBS_CMD_REREG_MR:
        u.rereg.mr_handle = number;
        u.rereg.flags = flags[t_byte() % HW_ARRAY_LEN(flags)];
        u.rereg.start = choose_memory(c, t_byte());
        u.rereg.length = choose_length(t_byte());
        u.rereg.hca_va = u.rereg.start;
        u.rereg.access_flags = choose_access(t_byte());
        break;
    case IB_USER_VERBS_CMD_CREATE_QP:
        b = t_byte();
        u.qp.qp_type = b & 0xf0 ? IB_UVERBS_QPT_RC : b;
        u.qp.max_send_wr = u.qp.max_recv_wr = b >= 0xe0 ? b : 16;
        break;
    case IB_USER_VERBS_CMD_CREATE_CQ:
        b = t_byte();
        u.cq.cqe = b >= 0xe0 ? b : 16;
        b = t_byte();
        u.cq.comp_channel = b & 1 ? step_fd(c->th, b) : -1;
        break;
    case IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_CQ:
        u.ex_cq.cqe = 16;
        b = t_byte();
        u.ex_cq.comp_channel = b & 1 ? step_fd(c->th, b) : -1;
        break;
    case IB_USER_VERBS_CMD_MODIFY_QP:
        b = t_byte();
        u.modify.attr_mask = b & 8 ? 1u << 5 | 1u << 7 : 1;
        u.modify.port_num = u.modify.dest.port_num = b % 5 ? 1 : b & 3;
        u.modify.dest.is_global = b >> 7;
        u.modify.dest.dgid[0] = b >> 4 & 7;
        break;
    case IB_USER_VERBS_CMD_CREATE_AH:
        b = t_byte();
        u.ah.attr.port_num = b % 5 ? 1 : b & 3;
        u.ah.attr.is_global = !(b & 4);
        u.ah.attr.grh.dgid[0] = b >> 6 == 3;
        break;
    case IB_USER_VERBS_CMD_OPEN_XRCD:
        u.xrcd.fd = t_byte() & 1 ? (uint32_t)step_fd(c->th, t_byte()) : UINT32_MAX;
        break;
    default:
        if (cmd->ends != VB_NONE && cmd->ended.at + sizeof number <= n)
            memcpy(u.bytes + cmd->ended.at, &number, sizeof number);
        break;
    }
    if (c->how >= 0xe0 && n) { /* also sets one arbitrary byte */
        b = t_byte();
        u.bytes[b % n] = t_byte();
    }
    memcpy(core, u.bytes, INPUTS);
    return n;
}

static uint32_t fill_driver(const struct composer *c, uint8_t uhw[INPUTS])
{
    uint32_t n = c->part ? HW_MIN(c->part->in_min, INPUTS) : 0;
    for (unsigned i = 0; n && i < c->part->n_addresses; i++) {
        uint64_t at = choose_memory(c, t_byte());
        if (c->part->addresses[i].at + sizeof at <= n)
            memcpy(uhw + c->part->addresses[i].at, &at, sizeof at);
    }
    return n;
}

static void add_write_attrs(struct composer *c)
{
    uint8_t core[INPUTS] = {0}, uhw[INPUTS] = {0};
    uint64_t command = c->c->command;
    uint32_t n = fill_core(c, core);
    if (n)
        add_input(c, UVERBS_ATTR_CORE_IN, core, n);
    if (c->c->out_min)
        add_output(c, UVERBS_ATTR_CORE_OUT, c->c->out_min);
    add_input(c, UVERBS_ATTR_WRITE_CMD, &command, sizeof command);
    n = fill_driver(c, uhw);
    if (n)
        add_input(c, UVERBS_ATTR_UHW_IN, uhw, n);
    if (c->part && c->part->out_max && c->how & 32)
        add_output(c, UVERBS_ATTR_UHW_OUT, HW_MIN(c->part->out_max, 64u));
}

/* Adds an input of a method, with contents that depend on the rule. */
static void add_method_input(struct composer *c, const struct vb_attr_rule *rule)
{
    uint8_t bytes[INPUTS] = {0};
    uint64_t v = c->how >= 0xe0 ? t_byte() : 1;
    uint32_t n = HW_MIN(rule->min, INPUTS);
    bool mr = c->c->object == UVERBS_OBJECT_MR;
    if (rule->memory || (mr && c->c->method == METHOD_REG_MR && rule->id == REG_MR_IOVA))
        v = choose_memory(c, t_byte());
    else if (mr && strstr(rule->name, "LENGTH"))
        v = choose_length(t_byte());
    else if (mr && strstr(rule->name, "ACCESS"))
        v = choose_access(t_byte());
    else if (strstr(rule->name, "TYPE"))
        v = IB_UVERBS_QPT_RC;
    memcpy(bytes, &v, sizeof v);
    if (n)
        add_input(c, rule->id, bytes, n);
}

static void add_method_attrs(struct composer *c)
{
    for (const struct vb_attr_rule *rule = c->c->attrs; rule->kind != VB_END; rule++) {
        bool place = c->c->object == UVERBS_OBJECT_MR && c->c->method == METHOD_REG_MR && rule->memory;
        if (rule->driver || !(rule->mandatory || place || (c->how & 64)))
            continue;
        switch (rule->kind) {
        case VB_IN:
            add_method_input(c, rule);
            break;
        case VB_OUT:
            add_output(c, rule->id, HW_MAX(rule->min, 4u));
            break;
        case VB_HANDLE:
            add_attr(c, rule->id, 0, c->which % 6u);
            break;
        case VB_FD:
        case VB_RAW_FD:
            add_attr(c, rule->id, (uint16_t)rule->min, (uint32_t)step_fd(c->th, t_byte()));
            break;
        default:
            add_attr(c, rule->id, 0, 0);
            break;
        }
    }
}

static const struct vb_command *choose_command(uint8_t b)
{
    if (b < 0xe0)
        return vb_schema(often[b % HW_ARRAY_LEN(often)].object, often[b % HW_ARRAY_LEN(often)].method,
                         often[b % HW_ARRAY_LEN(often)].command);
    unsigned n = 0;
    while (vb_schema_at(n))
        n++;
    return vb_schema_at((t_byte() + (b & 1u) * 256u) % n);
}

void step_request(struct t_thread *th)
{
    struct composer c = {.th = th, .mm = th->process->mm, .c = choose_command(t_byte())};
    uint8_t b = t_byte();
    int fd = step_device(th, b);
    const struct t_file *f = t_table_get(th->table, fd);
    uint32_t driver = t_driver(f && f->kind == T_DEVICE ? f->device : 0);
    c.how = t_byte();
    c.which = t_byte();
    c.part = vb_driver_part(vb_driver(driver), c.c);
    c.slot = (b >> 7) * SLOT;
    c.in = c.slot + INPUTS;
    c.h = (struct vb_header){.object_id = c.c->object, .method_id = c.c->method, .driver_id = driver};
    if (c.c->attrs)
        add_method_attrs(&c);
    else
        add_write_attrs(&c);
    c.h.length = (uint16_t)(sizeof c.h + c.h.num_attrs * sizeof(struct ib_uverbs_attr));
    put(&c, c.slot, &c.h, sizeof c.h);
    th->asked = c.c;
    t_call_make(th, &(struct seccomp_data){.nr = SYS_ioctl,
                                           .arch = AUDIT_ARCH_X86_64,
                                           .args = {(uint64_t)fd, RDMA_VERBS_IOCTL, t_address(c.mm, c.slot)}});
}

void step_doorbell(struct t_thread *th)
{
    struct {
        struct ib_uverbs_cmd_hdr h;
        struct ib_uverbs_post_send post;
    } l = {.h = {IB_USER_VERBS_CMD_POST_SEND, sizeof l / 4, sizeof(struct ib_uverbs_post_send_resp) / 4}};
    uint8_t b = t_byte();
    l.post.wr_count = b >> 6 == 3;
    l.post.qp_handle = b & 7;
    memcpy(th->process->mm->byte + 0xe80, &l, sizeof l);
    t_call_make(th, &(struct seccomp_data){
                        .nr = SYS_write,
                        .arch = AUDIT_ARCH_X86_64,
                        .args = {(uint64_t)step_device(th, b), t_address(th->process->mm, 0xe80), sizeof l}});
}
