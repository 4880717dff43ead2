/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the verbs broker: a fake RDMA kernel whose device nodes are /dev/null and /dev/zero, brokers in separate
 * processes, and programs under the real filter. */
#ifndef VERBS_FAKE_H
#define VERBS_FAKE_H

#include "verbs/broker/broker.h"
#include "verbs/schema/newer.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <stdatomic.h>
#include <sys/types.h>

#define FAKE_DMABUF  "a dma-buf" /* start of a file that represents a dma-buf */
#define FAKE_TOKEN   1000        /* added to a queue's number in UHW_OUT */
#define FAKE_FILES   256
#define FAKE_OPS     4096
#define FAKE_NUMBERS 4096

struct fake_op {
    bool taken; /* false if the request was refused because of `fail` or the driver */
    uint16_t object, method;
    uint32_t command;
    uint32_t len; /* length of the input, whose first bytes are in `in` */
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

/* State that the test, its brokers and its programs share. */
struct fake {
    atomic_int fail;    /* -errno for every request, or 0 */
    atomic_int ms;      /* delay of each request in ms */
    atomic_uint driver; /* enum rdma_driver_id of all devices; 0 means rxe */
    atomic_int breach;  /* enum fake_breach: forbidden action that the broker attempts in each request */
    atomic_uint ran;    /* number of requests that reached the kernel */
    atomic_uint
        wrong; /* requests that no broker may send: malformed ones, and ones that would pin the broker's memory */
    atomic_uint live;     /* number of objects that exist in the kernel */
    atomic_long mr_bytes; /* bytes of MRs that exist in the kernel */
    atomic_int go, seen;  /* used by the test */
    atomic_long number[16];
    struct fake_op op[FAKE_OPS]; /* the latest requests, indexed by ran % FAKE_OPS */
    unsigned n_files;            /* number of different device files so far */
    struct fake_file {
        dev_t dev;
        ino_t ino;
        uint32_t next;
        uint8_t type[FAKE_NUMBERS];                        /* type of object i; 0 if unused */
        uint64_t length[FAKE_NUMBERS], iova[FAKE_NUMBERS]; /* for MRs */
    } file[FAKE_FILES];
};
extern struct fake *fake;
extern const struct vb_kernel fake_kernel; /* "fake0", uverbs0, is /dev/null; "fake1", uverbs1, is /dev/zero */

/* Runs the request at h on a device's file descriptor. stub is 0 for a call by this process, or else the stub's thread,
 * whose window is at `window` in the stub's process and at `here` in this process. */
int fake_run(int fd, struct ib_uverbs_ioctl_hdr *h, pid_t stub, uint64_t window, void *here);
void fake_undo(void); /* undoes a stub's latest request, if only one broker runs */
static inline uint32_t fake_driver(void)
{
    return fake->driver ? fake->driver : RDMA_DRIVER_RXE;
}

/* Defined in verbs_fake_stub.c, for programs linked with --wrap=vb_stub_run: runs the stub's call on its window.
 * fake->number[FAKE_MODE] selects the behaviour. With REAL, the real kernel runs the call, and does not treat the
 * device as an RDMA device. */
#define FAKE_MODE 15
enum { RUNS, REAL, HANGS };

/* The fake kernel's eventfds, with the values 7 and 9, created before a filter is installed. */
extern int fake_channel, fake_events;

/* fake_start() must be called first, exactly once. It skips the test if the system cannot run it. */
void fake_start(void);
void fake_end(void);

/* True if brokers run with their system call filter. The default is true, except in builds with AddressSanitizer,
 * because LeakSanitizer uses ptrace at exit(). If such a build sets it to true, the brokers' leaks are not checked. */
extern bool world_guarded;

struct world {
    pid_t broker, app;
    int stop;   /* writing to it ends the broker */
    int status; /* the program's status, after the program has ended */
    char id[32];
};
/* Starts a broker, and a program under the filter that runs fn and exits with its result. killable: uses
 * WAIT_KILLABLE_RECV. */
void world_start(struct world *w, const char *policy, bool killable, int (*fn)(void *), void *arg);
/* If not NULL, programs call this function before the filter is installed. A nonzero result ends the test. */
extern int (*world_before)(void);
/* Returns the program's exit status (128 + signal), or -1 if the program was killed because the deadline expired. */
int world_app(struct world *w);
/* Ends the broker and returns its exit status in the form of world_app(). */
int world_end(struct world *w);
/* Returns a number from the broker's status, such as "opens" or, for device fake0, "fake0.opens" and "fake0.pd".
 * Returns -1 if the entry or the device does not exist. */
long world_status(const struct world *w, const char *what);
/* Waits until a number in the broker's status has this value. Returns false if the wait times out. */
bool world_becomes(const struct world *w, const char *what, long value);
unsigned world_fds(const struct world *w); /* number of the broker's file descriptors, once it is stable */
long world_kb(const struct world *w);      /* the broker's anonymous memory in KiB, or -1 */
const char *world_audit(void);             /* audit log of all brokers */

/* Pass a file descriptor with SCM_RIGHTS. fd_send() returns 0 or -errno; fd_take() returns the file descriptor or
 * -1. */
int fd_send(int to, int fd);
int fd_take(int from);

/* Waits until the program has reached step n. Returns false if the program ends first or the wait times out. */
bool world_until(struct world *w, int n);
void fake_reset(void); /* for use between tests */

/* Functions for programs. Unless stated otherwise, functions with a result return 0 or -errno. */
void app_step(int n); /* reports step n, and waits until fake->go equals n */
/* Makes the calling function return a nonzero value if x is false. */
#define must(x)                                                                                \
    do {                                                                                       \
        if (!(x)) {                                                                            \
            fprintf(stderr, "# line %d: %s (errno %s)\n", __LINE__, #x, hw_errno_name(errno)); \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)
int app_open(int device); /* returns the device's file descriptor or -errno */
int app_write_cmd(int fd, uint32_t command, const void *in, size_t in_len, void *out, size_t out_len);
int app_ioctl(int fd, uint16_t object, uint16_t method, struct ib_uverbs_attr *attr, unsigned n);
int app_pd(int fd, uint32_t *number);     /* ALLOC_PD */
int app_pd_free(int fd, uint32_t number); /* PD_DESTROY */
int app_context(int fd);                  /* GET_CONTEXT */
int app_channel(int fd);                  /* returns the channel's file descriptor or -errno */
int app_post(int fd, uint32_t wr_count);  /* write(POST_SEND); returns like write(), or -errno */
int app_reg(int fd, void *at, uint64_t length, struct ib_uverbs_reg_mr_resp *resp);
int app_dereg(int fd, uint32_t number); /* MR_DESTROY */
/* Uses the REG_MR method of Linux 6.17. Stores the MR's number in *number. */
int app_reg_method(int fd, void *at, uint64_t length, uint32_t *number);

#endif
