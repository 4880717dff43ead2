/* SPDX-License-Identifier: Apache-2.0 */
#include "liar.h"

#include "wire/wire.h"

/* The state is static, because session operations receive no argument except the peer. */
static struct {
    struct sim *s;
    struct hw_session_ops ops;
} liar;

/* Returns a replacement for n: a number near n, one of a different magnitude, or a small random one. */
static uint64_t change_number(struct sim *s, uint64_t n)
{
    switch (sim_random(s, 6)) {
    case 0:
        return n + (sim_chance(s, 2) ? 1 : sim_random(s, 9000));
    case 1:
        return n - 1;
    case 2:
        return 0;
    case 3:
        return n ^ 1ull << sim_random(s, 64);
    case 4:
        return n + (1ull << 32); /* the next generation */
    default:
        return sim_random(s, 40);
    }
}

static void lie_in_control(struct sim *s, struct hw_link_out *out)
{
    struct hw_control_head h;
    if (hw_control_decode(out->ext, out->ext_len, &h) < 0)
        return;
    uint64_t *const number[] = {&h.a, &h.b, &h.c, &h.d};
    bool payload = h.kind == HW_CONTROL_NOTE || h.kind == HW_CONTROL_EAGER;
    switch (sim_random(s, payload ? 6 : 8)) {
    case 0:
        h.sequence = (uint32_t)change_number(s, h.sequence);
        break;
    case 6: /* an answer without a request */
        h.kind = HW_CONTROL_STOPPED;
        break;
    case 7: /* types that have no payload */
        do
            h.kind = 1 + (uint32_t)sim_random(s, HW_CONTROL_KINDS - 1);
        while (h.kind == HW_CONTROL_NOTE || h.kind == HW_CONTROL_EAGER);
        break;
    default: {
        uint64_t *at = number[sim_random(s, 4)];
        *at = change_number(s, *at);
    }
    }
    hw_control_encode(out->ext, &h);
}

/* Changes a number of 4 or 8 bytes in the extension of a frame that is not a control message. */
static void lie_in_extension(struct sim *s, struct hw_link_out *out)
{
    uint32_t words = HW_MIN(out->ext_len, 48u) / 4, i = words ? (uint32_t)sim_random(s, words) : 0;
    uint8_t *at = out->ext + 4ull * i;
    if (i + 1 < words && i % 2 == 0 && sim_chance(s, 2))
        hw_put64(at, change_number(s, hw_get64(at)));
    else if (words)
        hw_put32(at, (uint32_t)change_number(s, hw_get32(at)));
}

static bool fill_with_lies(void *up, struct hw_parcel *parcel, struct hw_link_out *out)
{
    if (!hw_peer_session_ops.fill(up, parcel, out))
        return false;
    struct sim *s = liar.s;
    if (!sim_chance(s, 24))
        return true;
    sim_say(s, "node 1 lies in a frame of type %u", out->type);
    if (out->n_pieces && sim_chance(s, 6))
        out->n_pieces = (uint32_t)sim_random(s, out->n_pieces);
    else if (out->type == HW_MSG_CONTROL)
        lie_in_control(s, out);
    else if (out->type == HW_MSG_WRITE && sim_chance(s, 2))
        hw_put32(out->ext + HW_MSG_VECS_HEAD, (uint32_t)sim_random(s, 12)); /* a different region, if it exists */
    else
        lie_in_extension(s, out);
    return true;
}

void liar_take_over(struct world *w, struct hw_peer *p)
{
    w->lies = true;
    liar.s = w->s;
    liar.ops = hw_peer_session_ops;
    liar.ops.fill = fill_with_lies;
    p->session.ops = &liar.ops;
}
