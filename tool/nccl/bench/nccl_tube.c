/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/nccl/bench/nccl_launch.h"

#include "tool/peer/cursor.h"

#include <string.h>

#define MAGIC   0x544e5748u /* "HWNT" */
#define TELL_MS 30000

static void message_fields(struct cursor *c, struct nb_tube *m)
{
    uint32_t magic = MAGIC;
    convert_number(c, &magic, 4);
    convert_number(c, &m->type, 4);
    convert_number(c, &m->id, 4);
    convert_number(c, &m->value, 4);
    if (magic != MAGIC || m->type < NB_TUBE_HELLO || m->type >= NB_TUBE_TYPES)
        c->bad = true;
    if (m->type == NB_TUBE_HELLO && !c->bad) {
        struct nb_hello *h = &m->hello;
        convert_number(c, &h->rank, 4);
        convert_number(c, &h->size, 4);
        convert_number(c, &h->node, 8);
        convert_text(c, h->name, sizeof h->name);
        convert_text(c, h->version, sizeof h->version);
        if (h->rank >= h->size || !h->name[0])
            c->bad = true;
    }
    if (m->type != NB_TUBE_DATA || c->bad)
        return;
    if (c->decode)
        m->len = (size_t)(c->end - c->at);
    if (m->len == 0 || m->len > sizeof m->data || m->value > 2)
        c->bad = true;
    else
        convert_bytes(c, m->data, m->len);
}

int nb_tube_encode(const struct nb_tube *m, uint8_t buf[NB_TUBE_MOST])
{
    struct cursor c = {.at = buf, .end = buf + NB_TUBE_MOST};
    message_fields(&c, (struct nb_tube *)(uintptr_t)m); /* not modified, because c encodes */
    return c.bad ? hw_fail(-EINVAL, "a message has invalid fields, which the other side would refuse")
                 : (int)(c.at - buf);
}

int nb_tube_decode(const uint8_t *buf, size_t len, struct nb_tube *m)
{
    struct cursor c = {.at = (uint8_t *)(uintptr_t)buf, .end = (uint8_t *)(uintptr_t)buf + len, .decode = true};
    *m = (struct nb_tube){0};
    message_fields(&c, m);
    return c.bad || c.at != c.end
               ? hw_fail(-EPROTO, "a message of %zu bytes is not valid for this version of hawser nccl bench", len)
               : 0;
}

int nb_tube_send(hawser_peer *p, enum nb_tube_type type, uint32_t id, uint32_t value, const void *data, size_t len)
{
    static const struct hawser_op_options opts = {.size = sizeof opts, .timeout_ms = TELL_MS};
    HW_AUTO_FREE struct nb_tube *m = calloc(1, sizeof *m);
    uint8_t buf[NB_TUBE_MOST];
    if (!m)
        return hw_no_memory("a message");
    m->type = type;
    m->id = id;
    m->value = value;
    if (type == NB_TUBE_HELLO)
        memcpy(&m->hello, data, sizeof m->hello);
    else if (len)
        memcpy(m->data, data, m->len = HW_MIN(len, sizeof m->data));
    int n = nb_tube_encode(m, buf);
    return n < 0 ? n : hawser_notify(p, buf, (size_t)n, &opts, NULL);
}
