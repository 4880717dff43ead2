/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, locks, and conditions with deadlines in hw_now() time. */
#ifndef HW_THREAD_H
#define HW_THREAD_H

#include "base/base.h"

#include <pthread.h>

/* Starts a thread that blocks all signals, because signals belong to the application. what describes the thread in the
 * error text, such as "a progress thread". Returns 0 or a negative errno. */
int hw_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg, const char *what);
/* Initializes a lock that is held only briefly. A thread that finds the lock taken spins before it sleeps. */
void hw_lock_init(pthread_mutex_t *lock);
/* Initializes a condition for pthread_cond_timedwait() with times from hw_timespec(). */
void hw_cond_init(pthread_cond_t *cond);
/* Converts the hw_now() time `at` to a timespec. The result is at most one hour from now. */
struct timespec hw_timespec(uint64_t at);

#endif
