/* SPDX-License-Identifier: Apache-2.0 */
/* Tests quotas: exhausts each quota, tries to bypass it, checks the accounts at the end, and checks which limits the
 * replies show. */
#include "base/base.h"
#include "verbs/policy/policy_int.h"
#include "verbs_ask.h"

#define PAGE      4096u
#define REREG     IB_USER_VERBS_CMD_REREG_MR
#define TRANS     1u
#define ACCESS    4u
#define ON_DEMAND IB_UVERBS_ACCESS_ON_DEMAND

static int reg(uint64_t start_, uint64_t length, uint32_t access)
{
    struct ib_uverbs_reg_mr in = {.start = start_, .length = length, .hca_va = start_, .access_flags = access};
    return cmd(IB_USER_VERBS_CMD_REG_MR, in);
}

static int rereg(uint32_t number, uint32_t flags, uint64_t length, uint32_t access)
{
    struct ib_uverbs_rereg_mr in = {.mr_handle = number, .flags = flags, .length = length, .access_flags = access};
    return cmd(REREG, in);
}

static int dereg(uint32_t number)
{
    struct ib_uverbs_dereg_mr in = {.mr_handle = number};
    return cmd(IB_USER_VERBS_CMD_DEREG_MR, in);
}

static int dmabuf(uint64_t length)
{
    uint64_t zero = 0;
    begin(UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, RDMA_DRIVER_MLX5);
    attr(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
    attr(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, 1);
    attr_in(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, &zero, 8);
    attr_in(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, &length, 8);
    attr_in(UVERBS_ATTR_REG_DMABUF_MR_IOVA, &zero, 8);
    attr(UVERBS_ATTR_REG_DMABUF_MR_FD, 4, 3);
    attr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4);
    attr_out(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4);
    return judged();
}

/* Judges a REG_MR request of Linux 6.17. Uses numeric attribute identifiers. */
static int modern(uint64_t address, uint64_t length, uint32_t access, bool fd)
{
    begin(UVERBS_OBJECT_MR, 5, RDMA_DRIVER_RXE);
    attr(0, 0, 0);
    attr(1, 0, 1);
    attr_in(3, &address, 8);
    if (fd)
        attr(7, 0, 3), attr_in(8, &address, 8);
    else
        attr_in(4, &address, 8);
    attr_in(5, &length, 8);
    attr_in(6, &access, 4);
    attr_out(9, 4);
    attr_out(10, 4);
    return judged();
}

static int dm_mr(uint64_t length, uint32_t access)
{
    begin(UVERBS_OBJECT_MR, UVERBS_METHOD_DM_MR_REG, RDMA_DRIVER_MLX5);
    attr(UVERBS_ATTR_REG_DM_MR_HANDLE, 0, 0);
    attr_in(UVERBS_ATTR_REG_DM_MR_OFFSET, &(uint64_t){0}, 8);
    attr_in(UVERBS_ATTR_REG_DM_MR_LENGTH, &length, 8);
    attr(UVERBS_ATTR_REG_DM_MR_PD_HANDLE, 0, 1);
    attr_in(UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, &access, 4);
    attr(UVERBS_ATTR_REG_DM_MR_DM_HANDLE, 0, 1);
    attr_out(UVERBS_ATTR_REG_DM_MR_RESP_LKEY, 4);
    attr_out(UVERBS_ATTR_REG_DM_MR_RESP_RKEY, 4);
    return judged();
}

static int advise(void)
{
    struct ib_uverbs_sge sge = {0};
    begin(UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, RDMA_DRIVER_MLX5);
    attr(UVERBS_ATTR_ADVISE_MR_PD_HANDLE, 0, 1);
    attr_in(UVERBS_ATTR_ADVISE_MR_ADVICE, &(uint64_t){0}, 8);
    attr_in(UVERBS_ATTR_ADVISE_MR_FLAGS, &(uint32_t){0}, 4);
    attr_in(UVERBS_ATTR_ADVISE_MR_SGE_LIST, &sge, sizeof(sge));
    return judged();
}

