/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes without end, and when each of them ended: what bench/failover makes of links that go down meanwhile.
 *
 *     drill                     receives, and prints its port
 *     drill HOST PORT SECONDS   writes; prints for each operation when it ended (CLOCK_MONOTONIC) and how long it took,
 * in ns
 *
 * Both stop at the first error, and say it.
 */
#include "base/base.h"
#include "hawser.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES (128u << 10)
#define DEEP  64
#define WAIT  30000 /* ms */

static void check(int rc, const char *what)
{
    if (rc >= 0)
        return;
    fprintf(stderr, "drill: %s: %s\n", what, hawser_error());
    exit(1);
}

/* The next event of this kind, of those that end operations well. */
static struct hawser_completion await_event(hawser *h, uint32_t kind)
{
    struct hawser_completion c = {0};
    while (c.event != kind) {
        int n = hawser_poll_wait(h, &c, 1, WAIT);
        check(n, "waiting");
        if (n == 0) {
            fprintf(stderr, "drill: nothing came for %d ms\n", WAIT);
            exit(1);
        }
    }
    return c;
}

static void receive(hawser *h, hawser_mem *mem)
{
    uint8_t key[HAWSER_KEY_SIZE];
    uint16_t port;
    check(hawser_listen(h, NULL, 0, &port), "listening");
    printf("%u\n", port);
    fflush(stdout);
    hawser_peer *p = await_event(h, HAWSER_ARRIVED).peer;
    check(hawser_export(mem, 0, (uint64_t)DEEP * BYTES, HAWSER_REMOTE_WRITE, p, key), "exporting");
    check(hawser_notify(p, key, sizeof key, NULL, NULL), "telling the key");
    struct hawser_completion c = {0};
    while (c.event != HAWSER_DIED)
        check(hawser_poll_wait(h, &c, 1, -1), "waiting");
}

static void start(hawser_peer *p, hawser_mem *mem, const struct hawser_region *region, uint64_t slot, uint64_t *began)
{
    const struct hawser_vec v = {
        .mem = mem, .offset = slot * BYTES, .length = BYTES, .region = region, .remote_offset = slot * BYTES};
    const struct hawser_op_options o = {.size = sizeof o, .user = slot};
    began[slot] = hw_now();
    check(hawser_write(p, &v, 1, &o, NULL), "writing");
}

static void send_for(hawser *h, hawser_mem *mem, const char *host, uint16_t port, double seconds)
{
    static uint64_t began[DEEP];
    struct hawser_completion c[DEEP];
    struct hawser_region region;
    hawser_peer *p;
    check(hawser_connect(h, host, port, NULL, WAIT, &p), "connecting");
    struct hawser_completion key = await_event(h, HAWSER_NOTIFIED);
    check(hawser_import(key.data, &region), "importing");
    hawser_data_free(key.data);
    for (uint64_t i = 0; i < DEEP; i++)
        start(p, mem, &region, i, began);
    for (uint64_t end = hw_now() + (uint64_t)(seconds * 1e9), now = 0; now < end;) {
        int n = hawser_poll_wait(h, c, DEEP, WAIT);
        check(n, "waiting");
        now = hw_now();
        for (int i = 0; i < n; i++) {
            if (c[i].event != HAWSER_ENDED)
                continue;
            check(c[i].result, "a write");
            printf("%llu %llu\n", (unsigned long long)now, (unsigned long long)(now - began[c[i].user]));
            start(p, mem, &region, c[i].user, began);
        }
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const struct hawser_options o = {.size = sizeof o, .flags = HAWSER_EVENTS};
    hawser *h;
    hawser_mem *mem;
    check(hawser_open(&o, &h), "opening");
    check(hawser_mem_alloc(h, HAWSER_MEM_HOST, -1, (uint64_t)DEEP * BYTES, &mem), "allocating");
    memset(hawser_mem_ptr(mem), 1, (size_t)DEEP * BYTES);
    if (argc == 4)
        send_for(h, mem, argv[1], (uint16_t)strtoul(argv[2], NULL, 10), strtod(argv[3], NULL));
    else
        receive(h, mem);
    hawser_close(h);
    return 0;
}
