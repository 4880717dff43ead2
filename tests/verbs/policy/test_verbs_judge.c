/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the policy's rules, and attempts to bypass them with another struct, with a longer struct, or through another
 * kind of request. */
#include "verbs/policy/policy_int.h"
#include "verbs_ask.h"

#include <arpa/inet.h>
#include <rdma/efa-abi.h>

/* include/rdma/ib_verbs.h */
#define M_STATE 0x1u
#define M_PKEY  0x10u
#define M_PORT  0x20u
#define M_QKEY  0x40u
#define M_AV    0x80u
#define M_ALT   0x4000u
#define RTR     2

static void gid_of(uint8_t *gid, const char *text)
{
    if (inet_pton(AF_INET6, text, gid) != 1)
        exit(1);
}

static struct ib_uverbs_qp_dest path(const char *gid)
{
    struct ib_uverbs_qp_dest d = {.is_global = 1, .port_num = 1};
    gid_of(d.dgid, gid);
    return d;
}

static int modify(uint32_t mask, struct ib_uverbs_modify_qp in)
{
    in.attr_mask = mask;
    return cmd(IB_USER_VERBS_CMD_MODIFY_QP, in);
}

/* Modifies a QP with the extended command. `more` zero bytes follow the struct. */
static int modify_ex(uint32_t mask, struct ib_uverbs_modify_qp in, size_t more)
{
    struct {
        struct ib_uverbs_ex_modify_qp e;
        uint8_t more[64];
    } x = {.e.base = in};
    x.e.base.attr_mask = mask;
    return cmd_len(EX(IB_USER_VERBS_EX_CMD_MODIFY_QP), &x, sizeof(x.e) + more);
}

static int ah(struct ib_uverbs_qp_dest d)
{
    struct ib_uverbs_create_ah in = {
        .attr = {
            .grh = {.sgid_index = d.sgid_index}, .dlid = d.dlid, .is_global = d.is_global, .port_num = d.port_num}};
    memcpy(in.attr.grh.dgid, d.dgid, 16);
    return cmd(IB_USER_VERBS_CMD_CREATE_AH, in);
}

static void destinations(void)
{
    struct ib_uverbs_modify_qp in = {
        .dest = path("::ffff:10.1.2.3"), .alt_dest = path("::ffff:10.1.2.3"), .alt_port_num = 1, .port_num = 1};
    policy("[default]\ndevices = *\ndestinations = 10.1.0.0/16, fd00::/12, fe80::7\n");
    passes(modify(M_AV, in), "a destination of the policy");
    in.dest = path("fd0f::1");
    passes(modify(M_AV, in), "another, of a prefix that ends within a byte");
    in.dest = path("fd10::1");
    refused(modify(M_AV, in), EPERM, "destinations", "one bit beyond the prefix");
    in.dest = path("fe80::7");
    passes(modify(M_AV, in), "an address");
    in.dest = path("fe80::8");
    refused(modify(M_AV, in), EPERM, "destinations", "and its neighbour");
    in.dest = path("::ffff:10.2.0.1");
    refused(modify(M_AV, in), EPERM, "destinations", "IPv4 of another subnet");
    refused(modify_ex(M_AV, in, 0), EPERM, "destinations", "by the extended struct");
    refused(modify_ex(M_AV, in, 64), EPERM, "destinations", "by a longer extended struct");
    refused(modify(M_AV | M_STATE | 0xfff00000u, in), EPERM, "destinations", "with bits in the mask that nobody knows");
    passes(modify(M_STATE, in), "an address that the mask does not name is none");
    in.dest = path("::10.1.2.3");
    refused(modify(M_AV, in), EPERM, "destinations", "10.1.2.3 as a compatible address, not a mapped one");
    in.dest = path("2002:a01:203::");
    refused(modify(M_AV, in), EPERM, "destinations", "10.1.2.3 as 6to4");
    in.dest = path("1::ffff:10.1.2.3");
    refused(modify(M_AV, in), EPERM, "destinations", "a mapped one with something in front");

    in.dest = in.alt_dest = path("::ffff:10.1.2.3");
    in.alt_dest = path("::ffff:10.2.0.1");
    refused(modify(M_ALT, in), EPERM, "destinations", "by the alternate path");
    refused(modify_ex(M_ALT | M_AV, in, 0), EPERM, "destinations", "by the alternate path beside a good one");
    passes(modify(M_AV, in), "an alternate path that the mask does not name is none");

    in.dest.is_global = 0;
    refused(modify(M_AV, in), EPERM, "destinations", "by a LID: without a GID");
    in.dest.is_global = 2;
    passes(modify(M_AV, in), "is_global is any number but 0, as for the kernel");
    in.dest.dlid = 7;
    refused(modify(M_AV, in), EPERM, "destinations", "by a LID beside a good GID: InfiniBand goes by the LID");
    in.alt_dest = path("::ffff:10.1.2.3");
    in.alt_dest.is_global = 0;
    refused(modify(M_ALT, in), EPERM, "destinations", "by a LID of the alternate path");

    passes(ah(path("::ffff:10.1.2.3")), "an address handle");
    refused(ah(path("::ffff:10.2.0.1")), EPERM, "destinations", "to elsewhere");
    struct ib_uverbs_qp_dest d = path("::ffff:10.1.2.3");
    d.dlid = 1;
    refused(ah(d), EPERM, "destinations", "an address handle of a LID");
    d.is_global = 0;
    refused(ah(d), EPERM, "destinations", "an address handle of a LID alone");
    passes(ah(path("fd01::1")), "IPv6");

    policy("[default]\ndevices = *\ndestinations = 10.1.0.0/16\nallow = lid\n");
    passes(ah(d), "LIDs, where they are allowed");
    in.dest = path("::ffff:10.2.0.1");
    in.dest.dlid = 7;
    refused(modify(M_AV, in), EPERM, "destinations", "but a GID is judged all the same");
    policy("[default]\ndevices = *\ndestinations = 0.0.0.0/0\n");
    passes(modify(M_AV, (struct ib_uverbs_modify_qp){.dest = path("::ffff:1.2.3.4")}), "all of IPv4");
    refused(modify(M_AV, (struct ib_uverbs_modify_qp){.dest = path("fe80::1")}), EPERM, "destinations", "is not IPv6");
    policy("[default]\ndevices = *\n");
    in.dest = path("::ffff:10.2.0.1");
    in.dest.dlid = 9;
    passes(modify(M_AV, in), "any destination, where none is named");
    passes(ah(d), "nor a LID is then in the way");
}