static void bytes(void)
{
    start("[default]\ndevices = *\nmr_bytes = 64KiB\nmax_mrs = unlimited\n");
    passes(reg(0, 65536, 1), "all there is, in one");
    refused(reg(0, 65537, 1), ENOMEM, "mr_bytes = 64KiB", "a byte more");
    refused(reg(4095, 65536, 1), ENOMEM, "mr_bytes", "no more, but of a page more");
    refused(reg(0, UINT64_MAX, 1), ENOMEM, "mr_bytes", "all of memory");
    refused(reg(4095, UINT64_MAX - 4000, 1), ENOMEM, "mr_bytes", "a length that would overflow");
    refused(modern(0, 65537, 1, false), ENOMEM, "mr_bytes", "by the method of newer kernels");
    passes(modern(0, 65536, 1, false), "all there is, by that");
    refused(modern(0, 4096, 1, true), EOPNOTSUPP, "allow: no dmabuf", "a dma-buf by that");
    refused(modern(0, 4096, ON_DEMAND, false), EOPNOTSUPP, "allow: no odp", "on demand by that");
    refused(dmabuf(4096), EOPNOTSUPP, "allow: no dmabuf", "a dma-buf");
    refused(reg(0, 4096, ON_DEMAND | 1), EOPNOTSUPP, "allow: no odp", "memory on demand");
    refused(rereg(1, ACCESS, 0, ON_DEMAND), EOPNOTSUPP, "allow: no odp", "on demand afterwards");
    refused(advise(), EOPNOTSUPP, "allow: no odp", "advice on such memory");
    refused(dm_mr(4096, ON_DEMAND), EOPNOTSUPP, "allow: no odp", "the device's own memory on demand");
    passes(dm_mr(1ull << 40, 1), "which does not count otherwise: none of the host's is pinned");
    passes(rereg(1, 2, 0, ON_DEMAND), "access that the flags do not name is none");
    R.allow = VB_ALLOW_DMABUF | VB_ALLOW_ODP;
    refused(dmabuf(65537), ENOMEM, "mr_bytes", "too large a dma-buf, where they are allowed");
    passes(advise(), "advice, where there is memory on demand");
    R.allow = 0;

    uint64_t a, b;
    reg(0, 40960, 1);
    is_int(vb_reserve(O, &Q, &a), 0, "one is under way");
    refused(reg(0, 40960, 1), ENOMEM, "mr_bytes", "another beside it does not pass");
    passes(reg(0, 24576, 1), "but what is left does");
    is_int(vb_reserve(O, &Q, &b), 0, "and is under way too");
    refused(reg(0, 1, 1), ENOMEM, "mr_bytes", "then one byte is too many");
    vb_settle(O, &Q, b, -EFAULT, false);
    passes(reg(0, 24576, 1), "what failed is given back");
    reg(0, 40960, 1);
    made(7);
    vb_settle(O, &Q, a, 0, true);
    ok(U.mr_bytes == 40960 && U.n[VB_MR] == 1, "what did not is counted, once");
    refused(reg(0, 40960, 1), ENOMEM, "mr_bytes", "and counts");

    struct vb_objects *second = vb_objects_new(&U);
    if (!second)
        exit(1);
    vb_judge(&R, &U, second, &Q, &V);
    refused(V.rc, ENOMEM, "mr_bytes", "in a second context too");
    dereg(7);
    runs(second, 0, 0, true);
    ok(U.mr_bytes == 40960, "whose MR of the same number is another");
    vb_objects_free(second);
    struct vb_usage other = {{0}, 0};
    vb_judge(&R, &other, O, &Q, &V);
    is_int(V.rc, 0, "a second device has accounts of its own");
    dereg(7);
    runs(O, 0, -EBUSY, true);
    ok(U.mr_bytes == 40960 && U.n[VB_MR] == 1, "an end that the kernel refuses is none");
    dereg(7);
    runs(O, 0, 0, true);
    ok(U.mr_bytes == 0 && U.n[VB_MR] == 0, "an end gives all back");
    dereg(7);
    runs(O, 0, 0, true);
    ok(U.mr_bytes == 0 && U.n[VB_MR] == 0, "and not twice");

    policy("[default]\ndevices = *\nmr_bytes = unlimited\nallow = odp, dmabuf\n");
    passes(reg(0, UINT64_MAX, ON_DEMAND), "all of memory on demand, without a limit");
    runs(O, 8, 0, true);
    passes(reg(0, UINT64_MAX, ON_DEMAND), "twice");
    runs(O, 9, 0, true);
    passes(dmabuf(1), "a dma-buf that is allowed");
    runs(O, 10, 0, true);
    ok(U.n[VB_MR] == 3 && U.mr_bytes == 2 * (1ull << 56) + PAGE, "are counted as much as there can be");
}

