/* SPDX-License-Identifier: Apache-2.0 */
/* hawser top: the changes between two queries of all contexts, as a table or as JSON. */
#ifndef HW_TOOL_TOP_H
#define HW_TOOL_TOP_H

#include "tool/metrics/gather.h"

/* Rates are per second, and 0 for a new series. */
struct top_rail {
    char peer[PROM_LABEL], id[PROM_LABEL], nic[PROM_LABEL], peer_nic[PROM_LABEL];
    double sent, received;                 /* bytes per second */
    double resent, failovers, retransmits; /* totals so far */
    double rails, up, suspect;
    double rtt; /* seconds; 0 if unknown */
};

struct top_process {
    const struct gather_source *source;
    double cpu, threads;   /* CPU seconds per second of the process, and of the context's progress threads */
    double sent, received; /* sums over all rails */
    double ops;            /* operations per second */
    double peers, in_flight, failed, lost;
    struct top_rail *rail; /* the rail with the highest rate is the first */
    size_t n_rails;
};

struct top_view {
    struct top_process *process; /* the process with the highest rate is the first */
    size_t n;
    double seconds; /* time between the two queries; 0 if there is no earlier query */
};

/* Compares g with an earlier query, before, which may be NULL. The sources in v->process belong to g. Fails with
 * -ENOMEM. The caller calls top_free() in any case. */
int top_compare(const struct gather *before, const struct gather *g, struct top_view *v);
void top_free(struct top_view *v);

/* Writes at most `lines` lines (which must be at least 5) of at most 80 columns. Each line is followed by end. */
void top_show(FILE *f, const struct top_view *v, unsigned lines, const char *end);
/* Writes one JSON object on one line. Returns 0 or -EIO. */
int top_json(FILE *f, const struct top_view *v);
/* Formats bytes per second as in "1.23GB/s", or as "0" if the rate is below 0.5. Returns buf. */
char *top_rate(double rate, char *buf, size_t cap);

#endif
