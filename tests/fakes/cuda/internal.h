/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKECUDA_INTERNAL_H
#define FAKECUDA_INTERNAL_H

#include "fakecuda.h"

#include <pthread.h>

/* The entry points with their real symbol names and the prototypes of lib/mem/cuda.h. */
#define X(name, symbol, params) FAKECUDA_API CUresult fake_##name params __asm__(symbol);
HW_CUDA_CALLS(X)
#undef X

enum { /* further constants from the driver API's reference manual */
       CUDA_ERROR_INVALID_CONTEXT = 201,
       CUDA_ERROR_INVALID_HANDLE = 400,
       CUDA_ERROR_NOT_FOUND = 500,
       CUDA_ERROR_ILLEGAL_ADDRESS = 700,
       CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
};

#define MAX_GPUS 16

struct gpu {
    char *base;  /* start of the GPU's address range, which is PROT_NONE */
    char *alias; /* the same memory, accessible to the fake driver */
    int fd;
    uint64_t copies, stall_at; /* stall_at: number of the copy before which the GPU hangs; 0: never */
    bool stalled;
};

struct CUctx_st {
    struct CUctx_st *next;
    int device;
    bool primary;
    CUresult broken;
    CUstream null_stream;
};

enum kind { DEVICE = 1, HOST, MANAGED };

struct range {
    struct range *next; /* sorted by address */
    uint64_t start, len;
    uint64_t id;             /* unique */
    uint64_t area, area_len; /* reserved address range around a mapping; 0 if none */
    enum kind kind;
    int device;
    CUcontext ctx;
    bool mapped, owned; /* mapped: host memory with a device address; owned: the fake driver unmaps it */
    char *imported;     /* CPU address of memory that another process exported */
};

extern struct gpu fake_gpus[MAX_GPUS];
extern struct fakecuda_counts fake_counts;
extern unsigned fake_copy_us;
extern pthread_mutex_t fake_lock; /* fake_enter() takes it */

/* Takes the lock. If this call has to fail, releases the lock and returns the call's error code. */
CUresult fake_enter(const char *symbol);
/* Counts a misuse. */
CUresult fake_misuse(CUresult rc);
/* Releases the lock and returns rc. */
CUresult fake_leave(CUresult rc);
/* Returns the thread's context. If the thread has no valid context, counts a misuse and returns NULL. */
CUcontext fake_current(void);

/* Returns the range that contains this address, or NULL. The caller holds the lock. */
struct range *fake_range(uint64_t at);
struct range *fake_range_add(struct range r);
void fake_range_remove(struct range *r);
enum place { NOWHERE, PAGEABLE, PINNED, ON_DEVICE };
/* Returns the kind of memory at [ptr, ptr+len), and its address for the CPU. */
enum place fake_place(uint64_t ptr, size_t len, char **cpu);
void fake_streams_wake(void);
void fake_streams_forget(CUcontext ctx);

#define ENTER(symbol)                           \
    do {                                        \
        CUresult entered_ = fake_enter(symbol); \
        if (entered_)                           \
            return entered_;                    \
    } while (0)

/* Enters a call that needs a context, and sets ctx. */
#define ENTER_CONTEXT(symbol, ctx)                     \
    ENTER(symbol);                                     \
    CUcontext ctx = fake_current();                    \
    if (!(ctx))                                        \
        return fake_leave(CUDA_ERROR_INVALID_CONTEXT); \
    if ((ctx)->broken)                                 \
    return fake_leave((ctx)->broken)

#endif
