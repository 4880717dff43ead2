/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl-net-tcpxlike.so: a net plugin for tests that behaves like GPUDirect-TCPX according to its documentation,
 * including its pitfalls. It uses plain TCP sockets, and host memory or CUDA memory of the driver that
 * HAWSER_CUDA_LIBRARY names. Written from the documented behaviour of GPUDirect-TCPX, without its code.
 *
 * The plugin exports only ncclNetPlugin_v7. A host must know the following:
 * - The handle that listen returns uses 88 bytes. Offset 80 holds a pointer that is valid only in this process. connect
 *   crashes if the pointer is neither NULL nor a pointer that an earlier call for the same connection stored.
 * - connect and accept both need several calls with the same handle. accept writes 32 bytes to **rdev, and crashes
 *   if *rdev is NULL.
 * - A listen comm creates only one recv comm. A CUDA device must be set in listen, connect and regMr of CUDA memory.
 * - regMr accepts CUDA memory only if it is aligned to 4096 bytes and belongs to the GPU that was set in listen or
 *   connect.
 * - A comm has 16 requests. test frees a send when it reports the send as done; irecvConsumed frees a receive. If no
 *   request is free, isend and irecv return ncclInternalError. All other failing calls return the same error.
 * - Only test moves data. Among the requests that are not done, only the oldest may be tested. irecvConsumed must also
 *   be called for the oldest receive first. test never writes *size. Tags are ignored.
 * - The sender determines a message's size. If the message is larger than the posted buffer, this plugin calls exit(1),
 *   but GPUDirect-TCPX would write past the end of the buffer.
 * - A receive into CUDA memory leaves fragments in a bounce buffer, and lists them in struct netUnpackMeta (abi.h). A
 *   seed determines their order and odd lengths. More than 2048 fragments cause exit(1). All comms that receive on a
 *   GPU share the pages of its bounce buffer. Scattered data that this machine sends to itself never arrives, whichever
 *   address is used, although no call fails.
 * - The call of accept that returns the connection first sleeps for 5 s, until the flow rules take effect. Several
 *   threads may make calls for different comms. Each call of connect waits for the other side's accept, with a time
 *   limit.
 * - iflush crashes. Zero-byte tasks break the connection, unless NCCL_DYNAMIC_CHUNK_SIZE is set.
 *
 * Environment variables. The plugin aborts on most invalid values.
 *   NCCL_GPUDIRECTTCPX_SOCKET_IFNAME=lo  comma-separated interfaces, which are the devices
 *   NCCL_SOCKET_NTHREADS=1, NCCL_NSOCKS_PERTHREAD=1   the product is the number of data connections per comm, at most 8
 *   NCCL_DYNAMIC_CHUNK_SIZE=0     bytes per task; 0: an equal share for each data connection, which may be 0 bytes
 *   NCCL_GPUDIRECTTCPX_PROGRAM_FLOW_STEERING_WAIT_MICROS=5000000   duration of the sleep in accept
 *   TCPXLIKE_CONNECT_MICROS=200000   how long a call of connect waits for the other side's accept
 *   TCPXLIKE_LOOPBACK=0           scattered data from this machine: 0 never arrives, 1 arrives, exit causes exit(1)
 *   TCPXLIKE_UNPACK_HOST=0        1: also scatters receives into host memory; CUDA memory cannot be registered
 *   TCPXLIKE_SEED=1               seed of the fragments
 *   TCPXLIKE_FRAG=4096            largest length of a fragment, 1 to 4096
 *   TCPXLIKE_POOL=256             MiB of a GPU's bounce buffer; each recv comm needs 8, unless there is only one
 *   TCPXLIKE_NAME=                name of all devices, instead of the names of their interfaces
 *   TCPXLIKE_RETRIES=3            minimum number of calls of connect and of accept before a call succeeds
 *   TCPXLIKE_CLEAN_HANDLE=0       1: listen stores 0 at offset 80 of the handle (NCCL itself does not clean handles)
 *   TCPXLIKE_CHUNK_TRAP=1         0: no zero-byte tasks for messages that have data
 *   TCPXLIKE_ONE_THREAD=0         1: most calls crash in a thread other than the one that called init
 *   TCPXLIKE_OVERSIZE=exit        deliver: scattered messages larger than posted are delivered, as in GPUDirect-TCPX
 *   TCPXLIKE_REPORT=file          at exit, appends a line with the open objects and the number of requests
 *   TCPXLIKE_FAULT=a,b            faults from this list; N is the number of an isend or irecv in the process, from 1.
 *                                 With N:send or N:recv, only isends or only irecvs are counted.
 *     stall@N   the comm stops moving data                exit@N   exit(1), with a line in the log
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
#define MAX_SOCKS    8 /* data connections per comm */
#define MAX_TASKS    6 /* tasks per data connection */
#define MAX_DEVICES  8
#define PAGE         4096u /* bytes per page of a bounce buffer */
#define PLAN         64    /* maximum number of fragments planned ahead per data connection */

