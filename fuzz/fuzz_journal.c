/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a sandbox, and the rtnetlink messages in the journal. The first byte selects how the remaining bytes
 * are used: as a file, as lines to which this target adds checksums, or as one message. An accepted journal is
 * unchanged after it is written and read back. A refused journal sets an error text. A message that is rewritten from
 * an accepted message is accepted as well. */
#include "fuzz.h"
#include "sandbox/netdev/netdev.h"

#include <linux/rtnetlink.h>

static const enum sb_kind messages[] = {SB_LINK, SB_ADDR, SB_NEIGH, SB_ROUTE, SB_RULE};
static const uint16_t types[] = {RTM_NEWLINK, RTM_NEWADDR, RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE};

static void use(enum sb_kind kind, const struct nlmsghdr *h)
{
    static const struct sb_map as_is = {.others = true};
    static const struct sb_map one = {
        .n = 1, .dev = {{.from = 2, .to = 7, .from_name = "n0", .to_name = "rdma0"}}, .elapsed = 9, .nodad = true};
    static char a[SB_MSG_MAX] __attribute__((aligned(8))), b[SB_MSG_MAX] __attribute__((aligned(8)));
    char text[SB_TEXT];
    struct sb_link l;
    int family;
    unsigned prefix;
    if (kind == SB_LINK)
        sb_link_parse(h, &l);
    else
        FUZZ_CHECK(sb_msg_text(kind, h, text) == text && strlen(text) < SB_TEXT);
    if (kind == SB_ADDR || kind == SB_NEIGH)
        (void)sb_msg_index(kind, h);
    if (kind == SB_ADDR)
        (void)sb_addr_bytes(h, &family, &prefix);
    if (kind == SB_RULE) {
        (void)sb_rule_names(h, "n0");
        (void)sb_rule_source(h, &family);
    }
    if (kind == SB_ROUTE) {
        (void)sb_route_uses(h, 2);
        (void)sb_route_default(h);
        (void)sb_route_by_object(h);
        (void)sb_route_gateway(h, 2);
    }
    int n = sb_msg_rewrite(kind, h, &one, a, sizeof(a));
    FUZZ_CHECK(n > 0 || n == -ENODEV || n == -ESTALE || n == -EMSGSIZE);
    if (n > 0)
        FUZZ_CHECK(sb_msg_ok(kind, (struct nlmsghdr *)a, (size_t)n));
    n = sb_msg_rewrite(kind, h, &as_is, a, sizeof(a));
    FUZZ_CHECK(n > 0 || n == -ESTALE || n == -EMSGSIZE);
    if (n < 0)
        return;
    FUZZ_CHECK(sb_msg_ok(kind, (struct nlmsghdr *)a, (size_t)n));
    FUZZ_CHECK(sb_msg_same(kind, h, h, &as_is));
    FUZZ_CHECK(sb_msg_rewrite(kind, (struct nlmsghdr *)a, &as_is, b, sizeof(b)) == n && memcmp(a, b, (size_t)n) == 0);
    if (kind == SB_ROUTE)
        sb_route_set_table((struct nlmsghdr *)a, 10001);
}

static void file(const char *text, size_t n)
{
    static struct sb_journal j, again;
    sb_journal_init(&j);
    sb_journal_init(&again);
    hw_fail(0, "%s", "");
    int rc = sb_journal_parse(&j, text, n);
    FUZZ_CHECK(rc == 0 || rc == -EBADMSG || rc == -EPROTONOSUPPORT);
    FUZZ_CHECK(rc == 0 || *hw_error());
    if (rc == 0) {
        size_t len, more;
        uint32_t crc, crc2;
        FUZZ_CHECK(j.size <= n && (j.torn || j.size == n) && j.nics <= SB_NICS_MAX && j.rdmas <= SB_NICS_MAX);
        char *out = sb_journal_text(&j, &len, &crc), *out2;
        FUZZ_CHECK(out && crc == j.crc);
        FUZZ_CHECK(sb_journal_parse(&again, out, len) == 0 && again.n == j.n && !again.torn);
        out2 = sb_journal_text(&again, &more, &crc2);
        FUZZ_CHECK(out2 && more == len && memcmp(out, out2, len) == 0);
        free(out);
        free(out2);
        for (size_t i = 0; i < j.n; i++) {
            enum sb_kind k = j.rec[i].kind;
            if (k == SB_LINK || k == SB_ADDR || k == SB_NEIGH || k == SB_ROUTE || k == SB_RULE)
                use(k, j.rec[i].data);
        }
    }
    sb_journal_free(&j);
    sb_journal_free(&again);
}

/* Computes CRC-32 independently of the journal's code. */
static uint32_t crc_of(uint32_t crc, const uint8_t *p, size_t n)
{
    for (crc = ~crc; n; n--, p++)
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ ((crc ^ *p >> k) & 1 ? 0xedb88320u : 0);
    return ~crc;
}

static void lines(const uint8_t *data, size_t size)
{
    char *out = malloc(size * 10 + 16);
    size_t at = 0;
    uint32_t crc = 0;
    if (!out)
        abort();
    while (size > 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end - data) : size;
        crc = crc_of(crc, data, n);
        at += (size_t)sprintf(out + at, "%08x ", crc);
        memcpy(out + at, data, n);
        at += n;
        out[at++] = '\n';
        n += end != NULL;
        data += n;
        size -= n;
    }
    file(out, at);
    free(out);
}

static void message(unsigned which, const uint8_t *data, size_t size)
{
    /* with the exact size, so a sanitizer detects an overrun by a single byte */
    struct nlmsghdr *h = malloc(sizeof(*h) + size);
    if (!h)
        abort();
    *h = (struct nlmsghdr){.nlmsg_len = (uint32_t)(sizeof(*h) + size), .nlmsg_type = types[which]};
    if (size > 0)
        memcpy(h + 1, data, size);
    if (sb_msg_ok(messages[which], h, h->nlmsg_len))
        use(messages[which], h);
    free(h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'f')
        file((const char *)data + 1, size - 1);
    else if (data[0] == 'l')
        lines(data + 1, size - 1);
    else
        message(data[0] % HW_ARRAY_LEN(messages), data + 1, size - 1);
    return 0;
}