static void enlarged(void)
{
    start("[default]\ndevices = *\nmr_bytes = 64KiB\n");
    reg(0, 16384, 1);
    runs(O, 5, 0, true);
    reg(0, 16384, 1);
    runs(O, 6, 0, true);
    refused(rereg(5, TRANS, 65536, 1), ENOMEM, "mr_bytes", "an MR that is made larger");
    refused(rereg(5, TRANS | 2 | ACCESS, UINT64_MAX, 1), ENOMEM, "mr_bytes", "with all the flags");
    passes(rereg(5, TRANS, 49152, 1), "as large as there is room");
    uint64_t a;
    is_int(vb_reserve(O, &Q, &a), 0, "is under way");
    ok(U.mr_bytes == 65536, "and taken up: %llu", (unsigned long long)U.mr_bytes);
    refused(rereg(6, TRANS, 20480, 1), ENOMEM, "mr_bytes", "so that another beside it does not pass");
    refused(reg(0, 1, 1), ENOMEM, "mr_bytes", "nor a new one");
    rereg(5, TRANS, 49152, 1);
    vb_settle(O, &Q, a, -EINVAL, false);
    is_int(U.mr_bytes, 32768, "what failed is given back");
    rereg(5, TRANS, 49152, 1);
    runs(O, 0, 0, false);
    is_int(U.mr_bytes, 65536, "what did not is counted, whatever the reply says");
    rereg(5, TRANS, 4096, 1);
    runs(O, 0, 0, false);
    is_int(U.mr_bytes, 16384 + 4096, "an MR that is made smaller gives back");
    rereg(5, ACCESS, 65536, 1);
    runs(O, 0, 0, false);
    is_int(U.mr_bytes, 16384 + 4096, "a length that the flags do not name is none");
    refused(rereg(99, TRANS, 49152, 1), ENOMEM, "mr_bytes", "an MR that there is not has no size to be taken off");
    dereg(6);
    runs(O, 0, 0, true);
    refused(rereg(6, TRANS, 65536, 1), ENOMEM, "mr_bytes", "nor one that was ended");
    rereg(5, TRANS, 8192, 1);
    if (vb_reserve(O, &Q, &a) < 0)
        exit(1);
    vb_settle(O, &Q, a, VB_UNKNOWN, false);
    is_int(U.mr_bytes, 8192, "what nobody knows is taken for done where that is more");
    rereg(5, TRANS, 1, 1);
    if (vb_reserve(O, &Q, &a) < 0)
        exit(1);
    vb_settle(O, &Q, a, VB_UNKNOWN, false);
    is_int(U.mr_bytes, 8192, "and not where it is less");
    reg(0, 4096, 1);
    if (vb_reserve(O, &Q, &a) < 0)
        exit(1);
    vb_settle(O, &Q, a, VB_UNKNOWN, false);
    ok(U.mr_bytes == 12288 && U.n[VB_MR] == 2, "a new one that nobody knows of counts");
}

/* Tests that memory pinned for reading does not become writable unless it is pinned again, regardless of its MR
 * number. */
static void read_only(void)
{
    const uint32_t none = 0, remote_read = 4, writes[] = {1, 2, 8, 16}; /* enum ib_uverbs_access_flags */
    start("[default]\ndevices = *\n");
    reg(0, 4096, 1);
    runs(O, 1, 0, true);
    passes(rereg(1, ACCESS, 0, 1 | 2), "more access for memory that is pinned to be written");
    passes(rereg(1, TRANS, 4096, none), "other memory");
    runs(O, 0, 0, true);
    passes(rereg(1, ACCESS, 0, 1), "is as before");
    uint64_t a;
    reg(0, 4096, remote_read);
    if (vb_reserve(O, &Q, &a) < 0)
        exit(1);
    for (unsigned i = 0; i < HW_ARRAY_LEN(writes); i++)
        refused(rereg(1 + i, ACCESS, 0, writes[i]), EACCES, "REREG_MR", "none while one is on its way to be read only");
    passes(rereg(1, ACCESS, 0, remote_read), "but other access to read");
    passes(rereg(1, ACCESS | TRANS, 4096, 1), "and other memory, that is pinned to be written");
    reg(0, 4096, remote_read);
    made(2);
    vb_settle(O, &Q, a, 0, false);
    refused(rereg(1, ACCESS, 0, 1), EACCES, "REREG_MR", "nor once it is there, whatever the number");
    for (unsigned how = 0; how < 3; how++) {
        start("[default]\ndevices = *\nallow = dmabuf\n");
        passes(rereg(1, ACCESS, 0, 1), "in another context it goes");
        passes(how == 0   ? rereg(1, ACCESS, 0, none)
               : how == 1 ? rereg(1, ACCESS | TRANS, 4096, none)
                          : modern(0, 4096, none, false),
               "until there is such memory in another way: %u", how);
        runs(O, 3, 0, false);
        refused(rereg(1, ACCESS, 0, 1), EACCES, "REREG_MR", "then no more");
    }
}

