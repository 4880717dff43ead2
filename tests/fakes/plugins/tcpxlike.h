/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl-net-tcpxlike.so: a net plugin for tests that behaves like GPUDirect-TCPX according to its documentation,
 * including its pitfalls, over plain TCP sockets, with host memory or with CUDA memory of the driver that
 * HAWSER_CUDA_LIBRARY names. Written from facts about that plugin's contract, without its code.
 *
 * It exports only ncclNetPlugin_v7. A host must know the following:
 * - The handle of listen uses 88 bytes. At offset 80 it holds a pointer of this process. connect crashes if the pointer
 *   is neither NULL nor the one that an earlier call of this connect stored.
 * - connect and accept need several calls, with the same handle. accept writes 32 bytes to **rdev, and crashes if *rdev
 *   is NULL.
 * - A listen comm gives one recv comm. A CUDA device must be set in listen, connect and regMr of CUDA memory.
 * - regMr accepts CUDA memory only if it is aligned to 4096 bytes and belongs to the GPU that was set in listen or
 *   connect.
 * - A comm has 16 requests. test frees a send when it reports the send as done; irecvConsumed frees a receive. If none
 *   is free, isend and irecv return ncclInternalError. So does every call that fails.
 * - Only test moves data. Among the requests that are not done, only the oldest may be tested. irecvConsumed must also
 *   take the oldest first. test never writes *size. Tags are ignored.
 * - The sender determines a message's size. If it exceeds the posted size, the plugin calls exit(1), where
 *   GPUDirect-TCPX would write past the end.
 * - A receive into CUDA memory leaves fragments in a bounce buffer, and lists them in struct netUnpackMeta (abi.h). A
 *   seed determines their order and odd lengths. More than 2048 fragments cause exit(1). All comms that receive on a
 *   GPU share the pages of its bounce buffer. Scattered data from this machine itself never arrives, whichever of its
 *   addresses is used, and no call fails.
 * - accept sleeps for 5 s in the call that has the connection, so that the flow rules take effect. Several threads may
 *   make calls for different comms. Each call of connect waits for a limited time for the other side's accept.
 * - iflush crashes. Zero-byte tasks break the connection, unless NCCL_DYNAMIC_CHUNK_SIZE is set.
 *
 * Environment. The plugin aborts at most values that it does not understand.
 *   NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo  the interfaces that are the devices, separated by commas
 *   NCCL_SOCKET_NTHREADS=1, NCCL_NSOCKS_PERTHREAD=1   their product, 8 at most, is a comm's number of data connections
 *   NCCL_DYNAMIC_CHUNK_SIZE=0     bytes of a task; 0: an equal share for each data connection, which may be 0 bytes
 *   NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=5000000   the time that accept sleeps
 *   TCPXLIKE_CONNECT_MICROS=200000   the time that a call of connect waits for the other side's accept
 *   TCPXLIKE_LOOPBACK=0           scattered receives from this machine: 0: never arrive; 1: work; exit: exit(1)
 *   TCPXLIKE_UNPACK_HOST=0        1: receives into host memory are scattered too; CUDA memory cannot be registered
 *   TCPXLIKE_SEED=1               seed of the fragments
 *   TCPXLIKE_FRAG=4096            largest length of a fragment, 1 to 4096
 *   TCPXLIKE_POOL=256             MiB of a GPU's bounce buffer; each recv comm needs 8, unless there is only one
 *   TCPXLIKE_NAME=                the name of all devices, instead of their interfaces' names
 *   TCPXLIKE_RETRIES=3            minimum number of calls of connect and of accept before the one that succeeds
 *   TCPXLIKE_CLEAN_HANDLE=0       1: listen stores 0 at offset 80 of the handle (NCCL itself does not clean handles)
 *   TCPXLIKE_CHUNK_TRAP=1         0: there are no zero-byte tasks for data
 *   TCPXLIKE_ONE_THREAD=0         1: most calls crash in a thread other than the one that called init
 *   TCPXLIKE_OVERSIZE=exit        deliver: a scattered message larger than posted is delivered, as by GPUDirect-TCPX
 *   TCPXLIKE_REPORT=file          at exit, appends a line with the open objects and the number of requests
 *   TCPXLIKE_FAULT=a,b            faults from this list; N counts the isends and irecvs of the process from 1, or only
 *                                 isends if :send follows, only irecvs if :recv follows
 *     stall@N   nothing moves on that comm any more       exit@N   exit(1), with a line in the log
 *     die@N     SIGKILL                                   crash@N  SIGSEGV
 *     error@N   its test returns ncclInternalError        nocmsg@N its test logs "rx no cmsg" and calls exit(1)
 *     slowaccept=MS  slowconnect=MS  noaccept  hang-init  hang-accept  exit-accept  fail-regmr
 */
