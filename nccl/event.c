/* SPDX-License-Identifier: Apache-2.0 */
/* Reports the start and the end of messages to NCCL's profiler. If no profiler is loaded, NCCL's callback returns
 * immediately and creates no handle, and no end is reported. */
#include "event.h"
#include "inner.h"

/* fd is the number of the link, because a message may travel over several sockets. */
static ncclProfilerNetSockDescr_v1_t make_message_event(const struct hn_comm *c, uint64_t length)
{
    return (ncclProfilerNetSockDescr_v1_t){
        .type = ncclProfileSocket,
        .sock = {.fd = (int)c->link->number, .op = c->out ? NCCL_SOCKET_SEND : NCCL_SOCKET_RECV, .length = length}};
}

void hn_event_start(struct hn_req *r, void *phandle, uint64_t room)
{
    ncclProfilerNetSockDescr_v1_t e = make_message_event(r->comm, room);
    (void)hn_g.profiler(&r->event, ncclProfilerNetEventStart, phandle, HN_EVENT_ID, &e);
}

/* NCCL 2.26 treats "update and stop" as a stop, because its callback distinguishes only a start from anything else. A
 * plain update would end the event there (NCCL 2.26.2, src/plugin/profiler.cc). */
void hn_event_done(struct hn_req *r, uint64_t length)
{
    ncclProfilerNetSockDescr_v1_t e = make_message_event(r->comm, length);
    (void)hn_g.profiler(&r->event, ncclProfilerNetEventUpdateAndStop, NULL, HN_EVENT_ID, &e);
    r->event = NULL;
}

void hn_event_lost(struct hn_req *r)
{
    (void)hn_g.profiler(&r->event, ncclProfilerNetEventStop, NULL, HN_EVENT_ID, NULL);
    r->event = NULL;
}
