/* SPDX-License-Identifier: Apache-2.0 */
/* Copies and checks a request. The checks follow the kernel's checks: drivers/infiniband/core/uverbs_ioctl.c for
 * the header (ib_uverbs_ioctl()) and the attributes (uverbs_set_attr() and uverbs_process_attr()), and uverbs_cmd.c for
 * the core parts. */
#include "verbs/schema/request.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#define INLINE     sizeof(((struct ib_uverbs_attr *)0)->data) /* inputs up to this size are stored in `data` */
#define KERNEL_MAX 4096 /* the kernel's limit for hdr.length, in bytes: PAGE_SIZE */

/* Reserves n zeroed bytes in r->copy and stores their offset in *at. Fails with -E2BIG if r->copy is too small. */
static int reserve_copy_space(struct vb_request *r, uint32_t n, uint32_t *at)
{
    uint32_t aligned = (n + 7u) & ~7u;

    if (n > VB_COPY_MAX || aligned > VB_COPY_MAX - r->used)
        return hw_fail(-E2BIG, "verbs request: the inputs and outputs exceed %u bytes", VB_COPY_MAX);
    *at = r->used;
    memset(r->copy + r->used, 0, aligned);
    r->used += aligned;
    return 0;
}

static int read_header(struct vb_request *r, vb_read_fn read, void *arg)
{
    struct ib_uverbs_attr attrs[VB_ATTRS_MAX];

    if (read(arg, r->address, &r->hdr, sizeof(r->hdr)) < 0)
        return hw_fail(-EFAULT, "verbs request: cannot read the header at 0x%llx", (unsigned long long)r->address);
    if (r->hdr.length > KERNEL_MAX || r->hdr.length != sizeof(r->hdr) + r->hdr.num_attrs * sizeof(attrs[0]))
        return hw_fail(-EINVAL, "verbs request: a length of %u bytes with %u attributes is invalid", r->hdr.length,
                       r->hdr.num_attrs);
    if (r->hdr.reserved1 || r->hdr.reserved2)
        return hw_fail(-EPROTONOSUPPORT, "verbs request: reserved fields of the header are not 0");
    if (r->hdr.num_attrs > VB_ATTRS_MAX)
        return hw_fail(-EINVAL, "verbs request: %u attributes, but at most %u are supported", r->hdr.num_attrs,
                       VB_ATTRS_MAX);
    r->n = r->hdr.num_attrs;
    if (r->n > 0 && (r->address > UINT64_MAX - r->hdr.length ||
                     read(arg, r->address + sizeof(r->hdr), attrs, r->n * sizeof(attrs[0])) < 0))
        return hw_fail(-EFAULT, "verbs request: cannot read the attributes");
    for (unsigned i = 0; i < r->n; i++)
        r->attr[i] = (struct vb_attr){.raw = attrs[i]};
    return 0;
}

/* Stores the command of INVOKE_WRITE, the value of the attribute WRITE_CMD, in *command. Fails with -EINVAL if the
 * attribute is missing or exceeds 32 bits. */
static int write_command(const struct vb_request *r, uint32_t *command)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->attr[i].raw.attr_id == UVERBS_ATTR_WRITE_CMD) {
            if (r->attr[i].raw.data > UINT32_MAX)
                return hw_fail(-EINVAL, "verbs request: WRITE_CMD 0x%llx does not fit in 32 bits",
                               (unsigned long long)r->attr[i].raw.data);
            *command = (uint32_t)r->attr[i].raw.data;
            return 0;
        }
    return hw_fail(-EINVAL, "verbs request: INVOKE_WRITE without WRITE_CMD");
}

static int find_request_command(struct vb_request *r)
{
    bool write = r->hdr.object_id == UVERBS_OBJECT_DEVICE && r->hdr.method_id == UVERBS_METHOD_INVOKE_WRITE;
    uint32_t command = 0;
    int rc;

    r->driver = vb_driver(r->hdr.driver_id);
    if (!r->driver)
        return hw_fail(-EOPNOTSUPP, "verbs request: driver %u is not in the schema", r->hdr.driver_id);
    if (write && (rc = write_command(r, &command)) < 0)
        return rc;
    r->command = vb_schema(r->hdr.object_id, r->hdr.method_id, command);
    if (!r->command && write)
        return hw_fail(-EOPNOTSUPP, "verbs request: write command 0x%x is not in the schema", command);
    if (!r->command)
        return hw_fail(-EOPNOTSUPP, "verbs request: object 0x%x method 0x%x is not in the schema", r->hdr.object_id,
                       r->hdr.method_id);
    if (r->command->where == VB_REFUSED)
        return hw_fail(-EOPNOTSUPP, "%s: refused: %s", r->command->name, r->command->why);
    r->part = vb_driver_part(r->driver, r->command);
    if (r->part && r->part->by_write)
        return hw_fail(-EPROTONOSUPPORT, "%s: the library of driver %s must use INVOKE_WRITE", r->command->name,
                       r->driver->name);
    r->where = r->part && r->part->memory ? VB_MEMORY : r->command->where;
    return 0;
}

