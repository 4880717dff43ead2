/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the verbs broker: an RDMA kernel of our own behind nodes of /dev/null and /dev/zero, brokers in
 * processes of their own, and programs under the real filter. */
#ifndef VERBS_FAKE_H
#define VERBS_FAKE_H

#include "verbs/broker/broker.h"
#include "verbs/schema/newer.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdatomic.h>
#include <sys/types.h>

#define FAKE_DMABUF  "a dma-buf" /* what a file begins with that plays one */
#define FAKE_TOKEN   1000        /* a queue's number in UHW_OUT is so much larger */
#define FAKE_FILES   256
#define FAKE_OPS     4096
#define FAKE_NUMBERS 4096

struct fake_op {
    bool taken; /* false: refused before anything was looked at */
    uint16_t object, method;
    uint32_t command;
    uint32_t len; /* of in */
    uint8_t in[128];
};

enum fake_breach {
    NO_BREACH,
    BREACH_EXEC,
    BREACH_FORK,
    BREACH_SOCKET,
    BREACH_PTRACE,
    BREACH_MOUNT,
    BREACH_IOCTL,
    BREACH_CODE,
    BREACH_OPEN,
    BREACH_NODE,
    BREACH_WRITE,
    BREACH_WATCH,
    BREACHES
};

/* Shared by the test, its brokers and its programs. */
struct fake {
    atomic_int fail;      /* -errno for every request; 0: none */
    atomic_int ms;        /* how long each takes */
    atomic_uint driver;   /* enum rdma_driver_id of all devices; 0: rxe */
    atomic_int breach;    /* what the broker does in each that its filter forbids: enum fake_breach */
    atomic_uint ran;      /* requests that came to the kernel */
    atomic_uint wrong;    /* that no broker may send: malformed, foreign numbers, an address of the application's */
    atomic_uint live;     /* objects, by the kernel's account */
    atomic_long mr_bytes; /* the same */
    atomic_int go, seen;  /* for the test */
    atomic_long number[16];
    struct fake_op op[FAKE_OPS]; /* the latest, by ran */
    unsigned n_files;            /* that there ever were */
    struct fake_file {
        dev_t dev;
        ino_t ino;
        uint32_t next;
        uint8_t type[FAKE_NUMBERS];                        /* of number i; 0: not there */
        uint64_t length[FAKE_NUMBERS], iova[FAKE_NUMBERS]; /* of an MR */
    } file[FAKE_FILES];
};
extern struct fake *fake;
extern const struct vb_kernel fake_kernel; /* "fake0", uverbs0, is /dev/null; "fake1", uverbs1, is /dev/zero */

/* The request at h, of an open of the device fd. stub 0: a call of this process's. Else one of that thread's, whose
 * window is at `window` there and at `here` here. */
int fake_run(int fd, struct ib_uverbs_ioctl_hdr *h, pid_t stub, uint64_t window, void *here);
void fake_undo(void); /* a stub's that has not run after all; where there is one broker only */
static inline uint32_t fake_driver(void)
{
    return fake->driver ? fake->driver : RDMA_DRIVER_RXE;
}

/* verbs_fake_stub.c, for programs linked with --wrap=vb_stub_run: a call of the stub's that is let go on is played on
 * its window. What happens is fake->number[FAKE_MODE]; REAL: the true kernel's, of which the device is none of RDMA. */
#define FAKE_MODE 15
enum { RUNS, REAL, HANGS };

/* The kernel's eventfds, of the values 7 and 9, made before there is a filter. */
extern int fake_channel, fake_events;

/* Once, first: skips the test where it cannot be. */
void fake_start(void);
void fake_end(void);

/* Brokers have their filter of system calls, but for builds with AddressSanitizer, whose LeakSanitizer traces at
 * exit(): where this is true they have it there, too, and leaks of theirs are not looked for. */
extern bool world_guarded;

struct world {
    pid_t broker, app;
    int stop;   /* written to end the broker */
    int status; /* the app's, when it has ended */
    char id[32];
};
/* A program under the filter that runs fn and exits with what it returns, and its broker. killable false: without
 * WAIT_KILLABLE_RECV. */
void world_start(struct world *w, const char *policy, bool killable, int (*fn)(void *), void *arg);
/* If not NULL: what programs do before they have the filter. Not 0: no program. */
extern int (*world_before)(void);
/* The program's exit status (128 + signal); -1: it has not ended within the deadline, and is killed. */
int world_app(struct world *w);
/* Ends and takes up the broker: its exit status. */
int world_end(struct world *w);
/* A number of the broker's status: "opens", "refused" ..., or of device fake0 by "fake0.opens", "fake0.pd"; -1: none.
 */
long world_status(const struct world *w, const char *what);
/* Waits until it is so. */
bool world_becomes(const struct world *w, const char *what, long value);
unsigned world_fds(const struct world *w); /* the broker's, once it has come to rest */
long world_kb(const struct world *w);      /* its private memory */
const char *world_audit(void);             /* what all brokers audited */

/* By SCM_RIGHTS. -errno; the descriptor, or -1. */
int fd_send(int to, int fd);
int fd_take(int from);

/* Waits until the program is at step n; false: it has ended before, or does not get there. */
bool world_until(struct world *w, int n);
void fake_reset(void); /* between tests */

/* Programs' side. 0 or -errno. */
void app_step(int n); /* it is here, and waits until fake->go is n */
/* In a program's function: 0 is returned only if all of it holds. */
#define must(x)                                                                                \
    do {                                                                                       \
        if (!(x)) {                                                                            \
            fprintf(stderr, "# line %d: %s (errno %s)\n", __LINE__, #x, hw_errno_name(errno)); \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)
int app_open(int device);
int app_write_cmd(int fd, uint32_t command, const void *in, size_t in_len, void *out, size_t out_len);
int app_ioctl(int fd, uint16_t object, uint16_t method, struct ib_uverbs_attr *attr, unsigned n);
int app_pd(int fd, uint32_t *number);     /* ALLOC_PD */
int app_pd_free(int fd, uint32_t number); /* PD_DESTROY */
int app_context(int fd);                  /* GET_CONTEXT */
int app_channel(int fd);                  /* its descriptor */
int app_post(int fd, uint32_t wr_count);  /* write(POST_SEND) */
int app_reg(int fd, void *at, uint64_t length, struct ib_uverbs_reg_mr_resp *resp);
int app_dereg(int fd, uint32_t number); /* MR_DESTROY */
/* The method REG_MR, Linux 6.17; *number is the MR's. */
int app_reg_method(int fd, void *at, uint64_t length, uint32_t *number);

#endif
