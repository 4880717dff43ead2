/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What drives a loop: it waits for descriptors, for the next timer and for tasks that others post, and gives the loop
 * its turns. The only code of the engine that blocks. One thread at a time drives: one of the driver's own, or whoever
 * calls hw_driver_turn().
 */
#ifndef HW_DRIVER_H
#define HW_DRIVER_H

#include "core/loop.h"

#include <pthread.h>

struct hw_driver {
    struct hw_loop loop;

    /* the driver's own */
    int epoll, wake;
    atomic_bool asleep; /* about to block, or blocked */
    atomic_bool stop;
    bool has_thread;
    pthread_t thread;
};

/* Makes a driver and its loop. -errno. */
int hw_driver_init(struct hw_driver *d);
/* Frees both. Nobody drives any more. */
void hw_driver_free(struct hw_driver *d);

/* Starts a thread that drives until hw_driver_stop(); it takes no signals. name: up to 15 bytes. -errno. */
int hw_driver_start(struct hw_driver *d, const char *name);
/* Ends the thread, if there is one, and waits for it. Not on that thread. */
void hw_driver_stop(struct hw_driver *d);
/* Waits until there is something to do, or for the time `until` (ns, as hw_now()), and does it. */
void hw_driver_turn(struct hw_driver *d, uint64_t until);

/* From here on s->ready() is called, on the driver's thread, each time that fd becomes ready. On that thread. -errno.
 */
int hw_driver_watch(struct hw_driver *d, int fd, struct hw_source *s);
/* The end of that, before fd is closed. On that thread. */
void hw_driver_forget(struct hw_driver *d, int fd);

#endif
