/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"

#include <signal.h>
#include <string.h>

int hw_thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg, const char *what)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* the thread inherits the mask */
    int rc = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc ? hw_fail(-rc, "starting %s: %s", what, strerror(rc)) : 0;
}

void hw_lock_init(pthread_mutex_t *lock)
{
    pthread_mutexattr_t brief;
    pthread_mutexattr_init(&brief);
    pthread_mutexattr_settype(&brief, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(lock, &brief);
    pthread_mutexattr_destroy(&brief);
}

void hw_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

struct timespec hw_timespec(uint64_t at)
{
    at = HW_MIN(at, hw_now() + 3600000 * HW_MS);
    return (struct timespec){.tv_sec = (time_t)(at / 1000000000u), .tv_nsec = (long)(at % 1000000000u)};
}