/* Tests forged replies, because the application can write to the memory that holds the stub's replies. */
static void forged(void)
{
    start("[default]\ndevices = *\nmr_bytes = 64KiB\nmax_mrs = 4\n");
    reg(0, 4096, 1);
    runs(O, 1, 0, true);
    reg(0, 32768, 1);
    runs(O, 1, 0, false); /* the kernel created MR 2, but the reply says 1 */
    is_int(U.mr_bytes, 36864, "a large MR that says it is the small one");
    dereg(1);
    runs(O, 0, 0, true);
    is_int(U.mr_bytes, 32768, "is not taken off with the small one");
    dereg(1);
    runs(O, 0, 0, true);
    is_int(U.mr_bytes, 32768, "nor with the next of that number");
    ok(U.n[VB_MR] == 0, "(two have been ended, by the kernel's word)");

    reg(0, 16384, 1);
    runs(O, 77, 0, false); /* the kernel created MR 3, but the reply says 77 */
    is_int(U.mr_bytes, 49152, "an MR of no true number");
    refused(rereg(77, TRANS, 32768, 1), ENOMEM, "mr_bytes", "does not give its size to be enlarged");
    dereg(77);
    runs(O, 0, 0, true);
    is_int(U.mr_bytes, 49152, "its bytes stay");
    refused(reg(0, 20480, 1), ENOMEM, "mr_bytes", "and count");

    reg(0, 4096, 1);
    runs(O, 5, 0, false);
    dereg(5);
    runs(O, 0, 0, true);
    reg(0, 8192, 1);
    runs(O, 5, 0, true);
    dereg(5);
    runs(O, 0, 0, true);
    is_int(U.mr_bytes, 49152 + 4096, "a true number takes the place of an untrue one, whose bytes stay");
    vb_objects_free(O);
    O = NULL;
    ok(U.mr_bytes == 0 && U.n[VB_MR] == 0 && U.n[VB_CONTEXT] == 0, "all goes with the context");

    /* The application guesses the MR number, and DEREG_MR completes before the answer to REG_MR arrives. */
    start("[default]\ndevices = *\nmr_bytes = 64KiB\nmax_mrs = 4\n");
    uint64_t a;
    static struct vb_request slow;
    reg(0, 4096, 1);
    if (vb_reserve(O, &Q, &a) < 0)
        exit(1);
    made(9);
    slow = Q;
    slow.core_in = slow.copy + ((uint8_t *)Q.core_in - Q.copy);
    slow.core_out = slow.copy + ((uint8_t *)Q.core_out - Q.copy);
    dereg(9);
    runs(O, 0, 0, true);
    vb_settle(O, &slow, a, 0, false);
    ok(U.n[VB_MR] == 0 && U.mr_bytes == 4096, "an end before the beginning: bytes stay, and no count goes below 0");
}

