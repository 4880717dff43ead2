/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/peer/proto.h"

#include "tool/peer/cursor.h"

#include <string.h>

#define MAGIC_REQUEST 0x51545748u /* "HWTQ" */
#define MAGIC_REPLY   0x52545748u /* "HWTR" */

static void convert_header(struct cursor *c, uint32_t magic)
{
    uint32_t m = magic, v = TP_VERSION;
    convert_number(c, &m, 4);
    convert_number(c, &v, 4);
    if (m != magic || v != TP_VERSION)
        c->bad = true;
}

static void convert_address(struct cursor *c, struct tp_addr *a)
{
    static const uint8_t zeros[12];
    convert_number(c, &a->family, 2);
    convert_bytes(c, a->byte, sizeof a->byte);
    if ((a->family != 4 && a->family != 6) || (a->family == 4 && memcmp(a->byte + 4, zeros, sizeof zeros) != 0))
        c->bad = true;
}

static void reach_fields(struct cursor *c, struct tp_reach *q)
{
    convert_number(c, &q->port, 2);
    convert_bytes(c, q->token, TP_TOKEN);
    convert_number(c, &q->n_addrs, 4);
    if (q->n_addrs > TP_MAX_NICS || (q->n_addrs ? q->port < 1024 : q->port != 0))
        c->bad = true; /* ports below 1024 may belong to other services, so the server never connects to them */
    for (uint32_t i = 0; i < q->n_addrs && !c->bad; i++)
        convert_address(c, &q->addr[i]);
}

bool tp_name_ok(const char *s)
{
    if (!*s || strcmp(s, ".") == 0 || strcmp(s, "..") == 0)
        return false;
    for (; *s; s++)
        if (*s <= ' ' || *s > '~' || *s == '/' || *s == ':' || *s == ',')
            return false;
    return true;
}

static void fact_fields(struct cursor *c, struct tp_facts *f)
{
    convert_text(c, f->hawser, sizeof f->hawser);
    convert_text(c, f->kernel, sizeof f->kernel);
    convert_bytes(c, f->boot, sizeof f->boot);
    convert_number(c, &f->wall_in_ns, 8);
    convert_number(c, &f->wall_out_ns, 8);
    convert_number(c, &f->gpus, 2);
    convert_number(c, &f->n_nics, 4);
    if (f->n_nics > TP_MAX_NICS || f->gpus == TP_HOST || f->wall_in_ns > INT64_MAX || f->wall_out_ns > INT64_MAX)
        c->bad = true;
    for (uint32_t i = 0; i < f->n_nics && !c->bad; i++) {
        struct tp_fact_nic *n = &f->nic[i];
        convert_text(c, n->nic, sizeof n->nic);
        convert_address(c, &n->addr);
        convert_number(c, &n->prefix, 2);
        convert_number(c, &n->mtu, 4);
        convert_number(c, &n->speed, 4);
        convert_text(c, n->rdma, sizeof n->rdma);
        convert_number(c, &n->gid, 2);
        convert_number(c, &n->contained, 1);
        if (!tp_name_ok(n->nic) || (n->rdma[0] ? !tp_name_ok(n->rdma) : n->gid != 0) || n->contained > 1)
            c->bad = true;
        convert_number(c, &f->tried[i], 2);
        convert_number(c, &f->reached[i], 2);
        convert_number(c, &f->carried[i], 2);
        if (n->prefix > (n->addr.family == 4 ? 32 : 128) || (f->reached[i] & ~f->tried[i]) ||
            (f->carried[i] & ~f->reached[i]))
            c->bad = true;
    }
}

