/* SPDX-License-Identifier: Apache-2.0 */
/* Tests requests of a hostile application: malformed requests, memory that changes during reads, overlapping buffers,
 * attributes that replace checked ones, and a million random requests. */
#include "tests/tap.h"
#include "verbs_hand.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>

static struct ask query_port(void)
{
    struct ask a = ask(RDMA_DRIVER_RXE, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT);

    say(&a, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, 1);
    say(&a, UVERBS_ATTR_QUERY_PORT_RESP, sizeof(struct ib_uverbs_query_port_resp_ex), OUT_AT);
    return a;
}

/* Builds a REG_MR request of Linux 6.17. */
static struct ask reg_mr(void)
{
    struct ask q = ask(RDMA_DRIVER_MLX5, UVERBS_OBJECT_MR, 5);

    say(&q, 0, 0, 0);
    say(&q, 9, 4, OUT_AT);
    say(&q, 10, 4, OUT_AT);
    say(&q, 1, 0, 3);
    say(&q, 3, 8, 0);
    say(&q, 5, 8, 4096);
    say(&q, 6, 4, 7);
    say(&q, 4, 8, 0x5000);
    return q;
}

static struct memory m;
static struct ask a;

static void refused(int want, const char *what)
{
    int rc;

    hw_fail(0, "%s", "");
    rc = take(&m, &a);
    if (!ok(rc == want && *hw_error(), "%s: %s", what, hw_errno_name(-want)))
        diag("%d, %s", rc, hw_error());
}

