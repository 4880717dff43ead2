/* SPDX-License-Identifier: Apache-2.0 */
/* Rebuilds a request from its copy, and collects the results for the application. */
#include "verbs/schema/request.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>

#define HDR  ((uint32_t)sizeof(struct vb_header))
#define ATTR ((uint32_t)sizeof(struct ib_uverbs_attr))
#define IDS  ((uint32_t)offsetof(struct ib_uverbs_attr, flags)) /* size of an attribute's id and len */

static bool is_output(const struct vb_attr_rule *rule)
{
    return rule->kind == VB_OUT || rule->kind == VB_HANDLE_NEW || rule->kind == VB_FD_NEW;
}

static bool is_write(const struct vb_request *r)
{
    return !r->command->attrs;
}

/* The order of the attributes: inputs first, then the optional output, if any (CORE_OUT if UHW_OUT is present too),
 * then the other outputs. at[] contains indices of r->attr; PADDING stands for an empty UHW_IN. */
#define PADDING VB_ATTRS_MAX
struct order {
    unsigned n, inputs; /* number of all attributes, and of inputs */
    uint8_t at[VB_ATTRS_MAX + 1];
};

static int put_in_order(const struct vb_request *r, bool split, struct order *o)
{
    unsigned outputs = 0, optional = 0;
    uint8_t out[VB_ATTRS_MAX];

    o->n = 0;
    for (unsigned i = 0; i < r->n; i++) {
        const struct vb_attr *a = &r->attr[i];

        if (!a->rule)
            continue;
        if (!is_output(a->rule)) {
            o->at[o->n++] = (uint8_t)i;
            continue;
        }
        out[outputs++] = (uint8_t)i;
        /* An optional output must be the first output. If INVOKE_WRITE has both optional outputs, CORE_OUT is first. */
        if (!a->rule->mandatory && (optional == 0 || (is_write(r) && a->raw.attr_id == UVERBS_ATTR_CORE_OUT))) {
            out[outputs - 1] = out[0];
            out[0] = (uint8_t)i;
        }
        optional += !a->rule->mandatory;
    }
    if (split && optional > 1) {
        /* If CORE_OUT and UHW_OUT are present, the three inputs of INVOKE_WRITE must be present too. A missing UHW_IN
         * is added here; the schema requires the others. */
        if (!is_write(r))
            return hw_fail(-EOPNOTSUPP,
                           "%s: several optional outputs are not supported if they are in the application's memory",
                           r->command->name);
        if (!r->uhw_in)
            o->at[o->n++] = PADDING;
    }
    o->inputs = o->n;
    memcpy(o->at + o->n, out, outputs);
    o->n += outputs;
    return 0;
}

/* Rounds *from up to a multiple of 8, reserves n bytes there, stores their offset in *at and advances *from. Fails with
 * -E2BIG if the bytes extend beyond end. */
static int reserve_layout_space(uint32_t *from, uint32_t n, size_t end, uint32_t *at)
{
    uint32_t start = (*from + 7u) & ~7u;

    if (start > end || n > end - start)
        return hw_fail(-E2BIG, "verbs request: no space for %u bytes in the rebuilt request", n);
    *at = start;
    *from = start + n;
    return 0;
}

