/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of a run for its report. */
#ifndef HW_TOOL_RUN_H
#define HW_TOOL_RUN_H

#include "tool/peer/session.h"

struct run {
    char date[64], host[256], build[256], peer[300];
    int argc;
    char **argv; /* of the process */
    struct tp_facts own, there;
    bool asked; /* the peer has reported its facts */
};

/* Records this node's facts: date, host, versions, NICs. Unreadable ones stay empty. */
void run_note(struct run *r);
/* Asks the serving node for its facts, over an idle session. peer: its name. A node that does not answer is no fault of
 * the run: *r records that it was not asked. */
void run_ask(struct run *r, struct session *s, const char *peer);

#endif