static void malformed(void)
{
    a = query_port();
    map(&m, OUT_AT, 64, NULL);
    is_int(take(&m, &a), 0, "a request that is fine");
    a.hdr.length++;
    refused(-EINVAL, "a length that is not that of the attributes");
    a = query_port();
    a.hdr.num_attrs--;
    refused(-EINVAL, "fewer attributes than the length says");
    a = query_port();
    a.hdr.reserved1 = 1;
    refused(-EPROTONOSUPPORT, "a reserved field");
    a = query_port();
    a.hdr.reserved2 = 1;
    refused(-EPROTONOSUPPORT, "the other reserved field");
    a = query_port();
    while (a.hdr.num_attrs < VB_ATTRS_MAX)
        say(&a, (uint16_t)(100 + a.hdr.num_attrs), 8, 0)->flags = 0;
    ok(take(&m, &a) == 0 && r.n == 64 && !rebuild(false), "64 attributes, of which 62 are nothing to the schema");
    is_int(((struct vb_header *)built)->num_attrs, 2, "and left out");
    say(&a, 200, 8, 0)->flags = 0;
    refused(-EINVAL, "65 attributes");
    while (a.hdr.num_attrs < 255)
        say(&a, (uint16_t)(100 + a.hdr.num_attrs), 8, 0)->flags = 0;
    refused(-EINVAL, "255, which is more than a page");
    a.hdr.num_attrs = 4096; /* in 16 bits, 24 + 4096 * 16 wraps to 24 */
    a.hdr.length = sizeof(a.hdr);
    map(&m, HEADER, 24, &a.hdr);
    is_int(vb_request_take(&r, HEADER, mem_read, &m), -EINVAL, "so many that the length overflows");

    a = query_port();
    say(&a, 99, 0, 0);
    refused(-EPROTONOSUPPORT, "an attribute that is not known, and mandatory");
    a.attr[2].flags = 0;
    say(&a, 99, 0, 0)->flags = 0;
    is_int(take(&m, &a), 0, "twice, and not mandatory: nothing to the kernel");
    a = query_port();
    say(&a, UVERBS_ATTR_QUERY_PORT_PORT_NUM, 8, 2);
    refused(-EINVAL, "an attribute twice");
    a = query_port();
    a.hdr.num_attrs = 1;
    a.hdr.length -= 16;
    refused(-EINVAL, "one that is mandatory misses");
    a = query_port();
    a.attr[0].attr_data.reserved = 1;
    refused(-EINVAL, "a reserved field of an attribute");
    a = query_port();
    a.attr[0].len = 4;
    refused(-EINVAL, "a constant of 4 bytes");
    a.attr[0].len = 9;
    refused(-EINVAL, "and of 9");
    a = query_port();
    a.attr[1].len = 40;
    refused(-EINVAL, "an output too short");
    a.attr[1].len = 400;
    is_int(take(&m, &a), 0, "an output that is longer is one of a newer library");

    a = ask(RDMA_DRIVER_RXE, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
    say(&a, UVERBS_ATTR_DESTROY_PD_HANDLE, 0, 1ull << 32 | 5);
    refused(-EINVAL, "a number of 33 bits, of which 32 are another's");
    a.attr[0].data = 5;
    a.attr[0].len = 4;
    refused(-EINVAL, "a number with a length");
    a = reg_mr();
    a.attr[7] = (struct ib_uverbs_attr){.attr_id = 7, .data = 5}; /* dma-buf file descriptor */
    is_int(take(&m, &a), 0, "a descriptor");
    a.attr[7].data = 1ull << 32 | 5;
    refused(-EINVAL, "one of 33 bits, of which 32 are another's");

    a = ask(RDMA_DRIVER_CXGB4, UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY);
    refused(-EOPNOTSUPP, "a driver that is not in the schema");
    a = ask(RDMA_DRIVER_RXE, 77, 0);
    refused(-EOPNOTSUPP, "an object that is not");
    a = ask(RDMA_DRIVER_MLX5, 0x1001, 0x1000);
    refused(-EOPNOTSUPP, "DEVX");
    ok(strstr(hw_error(), "MLX5_DEVX_OBJ_CREATE: refused: "), "which is named: %s", hw_error());
    unmap_all(&m);
}

static void write_commands(void)
{
    uint32_t one = 1;

    a = ask(RDMA_DRIVER_RXE, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
    refused(-EINVAL, "INVOKE_WRITE of nothing");
    say(&a, UVERBS_ATTR_WRITE_CMD, 8, 1);
    refused(-ENOSPC, "the probe");
    a.attr[0].data = 1ull << 32 | 3;
    refused(-EINVAL, "a command of 33 bits");
    a.attr[0].data = 6; /* MODIFY_AH, which the kernel no longer supports */
    refused(-EOPNOTSUPP, "a command that is not in the schema");
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_ALLOC_PD, 8, 4, 0, 0);
    say(&a, UVERBS_ATTR_WRITE_CMD, 8, IB_USER_VERBS_CMD_REG_MR);
    refused(-EINVAL, "two commands");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_POLL_CQ, 16, 8, 0, 0);
    refused(-EOPNOTSUPP, "POLL_CQ, which would write behind its output");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 39, 12, 0, 0);
    refused(-ENOSPC, "a core part too short");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 11, 0, 0);
    refused(-ENOSPC, "a core output too short");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 100, 12, 0, 0);
    ok(take(&m, &a) == 0 && r.core_in_len == 40 && !rebuild(true), "60 zeros more are cut off");
    *map(&m, IN_AT + 99, 1, NULL) = 1;
    refused(-EOPNOTSUPP, "something behind them");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 12, 32, 0);
    ok(take(&m, &a) == 0 && r.uhw_in_len == 0 && !rebuild(true), "zeros for a driver that takes nothing");
    *map(&m, UHW_IN_AT + 31, 1, NULL) = 1;
    refused(-EOPNOTSUPP, "something for a driver that takes nothing");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_SIW, IB_USER_VERBS_CMD_REG_MR, 40, 12, 100, 8);
    ok(take(&m, &a) == 0 && r.uhw_in_len == 8 && !rebuild(true),
       "what is cut to 8 bytes comes to lie in the attribute");
    unmap_all(&m);

    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_POST_SEND, 24, 4, 0, 0);
    ok(take(&m, &a) == 0 && r.where == VB_BROKER && !rebuild(false), "a doorbell");
    map(&m, IN_AT + offsetof(struct ib_uverbs_post_send, wr_count), 4, &one);
    refused(-EOPNOTSUPP, "a doorbell with work requests");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_POST_SRQ_RECV, 24, 4, 0, 0);
    map(&m, IN_AT + offsetof(struct ib_uverbs_post_srq_recv, wr_count), 4, &one);
    refused(-EOPNOTSUPP, "that of a shared receive queue too");
    unmap_all(&m);
}