/* Judges a request that creates (or, if `end`, destroys) an object of type t. */
static int one(enum vb_type t, bool end)
{
    static uint32_t handle;
    uint64_t big[32] = {0};
    struct ib_uverbs_create_cq cq = {.cqe = 1, .comp_channel = -1};
    struct ib_uverbs_create_qp rc = {.qp_type = 2};
    struct ib_uverbs_open_xrcd xrcd = {.fd = UINT32_MAX};
    struct ib_uverbs_create_ah ah = {.attr = {.is_global = 1, .port_num = 1}};
    memset(&handle, 0, sizeof(handle));
    switch (t) {
    case VB_PD:
        return cmd_len(end ? IB_USER_VERBS_CMD_DEALLOC_PD : IB_USER_VERBS_CMD_ALLOC_PD, big, end ? 4 : 8);
    case VB_MR:
        return end ? dereg(0) : reg(0, 1, 1);
    case VB_MW:
        return cmd_len(end ? IB_USER_VERBS_CMD_DEALLOC_MW : IB_USER_VERBS_CMD_ALLOC_MW, big, end ? 4 : 16);
    case VB_CQ:
        return end ? cmd_len(IB_USER_VERBS_CMD_DESTROY_CQ, big, 16) : cmd(IB_USER_VERBS_CMD_CREATE_CQ, cq);
    case VB_QP:
        return end ? cmd_len(IB_USER_VERBS_CMD_DESTROY_QP, big, 16) : cmd(IB_USER_VERBS_CMD_CREATE_QP, rc);
    case VB_SRQ:
        return end ? cmd_len(IB_USER_VERBS_CMD_DESTROY_SRQ, big, 16)
                   : cmd_len(IB_USER_VERBS_CMD_CREATE_SRQ, big, sizeof(struct ib_uverbs_create_srq));
    case VB_AH:
        return end ? cmd_len(IB_USER_VERBS_CMD_DESTROY_AH, big, 4) : cmd(IB_USER_VERBS_CMD_CREATE_AH, ah);
    case VB_XRCD:
        return end ? cmd_len(IB_USER_VERBS_CMD_CLOSE_XRCD, big, 4) : cmd(IB_USER_VERBS_CMD_OPEN_XRCD, xrcd);
    case VB_WQ:
        return end ? cmd_len(EX(IB_USER_VERBS_EX_CMD_DESTROY_WQ), big, 8)
                   : cmd_len(EX(IB_USER_VERBS_EX_CMD_CREATE_WQ), big, sizeof(struct ib_uverbs_ex_create_wq));
    case VB_RWQ_TABLE:
        return cmd_len(end ? EX(IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL) : EX(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL),
                       big, 8);
    case VB_FLOW:
        return end ? cmd_len(EX(IB_USER_VERBS_EX_CMD_DESTROY_FLOW), big, 8)
                   : cmd_len(EX(IB_USER_VERBS_EX_CMD_CREATE_FLOW), big, sizeof(struct ib_uverbs_create_flow));
    case VB_DM:
        begin(UVERBS_OBJECT_DM, end ? UVERBS_METHOD_DM_FREE : UVERBS_METHOD_DM_ALLOC, RDMA_DRIVER_MLX5);
        attr(0, 0, 0);
        if (!end) {
            attr(UVERBS_ATTR_ALLOC_DM_LENGTH, 8, 64);
            attr(UVERBS_ATTR_ALLOC_DM_ALIGNMENT, 4, 0);
        }
        return judged();
    case VB_COUNTERS:
        begin(UVERBS_OBJECT_COUNTERS, end ? UVERBS_METHOD_COUNTERS_DESTROY : UVERBS_METHOD_COUNTERS_CREATE,
              RDMA_DRIVER_MLX5);
        attr(0, 0, 0);
        return judged();
    default:
        return 1;
    }
}