static void multicast(void)
{
    struct ib_uverbs_attach_mcast in = {0};
    gid_of(in.gid, "ff12::1");
    policy("[default]\ndevices = *\n");
    refused(cmd(IB_USER_VERBS_CMD_ATTACH_MCAST, in), EOPNOTSUPP, "allow: no multicast", "a multicast group");
    refused(ah(path("ff12::1")), EOPNOTSUPP, "allow: no multicast", "an address handle of one");
    refused(ah(path("::ffff:239.1.2.3")), EOPNOTSUPP, "allow: no multicast", "of one of IPv4");
    refused(modify(M_AV, (struct ib_uverbs_modify_qp){.dest = path("ff0e::1")}), EOPNOTSUPP, "allow: no multicast",
            "a connection to one");
    passes(ah(path("::ffff:223.255.255.255")), "the last address before them");
    passes(ah(path("::ffff:240.0.0.1")), "the first behind them");
    passes(ah(path("::239.1.2.3")), "what looks like one, and is no IPv4 address");
    struct ib_uverbs_attach_mcast unicast = {0};
    gid_of(unicast.gid, "fe80::1");
    refused(cmd(IB_USER_VERBS_CMD_ATTACH_MCAST, unicast), EOPNOTSUPP, "allow: no multicast",
            "a group that is called none");
    passes(cmd(IB_USER_VERBS_CMD_DETACH_MCAST, in), "leaving a group");
    policy("[default]\ndevices = *\nallow = multicast\ndestinations = ff12::/16\n");
    passes(cmd(IB_USER_VERBS_CMD_ATTACH_MCAST, in), "a group, where they are allowed");
    gid_of(in.gid, "ff13::1");
    refused(cmd(IB_USER_VERBS_CMD_ATTACH_MCAST, in), EPERM, "destinations", "that is none of the destinations");
}

