/* SPDX-License-Identifier: Apache-2.0 */
/* What a report says of the run that made it. */
#ifndef HW_TOOL_RUN_H
#define HW_TOOL_RUN_H

#include "tool/peer/session.h"

struct run {
    char date[64], host[256], build[256], peer[300];
    int argc;
    char **argv; /* of the process */
    struct tp_facts own, there;
    bool asked; /* the peer has told its facts */
};

/* Notes this node's side: date, host, versions, NICs. What cannot be read stays empty. */
void run_note(struct run *r);
/* Asks the serving node for its facts, over a session that nothing else is under way on. peer: its name. A node that
 * does not answer is none of the run's faults: *r says that it was not asked. */
void run_ask(struct run *r, struct session *s, const char *peer);

#endif
