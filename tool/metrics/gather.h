/* SPDX-License-Identifier: Apache-2.0 */
/* Collects metrics from the contexts of the calling user's processes on this machine; for root, of every user's
 * processes. */
#ifndef HW_TOOL_GATHER_H
#define HW_TOOL_GATHER_H

#include "tool/metrics/prom.h"

#include <stdio.h>
#include <sys/types.h>

#define GATHER_SOURCES 512         /* contexts */
#define GATHER_BYTES   (64u << 20) /* of all texts together */

struct gather_source {
    pid_t pid;
    uid_t uid;
    unsigned context; /* number of its socket within the process */
    char process[PROM_LABEL], kind[PROM_LABEL];
    struct prom data;
    enum { GATHER_ANSWERED, GATHER_SILENT, GATHER_BAD } state;
    char why[HW_ERR_TEXT]; /* GATHER_BAD */
    /* used during the query */
    int fd;
    char *text;
    size_t len, room;
};

struct gather {
    struct gather_source *source; /* sorted by pid, then number */
    size_t n;
    size_t foreign; /* sockets of another user, or that could not be asked */
    uint64_t when;  /* hw_now() */
};

/* dir: only this folder; NULL: the default ones. ms: for all of them to answer. 0, also if there is nothing to ask;
 * -errno if dir cannot be read; -ENOMEM. Call gather_free() in any case. */
int gather_all(const char *dir, int ms, struct gather *g);
void gather_free(struct gather *g);
/* Writes all answers in Prometheus text format, each sample labelled with pid, context, process and kind; then
 * hawser_exporter_contexts, the number of contexts by state. */
void gather_write(FILE *f, const struct gather *g);

#endif