static const struct vb_attr_rule *rules_of(const struct vb_request *r)
{
    return r->command->attrs ? r->command->attrs : vb_write_attrs;
}

/* Checks an attribute against its rule, and marks the request as VB_MEMORY if the attribute is the address of memory to
 * pin. */
static int check_attr(struct vb_request *r, const struct vb_attr *a)
{
    const struct ib_uverbs_attr *raw = &a->raw;
    const struct vb_attr_rule *rule = a->rule;
    const char *command = r->command->name;
    uint32_t max = rule->max ? rule->max : rule->min;

    if (raw->attr_data.reserved)
        return hw_fail(-EINVAL, "%s: a reserved field of %s is not 0", command, rule->name);
    if (raw->len < rule->min || (raw->len > max && !rule->more))
        return hw_fail(-EINVAL, "%s: wrong length of %s: %u bytes", command, rule->name, raw->len);
    switch (rule->kind) {
    case VB_HANDLE:
        if (raw->data > UINT32_MAX)
            return hw_fail(-EINVAL, "%s: %s 0x%llx does not fit in 32 bits", command, rule->name,
                           (unsigned long long)raw->data);
        break;
    case VB_FD:
    case VB_RAW_FD:
        if (raw->len == 0 && raw->data_s64 != (int32_t)raw->data_s64)
            return hw_fail(-EINVAL, "%s: %s 0x%llx is not a signed 32-bit number", command, rule->name,
                           (unsigned long long)raw->data);
        break;
    default:
        break;
    }
    if (rule->memory)
        r->where = VB_MEMORY;
    return 0;
}

static int check_attrs(struct vb_request *r)
{
    const struct vb_attr_rule *rules = rules_of(r), *rule;
    uint64_t seen = 0; /* bit i is set when an attribute has matched rules[i] */
    int rc;

    for (unsigned i = 0; i < r->n; i++) {
        struct vb_attr *a = &r->attr[i];

        for (rule = rules; rule->kind != VB_END && rule->id != a->raw.attr_id; rule++)
            ;
        if (rule->kind == VB_END) {
            if (a->raw.flags & UVERBS_ATTR_F_MANDATORY)
                return hw_fail(-EPROTONOSUPPORT, "%s: attribute 0x%x is not in the schema", r->command->name,
                               a->raw.attr_id);
            continue;
        }
        if (seen & 1ull << (rule - rules))
            return hw_fail(-EINVAL, "%s: attribute %s occurs twice", r->command->name, rule->name);
        seen |= 1ull << (rule - rules);
        a->rule = rule;
        if ((rc = check_attr(r, a)) < 0)
            return rc;
    }
    for (rule = rules; rule->kind != VB_END; rule++)
        if (rule->mandatory && !(seen & 1ull << (rule - rules)))
            return hw_fail(-EINVAL, "%s: attribute %s is missing", r->command->name, rule->name);
    return 0;
}

/* Copies an input to r->copy and stores its offset in *at. The copy is padded with zeros to `known` bytes, unless
 * `known` is UINT32_MAX. Any bytes of the input beyond `known` must be 0 and are dropped. */
static int take_input(struct vb_request *r, struct vb_attr *a, uint32_t known, vb_read_fn read, void *arg, uint32_t *at)
{
    uint32_t n = a->raw.len, keep = HW_MIN(n, known);
    int rc = reserve_copy_space(r, HW_MAX(n, known == UINT32_MAX ? 0 : known), at);

    if (rc < 0)
        return rc;
    if (n <= INLINE)
        memcpy(r->copy + *at, &a->raw.data, n);
    else if (a->raw.data > UINT64_MAX - n || read(arg, a->raw.data, r->copy + *at, n) < 0)
        return hw_fail(-EFAULT, "%s: cannot read %s", r->command->name, a->rule->name);
    for (uint32_t i = keep; i < n; i++)
        if (r->copy[*at + i])
            return hw_fail(-EOPNOTSUPP, "%s: %s has %u bytes, but only %u are known, and the rest is not 0",
                           r->command->name, a->rule->name, n, keep);
    if (keep <= INLINE) { /* the kernel reads such short inputs from `data` */
        a->raw.len = (uint16_t)keep;
        a->raw.data = 0;
        memcpy(&a->raw.data, r->copy + *at, keep);
        return 0;
    }
    a->at = *at;
    a->len = keep;
    return 0;
}

static int reserve_attr_output(struct vb_request *r, struct vb_attr *a, uint32_t max)
{
    a->len = HW_MIN((uint32_t)a->raw.len, max);
    if (a->raw.data > UINT64_MAX - a->raw.len)
        return hw_fail(-EFAULT, "%s: cannot write %s", r->command->name, a->rule->name);
    return reserve_copy_space(r, a->len, &a->at);
}