static void counts(void)
{
    static const struct {
        enum vb_type type;
        const char *key;
    } all[] = {{VB_PD, "max_pds"},           {VB_MR, "max_mrs"},
               {VB_MW, "max_mws"},           {VB_CQ, "max_cqs"},
               {VB_QP, "max_qps"},           {VB_SRQ, "max_srqs"},
               {VB_AH, "max_ahs"},           {VB_XRCD, "max_xrcds"},
               {VB_WQ, "max_wqs"},           {VB_RWQ_TABLE, "max_rwq_tables"},
               {VB_FLOW, "max_flows"},       {VB_DM, "max_dms"},
               {VB_COUNTERS, "max_counters"}};
    for (size_t i = 0; i < HW_ARRAY_LEN(all); i++) {
        enum vb_type t = all[i].type;
        char text[200], rule[64];
        snprintf(text, sizeof(text), "[default]\ndevices = *\nallow = raw flow xrc\n%s = 2\n", all[i].key);
        snprintf(rule, sizeof(rule), "%s = 2", all[i].key);
        start(text);
        bool room = one(t, false) == 0;
        runs(O, 1, 0, true);
        room &= one(t, false) == 0;
        uint64_t a;
        if (vb_reserve(O, &Q, &a) < 0)
            exit(1);
        bool full = one(t, false) == -ENOMEM && strcmp(V.rule, rule) == 0;
        vb_settle(O, &Q, a, -ENOMEM, true);
        room &= one(t, false) == 0;
        runs(O, 0x80000000u, 0, false);
        full &= one(t, false) == -ENOMEM && U.n[t] == 2;
        ok(room, "%s: two, one of which failed at first", all[i].key);
        ok(full, "no third, not beside one under way either: %s", V.text);
        bool again = one(t, true) == 0;
        runs(O, 0, -EBUSY, true);
        again &= one(t, false) == -ENOMEM && one(t, true) == 0;
        runs(O, 0, 0, true);
        again &= one(t, false) == 0 && U.n[t] == 1;
        ok(again, "one that was ended makes room, if the kernel did it");
        struct vb_objects *second = vb_objects_new(&U);
        if (!second)
            exit(1);
        runs(second, 1, 0, true);
        ok(one(t, false) == -ENOMEM, "a second context shares the limit");
        vb_objects_free(second);
        ok(U.n[t] == 1 && one(t, false) == 0, "and gives back all with its end");
    }
    start("[default]\ndevices = *\nmax_contexts = 2\n");
    vb_judge_open(&R, &U, &V);
    is_int(V.rc, 0, "a second open");
    struct vb_objects *second = vb_objects_new(&U);
    vb_judge_open(&R, &U, &V);
    ok(V.rc == -ENOMEM && strcmp(V.rule, "max_contexts = 2") == 0, "no third: %s", V.text);
    struct ib_uverbs_get_context get = {0};
    passes(cmd(IB_USER_VERBS_CMD_GET_CONTEXT, get), "but a context of one that is open");
    runs(second, 0, 0, true);
    is_int(U.n[VB_CONTEXT], 2, "which is no open");
    vb_objects_free(second);
    vb_judge_open(&R, &U, &V);
    is_int(V.rc, 0, "a third after the second is gone");
    struct ib_uverbs_create_comp_channel channel = {0};
    for (int i = 0; i < 3; i++) {
        passes(cmd(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, channel),
               "channels are not counted: their ends are not seen");
        runs(O, 3, 0, true);
    }
    is_int(U.n[VB_CHANNEL], 0, "at all");
}

/* Tests that the kernel's list of MRs replaces the accounts. */
static void listed(void)
{
    uint64_t bytes;
    start("[default]\ndevices = *\nmr_bytes = 64KiB\nmax_mrs = 4\n");
    reg(0, 4096, 1);
    runs(O, 1, 0, true);
    reg(0, 8192, 1);
    runs(O, 9, 0, false); /* the kernel created MR 2, but the reply says 9 */
    reg(0, 16384, 1);
    runs(O, 0, VB_UNKNOWN, false); /* the kernel did not create this MR */
    ok(U.n[VB_MR] == 3 && U.mr_bytes == 28672, "three MRs are counted, of which one is not there");
    vb_objects_set_mrs(O, (struct vb_mr_seen[]){{1, true, 4096}, {2, true, 8192}}, 2);
    ok(U.n[VB_MR] == 2 && U.mr_bytes == 12288, "the kernel lists two");
    ok(vb_objects_mr_known(O, 2, &bytes) && bytes == 8192 && !vb_objects_mr_known(O, 9, &bytes), "by their numbers");
    dereg(2);
    runs(O, 0, 0, true);
    ok(U.n[VB_MR] == 1 && U.mr_bytes == 4096, "by which they give back what they have");
    vb_objects_forget_mr(O, 1);
    ok(!vb_objects_mr_known(O, 1, &bytes), "the size of one that may have changed is not known");
    vb_objects_set_mrs(O, (struct vb_mr_seen[]){{1, false, 0}, {3, true, 1024}}, 2);
    ok(U.n[VB_MR] == 2 && U.mr_bytes == 4096, "where the kernel does not say a size, the sum gets no smaller");
    vb_objects_set_count(O, VB_QP, 3);
    ok(U.n[VB_QP] == 3 && vb_objects_count(O, VB_QP) == 3, "other objects are a count");
    vb_objects_free(O);
    O = NULL;
    ok(U.n[VB_MR] == 0 && U.n[VB_QP] == 0 && U.mr_bytes == 0, "all of which ends with the context");
}

