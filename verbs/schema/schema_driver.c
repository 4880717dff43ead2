/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The drivers' parts of commands, from each driver's ABI header and from the fields that its kernel code reads. Some
 * lengths come from kernels that are newer than the installed headers. An older kernel accepts trailing zeros in a
 * longer input, and writes less to a longer output.
 *
 * Only mlx5 pins the program's memory when it creates a queue. The queues of efa, rxe and siw are in memory of the
 * kernel or the device, which programs map with mmap(). irdma looks up the address of a queue among MRs of a special
 * type that the program has registered before (reg_type of irdma_mem_reg_req; irdma_get_pbl() in
 * drivers/infiniband/hw/irdma/verbs.c), so that creating a queue pins nothing.
 */
#include "verbs/schema/schema_int.h"

#include <rdma/efa-abi.h>
#include <rdma/irdma-abi.h>
#include <rdma/mlx5-abi.h>
#include <rdma/rdma_user_rxe.h>
#include <rdma/siw-abi.h>

#define METHOD(o, m) .object = UVERBS_OBJECT_##o, .method = UVERBS_METHOD_##m
#define PLAIN(cmd)   METHOD(DEVICE, INVOKE_WRITE), .command = IB_USER_VERBS_CMD_##cmd
#define EXTENDED(cmd) \
    METHOD(DEVICE, INVOKE_WRITE), .command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_##cmd
#define IN(min, max) .in_min = (min), .in_max = (max)
#define OUT(s)       .out_max = sizeof(struct s)
#define PINS(a)      .memory = true, .addresses = (a), .n_addresses = HW_ARRAY_LEN(a)
#define KNOWS(a)     .addresses = (a), .n_addresses = HW_ARRAY_LEN(a) /* the driver pins nothing */
#define AT(s, m)                                                \
    {                                                           \
        .at = offsetof(struct s, m), .driver = true, .name = #m \
    }
/* The stub does not run a method with this mark. If a kernel lacks a method, libraries use INVOKE_WRITE instead
 * (libibverbs/cmd_fallback.c of rdma-core), and the stub runs INVOKE_WRITE. */
#define BY_WRITE .by_write = true

/* mlx5: <rdma/mlx5-abi.h>; drivers/infiniband/hw/mlx5/{main,cq,qp,srq,mr,ah}.c. */
static const struct vb_address mlx5_cq[] = {AT(mlx5_ib_create_cq, buf_addr), AT(mlx5_ib_create_cq, db_addr)};
static const struct vb_address mlx5_resize[] = {AT(mlx5_ib_resize_cq, buf_addr)};
static const struct vb_address mlx5_srq[] = {AT(mlx5_ib_create_srq, buf_addr), AT(mlx5_ib_create_srq, db_addr)};
static const struct vb_address mlx5_wq[] = {AT(mlx5_ib_create_wq, buf_addr), AT(mlx5_ib_create_wq, db_addr)};
/* sq_buf_addr is the address of the send queue for a raw packet QP, and an access key for a DC target. An RSS QP, which
 * requires privileges, uses struct mlx5_ib_create_qp_rss, which is longer and contains no address. */
static const struct vb_address mlx5_qp[] = {AT(mlx5_ib_create_qp, buf_addr), AT(mlx5_ib_create_qp, db_addr),
                                            AT(mlx5_ib_create_qp, sq_buf_addr)};
#define MLX5_CQ_IN  IN(offsetof(struct mlx5_ib_create_cq, flags), sizeof(struct mlx5_ib_create_cq))
#define MLX5_SRQ_IN IN(VB_BEHIND(struct mlx5_ib_create_srq, flags), sizeof(struct mlx5_ib_create_srq))
#define MLX5_WQ_IN \
    IN(VB_BEHIND(struct mlx5_ib_create_wq, single_stride_log_num_of_bytes), sizeof(struct mlx5_ib_create_wq))
#define MLX5_QP_IN IN(offsetof(struct mlx5_ib_create_qp, ece_options), sizeof(struct mlx5_ib_create_qp_rss))