static void sources(void)
{
    struct ib_uverbs_modify_qp in = {
        .dest = path("fe80::1"), .alt_dest = path("fe80::1"), .port_num = 1, .alt_port_num = 1};
    policy("[default]\ndevices = *\ngids = 3, 250\nports = 1\n");
    in.dest.sgid_index = 3;
    passes(modify(M_AV, in), "a GID index of the policy");
    in.dest.sgid_index = 2;
    refused(modify(M_AV, in), EPERM, "gids", "another one");
    refused(modify_ex(M_AV, in, 8), EPERM, "gids", "by the extended struct");
    refused(ah(in.dest), EPERM, "gids", "by an address handle");
    in.alt_dest.sgid_index = 251;
    refused(modify(M_ALT, in), EPERM, "gids", "by the alternate path");
    in.alt_dest.sgid_index = 250;
    passes(modify(M_ALT, in), "the alternate path's own");

    in.dest.sgid_index = 3;
    in.dest.port_num = 2;
    refused(modify(M_AV, in), EPERM, "ports", "a path by another port");
    refused(ah(in.dest), EPERM, "ports", "an address handle of another port");
    in.dest.port_num = 1;
    in.port_num = 2;
    refused(modify(M_PORT, in), EPERM, "ports", "another port");
    refused(modify_ex(M_PORT | M_STATE, in, 0), EPERM, "ports", "by the extended struct");
    in.alt_port_num = 2;
    refused(modify(M_ALT, in), EPERM, "ports", "another alternate port");
    in.alt_port_num = 1;
    in.alt_dest.port_num = 2;
    refused(modify(M_ALT, in), EPERM, "ports", "an alternate path by another port");
    in.dest.port_num = 65;
    refused(modify(M_AV, in), EPERM, "ports", "port 65 is not port 1");
    in.dest.port_num = 0;
    refused(modify(M_AV, in), EPERM, "ports", "nor is port 0 any");
}

static int pkeys_of(void *arg, unsigned port, unsigned index, uint16_t *value)
{
    static const uint16_t table[3][3] = {{0}, {0xffff, 0x8001, 0x0002}, {0x8001, 0x8003, 0}};
    if (arg != &R)
        exit(1);
    if (port > 2 || index > 2 || !table[port][index])
        return -ENOENT;
    *value = table[port][index];
    return 0;
}

static void pkeys(void)
{
    struct ib_uverbs_modify_qp in = {.dest = path("fe80::1"),
                                     .alt_dest = path("fe80::1"),
                                     .port_num = 1,
                                     .alt_port_num = 1,
                                     .pkey_index = 1,
                                     .alt_pkey_index = 1};
    policy("[default]\ndevices = *\npkeys = 0x0001, 0x8002\n");
    refused(modify(M_PORT | M_PKEY, in), EPERM, "pkeys", "where nobody says what is at an index");
    R.pkey = pkeys_of;
    R.pkey_arg = &R;
    passes(modify(M_PORT | M_PKEY, in), "a P_Key of the policy, a full member's");
    in.pkey_index = 2;
    passes(modify(M_PORT | M_PKEY, in), "another, a limited member's");
    in.pkey_index = 0;
    refused(modify(M_PORT | M_PKEY, in), EPERM, "pkeys", "the default P_Key");
    refused(modify_ex(M_PORT | M_PKEY | M_STATE, in, 0), EPERM, "pkeys", "by the extended struct");
    in.pkey_index = 3;
    refused(modify(M_PORT | M_PKEY, in), EPERM, "pkeys", "an index that there is not");
    in.port_num = 2;
    in.pkey_index = 1;
    refused(modify(M_PORT | M_PKEY, in), EPERM, "pkeys", "the same index of another port");
    in.pkey_index = 0;
    passes(modify(M_PORT | M_PKEY, in), "which has it at another one");
    refused(modify(M_PKEY, in), EPERM, "pkeys", "an index without a port: it must be good on each");
    refused(modify(M_PORT, in), EPERM, "pkeys", "a port without an index: the old one is another P_Key there");
    in.dest.port_num = 2;
    refused(modify(M_AV, in), EPERM, "pkeys", "a path by another port without an index");
    in.qp_state = RTR;
    passes(modify(M_AV | M_STATE, in), "to RTR, where the port is the one that it has");
    in.qp_state = RTR + 1;
    refused(modify(M_AV | M_STATE, in), EPERM, "pkeys", "to any other state");
    in.pkey_index = 1;
    refused(modify(M_AV | M_PKEY, in), EPERM, "pkeys", "an index of the path's port");
    in.alt_pkey_index = 0;
    refused(modify(M_ALT, in), EPERM, "pkeys", "by the alternate path");
    in.alt_pkey_index = 1;
    passes(modify(M_ALT, in), "the alternate path's own");
    policy("[default]\ndevices = *\npkeys = 0x8001\nports = 2\n");
    R.pkey = pkeys_of;
    R.pkey_arg = &R;
    in.pkey_index = 0;
    passes(modify(M_PKEY, in), "an index without a port counts for the ports that are allowed");

    policy("[default]\ndevices = *\n");
    in.qkey = 0x80000001;
    refused(modify(M_QKEY, in), EOPNOTSUPP, "allow: no raw", "a controlled Q_Key");
    in.qkey = 0x7fffffff;
    passes(modify(M_QKEY, in), "an ordinary one");
}