/* Tests accounts with thousands of MRs that are destroyed in a different order than they were created. */
static void many(void)
{
    start("[default]\ndevices = *\nmr_bytes = unlimited\nmax_mrs = unlimited\n");
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t number = i * 2654435761u >> 8;
        reg(0, (i % 7 + 1) * PAGE, 1);
        runs(O, number, 0, true);
        sum += (i % 7 + 1) * PAGE;
    }
    ok(U.mr_bytes == sum && U.n[VB_MR] == 4000, "4000 MRs");
    for (uint32_t i = 0; i < 3999; i++) {
        uint32_t k = (i * 1999 + 1) % 4000;
        dereg(k * 2654435761u >> 8);
        runs(O, 0, 0, true);
    }
    uint32_t left = (3999 * 1999 + 1) % 4000;
    ok(U.n[VB_MR] == 1 && U.mr_bytes == (left % 7 + 1) * PAGE, "but one");
}

static void gid_table(size_t entry, unsigned n)
{
    uint64_t size = entry;
    begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, RDMA_DRIVER_RXE);
    attr_in(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, &size, 8);
    attr_in(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, &(uint32_t){0}, 4);
    attr_out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, (uint16_t)(entry * n));
    attr_out(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8);
    take();
}

static int gid_entry(uint64_t port, uint64_t index)
{
    begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, RDMA_DRIVER_RXE);
    attr_in(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, &port, 8);
    attr_in(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, &index, 8);
    attr_in(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, &(uint32_t){0}, 4);
    attr_out(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, sizeof(struct ib_uverbs_gid_entry));
    return judged();
}

static uint64_t kernel_table(const struct ib_uverbs_gid_entry *e, unsigned n, size_t entry)
{
    uint64_t num = n;
    uint8_t *at = Q.copy + vb_request_attr(&Q, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)->at;
    uint8_t *count = Q.copy + vb_request_attr(&Q, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES)->at;
    for (unsigned i = 0; i < n; i++)
        memcpy(at + i * entry, &e[i], sizeof(*e));
    memcpy(count, &num, sizeof(num));
    vb_filter_reply(&R, &Q);
    memcpy(&num, count, sizeof(num));
    return num;
}

