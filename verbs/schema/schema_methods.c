/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods except INVOKE_WRITE, with their attributes, mostly from drivers/infiniband/core/uverbs_std_types_*.c of
 * Linux 6.12 and 7.3. As on an older kernel, a program cannot use attributes that this table lacks (for example memory
 * supplied for a CQ, and BUF_UMEM and FD_ARR of Linux 7.x).
 */
#include "verbs/schema/newer.h"
#include "verbs/schema/schema_int.h"

#include <rdma/mlx5_user_ioctl_cmds.h>

/* Values that are newer than Linux 6.1, from include/uapi/rdma/ib_user_ioctl_cmds.h of Linux 7.3. */
enum { OBJECT_DMAH = UVERBS_OBJECT_ASYNC_EVENT + 1, OBJECT_DMABUF, OBJECT_COMP_CNTR };
enum { METHOD_QUERY_COMP_CNTR_CAPS = METHOD_QUERY_PORT_SPEED + 1 };
enum { QUERY_PORT_SPEED_PORT_NUM, QUERY_PORT_SPEED_RESP };
enum { METHOD_QP_ATTACH_COMP_CNTR = UVERBS_METHOD_QP_DESTROY + 1 };
#define DRIVER_NS (1u << UVERBS_ID_NS_SHIFT) /* first id that is specific to the driver */

/* These macros define attributes. M_ means mandatory and O_ optional, like UA_MANDATORY and UA_OPTIONAL in the
 * kernel. */
#define M_HANDLE(i)                                                             \
    {                                                                           \
        .id = UVERBS_ATTR_##i, .kind = VB_HANDLE, .mandatory = true, .name = #i \
    }
#define O_HANDLE(i)                                          \
    {                                                        \
        .id = UVERBS_ATTR_##i, .kind = VB_HANDLE, .name = #i \
    }
#define M_NEW(i)                                                                    \
    {                                                                               \
        .id = UVERBS_ATTR_##i, .kind = VB_HANDLE_NEW, .mandatory = true, .name = #i \
    }
#define M_IN(i, n)                                                                      \
    {                                                                                   \
        .id = UVERBS_ATTR_##i, .kind = VB_IN, .mandatory = true, .min = (n), .name = #i \
    }
#define O_IN(i, n)                                                   \
    {                                                                \
        .id = UVERBS_ATTR_##i, .kind = VB_IN, .min = (n), .name = #i \
    }
#define M_CONST(i) M_IN(i, 8)
#define M_FLAGS(i)                                                                              \
    {                                                                                           \
        .id = UVERBS_ATTR_##i, .kind = VB_IN, .mandatory = true, .min = 4, .max = 8, .name = #i \
    }
#define O_FLAGS(i)                                                           \
    {                                                                        \
        .id = UVERBS_ATTR_##i, .kind = VB_IN, .min = 4, .max = 8, .name = #i \
    }
#define O_FD(i)                                          \
    {                                                    \
        .id = UVERBS_ATTR_##i, .kind = VB_FD, .name = #i \
    }
#define M_OUT(i, n)                                                                      \
    {                                                                                    \
        .id = UVERBS_ATTR_##i, .kind = VB_OUT, .mandatory = true, .min = (n), .name = #i \
    }
#define O_OUT(i, n)                                                   \
    {                                                                 \
        .id = UVERBS_ATTR_##i, .kind = VB_OUT, .min = (n), .name = #i \
    }
#define M_OUT_FITS(i, n)                                                                                 \
    {                                                                                                    \
        .id = UVERBS_ATTR_##i, .kind = VB_OUT, .mandatory = true, .min = (n), .max = VB_FITS, .name = #i \
    }
#define M_OUT_MORE(i, n)                                                                               \
    {                                                                                                  \
        .id = UVERBS_ATTR_##i, .kind = VB_OUT, .mandatory = true, .more = true, .min = (n), .name = #i \
    }
#define UHW                                                                                          \
    {.id = UVERBS_ATTR_UHW_IN, .kind = VB_IN, .driver = true, .max = VB_FITS, .name = "UHW_IN"},     \
    {                                                                                                \
        .id = UVERBS_ATTR_UHW_OUT, .kind = VB_OUT, .driver = true, .max = VB_FITS, .name = "UHW_OUT" \
    }
#define END            \
    {                  \
        .kind = VB_END \
    }

