/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/validate/validate_page.h"

#include "tool/report/report_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *validate_channel_fault(const struct hawser_channel_stats *c)
{
    if (!c->up)
        return "is down";
    if (c->lost)
        return "was lost";
    if (!c->tx_bytes && !c->rx_bytes)
        return "carried nothing";
    if (!c->tx_bytes)
        return "sent nothing";
    if (!c->rx_bytes)
        return "received nothing";
    return NULL;
}

void validate_page_add(struct validate_page *v, const char *nic, const struct hawser_channel_stats *ch, size_t n,
                       size_t proved, uint64_t of, const char *why)
{
    struct hawser_channel_stats *more = realloc(v->ch, (v->n + n + 1) * sizeof *more);
    if (!more)
        return;
    v->ch = more;
    memcpy(more + v->n, ch, n * sizeof *more);
    v->n += n;
    if (n == 0) { /* no channel was ever connected */
        more[v->n] = (struct hawser_channel_stats){0};
        snprintf(more[v->n++].nic, HAWSER_NIC_NAME, "%s", nic);
    }
    v->proved += proved;
    v->of += of;
    if (*why)
        snprintf(v->why, sizeof v->why, "%s", why);
}

void validate_page_write(struct page *p, const void *arg)
{
    static const struct page_column heads[] = {
        {"Channel", "one connection", false},
        {"NIC", "of this node", true},
        {"Local", "local address and port", true},
        {"Remote", "address and port of the peer", true},
        {"Peer&#39;s NIC", NULL, true},
        {"Sent", "payload bytes that the peer has confirmed", false},
        {"Chunks", "chunks of this payload", false},
        {"Received", "payload bytes that arrived from the peer", false},
        {"Chunks", NULL, false},
        {"Result", "OK: the channel is up, was never lost, and carried bytes in both directions", true}};
    const struct validate_page *v = arg;
    char value[48];
    page_cards(p);
    snprintf(value, sizeof value, "%" PRIu64 " / %" PRIu64, v->proved, v->of);
    page_card(p, "Channels proved", value, "", v->proved == v->of ? "good" : "bad",
              v->proved == v->of ? "each carried bytes both ways, and every byte was right" : v->why);
    page_cards_end(p);
    page_table(p, "Channels", "");
    page_heads(p, heads, HW_ARRAY_LEN(heads));
    for (size_t i = 0; i < v->n; i++) {
        const struct hawser_channel_stats *c = &v->ch[i];
        const char *fault = validate_channel_fault(c);
        page_row(p);
        page_number(p, c->index, rep_text_count, "");
        page_text(p, c->nic, "");
        page_text(p, c->local, "");
        page_text(p, c->remote, "");
        page_text(p, c->peer_nic, "");
        page_number(p, (double)c->tx_bytes, rep_text_bytes, "");
        page_number(p, (double)c->tx_chunks, rep_text_count, "");
        page_number(p, (double)c->rx_bytes, rep_text_bytes, "");
        page_number(p, (double)c->rx_chunks, rep_text_count, "");
        page_text(p, fault ? fault : "OK", fault ? "bad" : "good");
        page_row_end(p);
    }
    page_table_end(p, NULL);
}

void validate_page_free(struct validate_page *v)
{
    free(v->ch);
    *v = (struct validate_page){0};
}