/* Faults of a single request. */
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
/* With TCPXLIKE_ONE_THREAD, crashes if called in a thread other than the one that called init. */
void tcpx_check_thread(void);
/* Counts an isend or irecv, and returns the faults for it. */
unsigned tcpx_faults_now(bool sends);
void tcpx_log(ncclDebugLogLevel level, int line, const char *fmt, ...) HW_PRINTF(3, 4);
#define WARN(...) tcpx_log(NCCL_LOG_WARN, __LINE__, __VA_ARGS__)
#define INFO(...) tcpx_log(NCCL_LOG_INFO, __LINE__, __VA_ARGS__)
/* Logs a line and returns ncclInternalError, the only error that GPUDirect-TCPX returns. */
#define FAIL(...) (WARN(__VA_ARGS__), ncclInternalError)
/* Log a line, and abort (CRASH) or exit (LEAVE). */
#define CRASH(...) (WARN(__VA_ARGS__), abort())
#define LEAVE(...) (WARN(__VA_ARGS__), exit(1))
/* Counters for TCPXLIKE_REPORT. */
extern _Atomic int tcpx_listens, tcpx_comms, tcpx_regs;
extern _Atomic unsigned tcpx_cuda; /* number of requests with CUDA memory */

/* ---- tcpxlike_bounce.c ---- */

/* The GPU that was current in listen or connect. ctx is NULL if no GPU was current. */
struct gpu_side {
    const struct hw_cuda *cu;
    CUcontext ctx;
    int device;
    CUstream stream;
};
/* Stores the calling thread's current device, if there is a CUDA driver and a current device. */
void tcpx_gpu_now(struct gpu_side *out);
ncclResult_t tcpx_gpu_open(struct gpu_side *g);
void tcpx_gpu_close(struct gpu_side *g);
/* Allocate and free pages of host memory that the GPU, if any, can access. */
void *tcpx_pages_alloc(const struct gpu_side *g, size_t len);
void tcpx_pages_free(const struct gpu_side *g, void *p, size_t len);
ncclResult_t tcpx_load(const struct gpu_side *g, void *host, const void *from, size_t len);

/* The bounce-buffer pages of a GPU or of the host, shared by all comms that receive there. */
struct pool {
    struct pool *next;
    int device; /* -1 for the host */
    unsigned users;
    struct gpu_side gpu;
    uint8_t *host;    /* the buffer; for a GPU's buffer, its copy in host memory */
    CUdeviceptr base; /* the buffer's address for the reader of the fragments */
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
/* Takes a free page for a request of a comm. Unless the request is the comm's oldest, leaves enough pages for the
 * oldest request of each comm. Returns false if no page is available. */
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
    uint64_t number; /* the request's number in its comm, from 0 */
    uint8_t *data;   /* the posted buffer; for a send of CUDA memory, its copy in host memory */
    size_t size;     /* as posted */
    bool scattered, known;
    unsigned faults;
    size_t total, dealt, moved; /* bytes: of the message; divided into tasks; transferred */
    unsigned tasks;
    uint8_t *staging;
    size_t staging_len;
    /* for scattered receives */
    uint32_t n_frags;
    struct loadMeta *frag; /* points into meta */
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
    struct task task[MAX_TASKS]; /* ring buffer */
    unsigned first, n;
    /* state of the first task, if it belongs to a scattered receive */
    uint64_t random;
    size_t planned; /* number of bytes that have a planned place */
    struct fragment plan[PLAN];
    unsigned plan_first, plan_n;
    uint32_t plan_have; /* bytes of the first planned fragment that have arrived */
};

struct comm {
    bool sends, loopback, broken, stalled;
    int control;
    unsigned n_socks, next_sock;
    struct data_socket sock[MAX_SOCKS];
    struct wire_msg header; /* header of the task that is currently being announced */
    bool header_full;
    /* Ranges of request numbers: [consumed, done) are complete, [done, posted) are in progress, and requests from
     * `announce` on still have tasks to announce. A send is consumed when it is done. */
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