#ifndef TCPXLIKE_H
#define TCPXLIKE_H

#include "mem/cuda.h"
#include "transport/netplugin/table/abi.h"
#include "wire.h"

#define MAX_REQUESTS NCCL_NET_DEVICE_UNPACK_MAX_QUEUE_DEPTH
#define MAX_FRAGS    NET_UNPACK_MAX_SLICE_PAGES
#define MAX_SOCKS    8 /* data connections of a comm */
#define MAX_TASKS    6 /* tasks of a socket */
#define MAX_DEVICES  8
#define PAGE         4096u /* bytes of a page of a bounce buffer */
#define PLAN         64    /* fragments planned ahead for a socket */

/* Faults of a request. */
enum {
    FAULT_STALL = 1 << 0,
    FAULT_DIE = 1 << 1,
    FAULT_CRASH = 1 << 2,
    FAULT_EXIT = 1 << 3,
    FAULT_ERROR = 1 << 4,
    FAULT_NOCMSG = 1 << 5,
};

struct tcpx_options {
    unsigned socks, chunk, retries, frag, pool;
    unsigned steering_us, connect_us;
    uint64_t seed;
    enum { LOOPBACK_SILENT, LOOPBACK_WORKS, LOOPBACK_EXITS } loopback;
    bool unpack_host, clean_handle, chunk_trap, deliver_oversize, one_thread;
    bool no_accept, hang_init, hang_accept, exit_accept, fail_regmr;
    unsigned slow_accept, slow_connect; /* ms */
    unsigned devices;
    char interface[MAX_DEVICES][32];
};
extern struct tcpx_options tcpx_opt;

/* ---- tcpxlike_env.c ---- */
void tcpx_read_environment(ncclDebugLogger_t log);
/* With TCPXLIKE_ONE_THREAD, crashes unless the thread that called init calls it. */
void tcpx_check_thread(void);
/* Counts an isend or irecv, and returns its faults. */
unsigned tcpx_faults_now(bool sends);
void tcpx_log(ncclDebugLogLevel level, int line, const char *fmt, ...) HW_PRINTF(3, 4);
#define WARN(...) tcpx_log(NCCL_LOG_WARN, __LINE__, __VA_ARGS__)
#define INFO(...) tcpx_log(NCCL_LOG_INFO, __LINE__, __VA_ARGS__)
/* Logs a line and returns ncclInternalError, as GPUDirect-TCPX does for all errors. */
#define FAIL(...) (WARN(__VA_ARGS__), ncclInternalError)
/* Log a line, and abort or exit. */
#define CRASH(...) (WARN(__VA_ARGS__), abort())
#define LEAVE(...) (WARN(__VA_ARGS__), exit(1))
/* Counters for TCPXLIKE_REPORT. */
extern _Atomic int tcpx_listens, tcpx_comms, tcpx_regs;
extern _Atomic unsigned tcpx_cuda; /* requests with CUDA memory */

/* ---- tcpxlike_bounce.c ---- */

/* The GPU that was set in listen or connect. ctx is NULL if none was set. */
struct gpu_side {
    const struct hw_cuda *cu;
    CUcontext ctx;
    int device;
    CUstream stream;
};
/* Stores the calling thread's device, if there is a driver and a device is set. */
void tcpx_gpu_now(struct gpu_side *out);
ncclResult_t tcpx_gpu_open(struct gpu_side *g);
void tcpx_gpu_close(struct gpu_side *g);
/* Allocate and free pages of host memory, which the GPU, if any, can access. */
void *tcpx_pages_alloc(const struct gpu_side *g, size_t len);
void tcpx_pages_free(const struct gpu_side *g, void *p, size_t len);
ncclResult_t tcpx_load(const struct gpu_side *g, void *host, const void *from, size_t len);