static const struct vb_driver_part mlx5[] = {
    {METHOD(DEVICE, GET_CONTEXT),
     IN(sizeof(struct mlx5_ib_alloc_ucontext_req), sizeof(struct mlx5_ib_alloc_ucontext_req_v2)),
     OUT(mlx5_ib_alloc_ucontext_resp)},
    {PLAIN(GET_CONTEXT), IN(sizeof(struct mlx5_ib_alloc_ucontext_req), sizeof(struct mlx5_ib_alloc_ucontext_req_v2)),
     OUT(mlx5_ib_alloc_ucontext_resp)},
    {EXTENDED(QUERY_DEVICE), OUT(mlx5_ib_query_device_resp)},
    {PLAIN(ALLOC_PD), OUT(mlx5_ib_alloc_pd_resp)},
    {PLAIN(CREATE_AH), OUT(mlx5_ib_create_ah_resp)},
    {PLAIN(ALLOC_MW), IN(0, sizeof(struct mlx5_ib_alloc_mw))},
    {METHOD(CQ, CQ_CREATE), MLX5_CQ_IN, OUT(mlx5_ib_create_cq_resp), PINS(mlx5_cq), BY_WRITE},
    {PLAIN(CREATE_CQ), MLX5_CQ_IN, OUT(mlx5_ib_create_cq_resp), PINS(mlx5_cq)},
    {EXTENDED(CREATE_CQ), MLX5_CQ_IN, OUT(mlx5_ib_create_cq_resp), PINS(mlx5_cq)},
    {PLAIN(RESIZE_CQ), IN(sizeof(struct mlx5_ib_resize_cq), sizeof(struct mlx5_ib_resize_cq)), PINS(mlx5_resize)},
    {METHOD(SRQ, SRQ_CREATE), MLX5_SRQ_IN, OUT(mlx5_ib_create_srq_resp), PINS(mlx5_srq), BY_WRITE},
    {PLAIN(CREATE_SRQ), MLX5_SRQ_IN, OUT(mlx5_ib_create_srq_resp), PINS(mlx5_srq)},
    {PLAIN(CREATE_XSRQ), MLX5_SRQ_IN, OUT(mlx5_ib_create_srq_resp), PINS(mlx5_srq)},
    {METHOD(WQ, WQ_CREATE), MLX5_WQ_IN, OUT(mlx5_ib_create_wq_resp), PINS(mlx5_wq), BY_WRITE},
    {EXTENDED(CREATE_WQ), MLX5_WQ_IN, OUT(mlx5_ib_create_wq_resp), PINS(mlx5_wq)},
    {EXTENDED(MODIFY_WQ), IN(0, sizeof(struct mlx5_ib_modify_wq))},
    {EXTENDED(CREATE_RWQ_IND_TBL), OUT(mlx5_ib_create_rwq_ind_tbl_resp)},
    {METHOD(QP, QP_CREATE), MLX5_QP_IN, OUT(mlx5_ib_create_qp_resp), PINS(mlx5_qp), BY_WRITE},
    {PLAIN(CREATE_QP), MLX5_QP_IN, OUT(mlx5_ib_create_qp_resp), PINS(mlx5_qp)},
    {EXTENDED(CREATE_QP), MLX5_QP_IN, OUT(mlx5_ib_create_qp_resp), PINS(mlx5_qp)},
    {PLAIN(MODIFY_QP), IN(0, sizeof(struct mlx5_ib_modify_qp)), OUT(mlx5_ib_modify_qp_resp)},
    {EXTENDED(MODIFY_QP), IN(0, sizeof(struct mlx5_ib_modify_qp)), OUT(mlx5_ib_modify_qp_resp)},
    /* CREATE_FLOW is left out: its struct mlx5_ib_flow_counters_data contains an address that the kernel reads from. */
};

/* efa: <rdma/efa-abi.h>. */
#define EFA_QP_IN  24 /* size of struct efa_ibv_create_qp with flags and sl, since Linux 6.13 */
#define EFA_QP_MIN VB_BEHIND(struct efa_ibv_create_qp, driver_qp_type)
#define EFA_CQ_IN  IN(VB_BEHIND(struct efa_ibv_create_cq, num_sub_cqs), sizeof(struct efa_ibv_create_cq))

