/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a uverbs device through the kernel's own interface (<rdma/rdma_user_ioctl_cmds.h>), for programs in the
 * VM lab's guests. Functions whose requests must succeed exit the program on failure; functions for attempts return 0
 * or -errno. */
#ifndef HW_TEST_VERBS_RAW_H
#define HW_TEST_VERBS_RAW_H

#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(cond, ...)                              \
    do {                                              \
        if (!(cond)) {                                \
            const int check_errno = errno;            \
            printf("line %d: " #cond ": ", __LINE__); \
            printf(__VA_ARGS__);                      \
            printf(" (%s)\n", strerror(check_errno)); \
            fflush(stdout);                           \
            _exit(1);                                 \
        }                                             \
    } while (0)

struct header { /* struct ib_uverbs_ioctl_hdr without its tail */
    uint16_t length, object_id, method_id, num_attrs;
    uint64_t reserved1;
    uint32_t driver_id, reserved2;
};
_Static_assert(sizeof(struct header) == sizeof(struct ib_uverbs_ioctl_hdr), "the kernel's");
struct request {
    struct header h;
    struct ib_uverbs_attr a[70];
};

void start(struct request *r, uint16_t object, uint16_t method);
void add(struct request *r, uint16_t id, uint16_t len, uint64_t data);
void write_cmd(struct request *r, uint64_t command, const void *in, size_t in_len, void *out, size_t out_len);
int go(int fd, struct request *r);
static inline uint64_t at(const volatile void *p)
{
    return (uint64_t)(uintptr_t)p;
}

int open_context(void);
uint32_t alloc_pd(int fd);
void mr_of(struct ib_uverbs_reg_mr *in, uint32_t pd, const void *p, uint64_t n);
int reg_mr(int fd, uint32_t pd, const void *p, uint64_t n, uint32_t *number);
int dereg_mr(int fd, uint32_t number);
enum { REREG_TRANS = 1, REREG_ACCESS = 4 }; /* IB_MR_REREG_* of the kernel's <rdma/ib_verbs.h> */
int rereg_mr(int fd, uint32_t number, uint32_t flags, const void *p, uint64_t n, uint32_t access);
int reg_mr_method(int fd, uint32_t pd, const void *p, uint64_t n, uint32_t *number); /* Linux 6.17 */
int query_mr(int fd, uint32_t number, uint64_t *length);
int create_cq(int fd, uint32_t *number);
void qp_of(struct ib_uverbs_create_qp *in, uint32_t pd, uint32_t cq, uint32_t wr);
int create_qp(int fd, uint32_t pd, uint32_t cq, uint32_t wr, uint32_t *number);
int destroy_qp(int fd, uint32_t number);
uint32_t qp_wr(int fd, uint32_t number); /* returns the size of the send queue, as reported by the kernel */
int init_ud(int fd, uint32_t number);    /* moves the QP to INIT, with the attributes that only a UD QP has */

#endif