#define qp(...) cmd(IB_USER_VERBS_CMD_CREATE_QP, ((struct ib_uverbs_create_qp){__VA_ARGS__}))

static int qp_ex(struct ib_uverbs_ex_create_qp in)
{
    return cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_QP), in);
}

/* Creates a QP with the ioctl method, with the given type, cap.max_send_wr and flags. */
static void qp_method(uint64_t type, uint32_t wr, uint64_t flags)
{
    struct ib_uverbs_qp_cap cap = {.max_send_wr = wr};
    uint64_t zero = 0;
    begin(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, RDMA_DRIVER_RXE);
    attr(UVERBS_ATTR_CREATE_QP_HANDLE, 0, 0);
    attr_in(UVERBS_ATTR_CREATE_QP_USER_HANDLE, &zero, 8);
    attr_in(UVERBS_ATTR_CREATE_QP_CAP, &cap, sizeof(cap));
    attr_in(UVERBS_ATTR_CREATE_QP_TYPE, &type, 8);
    attr_in(UVERBS_ATTR_CREATE_QP_FLAGS, &flags, 4);
    attr_out(UVERBS_ATTR_CREATE_QP_RESP_CAP, sizeof(cap));
    attr_out(UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4);
    take();
}

static int qp_new(uint64_t type, uint32_t wr, uint64_t flags)
{
    qp_method(type, wr, flags);
    return judged();
}

/* Creates an EFA QP with one of three kinds of request. recv_sge is the number of SGEs per receive request. */
static int efa_qp(unsigned way, uint32_t rq_bytes, uint32_t sq_bytes, uint32_t recv_sge)
{
    struct efa_ibv_create_qp u = {.rq_ring_size = rq_bytes, .sq_ring_size = sq_bytes};
    struct ib_uverbs_create_qp in = {.qp_type = 2, .max_send_wr = 1, .max_recv_wr = 1, .max_recv_sge = recv_sge};
    struct ib_uverbs_ex_create_qp ex = {.qp_type = 2, .max_send_wr = 1, .max_recv_wr = 1, .max_recv_sge = recv_sge};
    struct ib_uverbs_qp_cap cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_recv_sge = recv_sge};
    if (way == 0) {
        write_begin(IB_USER_VERBS_CMD_CREATE_QP, RDMA_DRIVER_EFA, &in, sizeof(in));
    } else if (way == 1) {
        write_begin(EX(IB_USER_VERBS_EX_CMD_CREATE_QP), RDMA_DRIVER_EFA, &ex, sizeof(ex));
    } else {
        qp_method(2, 1, 0);
        M.hdr.driver_id = RDMA_DRIVER_EFA;
        for (unsigned i = 0; i < M.hdr.num_attrs; i++)
            if (M.attr[i].attr_id == UVERBS_ATTR_CREATE_QP_CAP)
                memcpy(in_bytes[i], &cap, sizeof(cap));
    }
    attr_in(UVERBS_ATTR_UHW_IN, &u, sizeof(u));
    return judged();
}

static void efa_queues(void)
{
    for (unsigned way = 0; way < 3; way++) {
        passes(efa_qp(way, 128 * 16 * 3, 128 * 128, 3), "efa: what the library makes of 100 requests, way %u", way);
        refused(efa_qp(way, 1 << 20, 0, 3), EINVAL, "qp_wr", "a long queue to receive in the driver's part alone");
        refused(efa_qp(way, 0, 1 << 20, 3), EINVAL, "qp_wr", "or to send");
        refused(efa_qp(way, UINT32_MAX, 0, 0), EINVAL, "qp_wr", "all that the field can say, of requests of nothing");
    }
}

