/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the contexts of this machine's processes what they have done: those of the calling user, and for root all. */
#ifndef HW_TOOL_GATHER_H
#define HW_TOOL_GATHER_H

#include "tool/metrics/prom.h"

#include <stdio.h>
#include <sys/types.h>

#define GATHER_SOURCES 512         /* contexts */
#define GATHER_BYTES   (64u << 20) /* of all their texts */

struct gather_source {
    pid_t pid;
    uid_t uid;
    unsigned context; /* of the process: its socket's number */
    char process[PROM_LABEL], kind[PROM_LABEL];
    struct prom data;
    enum { GATHER_ANSWERED, GATHER_SILENT, GATHER_BAD } state;
    char why[HW_ERR_TEXT]; /* GATHER_BAD */
    /* while it is asked */
    int fd;
    char *text;
    size_t len, room;
};

struct gather {
    struct gather_source *source; /* by pid, then number */
    size_t n;
    size_t foreign; /* sockets that are another user's, or that could not be asked */
    uint64_t when;  /* hw_now() */
};

/* dir: this folder alone; NULL: those that processes use. ms: for all of them to answer. 0, also where there is nothing
 * to ask; -errno where dir cannot be read, -ENOMEM. gather_free() is needed either way. */
int gather_all(const char *dir, int ms, struct gather *g);
void gather_free(struct gather *g);
/* Writes all that has answered in Prometheus's format, each sample with the labels pid, context, process and kind. */
void gather_write(FILE *f, const struct gather *g);

#endif
