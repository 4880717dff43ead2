/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of INVOKE_WRITE, with their structs from <rdma/ib_user_verbs.h>. INVOKE_WRITE does not use the headers
 * that precede these structs in a write(). uverbs_def_write_intf in drivers/infiniband/core/uverbs_cmd.c defines the
 * lengths that the kernel requires: the whole struct of a plain command, and the struct of an extended command up to a
 * certain member.
 *
 * The structs of plain commands with a result begin with `response`, the address to which write() stores the result.
 * INVOKE_WRITE stores the result in CORE_OUT instead, and nothing reads `response`.
 */
#include "verbs/schema/schema_int.h"

/* From UVERBS_METHOD_INVOKE_WRITE in drivers/infiniband/core/uverbs_std_types_device.c. */
const struct vb_attr_rule vb_write_attrs[] = {
    {.id = UVERBS_ATTR_CORE_IN, .kind = VB_IN, .min = 4, .max = VB_FITS, .name = "CORE_IN"},
    {.id = UVERBS_ATTR_CORE_OUT, .kind = VB_OUT, .max = VB_FITS, .name = "CORE_OUT"},
    {.id = UVERBS_ATTR_WRITE_CMD, .kind = VB_IN, .mandatory = true, .min = 8, .name = "WRITE_CMD"},
    {.id = UVERBS_ATTR_UHW_IN, .kind = VB_IN, .driver = true, .max = VB_FITS, .name = "UHW_IN"},
    {.id = UVERBS_ATTR_UHW_OUT, .kind = VB_OUT, .driver = true, .max = VB_FITS, .name = "UHW_OUT"},
    {.kind = VB_END},
};

#define PLAIN(cmd)                                                                                            \
    .object = UVERBS_OBJECT_DEVICE, .method = UVERBS_METHOD_INVOKE_WRITE, .command = IB_USER_VERBS_CMD_##cmd, \
    .name = #cmd
#define EXTENDED(cmd)                                                     \
    .object = UVERBS_OBJECT_DEVICE, .method = UVERBS_METHOD_INVOKE_WRITE, \
    .command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##cmd, .name = "EX_" #cmd
#define BROKER          .where = VB_BROKER
#define MEMORY          .where = VB_MEMORY
#define REFUSED(reason) .where = VB_REFUSED, .why = (reason)
#define IN(s)           .in_min = sizeof(struct ib_uverbs_##s), .in_max = sizeof(struct ib_uverbs_##s)
#define IN_TO(s, m)     .in_min = VB_BEHIND(struct ib_uverbs_##s, m), .in_max = sizeof(struct ib_uverbs_##s)
#define IN_TAIL(s, m)   .in_min = VB_BEHIND(struct ib_uverbs_##s, m), .in_max = VB_FITS
#define OUT(s)          .out_min = sizeof(struct ib_uverbs_##s)
#define OUT_TO(s, m)    .out_min = VB_BEHIND(struct ib_uverbs_##s, m)
#define MAKES(t, s, m)  .makes = (t), .made = {VB_CORE_OUT, offsetof(struct ib_uverbs_##s, m)}
#define ENDS(t, s, m)   .ends = (t), .ended = {VB_CORE_IN, offsetof(struct ib_uverbs_##s, m)}
#define FD(p, k, s, m)  .fd = {(p), (k), offsetof(struct ib_uverbs_##s, m)}
#define ADDRESSES(a)    .addresses = (a), .n_addresses = HW_ARRAY_LEN(a)

static const struct vb_address reg_mr[] = {{.at = offsetof(struct ib_uverbs_reg_mr, start), .name = "start"}};
static const struct vb_address rereg_mr[] = {{.at = offsetof(struct ib_uverbs_rereg_mr, start), .name = "start"}};