/* Simulates memory in which every address is readable. */
static bool wrapped;
static int all_read(void *arg, uint64_t at, void *dst, size_t n)
{
    wrapped |= at > UINT64_MAX - n;
    return mem_read(arg, at, dst, n) < 0 ? (memset(dst, 0, n), 0) : 0;
}

static void addresses(void)
{
    static uint8_t small[512];

    a = query_port();
    map(&m, HEADER, 24, &a.hdr);
    is_int(vb_request_take(&r, HEADER, mem_read, &m), -EFAULT, "attributes that are not there");
    is_int(vb_request_take(&r, HEADER - 1, mem_read, &m), -EFAULT, "a header that is not there");
    is_int(vb_request_take(&r, UINT64_MAX - 10, mem_read, &m), -EFAULT, "one at the end of the world");
    map(&m, UINT64_MAX - 23, 24, &a.hdr);
    is_int(vb_request_take(&r, UINT64_MAX - 23, mem_read, &m), -EFAULT, "attributes behind the end of the world");
    map(&m, UINT64_MAX - 30, 24, &a.hdr);
    is_int(vb_request_take(&r, UINT64_MAX - 30, all_read, &m), -EFAULT, "attributes across the end of the world");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 12, 0, 0);
    a.attr[1].data = UINT64_MAX - 20;
    take(&m, &a);
    is_int(vb_request_take(&r, HEADER, all_read, &m), -EFAULT, "an input across it");
    ok(!wrapped, "nobody was asked to read there");
    unmap_all(&m);

    a = query_port();
    a.attr[1].data = UINT64_MAX - 40;
    refused(-EFAULT, "an output that wraps around");
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 12, 0, 0);
    a.attr[1].data = UINT64_MAX - 20;
    refused(-EFAULT, "an input that wraps around");
    a.attr[1].data = 0x5000;
    refused(-EFAULT, "an input that is not there");
    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 65535, 0, 0);
    refused(-E2BIG, "more bytes than are taken");
    unmap_all(&m);

    a = query_port();
    map(&m, OUT_AT, 64, NULL);
    is_int(take(&m, &a), 0, "a request");
    for (size_t cap = 0; cap < 104; cap += 8)
        if (vb_request_build(&r, small, cap, WINDOW, 0, &layout) != -E2BIG)
            ok(false, "%zu bytes were enough for it", cap);
    ok(vb_request_build(&r, small, 104, WINDOW, 0, &layout) == 0 && !vk_check(&r, small, 104, WINDOW, 0, layout.header),
       "it is made anew in 104 bytes, and in no fewer");
    is_int(vb_request_build(&r, built, CAP, WINDOW, CAP + 4096, &layout), -E2BIG, "no split beyond the end");
    unmap_all(&m);
    is_int(vb_request_give(&r, mem_write, &m), -EFAULT, "its results go nowhere");

    /* An input that is too large for the stub. */
    a = ask_write(&m, RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW, 20000, 8, 0,
                  0);
    ok(take(&m, &a) == 0 && !rebuild(false), "an input of 20,000 bytes");
    is_int(vb_request_build(&r, built, CAP, WINDOW, SPLIT, &layout), -E2BIG, "not for the stub");
    unmap_all(&m);
    a = ask(RDMA_DRIVER_RXE, UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT);
    say(&a, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4, OUT_AT);
    say(&a, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8, OUT_AT + 8);
    ok(take(&m, &a) == 0 && !rebuild(false), "two outputs that are not mandatory");
    is_int(vb_request_build(&r, built, CAP, WINDOW, SPLIT, &layout), -EOPNOTSUPP, "not for the stub");
}

