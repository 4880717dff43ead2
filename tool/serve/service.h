/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server side of bench and validate: a thread for each peer (1 MiB of stack), one request at a time, and one memory
 * limit for all of them together. A peer that dies, violates the protocol or leaves does no harm: its receives fail,
 * its thread frees its memory and ends.
 */
#ifndef HW_TOOL_SERVICE_H
#define HW_TOOL_SERVICE_H

#include "base/knob.h"
#include "tool/tool.h"

struct service_options {
    uint64_t max_memory;          /* bytes, for all clients together */
    bool once;                    /* end when the first client has left */
    bool quiet;                   /* no line per client */
    bool devmem;                  /* read the NICs' rx_devmem_pkts for clients */
    const struct hw_knobs *knobs; /* the context's, for plain-socket comparisons */
};

struct service_summary {
    uint64_t clients, died, refused; /* refused: requests answered with an error */
    uint64_t checked, bad;           /* bytes */
    uint64_t tx_bytes, rx_bytes;     /* payload, all clients */
};

/* Serves the listening context until tool_stop, or with once until a client has left. 0 or -errno. */
int service_run(hawser *h, const struct service_options *o, struct service_summary *out);

#endif
