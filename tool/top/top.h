/* SPDX-License-Identifier: Apache-2.0 */
/* hawser top: what changed between two times that all contexts were asked, as a table or as JSON. */
#ifndef HW_TOOL_TOP_H
#define HW_TOOL_TOP_H

#include "tool/metrics/gather.h"

/* Rates are per second; those of what was not there before are 0. */
struct top_rail {
    char peer[PROM_LABEL], id[PROM_LABEL], nic[PROM_LABEL], peer_nic[PROM_LABEL];
    double sent, received;                 /* bytes a second */
    double resent, failovers, retransmits; /* so far */
    double rails, up, suspect;
    double rtt; /* seconds; 0: not known */
};

struct top_process {
    const struct gather_source *source;
    double cpu, threads;   /* of the process, of the progress threads: seconds a second */
    double sent, received; /* of all rails */
    double ops;            /* a second */
    double peers, in_flight, failed, lost;
    struct top_rail *rail; /* the one with most bytes first */
    size_t n_rails;
};

struct top_view {
    struct top_process *process; /* likewise */
    size_t n;
    double seconds; /* between the two; 0: there is no earlier one */
};

/* What g and an earlier look say; before may be NULL. Of v->process the sources are g's. -ENOMEM; top_free() either
 * way. */
int top_compare(const struct gather *before, const struct gather *g, struct top_view *v);
void top_free(struct top_view *v);

/* Writes at most `lines` lines of at most 80 columns, each with end behind it. */
void top_show(FILE *f, const struct top_view *v, unsigned lines, const char *end);
/* One JSON object in one line. -EIO. */
int top_json(FILE *f, const struct top_view *v);
/* "1.23GB/s" of bytes a second; "0" of none. */
char *top_rate(double rate, char *buf, size_t cap);

#endif
