/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about a run, for its report. */
#ifndef HW_TOOL_RUN_H
#define HW_TOOL_RUN_H

#include "tool/peer/session.h"

struct run {
    char date[64], host[256], build[256], peer[300];
    int argc;
    char **argv; /* arguments of the process */
    struct tp_facts own, there;
    bool asked; /* true if the peer has reported its facts */
};

/* Records the date and facts such as this node's name, versions and NICs. Facts that cannot be read remain empty. */
void run_note(struct run *r);
/* Requests the serving node's facts, over an idle session. peer is the node's name. A node that does not answer is not
 * an error; r->asked then remains false. */
void run_ask(struct run *r, struct session *s, const char *peer);

#endif