static const struct vb_driver_part efa[] = {
    {METHOD(DEVICE, GET_CONTEXT), IN(0, sizeof(struct efa_ibv_alloc_ucontext_cmd)), OUT(efa_ibv_alloc_ucontext_resp)},
    {PLAIN(GET_CONTEXT), IN(0, sizeof(struct efa_ibv_alloc_ucontext_cmd)), OUT(efa_ibv_alloc_ucontext_resp)},
    {PLAIN(ALLOC_PD), OUT(efa_ibv_alloc_pd_resp)},
    {PLAIN(CREATE_AH), OUT(efa_ibv_create_ah_resp)},
    {METHOD(CQ, CQ_CREATE), EFA_CQ_IN, OUT(efa_ibv_create_cq_resp)},
    {PLAIN(CREATE_CQ), EFA_CQ_IN, OUT(efa_ibv_create_cq_resp)},
    {EXTENDED(CREATE_CQ), EFA_CQ_IN, OUT(efa_ibv_create_cq_resp)},
    {METHOD(QP, QP_CREATE), IN(EFA_QP_MIN, EFA_QP_IN), OUT(efa_ibv_create_qp_resp)},
    {PLAIN(CREATE_QP), IN(EFA_QP_MIN, EFA_QP_IN), OUT(efa_ibv_create_qp_resp)},
    {EXTENDED(CREATE_QP), IN(EFA_QP_MIN, EFA_QP_IN), OUT(efa_ibv_create_qp_resp)},
};

/* irdma: <rdma/irdma-abi.h>. Linux 6.18 added SRQs. */
#define IRDMA_UCTX_OUT 96 /* more than struct irdma_alloc_ucontext_resp, which has 88 bytes in Linux 7.3 */
#define IRDMA_SRQ_IN   16 /* struct irdma_create_srq_req with user_srq_buf and user_shadow_area */
#define IRDMA_SRQ_OUT  8  /* struct irdma_create_srq_resp */
#define IRDMA_CQ_IN    IN(VB_BEHIND(struct irdma_create_cq_req, user_cq_buf), sizeof(struct irdma_create_cq_req))
#define IRDMA_QP_IN    IN(sizeof(struct irdma_create_qp_req), sizeof(struct irdma_create_qp_req))
#define IRDMA_MODIFY   IN(0, sizeof(struct irdma_modify_qp_req)), OUT(irdma_modify_qp_resp)
static const struct vb_address irdma_cq[] = {AT(irdma_create_cq_req, user_cq_buf),
                                             AT(irdma_create_cq_req, user_shadow_area)};
static const struct vb_address irdma_resize[] = {AT(irdma_resize_cq_req, user_cq_buffer)};
static const struct vb_address irdma_qp[] = {AT(irdma_create_qp_req, user_wqe_bufs)};
static const struct vb_address irdma_srq[] = {{.at = 0, .driver = true, .name = "user_srq_buf"},
                                              {.at = 8, .driver = true, .name = "user_shadow_area"}};

static const struct vb_driver_part irdma[] = {
    {METHOD(DEVICE, GET_CONTEXT), IN(0, sizeof(struct irdma_alloc_ucontext_req)), .out_max = IRDMA_UCTX_OUT},
    {PLAIN(GET_CONTEXT), IN(0, sizeof(struct irdma_alloc_ucontext_req)), .out_max = IRDMA_UCTX_OUT},
    {PLAIN(ALLOC_PD), OUT(irdma_alloc_pd_resp)},
    {PLAIN(CREATE_AH), OUT(irdma_create_ah_resp)},
    {PLAIN(REG_MR), IN(sizeof(struct irdma_mem_reg_req), sizeof(struct irdma_mem_reg_req))},
    {METHOD(CQ, CQ_CREATE), IRDMA_CQ_IN, OUT(irdma_create_cq_resp), KNOWS(irdma_cq)},
    {PLAIN(CREATE_CQ), IRDMA_CQ_IN, OUT(irdma_create_cq_resp), KNOWS(irdma_cq)},
    {EXTENDED(CREATE_CQ), IRDMA_CQ_IN, OUT(irdma_create_cq_resp), KNOWS(irdma_cq)},
    {PLAIN(RESIZE_CQ), IN(sizeof(struct irdma_resize_cq_req), sizeof(struct irdma_resize_cq_req)), KNOWS(irdma_resize)},
    {METHOD(SRQ, SRQ_CREATE), IN(IRDMA_SRQ_IN, IRDMA_SRQ_IN), .out_max = IRDMA_SRQ_OUT, KNOWS(irdma_srq)},
    {PLAIN(CREATE_SRQ), IN(IRDMA_SRQ_IN, IRDMA_SRQ_IN), .out_max = IRDMA_SRQ_OUT, KNOWS(irdma_srq)},
    {METHOD(QP, QP_CREATE), IRDMA_QP_IN, OUT(irdma_create_qp_resp), KNOWS(irdma_qp)},
    {PLAIN(CREATE_QP), IRDMA_QP_IN, OUT(irdma_create_qp_resp), KNOWS(irdma_qp)},
    {EXTENDED(CREATE_QP), IRDMA_QP_IN, OUT(irdma_create_qp_resp), KNOWS(irdma_qp)},
    {PLAIN(MODIFY_QP), IRDMA_MODIFY},
    {EXTENDED(MODIFY_QP), IRDMA_MODIFY},
};

