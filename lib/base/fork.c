/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fork.h"
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MOST (1u << 20) /* the kernel's default of fs.nr_open; higher descriptors are not guarded */
#define BITS 64

/* One bit for each descriptor. The array is static, so that untouched pages use no memory and a child can read the bits
 * regardless of what its parent's other threads did during fork(). */
static _Atomic uint64_t guarded[MOST / BITS];
static _Atomic unsigned end;   /* number of words used so far */
static _Atomic unsigned forks; /* forks since the handler was installed, counted along the line of this process */

static void close_in_child(void)
{
    atomic_fetch_add(&forks, 1);
    for (unsigned i = 0; i < atomic_load(&end); i++) {
        uint64_t bits = atomic_exchange(&guarded[i], 0);
        for (; bits; bits &= bits - 1)
            close((int)(i * BITS + (unsigned)__builtin_ctzll(bits)));
    }
}

static void install_handler(void)
{
    (void)pthread_atfork(NULL, NULL,
                         close_in_child); /* if there is no memory for the handler, children keep their copies */
}

static void install(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, install_handler);
}

unsigned hw_fork_count(void)
{
    install();
    return atomic_load(&forks);
}

int hw_fork_guard(int fd)
{
    if (fd < 0 || (unsigned)fd >= MOST)
        return fd;
    install();
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
