/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of the verbs broker: a fake RDMA kernel behind device nodes of /dev/null and /dev/zero, brokers in separate
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

#define FAKE_DMABUF  "a dma-buf" /* the beginning of a file that represents a dma-buf */
#define FAKE_TOKEN   1000        /* added to a queue's number in UHW_OUT */
#define FAKE_FILES   256
#define FAKE_OPS     4096
#define FAKE_NUMBERS 4096

struct fake_op {
    bool taken; /* false: refused because of `fail` or the driver */
    uint16_t object, method;
    uint32_t command;
    uint32_t len; /* length of the input; `in` has its beginning */
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
    atomic_int breach;  /* what the broker does in each request although its filter forbids it: enum fake_breach */
    atomic_uint ran;    /* requests that reached the kernel */
    atomic_uint
        wrong; /* requests that no broker may send: malformed ones, and those that would pin the broker's memory */
    atomic_uint live;     /* objects that exist in the kernel */
    atomic_long mr_bytes; /* bytes of MRs that exist in the kernel */
    atomic_int go, seen;  /* for the test */
    atomic_long number[16];
    struct fake_op op[FAKE_OPS]; /* the latest requests, indexed by ran % FAKE_OPS */
    unsigned n_files;            /* different files so far */
    struct fake_file {
        dev_t dev;
        ino_t ino;
        uint32_t next;
        uint8_t type[FAKE_NUMBERS];                        /* type of number i; 0 if unused */
        uint64_t length[FAKE_NUMBERS], iova[FAKE_NUMBERS]; /* of an MR */
    } file[FAKE_FILES];
};
extern struct fake *fake;
extern const struct vb_kernel fake_kernel; /* "fake0", uverbs0, is /dev/null; "fake1", uverbs1, is /dev/zero */

/* Runs the request at h on the file descriptor of a device. stub is 0 for a call of this process, or else the stub's
 * thread, whose window is at `window` in its process and at `here` in this one. */
int fake_run(int fd, struct ib_uverbs_ioctl_hdr *h, pid_t stub, uint64_t window, void *here);
void fake_undo(void); /* undoes a stub's latest request; for a single broker */
static inline uint32_t fake_driver(void)
{
    return fake->driver ? fake->driver : RDMA_DRIVER_RXE;
}

/* verbs_fake_stub.c, for programs linked with --wrap=vb_stub_run: runs the stub's call on its window.
 * fake->number[FAKE_MODE] selects the behaviour; REAL lets the real kernel run it, for which the device is not an RDMA
 * device. */
#define FAKE_MODE 15
enum { RUNS, REAL, HANGS };

/* The kernel's eventfds with the values 7 and 9, created before there is a filter. */
extern int fake_channel, fake_events;

/* Call fake_start() once, first. It skips the test if the test is impossible here. */
void fake_start(void);
void fake_end(void);

/* True if brokers have their filter of system calls, which is so except in builds with AddressSanitizer, because
 * LeakSanitizer uses ptrace at exit(). If it is set in such a build, brokers have the filter and their leaks are not
 * checked. */
extern bool world_guarded;

struct world {
    pid_t broker, app;
    int stop;   /* a write ends the broker */
    int status; /* the program's status, after its end */
    char id[32];
};
/* Starts a program under the filter, which runs fn and exits with its result, and its broker. killable: with
 * WAIT_KILLABLE_RECV. */
void world_start(struct world *w, const char *policy, bool killable, int (*fn)(void *), void *arg);
/* If not NULL, programs call it before they have the filter. A nonzero result ends the test. */
extern int (*world_before)(void);
/* Returns the program's exit status (128 + signal), or -1 if it has not ended within the deadline and was killed. */
int world_app(struct world *w);
/* Ends the broker, and returns its exit status like world_app(). */
int world_end(struct world *w);
/* Returns a number of the broker's status, such as "opens" or, for device fake0, "fake0.opens" and "fake0.pd", or -1 if
 * the status or the device does not exist. */
long world_status(const struct world *w, const char *what);
/* Waits until a number of the status has this value. Returns false if that does not happen in time. */
bool world_becomes(const struct world *w, const char *what, long value);
unsigned world_fds(const struct world *w); /* number of the broker's file descriptors, once it is stable */
long world_kb(const struct world *w);      /* the broker's anonymous memory in KiB, or -1 */
const char *world_audit(void);             /* audit log of all brokers */

/* Pass a file descriptor with SCM_RIGHTS. fd_send() returns 0 or -errno; fd_take() returns the file descriptor or
 * -1. */
int fd_send(int to, int fd);
int fd_take(int from);

/* Waits until the program is at step n. Returns false if it ends before or does not get there in time. */
bool world_until(struct world *w, int n);
void fake_reset(void); /* between tests */

/* Functions for programs. Unless stated otherwise, those with a result return 0 or -errno. */
void app_step(int n); /* reports step n, and waits until fake->go is n */
/* In a program's function: returns a nonzero value if x is false. */
#define must(x)                                                                                \
    do {                                                                                       \
        if (!(x)) {                                                                            \
            fprintf(stderr, "# line %d: %s (errno %s)\n", __LINE__, #x, hw_errno_name(errno)); \
            return 1;                                                                          \
        }                                                                                      \
    } while (0)
int app_open(int device); /* the device's file descriptor or -errno */
int app_write_cmd(int fd, uint32_t command, const void *in, size_t in_len, void *out, size_t out_len);
int app_ioctl(int fd, uint16_t object, uint16_t method, struct ib_uverbs_attr *attr, unsigned n);
int app_pd(int fd, uint32_t *number);     /* ALLOC_PD */
int app_pd_free(int fd, uint32_t number); /* PD_DESTROY */
int app_context(int fd);                  /* GET_CONTEXT */
int app_channel(int fd);                  /* the channel's file descriptor or -errno */
int app_post(int fd, uint32_t wr_count);  /* write(POST_SEND); returns like write(), or -errno */
int app_reg(int fd, void *at, uint64_t length, struct ib_uverbs_reg_mr_resp *resp);
int app_dereg(int fd, uint32_t number); /* MR_DESTROY */
/* Uses the method REG_MR of Linux 6.17. *number is the MR's number. */
int app_reg_method(int fd, void *at, uint64_t length, uint32_t *number);

#endif