/* Device. */
static const struct vb_attr_rule info_handles[] = {
    M_CONST(INFO_OBJECT_ID),
    O_OUT(INFO_TOTAL_HANDLES, 4),
    {.id = UVERBS_ATTR_INFO_HANDLES_LIST, .kind = VB_OUT, .min = 4, .max = VB_FITS, .name = "INFO_HANDLES_LIST"},
    END,
};
static const struct vb_attr_rule query_port[] = {
    M_CONST(QUERY_PORT_PORT_NUM),
    M_OUT_MORE(QUERY_PORT_RESP, sizeof(struct ib_uverbs_query_port_resp_ex)),
    END,
};
static const struct vb_attr_rule query_port_speed[] = {
    {.id = QUERY_PORT_SPEED_PORT_NUM, .kind = VB_IN, .mandatory = true, .min = 8, .name = "QUERY_PORT_SPEED_PORT_NUM"},
    {.id = QUERY_PORT_SPEED_RESP, .kind = VB_OUT, .mandatory = true, .min = 8, .name = "QUERY_PORT_SPEED_RESP"},
    END,
};
static const struct vb_attr_rule get_context[] = {
    O_OUT(GET_CONTEXT_NUM_COMP_VECTORS, 4),
    O_OUT(GET_CONTEXT_CORE_SUPPORT, 8),
    UHW,
    END,
};
static const struct vb_attr_rule query_context[] = {
    O_OUT(QUERY_CONTEXT_NUM_COMP_VECTORS, 4),
    O_OUT(QUERY_CONTEXT_CORE_SUPPORT, 8),
    /* The kernel driver of mlx5 requires this attribute (mlx5_ib_query_context in
     * drivers/infiniband/hw/mlx5/main.c). */
    {.id = MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX,
     .kind = VB_OUT,
     .max = VB_FITS,
     .name = "MLX5_QUERY_CONTEXT_RESP_UCTX"},
    END,
};
static const struct vb_attr_rule query_gid_table[] = {
    M_CONST(QUERY_GID_TABLE_ENTRY_SIZE),
    O_FLAGS(QUERY_GID_TABLE_FLAGS),
    M_OUT_FITS(QUERY_GID_TABLE_RESP_ENTRIES, 0),
    M_OUT(QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8),
    END,
};
static const struct vb_attr_rule query_gid_entry[] = {
    M_CONST(QUERY_GID_ENTRY_PORT),
    M_CONST(QUERY_GID_ENTRY_GID_INDEX),
    M_FLAGS(QUERY_GID_ENTRY_FLAGS),
    M_OUT_MORE(QUERY_GID_ENTRY_RESP_ENTRY, sizeof(struct ib_uverbs_gid_entry)),
    END,
};
static const struct vb_attr_rule async_event_alloc[] = {
    {.id = UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE,
     .kind = VB_FD_NEW,
     .mandatory = true,
     .name = "ASYNC_EVENT_ALLOC_FD_HANDLE"},
    END,
};

