/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes to a file a line for each plugin call that has a result, with time, thread, call, arguments, result and
 * duration. The file also receives the plugin's own log messages of all levels. The lines are
 *
 *    SECONDS PID.TID CALL [NAME=VALUE]... = RESULT [NAME=VALUE]... us=TIME
 *    SECONDS PID.TID log LEVEL FILE:LINE TEXT
 *
 * SECONDS are CLOCK_MONOTONIC. Listeners, connections and registrations have names that are numbered in the order of
 * creation: L0, S0 (sends), R0 (receives), M0. A request is named after its connection and number. A call without a
 * result (connect, accept, isend or irecv that must be repeated, or test of a pending request) is only counted, and the
 * next call with a result reports the count as polls=. If `polls` is set, each call without a result also has a line.
 * Only the child writes the file.
 */
#ifndef HW_NETPLUGIN_TRACE_H
#define HW_NETPLUGIN_TRACE_H

#include "base/base.h"
#include "transport/netplugin/table/abi.h"

/* Traces to fd from now on. If polls is true, also traces calls without a result. */
void np_trace_open(int fd, bool polls);
bool np_trace_on(void);
bool np_trace_polls(void);

/* Records the GPU that is current in this thread, or -1 for none. */
void np_trace_gpu(int gpu);
int np_trace_gpu_now(void);

/* Returns the time at which a call begins, or 0 if tracing is disabled. */
uint64_t np_trace_begin(void);
/* Writes the line of a call that began at `begin`. fmt describes the arguments and the result, such as "dev=0 handle=..
 * = 0 comm=S0". The duration is added. */
void np_trace_call(uint64_t begin, const char *call, const char *fmt, ...) HW_PRINTF(3, 4);
void np_trace_log(int level, const char *file, int line, const char *text);

/* Names of the plugin's objects. np_trace_new() assigns a name, np_trace_name() returns it and np_trace_gone() removes
 * it. kind is 'L', 'S', 'R' or 'M'. A returned name stays valid during the next three calls in this thread. */
const char *np_trace_new(char kind, const void *thing);
const char *np_trace_name(const void *thing);
void np_trace_gone(const void *thing);
/* Names a request of a connection. The name is replaced when the request's address is used for another object. */
const char *np_trace_request(const void *comm, const void *request);

/* np_trace_again() counts a call without a result for this object. np_trace_agains() returns this count and resets it.
 */
void np_trace_again(const void *thing);
uint64_t np_trace_agains(const void *thing);

#endif