/* Checks that CORE_IN and CORE_OUT of INVOKE_WRITE have at least the lengths that the command requires. */
static int check_core(const struct vb_request *r)
{
    const struct vb_command *c = r->command;
    const struct vb_attr *in = NULL, *out = NULL;

    for (unsigned i = 0; i < r->n; i++) {
        if (!r->attr[i].rule)
            continue;
        if (r->attr[i].raw.attr_id == UVERBS_ATTR_CORE_IN)
            in = &r->attr[i];
        else if (r->attr[i].raw.attr_id == UVERBS_ATTR_CORE_OUT)
            out = &r->attr[i];
    }
    if ((in ? in->raw.len : 0) < c->in_min || (out ? out->raw.len : 0) < c->out_min)
        return hw_fail(-ENOSPC, "%s: CORE_IN has %u bytes and CORE_OUT has %u; at least %u and %u are required",
                       c->name, in ? in->raw.len : 0, out ? out->raw.len : 0, c->in_min, c->out_min);
    return 0;
}

static int copy_request_attr(struct vb_request *r, struct vb_attr *a, vb_read_fn read, void *arg)
{
    const struct vb_attr_rule *rule = a->rule;
    bool write = !r->command->attrs;
    uint32_t at = 0, known = rule->max ? rule->max : rule->min;
    int rc;

    if (rule->driver && rule->kind == VB_OUT) {
        if ((rc = reserve_attr_output(r, a, HW_MAX(r->part ? r->part->out_max : 0, VB_UHW_OUT_ANY))) < 0)
            return rc;
        r->uhw_out = r->copy + a->at;
        r->uhw_out_len = a->len;
    } else if (rule->kind == VB_OUT) {
        if ((rc = reserve_attr_output(r, a, UINT32_MAX)) < 0)
            return rc;
        if (write) {
            r->core_out = r->copy + a->at;
            r->core_out_len = a->len;
        }
    } else if (rule->kind == VB_IN) {
        if (rule->driver)
            known = r->part ? r->part->in_max : 0;
        else if (write && rule->id == UVERBS_ATTR_CORE_IN)
            known = r->command->in_max;
        if ((rc = take_input(r, a, known, read, arg, &at)) < 0)
            return rc;
        if (rule->driver) {
            r->uhw_in = r->copy + at;
            r->uhw_in_len = a->len ? a->len : a->raw.len;
        } else if (write && rule->id == UVERBS_ATTR_CORE_IN) {
            r->core_in = r->copy + at;
            r->core_in_len = a->len ? a->len : a->raw.len;
        }
    }
    return 0;
}

int vb_request_take(struct vb_request *r, uint64_t address, vb_read_fn read, void *arg)
{
    const struct vb_command *c;
    uint32_t in_line;
    int rc;

    memset(r, 0, offsetof(struct vb_request, attr));
    r->core_in = r->core_out = r->uhw_in = r->uhw_out = NULL;
    r->core_in_len = r->core_out_len = r->uhw_in_len = r->uhw_out_len = r->used = 0;
    r->address = address;
    if ((rc = read_header(r, read, arg)) < 0 || (rc = find_request_command(r)) < 0 || (rc = check_attrs(r)) < 0)
        return rc;
    c = r->command;
    if (!c->attrs && (rc = check_core(r)) < 0)
        return rc;
    for (unsigned i = 0; i < r->n; i++)
        if (r->attr[i].rule && (rc = copy_request_attr(r, &r->attr[i], read, arg)) < 0)
            return rc;
    if (r->part && r->uhw_in_len < r->part->in_min)
        return hw_fail(-EINVAL, "%s: UHW_IN has %u bytes; driver %s requires at least %u", c->name, r->uhw_in_len,
                       r->driver->name, r->part->in_min);
    if (c->zero_at) {
        memcpy(&in_line, (uint8_t *)r->core_in + c->zero_at, sizeof(in_line));
        if (in_line)
            return hw_fail(
                -EOPNOTSUPP,
                "%s: refused: wr_count is %u, but driver %s must post work requests through the mapped queue", c->name,
                in_line, r->driver->name);
    }
    return 0;
}

struct vb_attr *vb_request_attr(struct vb_request *r, uint16_t id)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->attr[i].rule && r->attr[i].raw.attr_id == id)
            return &r->attr[i];
    return NULL;
}

int vb_request_number(const struct vb_request *r, const struct vb_number *n, uint32_t *out)
{
    const uint8_t *core = n->place == VB_CORE_IN ? r->core_in : n->place == VB_CORE_OUT ? r->core_out : NULL;
    uint32_t len = n->place == VB_CORE_IN ? r->core_in_len : r->core_out_len;

    if (n->place == VB_ATTR) {
        for (unsigned i = 0; i < r->n; i++)
            if (r->attr[i].rule && r->attr[i].raw.attr_id == n->at) {
                *out = (uint32_t)r->attr[i].raw.data;
                return 0;
            }
    } else if (core && n->at + sizeof(*out) <= len) {
        memcpy(out, core + n->at, sizeof(*out));
        return 0;
    }
    return hw_fail(-ENOENT, "%s: the request does not contain the object's number", r->command->name);
}