/* Queues. */
static const struct vb_attr_rule cq_create[] = {
    M_NEW(CREATE_CQ_HANDLE),
    M_IN(CREATE_CQ_CQE, 4),
    M_IN(CREATE_CQ_USER_HANDLE, 8),
    O_FD(CREATE_CQ_COMP_CHANNEL),
    M_IN(CREATE_CQ_COMP_VECTOR, 4),
    O_FLAGS(CREATE_CQ_FLAGS),
    M_OUT(CREATE_CQ_RESP_CQE, 4),
    O_FD(CREATE_CQ_EVENT_FD),
    UHW,
    END,
};
static const struct vb_attr_rule qp_create[] = {
    M_NEW(CREATE_QP_HANDLE),
    O_HANDLE(CREATE_QP_XRCD_HANDLE),
    O_HANDLE(CREATE_QP_PD_HANDLE),
    O_HANDLE(CREATE_QP_SRQ_HANDLE),
    O_HANDLE(CREATE_QP_SEND_CQ_HANDLE),
    O_HANDLE(CREATE_QP_RECV_CQ_HANDLE),
    O_HANDLE(CREATE_QP_IND_TABLE_HANDLE),
    M_IN(CREATE_QP_USER_HANDLE, 8),
    {.id = UVERBS_ATTR_CREATE_QP_CAP,
     .kind = VB_IN,
     .mandatory = true,
     .more = true,
     .min = sizeof(struct ib_uverbs_qp_cap),
     .name = "CREATE_QP_CAP"},
    M_CONST(CREATE_QP_TYPE),
    O_FLAGS(CREATE_QP_FLAGS),
    O_IN(CREATE_QP_SOURCE_QPN, 4),
    O_FD(CREATE_QP_EVENT_FD),
    M_OUT_MORE(CREATE_QP_RESP_CAP, sizeof(struct ib_uverbs_qp_cap)),
    M_OUT(CREATE_QP_RESP_QP_NUM, 4),
    UHW,
    END,
};
static const struct vb_attr_rule srq_create[] = {
    M_NEW(CREATE_SRQ_HANDLE),
    M_HANDLE(CREATE_SRQ_PD_HANDLE),
    O_HANDLE(CREATE_SRQ_XRCD_HANDLE),
    O_HANDLE(CREATE_SRQ_CQ_HANDLE),
    M_IN(CREATE_SRQ_USER_HANDLE, 8),
    M_IN(CREATE_SRQ_MAX_WR, 4),
    M_IN(CREATE_SRQ_MAX_SGE, 4),
    M_IN(CREATE_SRQ_LIMIT, 4),
    O_IN(CREATE_SRQ_MAX_NUM_TAGS, 4),
    M_CONST(CREATE_SRQ_TYPE),
    O_FD(CREATE_SRQ_EVENT_FD),
    M_OUT(CREATE_SRQ_RESP_MAX_WR, 4),
    M_OUT(CREATE_SRQ_RESP_MAX_SGE, 4),
    O_OUT(CREATE_SRQ_RESP_SRQ_NUM, 4),
    UHW,
    END,
};
static const struct vb_attr_rule wq_create[] = {
    M_NEW(CREATE_WQ_HANDLE),
    M_HANDLE(CREATE_WQ_PD_HANDLE),
    O_HANDLE(CREATE_WQ_CQ_HANDLE),
    M_IN(CREATE_WQ_USER_HANDLE, 8),
    M_CONST(CREATE_WQ_TYPE),
    O_FD(CREATE_WQ_EVENT_FD),
    M_IN(CREATE_WQ_MAX_WR, 4),
    M_IN(CREATE_WQ_MAX_SGE, 4),
    M_FLAGS(CREATE_WQ_FLAGS),
    M_OUT(CREATE_WQ_RESP_MAX_WR, 4),
    M_OUT(CREATE_WQ_RESP_MAX_SGE, 4),
    O_OUT(CREATE_WQ_RESP_WQ_NUM, 4),
    UHW,
    END,
};
static const struct vb_attr_rule cq_destroy[] = {
    M_HANDLE(DESTROY_CQ_HANDLE),
    M_OUT(DESTROY_CQ_RESP, sizeof(struct ib_uverbs_destroy_cq_resp)),
    END,
};
static const struct vb_attr_rule qp_destroy[] = {
    M_HANDLE(DESTROY_QP_HANDLE),
    M_OUT(DESTROY_QP_RESP, sizeof(struct ib_uverbs_destroy_qp_resp)),
    END,
};
static const struct vb_attr_rule srq_destroy[] = {
    M_HANDLE(DESTROY_SRQ_HANDLE),
    M_OUT(DESTROY_SRQ_RESP, sizeof(struct ib_uverbs_destroy_srq_resp)),
    END,
};
static const struct vb_attr_rule wq_destroy[] = {M_HANDLE(DESTROY_WQ_HANDLE), M_OUT(DESTROY_WQ_RESP, 4), END};

/* Methods that destroy an object and return no result. */
static const struct vb_attr_rule pd_destroy[] = {M_HANDLE(DESTROY_PD_HANDLE), END};
static const struct vb_attr_rule ah_destroy[] = {M_HANDLE(DESTROY_AH_HANDLE), END};
static const struct vb_attr_rule mr_destroy[] = {M_HANDLE(DESTROY_MR_HANDLE), END};
static const struct vb_attr_rule mw_destroy[] = {M_HANDLE(DESTROY_MW_HANDLE), END};
static const struct vb_attr_rule xrcd_destroy[] = {M_HANDLE(DESTROY_XRCD_HANDLE), END};
static const struct vb_attr_rule flow_destroy[] = {M_HANDLE(DESTROY_FLOW_HANDLE), END};
static const struct vb_attr_rule rwq_destroy[] = {M_HANDLE(DESTROY_RWQ_IND_TBL_HANDLE), END};
static const struct vb_attr_rule dm_free[] = {M_HANDLE(FREE_DM_HANDLE), END};
static const struct vb_attr_rule counters_destroy[] = {M_HANDLE(DESTROY_COUNTERS_HANDLE), END};

