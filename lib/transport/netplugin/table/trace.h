/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call into the plugin as a line of a file: when, in which thread, the call, its arguments, what it gave back and
 * how long it took; and the plugin's own log, of any level, beside it. Lines are
 *
 *   SECONDS PID.TID CALL [NAME=VALUE]... = RESULT us=TIME [NAME=VALUE]...
 *   SECONDS PID.TID log LEVEL FILE:LINE TEXT
 *
 * SECONDS are CLOCK_MONOTONIC's. Listeners, connections and registrations have names in the order of their making: L0,
 * S0 (sends), R0 (receives), M0. A request is its connection's and its number. A call that comes to nothing (connect,
 * accept, isend, irecv: again; test: not done) is counted, and the count stands as polls= in the line of the call that
 * does; with `polls` each has a line. In the child alone.
 */
#ifndef HW_NETPLUGIN_TRACE_H
#define HW_NETPLUGIN_TRACE_H

#include "base/base.h"
#include "transport/netplugin/table/abi.h"

/* Writes to fd from now on. polls: also calls that come to nothing. */
void np_trace_open(int fd, bool polls);
bool np_trace_on(void);
bool np_trace_polls(void);

/* The GPU that this thread has set; -1: none. */
void np_trace_gpu(int gpu);
int np_trace_gpu_now(void);

/* When a call begins; 0 where there is no trace. */
uint64_t np_trace_begin(void);
/* The line of a call that began then. fmt: "dev=0 handle=.. = 0 comm=S0", the result with it, without the time. */
void np_trace_call(uint64_t begin, const char *call, const char *fmt, ...) HW_PRINTF(3, 4);
void np_trace_log(int level, const char *file, int line, const char *text);

/* Names of the plugin's things: kind is 'L', 'S', 'R' or 'M'. The name is good until the next four calls in this
 * thread. */
const char *np_trace_new(char kind, const void *thing);
const char *np_trace_name(const void *thing);
void np_trace_gone(const void *thing);
/* A request of a connection's, made now; gone when it is done. */
const char *np_trace_request(const void *comm, const void *request);

/* A call about this thing came to nothing; how many did so since the last one that did not. */
void np_trace_again(const void *thing);
uint64_t np_trace_agains(const void *thing);

#endif
