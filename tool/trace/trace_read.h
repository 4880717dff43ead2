/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the output of knob plugin_trace: lib/transport/netplugin/table/trace.h describes the lines. */
#ifndef HW_TOOL_TRACE_READ_H
#define HW_TOOL_TRACE_READ_H

#include "base/base.h"

#include <stdio.h>

#define TRACE_CALL 24  /* bytes of a call's name */
#define TRACE_KEY  400 /* bytes of the event's description */

/* One kind of event, without times, addresses and object numbers, so that runs can be compared. */
struct trace_kind {
    char key[TRACE_KEY];
    size_t line; /* line number of its first occurrence */
    uint64_t n;
};

/* All calls with one name. */
struct trace_call {
    char name[TRACE_CALL];
    uint64_t n, polls, failed;
    double us, most; /* sum; the longest */
};

struct trace {
    struct trace_kind *kind; /* in order of first occurrence */
    size_t n_kind, room;
    struct trace_call call[64];
    size_t n_call, n_lines, n_odd; /* odd: unrecognised lines */
    uint64_t log[6];               /* lines of the plugin's log, by level */
};

/* Reads a trace. -errno; -ENODATA: no such line in it; -E2BIG, -ENOMEM. On failure t is empty. */
int trace_read(FILE *in, const char *path, struct trace *t);
void trace_free(struct trace *t);
/* Return NULL if it has no such kind, or call. */
const struct trace_kind *trace_kind_of(const struct trace *t, const char *key);
const struct trace_call *trace_call_of(const struct trace *t, const char *name);

extern const char *const trace_levels[6];

#endif