/* Memory, and counters. */
static const struct vb_attr_rule dm_mr_reg[] = {
    M_NEW(REG_DM_MR_HANDLE),       M_IN(REG_DM_MR_OFFSET, 8),       M_IN(REG_DM_MR_LENGTH, 8),
    M_HANDLE(REG_DM_MR_PD_HANDLE), O_FLAGS(REG_DM_MR_ACCESS_FLAGS), M_HANDLE(REG_DM_MR_DM_HANDLE),
    M_OUT(REG_DM_MR_RESP_LKEY, 4), M_OUT(REG_DM_MR_RESP_RKEY, 4),   END,
};
static const struct vb_attr_rule advise_mr[] = {
    M_HANDLE(ADVISE_MR_PD_HANDLE),
    M_CONST(ADVISE_MR_ADVICE),
    M_FLAGS(ADVISE_MR_FLAGS),
    {.id = UVERBS_ATTR_ADVISE_MR_SGE_LIST,
     .kind = VB_IN,
     .mandatory = true,
     .min = sizeof(struct ib_uverbs_sge),
     .max = VB_FITS,
     .name = "ADVISE_MR_SGE_LIST"},
    END,
};
static const struct vb_attr_rule query_mr[] = {
    M_HANDLE(QUERY_MR_HANDLE),      M_OUT(QUERY_MR_RESP_LKEY, 4), M_OUT(QUERY_MR_RESP_RKEY, 4),
    M_OUT(QUERY_MR_RESP_LENGTH, 8), O_OUT(QUERY_MR_RESP_IOVA, 8), END,
};
static const struct vb_attr_rule reg_dmabuf_mr[] = {
    M_NEW(REG_DMABUF_MR_HANDLE),
    M_HANDLE(REG_DMABUF_MR_PD_HANDLE),
    M_IN(REG_DMABUF_MR_OFFSET, 8),
    M_IN(REG_DMABUF_MR_LENGTH, 8),
    M_IN(REG_DMABUF_MR_IOVA, 8),
    {.id = UVERBS_ATTR_REG_DMABUF_MR_FD, .kind = VB_RAW_FD, .mandatory = true, .min = 4, .name = "REG_DMABUF_MR_FD"},
    O_FLAGS(REG_DMABUF_MR_ACCESS_FLAGS),
    M_OUT(REG_DMABUF_MR_RESP_LKEY, 4),
    M_OUT(REG_DMABUF_MR_RESP_RKEY, 4),
    /* The "data direct" flag of mlx5 (mlx5_ib_reg_dmabuf_mr in drivers/infiniband/hw/mlx5/main.c), since Linux 6.11. */
    {.id = DRIVER_NS, .kind = VB_IN, .min = 4, .max = 8, .name = "MLX5_REG_DMABUF_MR_ACCESS_FLAGS"},
    END,
};
/* Since Linux 6.17. The kernel checks that a request has either ADDR, or FD and FD_OFFSET. DMA_HANDLE is left out
 * because DMAH objects are refused (see below). */