/* rxe: <rdma/rdma_user_rxe.h>. */
/* At mmap_info_addr, the kernel stores the parameters with which the program maps the queue (rxe_srq_from_attr() in
 * drivers/infiniband/sw/rxe/rxe_srq.c). The command must therefore run in the program's address space. */
static const struct vb_address rxe_modify_srq[] = {AT(rxe_modify_srq_cmd, mmap_info_addr)};

static const struct vb_driver_part rxe[] = {
    {PLAIN(CREATE_AH), OUT(rxe_create_ah_resp)},
    {METHOD(CQ, CQ_CREATE), OUT(rxe_create_cq_resp)},
    {PLAIN(CREATE_CQ), OUT(rxe_create_cq_resp)},
    {EXTENDED(CREATE_CQ), OUT(rxe_create_cq_resp)},
    {PLAIN(RESIZE_CQ), OUT(rxe_resize_cq_resp)},
    {METHOD(SRQ, SRQ_CREATE), OUT(rxe_create_srq_resp)},
    {PLAIN(CREATE_SRQ), OUT(rxe_create_srq_resp)},
    {PLAIN(CREATE_XSRQ), OUT(rxe_create_srq_resp)},
    {PLAIN(MODIFY_SRQ), IN(sizeof(struct rxe_modify_srq_cmd), sizeof(struct rxe_modify_srq_cmd)), PINS(rxe_modify_srq)},
    {METHOD(QP, QP_CREATE), OUT(rxe_create_qp_resp)},
    {PLAIN(CREATE_QP), OUT(rxe_create_qp_resp)},
    {EXTENDED(CREATE_QP), OUT(rxe_create_qp_resp)},
};

/* siw: <rdma/siw-abi.h>. */
static const struct vb_driver_part siw[] = {
    {METHOD(DEVICE, GET_CONTEXT), OUT(siw_uresp_alloc_ctx)},
    {PLAIN(GET_CONTEXT), OUT(siw_uresp_alloc_ctx)},
    {PLAIN(REG_MR), IN(sizeof(struct siw_ureq_reg_mr), sizeof(struct siw_ureq_reg_mr)), OUT(siw_uresp_reg_mr)},
    {METHOD(CQ, CQ_CREATE), OUT(siw_uresp_create_cq)},
    {PLAIN(CREATE_CQ), OUT(siw_uresp_create_cq)},
    {EXTENDED(CREATE_CQ), OUT(siw_uresp_create_cq)},
    {METHOD(SRQ, SRQ_CREATE), OUT(siw_uresp_create_srq)},
    {PLAIN(CREATE_SRQ), OUT(siw_uresp_create_srq)},
    {METHOD(QP, QP_CREATE), OUT(siw_uresp_create_qp)},
    {PLAIN(CREATE_QP), OUT(siw_uresp_create_qp)},
    {EXTENDED(CREATE_QP), OUT(siw_uresp_create_qp)},
};

#define PARTS(p) .parts = (p), .n_parts = HW_ARRAY_LEN(p)
const struct vb_driver vb_drivers[] = {
    {.id = RDMA_DRIVER_MLX5, .name = "mlx5", PARTS(mlx5)},
    {.id = RDMA_DRIVER_EFA, .name = "efa", PARTS(efa)},
    {.id = RDMA_DRIVER_IRDMA, .name = "irdma", PARTS(irdma)},
    {.id = RDMA_DRIVER_RXE, .name = "rxe", .doorbells = true, PARTS(rxe)},
    {.id = RDMA_DRIVER_SIW, .name = "siw", .doorbells = true, PARTS(siw)},
};
const unsigned vb_n_drivers = HW_ARRAY_LEN(vb_drivers);
