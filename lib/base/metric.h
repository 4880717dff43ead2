/* SPDX-License-Identifier: Apache-2.0 */
/* The single table of metrics. Contexts write the metrics to their local socket, `hawser metrics` forwards them, and
 * docs/metrics.md lists them. Names follow Prometheus's conventions: base units are used, and counters end in _total.
 */
#ifndef HW_METRIC_H
#define HW_METRIC_H

#include "base/base.h"

enum hw_metric {
    HW_METRIC_INFO,
    HW_METRIC_START,
    HW_METRIC_CPU,
    HW_METRIC_PROCESS_CPU,
    HW_METRIC_THREADS,
    HW_METRIC_PEERS,
    HW_METRIC_PEERS_LOST,
    HW_METRIC_REGISTERED,
    HW_METRIC_OPS,
    HW_METRIC_OPS_FAILED,
    HW_METRIC_OPS_BYTES,
    HW_METRIC_OPS_IN_FLIGHT,
    HW_METRIC_PATH_BYTES,
    HW_METRIC_SENT,
    HW_METRIC_RECEIVED,
    HW_METRIC_RESENT,
    HW_METRIC_FAILOVERS,
    HW_METRIC_RAILS,
    HW_METRIC_RAILS_UP,
    HW_METRIC_RAILS_SUSPECT,
    HW_METRIC_RETRANSMITS,
    HW_METRIC_RTT,
    HW_METRICS
};

struct hw_metric_info {
    const char *name;
    bool counter;       /* false for a gauge */
    const char *labels; /* comma-separated, in the order in which a context writes them; "" for none */
    const char *help;   /* one line without double quotes or backslashes */
};
extern const struct hw_metric_info hw_metrics[HW_METRICS];

#define HW_METRICS_END "# EOF\n" /* the last line; a text without this line was truncated */

#endif