static const struct vb_attr_rule reg_mr[] = {
    {.id = REG_MR_HANDLE, .kind = VB_HANDLE_NEW, .mandatory = true, .name = "REG_MR_HANDLE"},
    {.id = REG_MR_PD_HANDLE, .kind = VB_HANDLE, .mandatory = true, .name = "REG_MR_PD_HANDLE"},
    {.id = REG_MR_IOVA, .kind = VB_IN, .mandatory = true, .min = 8, .name = "REG_MR_IOVA"},
    {.id = REG_MR_ADDR, .kind = VB_IN, .memory = true, .min = 8, .name = "REG_MR_ADDR"},
    {.id = REG_MR_LENGTH, .kind = VB_IN, .mandatory = true, .min = 8, .name = "REG_MR_LENGTH"},
    {.id = REG_MR_ACCESS_FLAGS, .kind = VB_IN, .mandatory = true, .min = 4, .max = 8, .name = "REG_MR_ACCESS_FLAGS"},
    {.id = REG_MR_FD, .kind = VB_RAW_FD, .name = "REG_MR_FD"},
    {.id = REG_MR_FD_OFFSET, .kind = VB_IN, .min = 8, .name = "REG_MR_FD_OFFSET"},
    {.id = REG_MR_RESP_LKEY, .kind = VB_OUT, .mandatory = true, .min = 4, .name = "REG_MR_RESP_LKEY"},
    {.id = REG_MR_RESP_RKEY, .kind = VB_OUT, .mandatory = true, .min = 4, .name = "REG_MR_RESP_RKEY"},
    UHW,
    END,
};
static const struct vb_attr_rule dm_alloc[] = {
    M_NEW(ALLOC_DM_HANDLE),
    M_IN(ALLOC_DM_LENGTH, 8),
    M_IN(ALLOC_DM_ALIGNMENT, 4),
    /* The kernel driver of mlx5 requires RESP_START_OFFSET (mlx5_ib_dm in drivers/infiniband/hw/mlx5/dm.c). REQ_TYPE is
       left out because the other memory types are for flow steering. */
    {.id = MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET,
     .kind = VB_OUT,
     .min = 8,
     .name = "MLX5_ALLOC_DM_RESP_START_OFFSET"},
    {.id = MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX, .kind = VB_OUT, .min = 2, .name = "MLX5_ALLOC_DM_RESP_PAGE_INDEX"},
    END,
};
static const struct vb_attr_rule counters_create[] = {M_NEW(CREATE_COUNTERS_HANDLE), END};
static const struct vb_attr_rule counters_read[] = {
    M_HANDLE(READ_COUNTERS_HANDLE),
    M_OUT_FITS(READ_COUNTERS_BUFF, 0),
    O_FLAGS(READ_COUNTERS_FLAGS),
    END,
};

#define METHOD(o, m) .object = UVERBS_OBJECT_##o, .method = UVERBS_METHOD_##m, .name = #m
#define BROKER(a)    .where = VB_BROKER, .attrs = (a)
#define MAKES(t, i)  .makes = (t), .made = {VB_ATTR, UVERBS_ATTR_##i}
#define ENDS(t, i)   .ends = (t), .ended = {VB_ATTR, UVERBS_ATTR_##i}
#define REFUSED(o, m, n, w)                                                        \
    {                                                                              \
        .object = (o), .method = (m), .name = (n), .where = VB_REFUSED, .why = (w) \
    }

static const char devx[] = "the broker does not check firmware commands (DEVX)";
static const char steering[] = "the broker does not check mlx5's own flow steering";
static const char page[] = "no limit covers additional doorbell pages, and the library works without them";
static const char memic[] = "no limit covers the additional pages for operations on device memory";
static const char tph[] = "only the host may choose which CPU's cache the NIC writes to";
static const char export[] = "a program must not export the NIC's registers as a dma-buf";
static const char counter[] = "no limit covers counters of completions";

