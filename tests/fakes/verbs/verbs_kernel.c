/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_kernel.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct span {
    uint64_t from, to;
};

static bool output(const struct vb_attr_rule *rule)
{
    return rule->kind == VB_OUT || rule->kind == VB_HANDLE_NEW || rule->kind == VB_FD_NEW;
}

static const struct vb_attr_rule *rule_of(const struct vb_attr_rule *rules, uint16_t id)
{
    for (; rules->kind != VB_END; rules++)
        if (rules->id == id)
            return rules;
    return NULL;
}

static const struct vb_attr *attr_of(const struct vb_request *r, uint16_t id)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->attr[i].rule && r->attr[i].raw.attr_id == id)
            return &r->attr[i];
    return NULL;
}

static struct ib_uverbs_attr attr_at(const uint8_t *out, uint64_t offset)
{
    struct ib_uverbs_attr a;

    memcpy(&a, out + offset, sizeof(a));
    return a;
}

static const char *check_attr(const struct vb_request *r, const struct ib_uverbs_attr *got, const uint8_t *out,
                              size_t cap, uint64_t base, uint32_t split, struct span *at)
{
    const struct vb_attr *a = attr_of(r, got->attr_id);
    bool bytes;

    *at = (struct span){0, 0};
    if (!a) {
        if (!r->command->attrs && got->attr_id == UVERBS_ATTR_UHW_IN && got->len == 0)
            return NULL;
        return "an attribute that was not asked for";
    }
    bytes = a->rule->kind == VB_OUT || (a->rule->kind == VB_IN && got->len > 8);
    if (bytes && got->len > 0) {
        if (got->data < base || got->data > base + cap || got->len > base + cap - got->data)
            return "an address that is not within";
        *at = (struct span){got->data - base, got->data - base + got->len};
        if (a->rule->kind == VB_OUT ? at->from < split : split > 0 && at->to > split)
            return "bytes on the wrong side of the split";
    }
    for (uint64_t i = at->from; a->rule->kind == VB_OUT && i < at->to; i++)
        if (out[i])
            return "an output with something in it";
    if (a->rule->kind == VB_OUT)
        return got->len == a->len ? NULL : "an output of another length";
    if (output(a->rule))
        return got->len == 0 ? NULL : "a new number with a length";
    if (got->len > 8 ? a->len != got->len || memcmp(out + at->from, r->copy + a->at, got->len) != 0
                     : a->len != 0 || a->raw.len != got->len || a->raw.data != got->data)
        return "an input that is another";
    return got->attr_data.reserved == a->raw.attr_data.reserved ? NULL : "attr_data that is another";
}