static void qps(void)
{
    policy("[default]\ndevices = *\nqp_types = rc ud\nqp_wr = 100\n");
    passes(qp(.qp_type = 2, .max_send_wr = 100, .max_recv_wr = 100), "an RC QP");
    refused(qp(.qp_type = 3), EPERM, "qp_types", "a UC QP");
    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 3}), EPERM, "qp_types", "by the extended struct");
    refused(qp_new(3, 1, 0), EPERM, "qp_types", "by the method");
    refused(qp_new(0x100000002ull, 1, 0), EINVAL, "qp_types", "by the method, with RC below a bit that is no type's");
    refused(qp(.qp_type = 0xff), EPERM, "qp_types", "a driver's QP");
    refused(qp(.qp_type = 31), EINVAL, "qp_types", "type 31 is not the driver's");
    refused(qp(.qp_type = 1), EINVAL, "qp_types", "the GSI QP's type");
    refused(qp(.qp_type = 8), EOPNOTSUPP, "allow: no raw", "a raw packet QP");
    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 8}), EOPNOTSUPP, "allow: no raw",
            "by the extended struct");
    refused(qp_new(8, 1, 0), EOPNOTSUPP, "allow: no raw", "by the method");
    refused(qp(.qp_type = 9), EOPNOTSUPP, "allow: no xrc", "an XRC QP");
    refused(qp_new(10, 1, 0), EOPNOTSUPP, "allow: no xrc", "an XRC target");
    refused(cmd(IB_USER_VERBS_CMD_OPEN_QP, ((struct ib_uverbs_open_qp){.qp_type = 10})), EOPNOTSUPP, "allow: no xrc",
            "another's XRC target");

    refused(qp(.qp_type = 2, .max_send_wr = 101), EINVAL, "qp_wr = 100", "a long send queue");
    refused(qp(.qp_type = 2, .max_recv_wr = 101), EINVAL, "qp_wr", "a long receive queue");
    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 2, .max_recv_wr = UINT32_MAX}), EINVAL, "qp_wr",
            "by the extended struct");
    refused(qp_new(2, 101, 0), EINVAL, "qp_wr", "by the method");
    passes(qp_new(2, 100, 0), "no longer than that");

    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 4, .create_flags = 1 << 10}), EOPNOTSUPP, "allow: no raw",
            "a foreign source QPN");
    qp_method(4, 1, 0);
    attr(UVERBS_ATTR_CREATE_QP_SOURCE_QPN, 4, 1);
    refused(judged(), EOPNOTSUPP, "allow: no raw", "by the method, where the kernel itself does not ask");
    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 2, .create_flags = 1 << 8}), EOPNOTSUPP, "allow: no raw",
            "a flag of raw packets");
    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 2, .create_flags = 1 << 2}), EOPNOTSUPP, "QP create flags",
            "a flag that is never allowed");
    refused(qp_new(2, 1, 1 << 9), EOPNOTSUPP, "allow: no raw", "a flag of raw packets, by the method");
    passes(qp_new(2, 1, 1 << 1 | 1 << 11 | 1 << 12), "harmless flags");
    refused(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 4, .comp_mask = 1}), EOPNOTSUPP, "allow: no raw",
            "a QP of a receive table");
    qp_method(4, 1, 0);
    attr(UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, 0, 1);
    refused(judged(), EOPNOTSUPP, "allow: no raw", "by the method");

    struct mlx5_ib_create_qp u = {.sq_wqe_count = 4096, .rq_wqe_count = 128};
    struct ib_uverbs_create_qp rc = {.qp_type = 2, .max_send_wr = 1, .max_recv_wr = 1};
    write_begin(IB_USER_VERBS_CMD_CREATE_QP, RDMA_DRIVER_MLX5, &rc, sizeof(rc));
    attr_in(UVERBS_ATTR_UHW_IN, &u, sizeof(u));
    refused(judged(), EINVAL, "qp_wr", "mlx5: a long queue in the driver's part alone");
    u.sq_wqe_count = 128 * 16;
    write_begin(IB_USER_VERBS_CMD_CREATE_QP, RDMA_DRIVER_MLX5, &rc, sizeof(rc));
    attr_in(UVERBS_ATTR_UHW_IN, &u, sizeof(u));
    passes(judged(), "mlx5: what the library makes of 100 requests of the largest size");
    u.rq_wqe_shift = 13;
    write_begin(IB_USER_VERBS_CMD_CREATE_QP, RDMA_DRIVER_MLX5, &rc, sizeof(rc));
    attr_in(UVERBS_ATTR_UHW_IN, &u, sizeof(u));
    refused(judged(), EINVAL, "qp_wr", "mlx5: few requests of an impossible size");
    efa_queues();

    passes(qp(.qp_type = 4), "UD, where destinations are not limited");
    policy("[default]\ndevices = *\nqp_types = rc ud driver\ndestinations = 10.0.0.0/8\n");
    passes(qp(.qp_type = 2), "RC, where they are");
    refused(qp(.qp_type = 4), EPERM, "destinations", "UD sends anywhere");
    refused(qp_new(4, 1, 0), EPERM, "destinations", "by the method");
    refused(qp(.qp_type = 0xff), EPERM, "destinations", "and so do drivers' QPs");
    policy("[default]\ndevices = *\nqp_types = rc ud driver\ndestinations = 10.0.0.0/8\nallow = ud-anywhere\n");
    passes(qp(.qp_type = 4), "UD, if it is said that it may");
    policy("[default]\ndevices = *\nqp_types = rc ud\ngids = 0-254\n");
    refused(qp(.qp_type = 4), EPERM, "gids", "UD where GIDs are limited: it says it comes from anywhere");
    passes(qp(.qp_type = 2), "RC there");
    policy("[default]\ndevices = *\nqp_types = rc ud\ngids = 0-254\nallow = ud-anywhere\n");
    passes(qp_new(4, 1, 0), "UD there, if it is said that it may");
    policy("[default]\ndevices = *\nallow = raw xrc\n");
    passes(qp(.qp_type = 8), "a raw packet QP that is allowed");
    passes(qp_new(9, 1, 1 << 8), "an XRC QP that is allowed");
    passes(qp_ex((struct ib_uverbs_ex_create_qp){.qp_type = 2, .create_flags = 1 << 10}),
           "a source QPN that is allowed");
    passes(modify(M_QKEY, (struct ib_uverbs_modify_qp){.qkey = 1u << 31}), "a controlled Q_Key that is allowed");
}