static const struct vb_command commands[] = {
    /* Device. */
    {PLAIN(GET_CONTEXT), BROKER, IN(get_context), OUT(get_context_resp), .makes = VB_CONTEXT,
     FD(VB_CORE_OUT, VB_FD_NEW, get_context_resp, async_fd)},
    {PLAIN(QUERY_DEVICE), BROKER, IN(query_device), OUT(query_device_resp)},
    {PLAIN(QUERY_PORT), BROKER, IN(query_port), OUT(query_port_resp)},
    {EXTENDED(QUERY_DEVICE), BROKER, IN_TO(ex_query_device, reserved), OUT_TO(ex_query_device_resp, response_length)},

    /* Protection domains. */
    {PLAIN(ALLOC_PD), BROKER, IN(alloc_pd), OUT(alloc_pd_resp), MAKES(VB_PD, alloc_pd_resp, pd_handle)},
    {PLAIN(DEALLOC_PD), BROKER, IN(dealloc_pd), ENDS(VB_PD, dealloc_pd, pd_handle)},

    /* Address handles. */
    {PLAIN(CREATE_AH), BROKER, IN(create_ah), OUT(create_ah_resp), MAKES(VB_AH, create_ah_resp, ah_handle)},
    {PLAIN(DESTROY_AH), BROKER, IN(destroy_ah), ENDS(VB_AH, destroy_ah, ah_handle)},

    /* Memory regions and windows. */
    {PLAIN(REG_MR), MEMORY, IN(reg_mr), OUT(reg_mr_resp), ADDRESSES(reg_mr), MAKES(VB_MR, reg_mr_resp, mr_handle)},
    {PLAIN(REREG_MR), MEMORY, IN(rereg_mr), OUT(rereg_mr_resp), ADDRESSES(rereg_mr)},
    {PLAIN(DEREG_MR), BROKER, IN(dereg_mr), ENDS(VB_MR, dereg_mr, mr_handle)},
    {PLAIN(ALLOC_MW), BROKER, IN(alloc_mw), OUT(alloc_mw_resp), MAKES(VB_MW, alloc_mw_resp, mw_handle)},
    {PLAIN(DEALLOC_MW), BROKER, IN(dealloc_mw), ENDS(VB_MW, dealloc_mw, mw_handle)},

    /* Completion queues. */
    {PLAIN(CREATE_COMP_CHANNEL), BROKER, IN(create_comp_channel), OUT(create_comp_channel_resp),
     MAKES(VB_CHANNEL, create_comp_channel_resp, fd), FD(VB_CORE_OUT, VB_FD_NEW, create_comp_channel_resp, fd)},
    {PLAIN(CREATE_CQ), BROKER, IN(create_cq), OUT(create_cq_resp), MAKES(VB_CQ, create_cq_resp, cq_handle),
     FD(VB_CORE_IN, VB_FD, create_cq, comp_channel)},
    {EXTENDED(CREATE_CQ), BROKER, IN_TO(ex_create_cq, reserved), OUT_TO(ex_create_cq_resp, response_length),
     MAKES(VB_CQ, ex_create_cq_resp, base.cq_handle), FD(VB_CORE_IN, VB_FD, ex_create_cq, comp_channel)},
    {EXTENDED(MODIFY_CQ), BROKER, IN(ex_modify_cq)},
    {PLAIN(RESIZE_CQ), BROKER, IN(resize_cq), OUT(resize_cq_resp)},
    {PLAIN(DESTROY_CQ), BROKER, IN(destroy_cq), OUT(destroy_cq_resp), ENDS(VB_CQ, destroy_cq, cq_handle)},
    {PLAIN(POLL_CQ),
     REFUSED("the kernel writes up to `ne` completions to CORE_OUT without checking its length, and would overwrite "
             "the broker's memory; the libraries of the supported drivers poll without a system call"),
     IN(poll_cq), OUT(poll_cq_resp)},
    {PLAIN(REQ_NOTIFY_CQ), BROKER, IN(req_notify_cq)},

    /* Queue pairs. */
    {PLAIN(CREATE_QP), BROKER, IN(create_qp), OUT(create_qp_resp), MAKES(VB_QP, create_qp_resp, qp_handle)},
    {EXTENDED(CREATE_QP), BROKER, IN_TO(ex_create_qp, comp_mask), OUT_TO(ex_create_qp_resp, response_length),
     MAKES(VB_QP, ex_create_qp_resp, base.qp_handle)},
    {PLAIN(OPEN_QP), BROKER, IN(open_qp), OUT(create_qp_resp), MAKES(VB_QP, create_qp_resp, qp_handle)},
    {PLAIN(QUERY_QP), BROKER, IN(query_qp), OUT(query_qp_resp)},
    {PLAIN(MODIFY_QP), BROKER, IN(modify_qp)},
    {EXTENDED(MODIFY_QP), BROKER, IN_TO(ex_modify_qp, base), OUT_TO(ex_modify_qp_resp, response_length)},
    {PLAIN(DESTROY_QP), BROKER, IN(destroy_qp), OUT(destroy_qp_resp), ENDS(VB_QP, destroy_qp, qp_handle)},
    {PLAIN(ATTACH_MCAST), BROKER, IN(attach_mcast)},
    {PLAIN(DETACH_MCAST), BROKER, IN(detach_mcast)},

    /* Doorbells: the libraries of rxe and siw announce new entries of the queue, which they share with the kernel. */
    {PLAIN(POST_SEND), BROKER, IN(post_send), OUT(post_send_resp),
     .zero_at = offsetof(struct ib_uverbs_post_send, wr_count)},
    {PLAIN(POST_RECV), BROKER, IN(post_recv), OUT(post_recv_resp),
     .zero_at = offsetof(struct ib_uverbs_post_recv, wr_count)},
    {PLAIN(POST_SRQ_RECV), BROKER, IN(post_srq_recv), OUT(post_srq_recv_resp),
     .zero_at = offsetof(struct ib_uverbs_post_srq_recv, wr_count)},

    /* Shared receive queues. */
    {PLAIN(CREATE_SRQ), BROKER, IN(create_srq), OUT(create_srq_resp), MAKES(VB_SRQ, create_srq_resp, srq_handle)},
    {PLAIN(CREATE_XSRQ), BROKER, IN(create_xsrq), OUT(create_srq_resp), MAKES(VB_SRQ, create_srq_resp, srq_handle)},
    {PLAIN(MODIFY_SRQ), BROKER, IN(modify_srq)},
    {PLAIN(QUERY_SRQ), BROKER, IN(query_srq), OUT(query_srq_resp)},
    {PLAIN(DESTROY_SRQ), BROKER, IN(destroy_srq), OUT(destroy_srq_resp), ENDS(VB_SRQ, destroy_srq, srq_handle)},

    /* XRC domains. The file descriptor may refer to any file, because the file's inode identifies the domain. */
    {PLAIN(OPEN_XRCD), BROKER, IN(open_xrcd), OUT(open_xrcd_resp), MAKES(VB_XRCD, open_xrcd_resp, xrcd_handle),
     FD(VB_CORE_IN, VB_RAW_FD, open_xrcd, fd)},
    {PLAIN(CLOSE_XRCD), BROKER, IN(close_xrcd), ENDS(VB_XRCD, close_xrcd, xrcd_handle)},

    /* Work queues (WQs), and tables of WQs. */
    {EXTENDED(CREATE_WQ), BROKER, IN_TO(ex_create_wq, max_sge), OUT_TO(ex_create_wq_resp, wqn),
     MAKES(VB_WQ, ex_create_wq_resp, wq_handle)},
    {EXTENDED(MODIFY_WQ), BROKER, IN_TO(ex_modify_wq, curr_wq_state)},
    {EXTENDED(DESTROY_WQ), BROKER, IN_TO(ex_destroy_wq, wq_handle), OUT_TO(ex_destroy_wq_resp, reserved),
     ENDS(VB_WQ, ex_destroy_wq, wq_handle)},
    {EXTENDED(CREATE_RWQ_IND_TBL), BROKER, IN_TAIL(ex_create_rwq_ind_table, log_ind_tbl_size),
     OUT_TO(ex_create_rwq_ind_table_resp, ind_tbl_num),
     MAKES(VB_RWQ_TABLE, ex_create_rwq_ind_table_resp, ind_tbl_handle)},
    {EXTENDED(DESTROY_RWQ_IND_TBL), BROKER, IN(ex_destroy_rwq_ind_table),
     ENDS(VB_RWQ_TABLE, ex_destroy_rwq_ind_table, ind_tbl_handle)},

    /* Flow steering. */
    {EXTENDED(CREATE_FLOW), BROKER, IN_TAIL(create_flow, flow_attr), OUT_TO(create_flow_resp, flow_handle),
     MAKES(VB_FLOW, create_flow_resp, flow_handle)},
    {EXTENDED(DESTROY_FLOW), BROKER, IN(destroy_flow), ENDS(VB_FLOW, destroy_flow, flow_handle)},
};

const struct vb_commands vb_write_commands = {commands, HW_ARRAY_LEN(commands)};