const char *vk_check(const struct vb_request *r, const uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     uint64_t header)
{
    const struct vb_attr_rule *rules = r->command->attrs ? r->command->attrs : vb_write_attrs;
    struct vb_header hdr;
    struct span spans[VB_ATTRS_MAX + 2];
    unsigned n_spans = 0, wanted = 0, seen = 0;
    uint64_t h = header - base;
    bool all_of_write = !r->command->attrs;
    const char *wrong;

    if (header < base || h > cap || sizeof(hdr) > cap - h)
        return "a header that is not within";
    memcpy(&hdr, out + h, sizeof(hdr));
    if (hdr.length != sizeof(hdr) + hdr.num_attrs * sizeof(struct ib_uverbs_attr) || hdr.length > 4096 ||
        hdr.length > cap - h || hdr.reserved1 || hdr.reserved2)
        return "a header that the kernel would not take";
    if (hdr.object_id != r->hdr.object_id || hdr.method_id != r->hdr.method_id || hdr.driver_id != r->hdr.driver_id)
        return "another method";
    if (split > 0 && h + sizeof(hdr) > split)
        return "a header that can be changed";
    spans[n_spans++] = (struct span){h, h + hdr.length};

    for (unsigned i = 0; i < r->n; i++)
        wanted += r->attr[i].rule != NULL;
    for (const struct vb_attr_rule *rule = vb_write_attrs; rule->kind != VB_END; rule++) {
        bool there = false;
        for (unsigned i = 0; i < hdr.num_attrs; i++)
            there |= attr_at(out, h + sizeof(hdr) + i * sizeof(struct ib_uverbs_attr)).attr_id == rule->id;
        all_of_write &= there;
    }
    for (unsigned i = 0; i < hdr.num_attrs; i++) {
        uint64_t at = h + sizeof(hdr) + i * sizeof(struct ib_uverbs_attr);
        struct ib_uverbs_attr got = attr_at(out, at);
        const struct vb_attr_rule *rule = rule_of(rules, got.attr_id);

        if (n_spans == VB_ATTRS_MAX + 2)
            return "too many attributes";
        if ((wrong = check_attr(r, &got, out, cap, base, split, &spans[n_spans])) != NULL)
            return wrong;
        n_spans += spans[n_spans].to > 0;
        seen += attr_of(r, got.attr_id) != NULL;
        for (unsigned j = 0; j < i; j++)
            if (attr_at(out, h + sizeof(hdr) + j * sizeof(struct ib_uverbs_attr)).attr_id == got.attr_id)
                return "an attribute twice";
        if (split == 0 || at + sizeof(got) <= split) {
            if (split > 0 && output(rule))
                return "an output whose flags cannot be written";
        } else if (!output(rule)) {
            return "an input that can be changed";
        } else if (at + 4 != split && at < split) {
            return "an attribute across the split elsewhere than at its flags";
        } else if (at >= split && !rule->mandatory && !all_of_write) {
            return "an attribute that can be put in another's place";
        }
    }
    if (seen != wanted)
        return "an attribute that misses";
    for (unsigned i = 0; i < n_spans; i++)
        for (unsigned j = 0; j < i; j++)
            if (spans[i].from < spans[j].to && spans[j].from < spans[i].to)
                return "bytes that overlap";
    return NULL;
}

uint8_t vk_byte(uint8_t seed, uint16_t id, uint32_t i)
{
    return (uint8_t)(seed + id * 37u + i * 11u);
}

uint64_t vk_number(uint8_t seed, uint16_t id)
{
    return 1000u + seed * 16u + id;
}

/* Writes like put_user(), but aborts on a write before the split. */
static void put(uint8_t *out, uint64_t at, const void *src, size_t n, uint32_t split)
{
    if (at < split) {
        fprintf(stderr, "the kernel writes at %llu, before the split\n", (unsigned long long)at);
        abort();
    }
    memcpy(out + at, src, n);
}

void vk_run(uint8_t *out, uint64_t base, uint32_t split, uint64_t header, const struct vb_attr_rule *rules,
            uint8_t seed)
{
    struct vb_header hdr;
    uint64_t h = header - base;

    memcpy(&hdr, out + h, sizeof(hdr));
    for (unsigned i = 0; i < hdr.num_attrs; i++) {
        uint64_t at = h + sizeof(hdr) + i * sizeof(struct ib_uverbs_attr);
        struct ib_uverbs_attr a = attr_at(out, at);
        const struct vb_attr_rule *rule = rule_of(rules, a.attr_id);
        uint64_t number = vk_number(seed, a.attr_id);
        uint16_t flags = a.flags | UVERBS_ATTR_F_VALID_OUTPUT;

        if (!output(rule))
            continue;
        for (uint32_t b = 0; rule->kind == VB_OUT && b < a.len; b++) {
            uint8_t byte = vk_byte(seed, a.attr_id, b);
            put(out, a.data - base + b, &byte, 1, split);
        }
        if (rule->kind == VB_OUT)
            put(out, at + offsetof(struct ib_uverbs_attr, flags), &flags, sizeof(flags), split);
        else
            put(out, at + offsetof(struct ib_uverbs_attr, data), &number, sizeof(number), split);
    }
}
