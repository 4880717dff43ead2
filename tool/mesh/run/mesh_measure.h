/* SPDX-License-Identifier: Apache-2.0 */
/* Executes one order of the lead: measures as `hawser bench` does, against the services of other ranks. */
#ifndef HW_MESH_MEASURE_H
#define HW_MESH_MEASURE_H

#include "tool/mesh/run/mesh_proto.h"
#include "tool/peer/session.h"

/* Connections to one peer, kept while consecutive orders have the same target. */
struct mesh_link {
    struct mesh_target to; /* port 0 if not connected */
    struct session there, back;
    bool has_back;
};

/* Executes an order on context h. A failure is reported in the answer's status and text. */
void mesh_measure(hawser *h, struct mesh_link *link, const struct mesh_order *o, struct mesh_answer *a);
void mesh_link_close(struct mesh_link *link);

#endif