/* Modifies an SRQ. rxe would add a driver part, which is irrelevant here. */
static int modify_srq(uint32_t mask, uint32_t wr)
{
    struct ib_uverbs_modify_srq in = {.attr_mask = mask, .max_wr = wr};
    write_begin(IB_USER_VERBS_CMD_MODIFY_SRQ, RDMA_DRIVER_MLX5, &in, sizeof(in));
    return judged();
}

static int srq_method(uint64_t type, uint32_t wr)
{
    uint64_t zero = 0;
    begin(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, RDMA_DRIVER_RXE);
    attr(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0, 0);
    attr(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, 0, 1);
    attr_in(UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, &zero, 8);
    attr_in(UVERBS_ATTR_CREATE_SRQ_MAX_WR, &wr, 4);
    attr_in(UVERBS_ATTR_CREATE_SRQ_MAX_SGE, &zero, 4);
    attr_in(UVERBS_ATTR_CREATE_SRQ_LIMIT, &zero, 4);
    attr_in(UVERBS_ATTR_CREATE_SRQ_TYPE, &type, 8);
    attr_out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4);
    attr_out(UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4);
    return judged();
}

static void srqs(void)
{
    policy("[default]\ndevices = *\nqp_wr = 100\n");
    passes(cmd(IB_USER_VERBS_CMD_CREATE_SRQ, (struct ib_uverbs_create_srq){.max_wr = 100}), "an SRQ");
    refused(cmd(IB_USER_VERBS_CMD_CREATE_SRQ, (struct ib_uverbs_create_srq){.max_wr = 101}), EINVAL, "qp_wr",
            "a long one");
    refused(cmd(IB_USER_VERBS_CMD_CREATE_XSRQ, (struct ib_uverbs_create_xsrq){.max_wr = 101}), EINVAL, "qp_wr",
            "by the other command");
    refused(srq_method(0, 101), EINVAL, "qp_wr", "by the method");
    passes(modify_srq(1, 100), "resized");
    refused(modify_srq(3, 101), EINVAL, "qp_wr", "made longer afterwards");
    passes(modify_srq(2, 101), "a length that the mask does not name is none");
    refused(cmd(IB_USER_VERBS_CMD_CREATE_XSRQ, (struct ib_uverbs_create_xsrq){.srq_type = 1}), EOPNOTSUPP,
            "allow: no xrc", "an XRC SRQ");
    refused(srq_method(1, 1), EOPNOTSUPP, "allow: no xrc", "by the method");
    refused(srq_method(2, 1), EOPNOTSUPP, "SRQ types", "one with tag matching");
    refused(srq_method(0x100000000ull, 1), EOPNOTSUPP, "SRQ types", "one of no type, basic below");
    passes(srq_method(0, 100), "a basic one by the method");
    refused(cmd(IB_USER_VERBS_CMD_OPEN_XRCD, (struct ib_uverbs_open_xrcd){.fd = UINT32_MAX}), EOPNOTSUPP,
            "allow: no xrc", "an XRC domain");
    policy("[default]\ndevices = *\nallow = xrc\n");
    passes(srq_method(1, 1), "an XRC SRQ that is allowed");
    passes(cmd(IB_USER_VERBS_CMD_OPEN_XRCD, (struct ib_uverbs_open_xrcd){.fd = UINT32_MAX}), "a domain of one's own");
    refused(cmd(IB_USER_VERBS_CMD_OPEN_XRCD, ((struct ib_uverbs_open_xrcd){.fd = 3, .oflags = 0100})), EOPNOTSUPP,
            "XRC domains", "one that a file names, and so is others' too");
}