/* The pages of a GPU or of the host, which all comms that receive there share. */
struct pool {
    struct pool *next;
    int device; /* -1 for the host */
    unsigned users;
    struct gpu_side gpu;
    uint8_t *host;    /* the buffer; for a buffer on the GPU, its copy in host memory */
    CUdeviceptr base; /* the address for the reader of the fragments */
    size_t len;
    uint32_t *free, n_free; /* stack of free pages */
    uint64_t random;
};

struct bounce {
    struct gpu_side *gpu; /* NULL if all memory is host memory */
    struct netUnpackMeta *meta;
    struct pool *pool;
    void *device_handle;
    uint64_t random;
};
/* Takes a page for a request of a comm. Requests that are not the oldest leave enough pages for the oldest request of
 * each comm. Returns false if there is no page now. */
bool tcpx_page_take(struct pool *p, bool oldest, uint32_t *page);
void tcpx_page_give(struct pool *p, uint32_t page);
struct bounce *tcpx_bounce_open(struct gpu_side *gpu);
void tcpx_bounce_close(struct bounce *b);

/* ---- tcpxlike_move.c ---- */

struct registration {
    struct comm *comm;
    uint8_t *data;
    size_t len;
    int type;
};

struct request {
    struct comm *comm;
    uint64_t number; /* number in its comm, from 0 */
    uint8_t *data;   /* the posted buffer; for a send of CUDA memory, its copy in host memory */
    size_t size;     /* as posted */
    bool scattered, known;
    unsigned faults;
    size_t total, dealt, moved; /* bytes of the message; divided into tasks; transferred */
    unsigned tasks;
    uint8_t *staging;
    size_t staging_len;
    /* scattered */
    uint32_t n_frags;
    struct loadMeta *frag; /* in meta */
    uint32_t pages[MAX_FRAGS];
};

struct fragment {
    uint32_t src, len;
    uint64_t dst;
};

struct task {
    struct request *r;
    size_t off, len, moved;
};

struct data_socket {
    int fd;
    struct task task[MAX_TASKS]; /* a ring */
    unsigned first, n;
    /* state of the scattered receive of the first task */
    uint64_t random;
    size_t planned; /* bytes that have a place */
    struct fragment plan[PLAN];
    unsigned plan_first, plan_n;
    uint32_t plan_have; /* bytes used of the first planned fragment */
};

struct comm {
    bool sends, loopback, broken, stalled;
    int control;
    unsigned n_socks, next_sock;
    struct data_socket sock[MAX_SOCKS];
    struct wire_msg header; /* header of the task that is being announced */
    bool header_full;
    /* Requests by number: [consumed, done) have ended, [done, posted) are in progress, and requests from `announce` on
     * have tasks to announce. A send is consumed when it is done. */
    uint64_t posted, announce, done, consumed;
    struct request request[MAX_REQUESTS];
    struct gpu_side gpu;
    struct bounce *bounce;
    ncclNetDeviceHandle_v7_t *device;
};

struct comm *tcpx_comm_new(bool sends, int control, const int *data, unsigned n, const struct gpu_side *gpu);
void tcpx_comm_free(struct comm *c);

ncclResult_t tcpx_isend(void *comm, void *data, int size, int tag, void *mhandle, void **request);
ncclResult_t tcpx_irecv(void *comm, int n, void **data, int *sizes, int *tags, void **mhandles, void **request);
ncclResult_t tcpx_iflush(void *comm, int n, void **data, int *sizes, void **mhandles, void **request);
ncclResult_t tcpx_test(void *request, int *done, int *size);
ncclResult_t tcpx_irecv_consumed(void *comm, int n, void *request);

/* ---- tcpxlike_connect.c ---- */
ncclResult_t tcpx_listen(int dev, void *handle, void **comm);
ncclResult_t tcpx_connect(int dev, void *handle, void **comm, ncclNetDeviceHandle_v7_t **device);
ncclResult_t tcpx_accept(void *listener, void **comm, ncclNetDeviceHandle_v7_t **device);
ncclResult_t tcpx_close_listen(void *listener);

#endif