/* Tests memory in which each byte changes after each read. */
static void turns(void)
{
    static struct memory then;
    unsigned twice = 0, read = 0;
    struct ib_uverbs_reg_mr reg;

    unmap_all(&m);
    a = ask_write(&m, RDMA_DRIVER_SIW, IB_USER_VERBS_CMD_REG_MR, 40, 12, 16, 8);
    memset(map(&m, IN_AT, 40, NULL), 0x5a, 40);
    *map(&m, UHW_IN_AT, 1, NULL) = 0x77;
    m.turns = true;
    is_int(take(&m, &a), 0, "memory that changes with every look is looked at");
    for (unsigned i = 0; i < m.n; i++)
        for (size_t b = 0; b < m.span[i].n; b++) {
            twice += m.span[i].reads[b] > 1;
            read += m.span[i].reads[b];
        }
    is_int(twice, 0, "once");
    is_int(read, 24 + 5 * 16 + 40 + 16, "all of it that counts, and not what is an output's");
    is_int(m.calls, 4, "in 4 calls");
    memcpy(&reg, r.core_in, sizeof(reg));
    ok(reg.length == 0x5a5a5a5a5a5a5a5a && *(uint8_t *)r.uhw_in == 0x77 && !rebuild(true),
       "what was seen first counts");
    then = m;
    then.calls = 0;
    rebuild(true);
    vk_run(built, WINDOW, SPLIT, layout.header, vb_write_attrs, 1);
    vb_request_collect(&r, built, &layout);
    is_int(then.calls, 0, "nothing is looked at later");
    m.turns = false;
    unmap_all(&m);
}

/* Tests outputs that overlap each other, an input, or the header. Such overlaps harm only the application itself. */
static void overlaps(void)
{
    const uint64_t at[][2] = {{OUT_AT, OUT_AT}, {OUT_AT, OUT_AT + 4}, {IN_AT, IN_AT + 20}, {HEADER, HEADER + 20}};
    struct vb_header hdr;

    for (unsigned i = 0; i < HW_ARRAY_LEN(at); i++) {
        struct vb_attr *core, *uhw;

        a = ask_write(&m, RDMA_DRIVER_SIW, IB_USER_VERBS_CMD_REG_MR, 40, 12, 8, 8);
        a.attr[2].data = at[i][0];
        a.attr[4].data = at[i][1];
        if (!ok(take(&m, &a) == 0 && !rebuild(false), "outputs at 0x%llx and 0x%llx", (unsigned long long)at[i][0],
                (unsigned long long)at[i][1]))
            continue;
        hdr = r.hdr;
        vk_run(built, WINDOW, 0, layout.header, vb_write_attrs, 5);
        vb_request_collect(&r, built, &layout);
        core = vb_request_attr(&r, UVERBS_ATTR_CORE_OUT);
        uhw = vb_request_attr(&r, UVERBS_ATTR_UHW_OUT);
        m.calls = 0;
        ok(memcmp(&hdr, &r.hdr, sizeof(hdr)) == 0 && r.copy[core->at + 11] == vk_byte(5, UVERBS_ATTR_CORE_OUT, 11) &&
               r.copy[uhw->at] == vk_byte(5, UVERBS_ATTR_UHW_OUT, 0) && vb_request_give(&r, mem_write, &m) == 0 &&
               m.calls == 4 && *map(&m, at[i][1], 8, NULL) == vk_byte(5, UVERBS_ATTR_UHW_OUT, 0),
           "each is its own here, and the last one stays there");
        unmap_all(&m);
    }
}

/* Simulates an application that replaces the attributes after the split. As in the kernel, attributes are looked up by
 * identifier (uverbs_set_attr(), and the check for mandatory attributes in ib_uverbs_run_method()). Returns true if the
 * kernel would accept the call with an input that was not checked. */
