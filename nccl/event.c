/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's profiler: each message begins and ends. Where no profiler is loaded NCCL's callback returns at once and makes
 * no handle; then there is no end to be told either. */
#include "event.h"
#include "inner.h"

static struct hn_event_v1 make_message_event(const struct hn_comm *c, uint64_t length)
{
    return (struct hn_event_v1){.type = HN_EVENT_MESSAGE,
                                .received = !c->out,
                                .link = (uint16_t)c->link->number,
                                .stream = c->stream,
                                .length = length};
}

void hn_event_start(struct hn_req *r, void *phandle, uint64_t room)
{
    struct hn_event_v1 e = make_message_event(r->comm, room);
    (void)hn_g.profiler(&r->event, ncclProfilerNetEventStart, phandle, HN_EVENT_ID, &e);
}

/* "Update and stop" is a stop to NCCL 2.26, whose callback knows start and anything else; a plain update would end the
 * event there. (NCCL 2.26.2, src/plugin/profiler.cc) */
void hn_event_done(struct hn_req *r, uint64_t length)
{
    struct hn_event_v1 e = make_message_event(r->comm, length);
    (void)hn_g.profiler(&r->event, ncclProfilerNetEventUpdateAndStop, NULL, HN_EVENT_ID, &e);
    r->event = NULL;
}

void hn_event_lost(struct hn_req *r)
{
    (void)hn_g.profiler(&r->event, ncclProfilerNetEventStop, NULL, HN_EVENT_ID, NULL);
    r->event = NULL;
}
