/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server side of commands such as bench and validate. Each peer has a thread with 1 MiB of stack and one request at
 * a time. All peers share one memory limit. A peer that dies, violates the protocol or disconnects does no harm: its
 * receives fail, and its thread frees its memory and ends.
 */
#ifndef HW_TOOL_SERVICE_H
#define HW_TOOL_SERVICE_H

#include "base/knob.h"
#include "tool/tool.h"

struct service_options {
    const char *cmd;              /* name of the command, for messages, such as "serve" */
    uint64_t max_memory;          /* maximum bytes for all clients together */
    const char *limit_name;       /* name of the option or other limit that sets max_memory, for messages */
    bool once;                    /* end when all clients have disconnected */
    bool quiet;                   /* do not print a line for each client */
    bool devmem;                  /* report the NICs' counter rx_devmem_pkts to clients */
    const struct hw_knobs *knobs; /* knobs of the context, for plain-socket comparisons */
};

struct service_summary {
    /* died: clients that were lost; refused: requests that were answered with an error */
    uint64_t clients, died, refused;
    uint64_t checked, bad;       /* bytes that were verified, and bytes with wrong contents */
    uint64_t tx_bytes, rx_bytes; /* payload bytes of all clients */
};

/* Serves clients of the listening context until tool_stop is set, accepting clients fails or, with once, at least one
 * client has connected and all clients have disconnected. Returns 0 or a negative errno. */
int service_run(hawser *h, const struct service_options *o, struct service_summary *out);

#endif
