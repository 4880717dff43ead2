/* SPDX-License-Identifier: Apache-2.0 */
/* Collects metrics from the contexts of the calling user's processes on this machine; for root, from those of all
 * users. */
#ifndef HW_TOOL_GATHER_H
#define HW_TOOL_GATHER_H

#include "tool/metrics/prom.h"

#include <stdio.h>
#include <sys/types.h>

#define GATHER_SOURCES 512         /* maximum number of contexts */
#define GATHER_BYTES   (64u << 20) /* maximum bytes of all buffers for answers together */

struct gather_source {
    pid_t pid;
    uid_t uid;
    unsigned context; /* number of the context's socket within the process */
    char process[PROM_LABEL], kind[PROM_LABEL];
    struct prom data;
    enum { GATHER_ANSWERED, GATHER_SILENT, GATHER_BAD } state;
    char why[HW_ERR_TEXT]; /* reason for GATHER_BAD */
    /* used during the query */
    int fd;
    char *text;
    size_t len, room;
};

struct gather {
    struct gather_source *source; /* sorted by PID, then by context */
    size_t n;
    size_t foreign; /* sockets that could not be queried, such as those of other users */
    uint64_t when;  /* hw_now() at the end of the query */
};

/* Queries all contexts and waits up to ms for their answers. If dir is not NULL, searches only that folder. Returns 0,
 * even if there are no contexts. Fails with -errno if the folder or the knobs cannot be read, or with -ENOMEM. The
 * caller calls gather_free() in any case. */
int gather_all(const char *dir, int ms, struct gather *g);
void gather_free(struct gather *g);
/* Writes all answers in Prometheus's text format, each sample labelled with pid, context, process and kind. Then writes
 * hawser_exporter_contexts, the number of contexts by state. */
void gather_write(FILE *f, const struct gather *g);

#endif
