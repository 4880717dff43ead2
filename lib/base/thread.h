/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own, and waiting with a deadline in hw_now() terms. */
#ifndef HW_THREAD_H
#define HW_THREAD_H

#include "base/base.h"

#include <pthread.h>

/* Starts a thread that blocks all signals: they are the application's business. what: "a progress thread", for the
 * error text. 0 or -errno. */
int hw_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg, const char *what);
/* Makes a lock that is held for less time than a system call takes: who finds it taken looks again before he sleeps. */
void hw_lock_init(pthread_mutex_t *lock);
/* Makes a condition for pthread_cond_timedwait() with the times of hw_timespec(). */
void hw_cond_init(pthread_cond_t *cond);
/* The time `at` of hw_now(), or in an hour where that is later: the kernel takes no time for nonsense. */
struct timespec hw_timespec(uint64_t at);

#endif
