/* SPDX-License-Identifier: Apache-2.0 */
/* For bench/verbs: performs a program's setup, from opening the device to a queue pair in RTS (connected to itself, by
 * GID 1), and prints the durations: "OPEN_US REG_US ALL_US". */
#include "verbs_raw.h"

#include <arpa/inet.h>
#include <sys/mman.h>
#include <time.h>

/* IB_QP_*, IB_QPS_* and IB_MTU_1024 of the kernel's <rdma/ib_verbs.h> */
enum {
    STATE = 1 << 0,
    ACCESS = 1 << 3,
    PKEY_INDEX = 1 << 4,
    PORT = 1 << 5,
    AV = 1 << 7,
    PATH_MTU = 1 << 8,
    TIMEOUT = 1 << 9,
    RETRY = 1 << 10,
    RNR_RETRY = 1 << 11,
    RQ_PSN = 1 << 12,
    MAX_QP_RD_ATOMIC = 1 << 13,
    MIN_RNR_TIMER = 1 << 15,
    SQ_PSN = 1 << 16,
    MAX_DEST_RD_ATOMIC = 1 << 17,
    DEST_QPN = 1 << 20
};
enum { INIT = 1, RTR = 2, RTS = 3, MTU_1024 = 3 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

static void modify(int fd, struct ib_uverbs_modify_qp *in, uint8_t state, uint32_t mask)
{
    struct request r;
    in->qp_state = state;
    in->attr_mask = STATE | mask;
    write_cmd(&r, IB_USER_VERBS_CMD_MODIFY_QP, in, sizeof(*in), NULL, 0);
    const int rc = go(fd, &r);
    CHECK(rc == 0, "MODIFY_QP to %u: %d", state, rc);
}

int main(int argc, char **argv)
{
    uint8_t *memory = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    struct ib_uverbs_modify_qp in;
    uint32_t cq, qp, mr;
    CHECK(argc == 2 && memory != MAP_FAILED, "usage: verbs_rts ADDRESS");
    const double t0 = now_us();
    const int fd = open_context();
    const uint32_t pd = alloc_pd(fd);
    const double t1 = now_us();
    CHECK(reg_mr(fd, pd, memory, 65536, &mr) == 0, "REG_MR");
    const double t2 = now_us();
    CHECK(create_cq(fd, &cq) == 0, "CREATE_CQ");
    CHECK(create_qp(fd, pd, cq, 16, &qp) == 0, "CREATE_QP");
    memset(&in, 0, sizeof(in));
    in.qp_handle = qp;
    in.port_num = 1;
    modify(fd, &in, INIT, PKEY_INDEX | PORT | ACCESS);
    in.path_mtu = MTU_1024;
    in.dest_qp_num = 0x11;
    in.max_dest_rd_atomic = in.max_rd_atomic = 1;
    in.min_rnr_timer = 12;
    in.dest.dgid[10] = in.dest.dgid[11] = 0xff;
    CHECK(inet_pton(AF_INET, argv[1], in.dest.dgid + 12) == 1, "%s is no address", argv[1]);
    in.dest.is_global = 1;
    in.dest.sgid_index = 1;
    in.dest.hop_limit = 1;
    in.dest.port_num = 1;
    modify(fd, &in, RTR, AV | PATH_MTU | DEST_QPN | RQ_PSN | MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER);
    in.timeout = 14;
    in.retry_cnt = in.rnr_retry = 7;
    modify(fd, &in, RTS, TIMEOUT | RETRY | RNR_RETRY | SQ_PSN | MAX_QP_RD_ATOMIC);
    printf("%.0f %.0f %.0f\n", t1 - t0, t2 - t1, now_us() - t0);
    return 0;
}
