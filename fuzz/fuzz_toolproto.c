/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between `hawser bench` and `hawser serve`: an accepted message encodes to the same bytes and is within
 * its bounds. A refused message sets an error text. The first byte selects request or reply. */
#include "fuzz.h"
#include "tool/peer/proto.h"

/* Returns true if s is a plain name: not empty, not "." or "..", and without separators, spaces and some control
 * characters. */
static int is_name(const char *s)
{
    return *s && strcspn(s, ",/: \t\n\r\033\177") == strlen(s) && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t again[TP_REPLY];

    if (size == 0)
        return 0;
    hw_fail(0, "%s", "");
    if (data[0] & 1) {
        struct tp_reply r;
        int rc = tp_decode_reply(data + 1, size - 1, &r);
        FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
        if (rc < 0)
            return 0;
        FUZZ_CHECK(r.status <= 0 && r.bad <= r.checked && r.n_nics <= TP_MAX_NICS && r.raw_seconds >= 0);
        for (uint32_t i = 0; i < r.n_nics; i++)
            FUZZ_CHECK(memchr(r.nic[i].nic, 0, sizeof(r.nic[i].nic)));
        FUZZ_CHECK(memchr(r.text, 0, sizeof(r.text)));
        FUZZ_CHECK(r.facts.n_nics <= TP_MAX_NICS && memchr(r.facts.kernel, 0, sizeof(r.facts.kernel)));
        FUZZ_CHECK(r.type == TP_FACTS || (r.facts.n_nics == 0 && r.facts.gpus == 0));
        FUZZ_CHECK(r.facts.gpus < TP_HOST);
        FUZZ_CHECK(r.whole <= TP_INVENTORY_MOST && r.n_piece <= r.whole && r.n_piece <= TP_PIECE);
        for (uint32_t i = 0; i < r.facts.n_nics; i++) {
            FUZZ_CHECK(memchr(r.facts.nic[i].nic, 0, sizeof(r.facts.nic[i].nic)) && r.facts.nic[i].prefix <= 128);
            FUZZ_CHECK(is_name(r.facts.nic[i].nic) && r.facts.nic[i].contained <= 1);
            FUZZ_CHECK(memchr(r.facts.nic[i].rdma, 0, sizeof(r.facts.nic[i].rdma)));
            FUZZ_CHECK(r.facts.nic[i].rdma[0] ? is_name(r.facts.nic[i].rdma) : r.facts.nic[i].gid == 0);
            FUZZ_CHECK((r.facts.carried[i] & ~r.facts.tried[i]) == 0);
        }
        FUZZ_CHECK(tp_encode_reply(&r, again) == 0 && memcmp(again, data + 1, TP_REPLY) == 0);
    } else {
        struct tp_request q;
        int rc = tp_decode_request(data + 1, size - 1, &q);
        FUZZ_CHECK(rc == 0 || (rc == -EPROTO && *hw_error()));
        if (rc < 0)
            return 0;
        FUZZ_CHECK(q.type >= TP_PREPARE && q.type < TP_TYPES && q.raw.n_addrs <= TP_MAX_PATHS);
        if (q.type == TP_PREPARE) {
            uint64_t bytes;
            FUZZ_CHECK(q.slots >= 1 && q.slots <= TP_MAX_SLOTS && q.size <= q.stride);
            FUZZ_CHECK(!__builtin_mul_overflow(q.stride, (uint64_t)q.slots, &bytes));
        }
        FUZZ_CHECK(q.type != TP_INVENTORY || q.first <= TP_INVENTORY_MOST);
        FUZZ_CHECK(q.type != TP_FACTS || (q.flags & ~TP_CONTAINED) == 0);
        FUZZ_CHECK(q.reach.n_addrs <= TP_MAX_NICS && (q.reach.n_addrs == 0 || q.reach.port >= 1024));
        for (uint32_t i = 0; i < q.reach.n_addrs; i++)
            FUZZ_CHECK(q.reach.addr[i].family == 4 || q.reach.addr[i].family == 6);
        for (uint32_t i = 0; i < q.raw.n_addrs; i++)
            FUZZ_CHECK(memchr(q.raw.addr[i], 0, sizeof(q.raw.addr[i])));
        FUZZ_CHECK(tp_encode_request(&q, again) == 0 && memcmp(again, data + 1, TP_REQUEST) == 0);
    }
    return 0;
}