static void request_fields(struct cursor *c, struct tp_request *r)
{
    convert_header(c, MAGIC_REQUEST);
    convert_number(c, &r->type, 4);
    convert_number(c, &r->id, 4);
    if (r->type == TP_FACTS) {
        reach_fields(c, &r->reach);
        convert_number(c, &r->flags, 4);
        if (r->flags & ~TP_CONTAINED)
            c->bad = true;
        convert_padding(c);
        return;
    }
    if (r->type == TP_INVENTORY) {
        convert_number(c, &r->first, 8);
        if (r->first > TP_INVENTORY_MOST)
            c->bad = true;
        convert_padding(c);
        return;
    }
    convert_number(c, &r->op, 4);
    convert_number(c, &r->flags, 4);
    convert_number(c, &r->slots, 4);
    convert_number(c, &r->depth, 4);
    convert_number(c, &r->size, 8);
    convert_number(c, &r->stride, 8);
    convert_number(c, &r->seed, 8);
    convert_number(c, &r->first, 8);
    convert_number(c, &r->count, 4);
    convert_number(c, &r->gpu, 2);
    convert_number(c, &r->raw.kind, 4);
    convert_number(c, &r->raw.streams, 4);
    convert_number(c, &r->raw.timeout_ms, 4);
    convert_number(c, &r->raw.message, 8);
    convert_number(c, &r->raw.total, 8);
    convert_number(c, &r->raw.duration_ms, 8);
    convert_number(c, &r->raw.warmup, 8);
    convert_bytes(c, r->raw.token, TP_TOKEN);
    convert_number(c, &r->raw.n_addrs, 4);
    if (r->raw.n_addrs > TP_MAX_PATHS)
        c->bad = true;
    for (uint32_t i = 0; i < r->raw.n_addrs && !c->bad; i++)
        convert_text(c, r->raw.addr[i], HAWSER_ADDR_TEXT);
    convert_padding(c);
}

static bool request_ok(const struct tp_request *r)
{
    if (r->type < TP_PREPARE || r->type >= TP_TYPES)
        return false;
    switch (r->type) {
    case TP_PREPARE:
        if (r->op < TP_WRITE || r->op >= TP_OPS || (r->flags & ~(TP_NO_VERIFY | TP_HOT)))
            return false;
        if (r->slots < 1 || r->slots > TP_MAX_SLOTS || r->depth < 1 || r->depth > TP_MAX_DEPTH)
            return false;
        /* the region's size must fit in 63 bits, and a slot must hold the data of an iteration */
        return r->size <= r->stride && r->stride >= 1 && r->stride <= INT64_MAX / TP_MAX_SLOTS;
    case TP_BEGIN:
    case TP_END:
        return r->count <= INT32_MAX && r->first <= UINT64_MAX - r->count;
    case TP_RAW:
        return r->raw.kind >= TP_RAW_UP && r->raw.kind < TP_RAW_KINDS && r->raw.n_addrs >= 1 && r->raw.streams >= 1 &&
               r->raw.streams <= TP_MAX_STREAM && r->raw.message >= 1 && r->raw.message <= 1u << 20 &&
               r->raw.timeout_ms >= 1 && r->raw.timeout_ms <= TP_RAW_MS && r->raw.duration_ms <= TP_RAW_MS &&
               r->raw.total <= INT64_MAX && r->raw.warmup <= INT64_MAX;
    default:
        return true;
    }
}

int tp_encode_request(const struct tp_request *r, uint8_t buf[TP_REQUEST])
{
    struct cursor c = {.at = buf, .end = buf + TP_REQUEST};
    struct tp_request copy = *r;
    request_fields(&c, &copy);
    return c.bad || !request_ok(r) ? hw_fail(-EINVAL, "a request of type %d has invalid fields", (int)r->type) : 0;
}

int tp_decode_request(const uint8_t *buf, size_t len, struct tp_request *r)
{
    if (len != TP_REQUEST)
        return hw_fail(-EPROTO, "a request has %zu bytes instead of %d", len, TP_REQUEST);
    uint8_t copy[TP_REQUEST];
    memcpy(copy, buf, sizeof copy);
    struct cursor c = {.at = copy, .end = copy + TP_REQUEST, .decode = true};
    *r = (struct tp_request){0};
    request_fields(&c, r);
    if (c.bad || !request_ok(r))
        return hw_fail(
            -EPROTO,
            "a request is invalid or from another version of hawser (type %u): run the same version on both nodes",
            (unsigned)r->type);
    return 0;
}