static void replies(void)
{
    static const struct ib_uverbs_gid_entry table[] = {{.gid = {1}, .gid_index = 0, .port_num = 1},
                                                       {.gid = {2}, .gid_index = 3, .port_num = 1},
                                                       {.gid = {3}, .gid_index = 3, .port_num = 2},
                                                       {.gid = {4}, .gid_index = 4, .port_num = 1},
                                                       {.gid = {5}, .gid_index = 259, .port_num = 1}};
    start("[default]\ndevices = *\ngids = 3-4\nports = 1\n");
    passes(gid_entry(1, 3), "a GID that shows");
    ok(gid_entry(1, 2) == -ENODATA && !*V.rule, "one that does not is as an empty one, and no refusal to be logged");
    ok(gid_entry(2, 3) == -ENODATA && gid_entry(1, 259) == -ENODATA && gid_entry(1ull << 32 | 1, 3) == -ENODATA,
       "another port, and what only ends like one");
    gid_entry(1, 2);
    uint8_t *one = Q.copy + vb_request_attr(&Q, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY)->at;
    memset(one, 0xee, sizeof(table[0]));
    vb_filter_reply(&R, &Q);
    bool zero = true;
    for (size_t i = 0; i < sizeof(table[0]); i++)
        zero &= one[i] == 0;
    ok(zero, "and if the kernel were asked all the same, nothing would be said");

    for (size_t entry = sizeof(table[0]); entry <= 48; entry += 16) {
        gid_table(entry, 8);
        is_int(kernel_table(table, 5, entry), 2, "of a table of 5, two show");
        uint8_t *at = Q.copy + vb_request_attr(&Q, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)->at;
        struct ib_uverbs_gid_entry a, b;
        memcpy(&a, at, sizeof(a));
        memcpy(&b, at + entry, sizeof(b));
        ok(a.gid[0] == 2 && b.gid[0] == 4, "the right ones, side by side");
        bool left = false;
        for (size_t i = 2 * entry; i < 8 * entry; i++)
            left |= at[i] != 0;
        ok(!left, "and nothing of the others");
    }
    gid_table(16, 8);
    ok(judged() == -EINVAL, "entries that are too short to say whose they are");
    uint64_t n = kernel_table(table, 0, 16);
    is_int(n, 0, "show nothing");
    gid_table(sizeof(table[0]), 2);
    const uint64_t lie = UINT64_MAX;
    uint8_t *entries = Q.copy + vb_request_attr(&Q, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES)->at,
            *number = Q.copy + vb_request_attr(&Q, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES)->at;
    memcpy(entries, &table[1], sizeof(table[0]));
    memcpy(entries + sizeof(table[0]), &table[3], sizeof(table[0]));
    memcpy(number, &lie, sizeof(lie));
    vb_filter_reply(&R, &Q);
    memcpy(&n, number, sizeof(n));
    is_int(n, 2, "of a number of entries beyond the bytes, those that there are");
    policy("[default]\ndevices = *\n");
    gid_table(sizeof(table[0]), 8);
    is_int(kernel_table(table, 5, sizeof(table[0])), 5, "without a limit all show");
    passes(gid_entry(1, 1000), "of any index");

    struct ib_uverbs_ex_query_device_resp d;
    struct ib_uverbs_ex_query_device ask = {0};
    policy("[default]\ndevices = *\nmax_qps = 3\nqp_wr = 17\ncqe = 18\nmax_cqs = 4\nmr_bytes = 1MiB\nmax_mrs = "
           "5\nmax_pds = 6\n"
           "max_mws = 7\nmax_ahs = 8\nmax_srqs = 9\n");
    cmd(EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), ask);
    memset(Q.core_out, 0xff, Q.core_out_len);
    vb_filter_reply(&R, &Q);
    memset(&d, 0, sizeof(d));
    memcpy(&d, Q.core_out, HW_MIN(sizeof(d), (size_t)Q.core_out_len));
    ok(d.base.max_qp == 3 && d.base.max_qp_wr == 17 && d.base.max_cqe == 18 && d.base.max_cq == 4 &&
           d.base.max_mr_size == 1 << 20 && d.base.max_mr == 5 && d.base.max_pd == 6 && d.base.max_mw == 7 &&
           d.base.max_ah == 8 && d.base.max_srq == 9 && d.base.max_srq_wr == 17,
       "a device shows the limits of the policy");
    ok(d.base.max_mcast_grp == 0 && !(d.base.device_cap_flags & IB_UVERBS_DEVICE_XRC) &&
           !(d.base.device_cap_flags & IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING) && d.odp_caps.general_caps == 0 &&
           d.odp_caps.per_transport_caps.rc_odp_caps == 0,
       "and nothing that is not allowed");
    ok(!(d.device_cap_flags_ex & IB_UVERBS_DEVICE_XRC) && d.raw_packet_caps == 0 && d.max_dm_size == 0 &&
           d.xrc_odp_caps == 0,
       "nor in the other half of the struct");
    ok(d.base.vendor_id == UINT32_MAX && d.base.max_sge == UINT32_MAX && d.timestamp_mask == UINT64_MAX &&
           (d.base.device_cap_flags & IB_UVERBS_DEVICE_MEM_WINDOW),
       "the rest is as it was");
    policy("[default]\ndevices = *\nmax_qps = unlimited\nallow = odp xrc flow multicast raw\n");
    memset(Q.core_out, 0x11, Q.core_out_len);
    vb_filter_reply(&R, &Q);
    memcpy(&d, Q.core_out, HW_MIN(sizeof(d), (size_t)Q.core_out_len));
    ok(d.raw_packet_caps == 0x11111111 && d.device_cap_flags_ex == 0x1111111111111111ull && d.max_dm_size == 0 &&
           d.xrc_odp_caps == 0x11111111,
       "what is allowed shows");
    ok(d.base.max_qp == 0x11111111 && d.odp_caps.general_caps == 0x1111111111111111ull &&
           d.base.max_mcast_grp == 0x11111111,
       "or, where there is no limit, the device's own");
    struct ib_uverbs_query_device plain = {0};
    cmd(IB_USER_VERBS_CMD_QUERY_DEVICE, plain);
    memset(Q.core_out, 0xff, Q.core_out_len);
    Q.core_out_len = 56; /* simulates a kernel with a shorter reply */
    policy("[default]\ndevices = *\nmax_qps = 3\n");
    vb_filter_reply(&R, &Q);
    memcpy(&d, Q.core_out, sizeof(d.base));
    ok(d.base.max_qp == 3 && d.base.max_cq == UINT32_MAX, "and no byte beyond the reply is touched");
}

int main(void)
{
    bytes();
    enlarged();
    read_only();
    forged();
    counts();
    listed();
    many();
    replies();
    vb_objects_free(O);
    vb_policy_free(P);
    return tap_done();
}
