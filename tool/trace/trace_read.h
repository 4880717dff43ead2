/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the traces of plugin calls that hawser writes if the knob plugin_trace is set.
 * lib/transport/netplugin/table/trace.h describes the lines. */
#ifndef HW_TOOL_TRACE_READ_H
#define HW_TOOL_TRACE_READ_H

#include "base/base.h"

#include <stdio.h>

#define TRACE_CALL 24  /* maximum bytes of a call's name, including the NUL */
#define TRACE_KEY  400 /* maximum bytes of an event's description, including the NUL */

/* One kind of event, without times, addresses and object numbers, so that runs can be compared. */
struct trace_kind {
    char key[TRACE_KEY];
    size_t line; /* line of the first occurrence */
    uint64_t n;
};

/* All calls with the same name. */
struct trace_call {
    char name[TRACE_CALL];
    uint64_t n, polls, failed;
    double us, most; /* sum of all calls, and longest call, in us */
};

struct trace {
    struct trace_kind *kind; /* in order of first occurrence */
    size_t n_kind, room;
    struct trace_call call[64];
    size_t n_call, n_lines, n_odd; /* n_odd counts unrecognized lines */
    uint64_t log[6];               /* number of lines of the plugin's log, by level */
};

/* Reads a trace. Fails with -ENODATA if the file contains neither a plugin call nor a line of the log, or with -EIO,
 * -E2BIG or -ENOMEM. After a failure, t is empty. */
int trace_read(FILE *in, const char *path, struct trace *t);
void trace_free(struct trace *t);
/* Return the kind or the call of t, or NULL if t has none with this key or name. */
const struct trace_kind *trace_kind_of(const struct trace *t, const char *key);
const struct trace_call *trace_call_of(const struct trace *t, const char *name);

extern const char *const trace_levels[6];

#endif
