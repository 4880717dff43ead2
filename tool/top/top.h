/* SPDX-License-Identifier: Apache-2.0 */
/* hawser top: the changes between two queries of all contexts, as a table or as JSON. */
#ifndef HW_TOOL_TOP_H
#define HW_TOOL_TOP_H

#include "tool/metrics/gather.h"

/* Rates are per second; 0 for what is new. */
struct top_rail {
    char peer[PROM_LABEL], id[PROM_LABEL], nic[PROM_LABEL], peer_nic[PROM_LABEL];
    double sent, received;                 /* bytes a second */
    double resent, failovers, retransmits; /* so far */
    double rails, up, suspect;
    double rtt; /* seconds; 0: unknown */
};

struct top_process {
    const struct gather_source *source;
    double cpu, threads;   /* of the process, and of its progress threads: seconds per second */
    double sent, received; /* of all rails */
    double ops;            /* a second */
    double peers, in_flight, failed, lost;
    struct top_rail *rail; /* the one with most bytes first */
    size_t n_rails;
};

struct top_view {
    struct top_process *process; /* likewise */
    size_t n;
    double seconds; /* between the two; 0: there is no earlier query */
};

/* Compares g with an earlier query; before may be NULL. The sources in v->process belong to g. -ENOMEM; call top_free()
 * in any case. */
int top_compare(const struct gather *before, const struct gather *g, struct top_view *v);
void top_free(struct top_view *v);

/* Writes at most `lines` lines of at most 80 columns, each followed by end. */
void top_show(FILE *f, const struct top_view *v, unsigned lines, const char *end);
/* Writes one JSON object on one line. -EIO. */
int top_json(FILE *f, const struct top_view *v);
/* Formats bytes per second as "1.23GB/s"; "0" for none. */
char *top_rate(double rate, char *buf, size_t cap);

#endif