int vb_request_build(const struct vb_request *r, uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     struct vb_layout *l)
{
    static const struct vb_attr padding = {.raw = {.attr_id = UVERBS_ATTR_UHW_IN}};
    struct vb_header hdr = r->hdr;
    uint32_t header = 0, in, behind, at = 0;
    struct order o;
    size_t in_end;
    int rc;

    memset(l, 0, sizeof(*l));
    if (split > cap)
        return hw_fail(-E2BIG, "verbs request: no space for the first %u bytes of the rebuilt request", split);
    if ((rc = put_in_order(r, split > 0, &o)) < 0)
        return rc;
    if (split > 0) {
        /* The id and len of the first output end at split. If there are no outputs, IDS bytes before split remain
         * unused. */
        uint32_t fixed = HDR + o.inputs * ATTR + IDS;

        if (fixed > split)
            return hw_fail(-E2BIG, "verbs request: no space for %u attributes in the rebuilt request", o.inputs);
        header = split - fixed;
    }
    behind = header + HDR + o.n * ATTR;
    if (behind > cap)
        return hw_fail(-E2BIG, "verbs request: no space for %u attributes in the rebuilt request", o.n);
    in = split > 0 ? 0 : behind;
    in_end = split > 0 ? header : cap;

    hdr.num_attrs = (uint16_t)o.n;
    hdr.length = (uint16_t)(HDR + o.n * ATTR);
    memcpy(out + header, &hdr, sizeof(hdr));
    l->header = base + header;
    for (unsigned k = 0; k < o.n; k++) {
        const struct vb_attr *a = o.at[k] == PADDING ? &padding : &r->attr[o.at[k]];
        struct ib_uverbs_attr raw = a->raw;
        uint32_t attr_at = header + HDR + k * ATTR;

        if (a->rule && is_output(a->rule)) {
            if (split == 0 && k == o.inputs)
                behind = in;
            raw.data = 0;
            if (a->rule->kind == VB_OUT) {
                if ((rc = reserve_layout_space(&behind, a->len, cap, &at)) < 0)
                    return rc;
                memset(out + at, 0, a->len);
                raw.len = (uint16_t)a->len;
                raw.data = a->len > 0 ? base + at : 0;
                l->out_at[o.at[k]] = at;
            }
        } else if (a->len > 0) {
            if ((rc = reserve_layout_space(&in, a->len, in_end, &at)) < 0)
                return rc;
            memcpy(out + at, r->copy + a->at, a->len);
            raw.len = (uint16_t)a->len;
            raw.data = base + at;
        }
        memcpy(out + attr_at, &raw, sizeof(raw));
        if (o.at[k] != PADDING)
            l->attr_at[o.at[k]] = attr_at;
    }
    return 0;
}

void vb_request_collect(struct vb_request *r, const uint8_t *out, const struct vb_layout *l)
{
    struct ib_uverbs_attr got;

    for (unsigned i = 0; i < r->n; i++) {
        struct vb_attr *a = &r->attr[i];

        if (!a->rule || !is_output(a->rule))
            continue;
        memcpy(&got, out + l->attr_at[i], sizeof(got));
        a->raw.flags |= got.flags & UVERBS_ATTR_F_VALID_OUTPUT;
        if (a->rule->kind != VB_OUT)
            a->raw.data = got.data;
        else if (a->len > 0)
            memcpy(r->copy + a->at, out + l->out_at[i], a->len);
    }
}

bool vb_request_gives(const struct vb_request *r)
{
    bool any = false;

    for (unsigned i = 0; i < r->n; i++)
        any |= r->attr[i].rule && is_output(r->attr[i].rule);
    return any;
}

int vb_request_give(const struct vb_request *r, vb_write_fn write, void *arg)
{
    for (unsigned i = 0; i < r->n; i++) {
        const struct vb_attr *a = &r->attr[i];
        uint64_t attr = r->address + HDR + (uint64_t)i * ATTR;
        bool number = a->rule && (a->rule->kind == VB_HANDLE_NEW || a->rule->kind == VB_FD_NEW);

        if (!a->rule || !is_output(a->rule))
            continue;
        if ((a->rule->kind == VB_OUT && a->len > 0 && write(arg, a->raw.data, r->copy + a->at, a->len) < 0) ||
            (number &&
             write(arg, attr + offsetof(struct ib_uverbs_attr, data), &a->raw.data, sizeof(a->raw.data)) < 0) ||
            (a->raw.flags & UVERBS_ATTR_F_VALID_OUTPUT &&
             write(arg, attr + offsetof(struct ib_uverbs_attr, flags), &a->raw.flags, sizeof(a->raw.flags)) < 0))
            return hw_fail(-EFAULT, "%s: cannot write %s", r->command->name, a->rule->name);
    }
    return 0;
}