static bool subverts(const struct vb_attr_rule *rules, unsigned fixed, const uint16_t *behind, unsigned n)
{
    struct ib_uverbs_attr attr;
    uint64_t seen = 0;
    bool input = false;

    for (unsigned i = 0; i < fixed + n; i++) {
        const struct vb_attr_rule *rule = rules;
        memcpy(&attr, built + (layout.header - WINDOW) + 24 + 16 * i, sizeof(attr));
        if (i >= fixed)
            attr.attr_id = behind[i - fixed];
        while (rule->kind != VB_END && rule->id != attr.attr_id)
            rule++;
        if (rule->kind == VB_END)
            continue;
        if (seen & 1ull << (rule - rules))
            return false;
        seen |= 1ull << (rule - rules);
        input |= i >= fixed && rule->kind != VB_OUT && rule->kind != VB_HANDLE_NEW;
    }
    for (const struct vb_attr_rule *rule = rules; rule->kind != VB_END; rule++)
        if (rule->mandatory && !(seen & 1ull << (rule - rules)))
            return false;
    return input;
}

static void replaced(void)
{
    static const uint16_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x1000, 0x1001, 0x1002, 99};
    const struct vb_attr_rule *rules;
    unsigned tried = 0, subverted = 0;

    /* Three attributes follow the split: two outputs of REG_MR and an output of the driver. */
    a = reg_mr();
    say(&a, UVERBS_ATTR_UHW_OUT, 16, OUT_AT);
    ok(take(&m, &a) == 0 && !rebuild(true), "the newer REG_MR for the stub");
    rules = r.command->attrs;
    for (unsigned i = 0; i < HW_ARRAY_LEN(ids); i++)
        for (unsigned j = 0; j < HW_ARRAY_LEN(ids); j++)
            for (unsigned k = 0; k < HW_ARRAY_LEN(ids); k++) {
                const uint16_t put[] = {ids[i], ids[j], ids[k]};
                tried++;
                subverted += subverts(rules, 6, put, 3);
            }
    is_int(subverted, 0, "nothing of all that can be put in the place of its outputs is an input");
    /* Without the mandatory flag on an output, a file descriptor could replace an input. This shows that the test
     * detects such attacks. */
    ok(subverts(rules, 5, (const uint16_t[]){7, 0, 9, 10}, 4), "an input's place could be taken: the test can tell");
    for (unsigned with = 0; with < 2; with++) {
        a = ask_write(&m, with ? RDMA_DRIVER_SIW : RDMA_DRIVER_RXE, IB_USER_VERBS_CMD_REG_MR, 40, 12, with ? 8 : 0, 8);
        ok(take(&m, &a) == 0 && !rebuild(true), "REG_MR with two outputs, %s an input of the driver's",
           with ? "with" : "without");
        subverted = 0;
        for (unsigned i = 0; i < HW_ARRAY_LEN(ids); i++, tried++)
            subverted += subverts(vb_write_attrs, 4, &ids[i], 1);
        is_int(subverted, 0, "nor of what can be put in UHW_OUT's");
        unmap_all(&m);
    }
    diag("%u tried", tried);
}

/* ---- random requests ---- */

static uint64_t state = 88172645463325252ull;
static uint64_t random64(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}
static uint32_t upto(uint32_t n)
{
    return n ? (uint32_t)(random64() % n) : 0;
}

/* Fails in about one of 64 calls. Otherwise, fills the buffer with zeros, and usually changes one byte to a random
 * value. */
static int random_read(void *arg, uint64_t at, void *dst, size_t n)
{
    uint64_t v = upto(4) ? 0 : random64();

    (void)arg;
    (void)at;
    if (upto(64) == 0)
        return -EFAULT;
    memset(dst, 0, n);
    if (n > 0)
        memcpy((uint8_t *)dst + upto((uint32_t)n), &v, 1);
    return 0;
}

struct random_ask {
    struct ask a;
    unsigned reads;
};
static int random_ask_read(void *arg, uint64_t at, void *dst, size_t n)
{
    struct random_ask *q = arg;

    if (q->reads++ == 0)
        memcpy(dst, &q->a.hdr, n);
    else if (q->reads == 2 && at == HEADER + sizeof(q->a.hdr))
        memcpy(dst, q->a.attr, n);
    else
        return random_read(arg, at, dst, n);
    return 0;
}

