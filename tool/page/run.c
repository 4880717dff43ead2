/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/page/run.h"

#include "mem/cuda.h"
#include "net/sysfs.h"
#include "tool/build.h"
#include "tool/peer/reach.h"
#include "tool/tool.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void run_note(struct run *r)
{
    HW_KEEP_ERROR();
    const time_t now = time(NULL);
    struct tm tm;
    if (localtime_r(&now, &tm))
        (void)strftime(r->date, sizeof r->date, "%Y-%m-%d %H:%M:%S %z", &tm);
    if (gethostname(r->host, sizeof r->host - 1) < 0)
        r->host[0] = 0;
    snprintf(r->build, sizeof r->build, "%s", build_name());
    r->argc = tool_argc;
    r->argv = tool_argv;
    int root = hw_root_open("/");
    if (root >= 0)
        (void)reach_facts(root, &r->own);
    hw_close(&root);
    const int gpus = hw_cuda_count();
    r->own.gpus = (uint16_t)HW_MIN(HW_MAX(gpus, 0), TP_HOST - 1);
}

void run_ask(struct run *r, struct session *s, const char *peer)
{
    HW_KEEP_ERROR();
    struct tp_request q = {.type = TP_FACTS};
    HW_AUTO_FREE struct tp_reply *reply = calloc(1, sizeof *reply);
    snprintf(r->peer, sizeof r->peer, "%s", peer);
    if (r->asked || !reply || !s->peer || hawser_peer_state(s->peer) != 0 ||
        session_call(s, &q, reply, SESSION_FINISH_MS) < 0)
        return;
    r->there = reply->facts;
    r->asked = true;
}