static int cq_method(uint32_t cqe)
{
    uint64_t zero = 0;
    begin(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, RDMA_DRIVER_RXE);
    attr(UVERBS_ATTR_CREATE_CQ_HANDLE, 0, 0);
    attr_in(UVERBS_ATTR_CREATE_CQ_CQE, &cqe, 4);
    M.attr[1].data |= 1ull << 40; /* bit 40 is outside the 4 bytes that count */
    attr_in(UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &zero, 8);
    attr_in(UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &zero, 4);
    attr_out(UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4);
    return judged();
}

static void cqs(void)
{
    policy("[default]\ndevices = *\ncqe = 1000\n");
    passes(cmd(IB_USER_VERBS_CMD_CREATE_CQ, ((struct ib_uverbs_create_cq){.cqe = 1000, .comp_channel = -1})), "a CQ");
    refused(cmd(IB_USER_VERBS_CMD_CREATE_CQ, ((struct ib_uverbs_create_cq){.cqe = 1001, .comp_channel = -1})), EINVAL,
            "cqe = 1000", "a long one");
    refused(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_CQ), ((struct ib_uverbs_ex_create_cq){.cqe = 1001, .comp_channel = -1})),
            EINVAL, "cqe", "by the extended struct");
    refused(cq_method(1001), EINVAL, "cqe", "by the method");
    passes(cq_method(1000), "no longer than that");
    passes(cmd(IB_USER_VERBS_CMD_RESIZE_CQ, (struct ib_uverbs_resize_cq){.cqe = 1000}), "resized");
    refused(cmd(IB_USER_VERBS_CMD_RESIZE_CQ, (struct ib_uverbs_resize_cq){.cqe = UINT32_MAX}), EINVAL, "cqe",
            "made longer afterwards");
}

static int mlx5_wq(struct ib_uverbs_ex_create_wq in, uint32_t count, uint32_t shift)
{
    struct mlx5_ib_create_wq u = {.rq_wqe_count = count, .rq_wqe_shift = shift};
    write_begin(EX(IB_USER_VERBS_EX_CMD_CREATE_WQ), RDMA_DRIVER_MLX5, &in, sizeof(in));
    attr_in(UVERBS_ATTR_UHW_IN, &u, sizeof(u));
    return judged();
}

static void flows(void)
{
    struct ib_uverbs_ex_create_wq wq = {.max_wr = 10};
    struct ib_uverbs_create_flow flow = {0};
    uint32_t table[4] = {0};
    policy("[default]\ndevices = *\n");
    refused(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_FLOW), flow), EOPNOTSUPP, "allow: no flow", "a flow");
    refused(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_WQ), wq), EOPNOTSUPP, "allow: no raw", "a WQ");
    refused(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL), table), EOPNOTSUPP, "allow: no raw", "a receive table");
    uint64_t zero = 0;
    begin(UVERBS_OBJECT_WQ, UVERBS_METHOD_WQ_CREATE, RDMA_DRIVER_RXE);
    attr(UVERBS_ATTR_CREATE_WQ_HANDLE, 0, 0);
    attr(UVERBS_ATTR_CREATE_WQ_PD_HANDLE, 0, 1);
    attr_in(UVERBS_ATTR_CREATE_WQ_USER_HANDLE, &zero, 8);
    attr_in(UVERBS_ATTR_CREATE_WQ_TYPE, &zero, 8);
    attr_in(UVERBS_ATTR_CREATE_WQ_MAX_WR, &(uint32_t){10}, 4);
    attr_in(UVERBS_ATTR_CREATE_WQ_MAX_SGE, &zero, 4);
    attr_in(UVERBS_ATTR_CREATE_WQ_FLAGS, &zero, 4);
    attr_out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, 4);
    attr_out(UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, 4);
    refused(judged(), EOPNOTSUPP, "allow: no raw", "a WQ by the method");
    policy("[default]\ndevices = *\nallow = flow raw\nqp_wr = 10\n");
    passes(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_FLOW), flow), "a flow that is allowed");
    passes(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_WQ), wq), "a WQ that is allowed");
    passes(mlx5_wq(wq, 16, 6), "mlx5: what the library makes of 10 requests");
    refused(mlx5_wq(wq, 4096, 6), EINVAL, "qp_wr", "mlx5: a long WQ in the driver's part alone");
    refused(mlx5_wq(wq, 16, 31), EINVAL, "qp_wr", "mlx5: few requests of an impossible size");
    refused(mlx5_wq(wq, UINT32_MAX, UINT32_MAX), EINVAL, "qp_wr", "mlx5: all that the fields can say");
    wq.max_wr = 11;
    refused(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_WQ), wq), EINVAL, "qp_wr", "a long WQ");
    passes(cmd(EX(IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL), table), "a receive table that is allowed");
}