static const struct vb_command commands[] = {
    {METHOD(DEVICE, INFO_HANDLES), BROKER(info_handles)},
    {METHOD(DEVICE, QUERY_PORT), BROKER(query_port)},
    {METHOD(DEVICE, GET_CONTEXT), BROKER(get_context), .makes = VB_CONTEXT},
    {METHOD(DEVICE, QUERY_CONTEXT), BROKER(query_context)},
    {METHOD(DEVICE, QUERY_GID_TABLE), BROKER(query_gid_table)},
    {METHOD(DEVICE, QUERY_GID_ENTRY), BROKER(query_gid_entry)},
    {.object = UVERBS_OBJECT_DEVICE,
     .method = METHOD_QUERY_PORT_SPEED,
     .name = "QUERY_PORT_SPEED",
     BROKER(query_port_speed)},
    REFUSED(UVERBS_OBJECT_DEVICE, METHOD_QUERY_COMP_CNTR_CAPS, "QUERY_COMP_CNTR_CAPS", counter),
    REFUSED(UVERBS_OBJECT_DEVICE, MLX5_IB_METHOD_QUERY_PORT, "MLX5_QUERY_PORT", steering),
    REFUSED(UVERBS_OBJECT_DEVICE, DRIVER_NS + 1, "MLX5_GET_DATA_DIRECT_SYSFS_PATH",
            "the result is a path in the host's sysfs"),
    {METHOD(ASYNC_EVENT, ASYNC_EVENT_ALLOC), BROKER(async_event_alloc), MAKES(VB_ASYNC, ASYNC_EVENT_ALLOC_FD_HANDLE)},

    {METHOD(PD, PD_DESTROY), BROKER(pd_destroy), ENDS(VB_PD, DESTROY_PD_HANDLE)},
    REFUSED(UVERBS_OBJECT_PD, MLX5_IB_METHOD_PD_QUERY, "MLX5_PD_QUERY", devx),
    {METHOD(AH, AH_DESTROY), BROKER(ah_destroy), ENDS(VB_AH, DESTROY_AH_HANDLE)},

    {METHOD(MR, DM_MR_REG), BROKER(dm_mr_reg), MAKES(VB_MR, REG_DM_MR_HANDLE)},
    {METHOD(MR, MR_DESTROY), BROKER(mr_destroy), ENDS(VB_MR, DESTROY_MR_HANDLE)},
    {METHOD(MR, ADVISE_MR), BROKER(advise_mr)},
    {METHOD(MR, QUERY_MR), BROKER(query_mr)},
    {METHOD(MR, REG_DMABUF_MR), BROKER(reg_dmabuf_mr), MAKES(VB_MR, REG_DMABUF_MR_HANDLE)},
    {.object = UVERBS_OBJECT_MR,
     .method = METHOD_REG_MR,
     .name = "REG_MR",
     BROKER(reg_mr),
     .makes = VB_MR,
     .made = {VB_ATTR, REG_MR_HANDLE}},
    REFUSED(UVERBS_OBJECT_MR, DRIVER_NS, "EFA_MR_QUERY", "the result identifies interconnects of the host"),
    {METHOD(MW, MW_DESTROY), BROKER(mw_destroy), ENDS(VB_MW, DESTROY_MW_HANDLE)},

    {METHOD(CQ, CQ_CREATE), BROKER(cq_create), MAKES(VB_CQ, CREATE_CQ_HANDLE)},
    {METHOD(CQ, CQ_DESTROY), BROKER(cq_destroy), ENDS(VB_CQ, DESTROY_CQ_HANDLE)},
    {METHOD(QP, QP_CREATE), BROKER(qp_create), MAKES(VB_QP, CREATE_QP_HANDLE)},
    {METHOD(QP, QP_DESTROY), BROKER(qp_destroy), ENDS(VB_QP, DESTROY_QP_HANDLE)},
    REFUSED(UVERBS_OBJECT_QP, METHOD_QP_ATTACH_COMP_CNTR, "QP_ATTACH_COMP_CNTR", counter),
    {METHOD(SRQ, SRQ_CREATE), BROKER(srq_create), MAKES(VB_SRQ, CREATE_SRQ_HANDLE)},
    {METHOD(SRQ, SRQ_DESTROY), BROKER(srq_destroy), ENDS(VB_SRQ, DESTROY_SRQ_HANDLE)},
    {METHOD(WQ, WQ_CREATE), BROKER(wq_create), MAKES(VB_WQ, CREATE_WQ_HANDLE)},
    {METHOD(WQ, WQ_DESTROY), BROKER(wq_destroy), ENDS(VB_WQ, DESTROY_WQ_HANDLE)},
    {METHOD(RWQ_IND_TBL, RWQ_IND_TBL_DESTROY), BROKER(rwq_destroy), ENDS(VB_RWQ_TABLE, DESTROY_RWQ_IND_TBL_HANDLE)},
    {METHOD(XRCD, XRCD_DESTROY), BROKER(xrcd_destroy), ENDS(VB_XRCD, DESTROY_XRCD_HANDLE)},

    {METHOD(FLOW, FLOW_DESTROY), BROKER(flow_destroy), ENDS(VB_FLOW, DESTROY_FLOW_HANDLE)},
    REFUSED(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW, "MLX5_CREATE_FLOW", steering),
    REFUSED(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_DESTROY_FLOW, "MLX5_DESTROY_FLOW", steering),
    REFUSED(UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_ESP_CREATE, "FLOW_ACTION_ESP_CREATE",
            "no RDMA driver has supported ESP flow actions since Linux 5.19"),
    REFUSED(UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_DESTROY, "FLOW_ACTION_DESTROY", steering),
    REFUSED(UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_ESP_MODIFY, "FLOW_ACTION_ESP_MODIFY",
            "no RDMA driver has supported ESP flow actions since Linux 5.19"),
    REFUSED(UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER, "MLX5_CREATE_MODIFY_HEADER",
            steering),
    REFUSED(UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_PACKET_REFORMAT, "MLX5_CREATE_PACKET_REFORMAT",
            steering),

    {METHOD(DM, DM_ALLOC), BROKER(dm_alloc), MAKES(VB_DM, ALLOC_DM_HANDLE)},
    {METHOD(DM, DM_FREE), BROKER(dm_free), ENDS(VB_DM, FREE_DM_HANDLE)},
    REFUSED(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR, "MLX5_DM_MAP_OP_ADDR", memic),
    REFUSED(UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_QUERY, "MLX5_DM_QUERY",
            "the method is for memory that another process allocated"),
    {METHOD(COUNTERS, COUNTERS_CREATE), BROKER(counters_create), MAKES(VB_COUNTERS, CREATE_COUNTERS_HANDLE)},
    {METHOD(COUNTERS, COUNTERS_DESTROY), BROKER(counters_destroy), ENDS(VB_COUNTERS, DESTROY_COUNTERS_HANDLE)},
    {METHOD(COUNTERS, COUNTERS_READ), BROKER(counters_read)},

    /* Objects of Linux 6.17 and later. */
    REFUSED(OBJECT_DMAH, 0, "DMAH_ALLOC", tph),
    REFUSED(OBJECT_DMAH, 1, "DMAH_FREE", tph),
    REFUSED(OBJECT_DMABUF, 0, "DMABUF_ALLOC", export),
    REFUSED(OBJECT_COMP_CNTR, 0, "COMP_CNTR_CREATE", counter),
    REFUSED(OBJECT_COMP_CNTR, 1, "COMP_CNTR_DESTROY", counter),
    REFUSED(OBJECT_COMP_CNTR, 2, "COMP_CNTR_MODIFY", counter),
    REFUSED(OBJECT_COMP_CNTR, 3, "COMP_CNTR_READ", counter),

    /* Objects specific to mlx5. */
    REFUSED(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, "MLX5_DEVX_OTHER", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_UAR, "MLX5_DEVX_QUERY_UAR", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_QUERY_EQN, "MLX5_DEVX_QUERY_EQN", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT, "MLX5_DEVX_SUBSCRIBE_EVENT", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_CREATE, "MLX5_DEVX_OBJ_CREATE", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_DESTROY, "MLX5_DEVX_OBJ_DESTROY", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_MODIFY, "MLX5_DEVX_OBJ_MODIFY", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_QUERY, "MLX5_DEVX_OBJ_QUERY", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_OBJ, MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY, "MLX5_DEVX_OBJ_ASYNC_QUERY", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_REG, "MLX5_DEVX_UMEM_REG", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_UMEM, MLX5_IB_METHOD_DEVX_UMEM_DEREG, "MLX5_DEVX_UMEM_DEREG", devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC, "MLX5_DEVX_ASYNC_CMD_FD_ALLOC",
            devx),
    REFUSED(MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC,
            "MLX5_DEVX_ASYNC_EVENT_FD_ALLOC", devx),
    REFUSED(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE, "MLX5_FLOW_MATCHER_CREATE", steering),
    REFUSED(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY, "MLX5_FLOW_MATCHER_DESTROY", steering),
    REFUSED(MLX5_IB_OBJECT_STEERING_ANCHOR, MLX5_IB_METHOD_STEERING_ANCHOR_CREATE, "MLX5_STEERING_ANCHOR_CREATE",
            steering),
    REFUSED(MLX5_IB_OBJECT_STEERING_ANCHOR, MLX5_IB_METHOD_STEERING_ANCHOR_DESTROY, "MLX5_STEERING_ANCHOR_DESTROY",
            steering),
    REFUSED(MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_ALLOC, "MLX5_VAR_OBJ_ALLOC", page),
    REFUSED(MLX5_IB_OBJECT_VAR, MLX5_IB_METHOD_VAR_OBJ_DESTROY, "MLX5_VAR_OBJ_DESTROY", page),
    REFUSED(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, "MLX5_UAR_OBJ_ALLOC", page),
    REFUSED(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, "MLX5_UAR_OBJ_DESTROY", page),
    REFUSED(MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_ALLOC, "MLX5_PP_OBJ_ALLOC",
            "the device's table of rates is shared by all its users"),
    REFUSED(MLX5_IB_OBJECT_PP, MLX5_IB_METHOD_PP_OBJ_DESTROY, "MLX5_PP_OBJ_DESTROY",
            "the device's table of rates is shared by all its users"),
};

const struct vb_commands vb_method_commands = {commands, HW_ARRAY_LEN(commands)};