static void convert_piece(struct cursor *c, struct tp_reply *r)
{
    convert_number(c, &r->whole, 4);
    convert_number(c, &r->n_piece, 4);
    if (r->whole > TP_INVENTORY_MOST || r->n_piece > HW_MIN(r->whole, (uint32_t)TP_PIECE))
        c->bad = true;
    else
        convert_bytes(c, r->piece, r->n_piece);
}

static void reply_fields(struct cursor *c, struct tp_reply *r)
{
    convert_header(c, MAGIC_REPLY);
    convert_number(c, &r->type, 4);
    convert_number(c, &r->id, 4);
    convert_number(c, &r->status, 4);
    convert_text(c, r->text, TP_TEXT);
    if (r->type == TP_FACTS) {
        fact_fields(c, &r->facts);
        convert_padding(c);
        return;
    }
    if (r->type == TP_INVENTORY) {
        convert_piece(c, r);
        convert_padding(c);
        return;
    }
    convert_bytes(c, r->key, HAWSER_KEY_SIZE);
    convert_number(c, &r->bad, 8);
    convert_number(c, &r->first_bad, 8);
    convert_number(c, &r->checked, 8);
    convert_number(c, &r->cpu_us, 8);
    convert_double(c, &r->raw_seconds);
    convert_double(c, &r->raw_cpu);
    convert_number(c, &r->raw_bytes, 8);
    for (size_t i = 0; i < TP_MAX_PATHS; i++)
        convert_number(c, &r->port[i], 2);
    convert_number(c, &r->n_nics, 4);
    if (r->n_nics > TP_MAX_NICS)
        c->bad = true;
    for (uint32_t i = 0; i < r->n_nics && !c->bad; i++) {
        struct tp_nic *n = &r->nic[i];
        convert_text(c, n->nic, HAWSER_NIC_NAME);
        convert_number(c, &n->tx_bytes, 8);
        convert_number(c, &n->rx_bytes, 8);
        convert_number(c, &n->kernel_tx_bytes, 8);
        convert_number(c, &n->kernel_rx_bytes, 8);
        convert_number(c, &n->rx_device_bytes, 8);
        convert_number(c, &n->rx_copied_bytes, 8);
        convert_number(c, &n->tx_device_bytes, 8);
        convert_number(c, &n->devmem_pkts, 8);
        convert_number(c, &n->has_devmem_pkts, 1);
        if (n->has_devmem_pkts > 1)
            c->bad = true;
    }
    convert_padding(c);
}

static bool reply_ok(const struct tp_reply *r)
{
    return r->type >= TP_PREPARE && r->type < TP_TYPES && r->status <= 0 && r->status > -4096 && r->bad <= r->checked;
}

int tp_encode_reply(const struct tp_reply *r, uint8_t buf[TP_REPLY])
{
    struct cursor c = {.at = buf, .end = buf + TP_REPLY};
    struct tp_reply copy = *r;
    reply_fields(&c, &copy);
    return c.bad || !reply_ok(r) ? hw_fail(-EINVAL, "a reply of type %d has invalid fields", (int)r->type) : 0;
}

int tp_decode_reply(const uint8_t *buf, size_t len, struct tp_reply *r)
{
    if (len != TP_REPLY)
        return hw_fail(-EPROTO, "a reply has %zu bytes instead of %d: run the same version on both nodes", len,
                       TP_REPLY);
    uint8_t copy[TP_REPLY];
    memcpy(copy, buf, sizeof copy);
    struct cursor c = {.at = copy, .end = copy + TP_REPLY, .decode = true};
    *r = (struct tp_reply){0};
    reply_fields(&c, r);
    if (c.bad || !reply_ok(r))
        return hw_fail(
            -EPROTO,
            "a reply is invalid or from another version of hawser (type %u): run the same version on both nodes",
            (unsigned)r->type);
    return 0;
}

/* Applies splitmix64's finalizer to a combination of both numbers, so that adjacent iterations get unrelated seeds. */
uint64_t tp_seed(uint64_t run, uint64_t iteration)
{
    uint64_t z = run + (iteration + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