static int context(uint32_t driver, const void *uhw, size_t n, bool method)
{
    struct ib_uverbs_get_context in = {0};
    if (method)
        begin(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, driver);
    else
        write_begin(IB_USER_VERBS_CMD_GET_CONTEXT, driver, &in, sizeof(in));
    if (n > 0)
        attr_in(UVERBS_ATTR_UHW_IN, uhw, n);
    return judged();
}

static void devx(void)
{
    struct mlx5_ib_alloc_ucontext_req_v2 q = {.total_num_bfregs = 16, .flags = MLX5_IB_ALLOC_UCTX_DEVX};
    policy("[default]\ndevices = *\n");
    refused(context(RDMA_DRIVER_MLX5, &q, sizeof(q), false), EOPNOTSUPP, "allow: no devx", "DEVX");
    refused(context(RDMA_DRIVER_MLX5, &q, 16, false), EOPNOTSUPP, "allow: no devx",
            "in the shortest struct that has it");
    refused(context(RDMA_DRIVER_MLX5, &q, sizeof(q), true), EOPNOTSUPP, "allow: no devx", "by the method");
    passes(context(RDMA_DRIVER_MLX5, &q, 8, false), "a struct of the old version, which has no flags");
    q.flags = 0;
    passes(context(RDMA_DRIVER_MLX5, &q, sizeof(q), true), "as the library asks again");
    passes(context(RDMA_DRIVER_RXE, &q, 0, true), "another driver's");
    policy("[default]\ndevices = *\nallow = devx\n");
    q.flags = MLX5_IB_ALLOC_UCTX_DEVX;
    passes(context(RDMA_DRIVER_MLX5, &q, sizeof(q), true), "DEVX that is allowed");
}

static void rest(void)
{
    unsigned n = 0, missing = 0, refused = 0;
    const struct vb_command *c;
    for (unsigned i = 0; (c = vb_schema_at(i)); i++, n++) {
        refused += c->where == VB_REFUSED;
        if (vb_judged(c) != (c->where != VB_REFUSED)) {
            diag("%s: %s", c->name, vb_judged(c) ? "has a rule, and is refused" : "has no rule");
            missing++;
        }
    }
    ok(n > 50 && refused > 0 && missing == 0, "each of %u commands of the schema has a rule, but the %u refused ones",
       n, refused);
    policy("[default]\ndevices = mlx5_*\n");
    vb_judge_open(&R, &U, &V);
    ok(V.rc == -EACCES && strcmp(V.rule, "devices") == 0, "a device that is not allowed is not opened: %s", V.text);
    is_int(cmd(IB_USER_VERBS_CMD_ALLOC_PD, (struct ib_uverbs_alloc_pd){0}), -EACCES, "nor used");
    struct vb_command odd = {.object = 99, .name = "ODD"};
    struct vb_request q = {.command = &odd};
    policy("[default]\ndevices = *\n");
    vb_judge(&R, &U, O, &q, &V);
    ok(V.rc == -EOPNOTSUPP && strcmp(V.rule, "schema") == 0, "a command without a rule: %s", V.text);
}

int main(void)
{
    O = vb_objects_new(&U);
    if (!O)
        return 1;
    destinations();
    multicast();
    sources();
    pkeys();
    qps();
    srqs();
    cqs();
    flows();
    devx();
    rest();
    vb_objects_free(O);
    vb_policy_free(P);
    return tap_done();
}