/* Fills in attributes that are close to what a command expects, or completely different. */
static void random_attrs(struct ask *q, const struct vb_command *c)
{
    static const uint16_t lens[] = {0, 1, 4, 7, 8, 9, 12, 16, 24, 40, 64, 100, 300, 5000, 65535};
    const struct vb_attr_rule *rules = c->attrs ? c->attrs : vb_write_attrs;

    for (const struct vb_attr_rule *rule = rules; rule->kind != VB_END; rule++) {
        uint32_t len = rule->min;
        struct ib_uverbs_attr *attr;
        if (rule->id == UVERBS_ATTR_CORE_IN && !c->attrs)
            len = c->in_min;
        else if (rule->id == UVERBS_ATTR_CORE_OUT && !c->attrs)
            len = c->out_min;
        else if (rule->driver)
            len = upto(8) * 8;
        if (!rule->mandatory && upto(8) == 0)
            continue;
        attr = say(q, rule->id, (uint16_t)(upto(8) ? len : len + upto(40)), upto(16) ? upto(1000) : random64());
        attr->flags = (uint16_t)upto(4);
        if (rule->id == UVERBS_ATTR_WRITE_CMD && !c->attrs)
            attr->data = c->command;
    }
    for (unsigned i = upto(4) ? 0 : upto(5); i > 0; i--)
        say(q, (uint16_t)(upto(2) ? upto(16) : 0x1000 + upto(4)), lens[upto(HW_ARRAY_LEN(lens))], random64())->flags =
            (uint16_t)upto(2);
    if (upto(8) == 0) {
        uint8_t *byte = (uint8_t *)&q->attr[upto(q->hdr.num_attrs ? q->hdr.num_attrs : 1)];
        byte[upto(16)] = (uint8_t)random64();
    }
    if (upto(32) == 0)
        ((uint8_t *)&q->hdr)[upto(sizeof(q->hdr))] = (uint8_t)random64();
}

static void at_random(unsigned runs)
{
    static struct random_ask q;
    unsigned fine = 0, in_stub = 0, n_commands = 0, not_in_stub = 0, seen[256] = {0}, reached = 0, takeable = 0;
    const char *wrong = NULL;

    while (vb_schema_at(n_commands))
        n_commands++;
    for (unsigned i = 0; i < runs && !wrong; i++) {
        unsigned which = upto(n_commands);
        const struct vb_command *c = vb_schema_at(which);
        char text[64];
        int rc;

        q.a = ask(vb_driver_at(upto(5))->id, c->object, c->method);
        q.reads = 0;
        if (c->where != VB_REFUSED)
            random_attrs(&q.a, c);
        rc = vb_request_take(&r, HEADER, random_ask_read, &q);
        vb_request_text(&r, text, sizeof(text));
        if (rc < 0)
            continue;
        fine++;
        seen[which]++;
        if (r.command->where == VB_REFUSED || r.where == VB_REFUSED)
            wrong = "taken, and refused";
        else if (!wrong)
            wrong = rebuild(false);
        if (!wrong && r.where == VB_MEMORY) {
            rc = vb_request_build(&r, built, CAP, WINDOW, SPLIT, &layout);
            wrong = rc == 0 ? vk_check(&r, built, CAP, WINDOW, SPLIT, layout.header) : NULL;
            in_stub += rc == 0;
            not_in_stub += rc < 0;
        }
    }
    for (unsigned i = 0; i < n_commands; i++) {
        takeable += vb_schema_at(i)->where != VB_REFUSED;
        reached += seen[i] > 0;
        if (vb_schema_at(i)->where != VB_REFUSED && !seen[i])
            diag("%s was never taken", vb_schema_at(i)->name);
    }
    if (!ok(!wrong, "%u requests at random: %u taken, %u of them for the stub, %u too large for it", runs, fine,
            in_stub, not_in_stub))
        diag("%s", wrong);
    ok(reached == takeable && fine > runs / 50 && in_stub > runs / 1000, "of every command some are taken");
}

int main(void)
{
    malformed();
    write_commands();
    addresses();
    turns();
    overlaps();
    replaced();
    at_random(1000000);
    return tap_done();
}
