/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes every plugin call as a line to a file: time, thread, call, arguments, result and duration; the file also gets
 * the plugin's own log, of every level. The lines are
 *
 *   SECONDS PID.TID CALL [NAME=VALUE]... = RESULT us=TIME [NAME=VALUE]...
 *   SECONDS PID.TID log LEVEL FILE:LINE TEXT
 *
 * SECONDS are CLOCK_MONOTONIC. Listeners, connections and registrations have names in the order of creation: L0, S0
 * (sends), R0 (receives), M0. A request is named by its connection and number. A call without a result (connect,
 * accept, isend, irecv: again; test: not done) is only counted; the next call with a result shows the count as polls=.
 * With `polls` each of them has a line. Only the child traces.
 */
#ifndef HW_NETPLUGIN_TRACE_H
#define HW_NETPLUGIN_TRACE_H

#include "base/base.h"
#include "transport/netplugin/table/abi.h"

/* Traces to fd from now on. polls: also calls without a result. */
void np_trace_open(int fd, bool polls);
bool np_trace_on(void);
bool np_trace_polls(void);

/* Records the GPU that this thread has set; -1: none. */
void np_trace_gpu(int gpu);
int np_trace_gpu_now(void);

/* Returns the time when a call begins; 0 without a trace. */
uint64_t np_trace_begin(void);
/* Writes the line of a call that began then. fmt: "dev=0 handle=.. = 0 comm=S0", with the result, without the time. */
void np_trace_call(uint64_t begin, const char *call, const char *fmt, ...) HW_PRINTF(3, 4);
void np_trace_log(int level, const char *file, int line, const char *text);

/* Names of the plugin's objects: kind is 'L', 'S', 'R' or 'M'. The name is valid until the next four calls in this
 * thread. */
const char *np_trace_new(char kind, const void *thing);
const char *np_trace_name(const void *thing);
void np_trace_gone(const void *thing);
/* Names a request of a connection; valid until the request is done. */
const char *np_trace_request(const void *comm, const void *request);

/* Counts a call for this object without a result; np_trace_agains() returns how many there were since the last call
 * with one. */
void np_trace_again(const void *thing);
uint64_t np_trace_agains(const void *thing);

#endif
