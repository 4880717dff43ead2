/* SPDX-License-Identifier: Apache-2.0 */
/* Measures plain sockets over this host's loopback, for comparison with NCCL over loopback. */
#include "tool/nccl/bench/nccl_bench.h"
#include "tool/raw/raw.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define RAW_MS     1000 /* ms of measured time */
#define RAW_BUFFER (64u << 20)

int nb_raw_run(uint32_t streams, double *GBps)
{
    static const char *const addr[] = {"127.0.0.1"};
    struct raw_plan plan = {.streams = streams, .message = RAW_MESSAGE, .duration_ms = RAW_MS, .warmup = 16ull << 20};
    struct raw_server *server = NULL;
    struct raw_result got = {0};
    struct raw_path path = {.addr = addr[0]};
    HW_AUTO_FREE void *from = malloc(RAW_BUFFER);
    HW_AUTO_FREE void *to = malloc(RAW_BUFFER);
    uint64_t deadline = hw_deadline(60000);
    if (!from || !to)
        return hw_no_memory("plain sockets");
    memset(from, 1, RAW_BUFFER);
    if (getrandom(plan.token, sizeof plan.token, 0) != (ssize_t)sizeof plan.token)
        return hw_fail(-EIO, "the kernel returned no random bytes: %s", hw_errno_text(errno));
    int rc = raw_server_start(&plan, addr, 1, to, RAW_BUFFER, deadline, &server, &path.port);
    if (rc < 0)
        return rc;
    rc = raw_client_run(&plan, &path, 1, from, RAW_BUFFER, deadline, &got);
    if (rc < 0) {
        HW_KEEP_ERROR();
        raw_server_cancel(server);
        (void)raw_server_finish(server, NULL);
        return rc;
    }
    rc = raw_server_finish(server, NULL);
    if (rc == 0)
        *GBps = (double)got.bytes / 1e9 / got.seconds;
    return rc;
}
