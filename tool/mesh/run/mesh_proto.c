/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/mesh/run/mesh_proto.h"

#include "tool/peer/cursor.h"

#include <string.h>

#define MAGIC 0x4d545748u /* "HWTM" */

static void nic_fields(struct cursor *c, struct mesh_hello *h)
{
    convert_number(c, &h->n_nics, 4);
    if (h->n_nics > TP_MAX_NICS)
        c->bad = true;
    for (uint32_t i = 0; i < h->n_nics && !c->bad; i++) {
        struct mesh_nic_facts *n = &h->nic[i];
        convert_text(c, n->name, sizeof n->name);
        convert_number(c, &n->speed, 4);
        convert_number(c, &n->mtu, 4);
        convert_number(c, &n->rx_errors, 8);
        convert_number(c, &n->tx_errors, 8);
        if (!tp_name_ok(n->name))
            c->bad = true;
    }
}

static void hello_fields(struct cursor *c, struct mesh_hello *h)
{
    convert_number(c, &h->rank, 4);
    convert_number(c, &h->size, 4);
    convert_text(c, h->name, sizeof h->name);
    convert_text(c, h->rack, sizeof h->rack);
    convert_text(c, h->version, sizeof h->version);
    convert_bytes(c, h->boot, sizeof h->boot);
    convert_number(c, &h->netns, 8);
    convert_text(c, h->addr, sizeof h->addr);
    convert_number(c, &h->port, 2);
    nic_fields(c, h);
    if (h->size < 1 || h->size > MESH_RANKS || h->rank >= h->size || !h->name[0] || !h->addr[0] || !h->port)
        c->bad = true;
}

static void order_fields(struct cursor *c, struct mesh_order *o)
{
    convert_number(c, &o->seq, 4);
    convert_number(c, &o->what, 4);
    convert_number(c, &o->size, 8);
    convert_number(c, &o->depth, 4);
    convert_number(c, &o->duration_ms, 4);
    convert_number(c, &o->warmup_ms, 4);
    convert_number(c, &o->pings, 4);
    convert_number(c, &o->gpu, 2);
    convert_number(c, &o->n_targets, 4);
    if (o->what < MESH_LATENCY || o->what >= MESH_WHATS || o->size < 1 || o->size > 1u << 30 || o->depth < 1 ||
        o->depth > TP_MAX_DEPTH || o->duration_ms < 1 || o->duration_ms > MESH_LONGEST || o->warmup_ms > MESH_LONGEST ||
        o->pings > MESH_PINGS || o->n_targets < 1 || o->n_targets > MESH_TARGETS)
        c->bad = true;
    for (uint32_t i = 0; i < o->n_targets && !c->bad; i++) {
        convert_text(c, o->target[i].addr, sizeof o->target[i].addr);
        convert_number(c, &o->target[i].port, 2);
        if (!o->target[i].addr[0] || !o->target[i].port)
            c->bad = true;
    }
}

static void answer_fields(struct cursor *c, struct mesh_answer *a)
{
    convert_number(c, &a->seq, 4);
    convert_number(c, &a->status, 4);
    convert_text(c, a->text, sizeof a->text);
    convert_double(c, &a->out_GBps);
    convert_double(c, &a->in_GBps);
    convert_double(c, &a->low_us);
    convert_double(c, &a->p50_us);
    convert_number(c, &a->bad, 8);
    convert_number(c, &a->checked, 8);
    convert_number(c, &a->n_nics, 4);
    if (a->status > 0 || a->status <= -4096 || a->n_nics > TP_MAX_NICS)
        c->bad = true;
    for (uint32_t i = 0; i < a->n_nics && !c->bad; i++) {
        struct mesh_share *n = &a->nic[i];
        convert_text(c, n->nic, sizeof n->nic);
        convert_text(c, n->peer_nic, sizeof n->peer_nic);
        convert_double(c, &n->out_GBps);
        convert_double(c, &n->in_GBps);
        if (!tp_name_ok(n->nic) || !tp_name_ok(n->peer_nic))
            c->bad = true;
    }
}

static void message_fields(struct cursor *c, struct mesh_message *m)
{
    uint32_t magic = MAGIC, version = MESH_VERSION;
    convert_number(c, &magic, 4);
    convert_number(c, &version, 4);
    convert_number(c, &m->type, 4);
    if (magic != MAGIC || version != MESH_VERSION || m->type < MESH_HELLO || m->type >= MESH_TYPES)
        c->bad = true;
    if (c->bad)
        return;
    if (m->type == MESH_HELLO)
        hello_fields(c, &m->hello);
    else if (m->type == MESH_ORDER)
        order_fields(c, &m->order);
    else if (m->type == MESH_ANSWER)
        answer_fields(c, &m->answer);
    else if (m->type == MESH_FINAL)
        nic_fields(c, &m->hello);
}

int mesh_encode(const struct mesh_message *m, uint8_t buf[MESH_MESSAGE])
{
    struct cursor c = {.at = buf, .end = buf + MESH_MESSAGE};
    struct mesh_message copy = *m;
    message_fields(&c, &copy);
    return c.bad ? hw_fail(-EINVAL, "a message of type %d cannot be encoded", (int)m->type) : (int)(c.at - buf);
}

int mesh_decode(const uint8_t *buf, size_t len, struct mesh_message *m)
{
    uint8_t copy[MESH_MESSAGE];
    *m = (struct mesh_message){0};
    if (len > sizeof copy)
        return hw_fail(-EPROTO, "the message has %zu bytes, but at most %d are allowed", len, MESH_MESSAGE);
    memcpy(copy, buf, len);
    struct cursor c = {.at = copy, .end = copy + len, .decode = true};
    message_fields(&c, m);
    if (c.bad || c.at != c.end)
        return hw_fail(-EPROTO, "the message is not valid for this version of hawser mesh");
    return 0;
}
