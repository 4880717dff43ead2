/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serving half of bench and validate: a thread for each peer (256 KiB of stack), one request at a time, memory for
 * all of them together under one limit. A peer that dies, lies or leaves takes nothing with it: its receives fail, its
 * thread frees what it had and ends.
 */
#ifndef HW_TOOL_SERVICE_H
#define HW_TOOL_SERVICE_H

#include "base/knob.h"
#include "tool/tool.h"

struct service_options {
    uint64_t max_memory;          /* bytes, for all clients together */
    bool once;                    /* end when the first client has left */
    bool quiet;                   /* no line per client */
    bool devmem;                  /* NICs' own rx_devmem_pkts are read for clients */
    const struct hw_knobs *knobs; /* the context's, for plain sockets beside it */
};

struct service_summary {
    uint64_t clients, died, refused; /* refused: requests answered by an error */
    uint64_t checked, bad;           /* bytes */
    uint64_t tx_bytes, rx_bytes;     /* payload, all clients */
};

/* Serves the listening context until tool_stop, or with once until a client has come and gone. 0 or -errno. */
int service_run(hawser *h, const struct service_options *o, struct service_summary *out);

#endif
