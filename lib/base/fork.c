/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fork.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MOST (1u << 20) /* the kernel's default of fs.nr_open; higher descriptors are not guarded */
#define BITS 64

/* One bit for each descriptor. The array is static, so that untouched pages use no memory and a child can read the bits
 * regardless of what its parent's other threads did during fork(). */
static _Atomic uint64_t guarded[MOST / BITS];
static _Atomic unsigned end; /* number of words used so far */

static void close_in_child(void)
{
    for (unsigned i = 0; i < atomic_load(&end); i++) {
        uint64_t bits = atomic_exchange(&guarded[i], 0);
        for (; bits; bits &= bits - 1)
            close((int)(i * BITS + (unsigned)__builtin_ctzll(bits)));
    }
}

static void install(void)
{
    (void)pthread_atfork(NULL, NULL,
                         close_in_child); /* if there is no memory for the handler, children keep their copies */
}

int hw_fork_guard(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (fd < 0 || (unsigned)fd >= MOST)
        return fd;
    (void)pthread_once(&once, install);
    unsigned word = (unsigned)fd / BITS, n = atomic_load(&end);
    while (n <= word && !atomic_compare_exchange_weak(&end, &n, word + 1))
        ;
    atomic_fetch_or(&guarded[word], 1ull << (unsigned)fd % BITS);
    return fd;
}

void hw_fork_release(int fd)
{
    if (fd >= 0 && (unsigned)fd < MOST)
        atomic_fetch_and(&guarded[(unsigned)fd / BITS], ~(1ull << (unsigned)fd % BITS));
}

void hw_fork_close(int *fd)
{
    hw_fork_release(*fd);
    hw_close(fd);
}
