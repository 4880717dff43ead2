/* SPDX-License-Identifier: Apache-2.0 */
/* The library's own threads, and waiting with a deadline in hw_now() time. */
#ifndef HW_THREAD_H
#define HW_THREAD_H

#include "base/base.h"

#include <pthread.h>

/* Starts a thread that blocks all signals, because signals belong to the application. what: "a progress thread", for
 * the error text. 0 or -errno. */
int hw_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg, const char *what);
/* Makes a lock that is held for less time than a system call takes: a thread that finds it taken spins before it
 * sleeps. */
void hw_lock_init(pthread_mutex_t *lock);
/* Makes a condition for pthread_cond_timedwait() with times from hw_timespec(). */
void hw_cond_init(pthread_cond_t *cond);
/* Converts the hw_now() time `at`, limited to one hour from now: the kernel rejects absurd times. */
struct timespec hw_timespec(uint64_t at);

#endif
