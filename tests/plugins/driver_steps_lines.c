/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What NCCL's LL and LL128 protocols ask of a receive beyond the ABI: their kernels poll flags in the receive buffer
 * while it fills. LL writes 8 bytes at a time, half of them flags; LL128 lines of 128 bytes whose last 8 are the flag.
 * So where the end of a line can be seen, all of it must be there. (facts: nccl-net.md, "Contract")
 */
#include "driver.h"

#include "base/pattern.h"

#include <stdlib.h>
#include <string.h>

#define LINE     128
#define MESSAGES 300
#define BYTES    (256u * 1024)

struct lines {
    uint8_t *got, *want; /* of BYTES, aligned to a line */
    size_t seen;         /* lines that were there already */
    unsigned early;      /* of all, those seen before test said done */
};

/* Looks at the lines that have come since the last look. */
static int look(struct lines *l)
{
    for (; l->seen < BYTES / LINE; l->seen++, l->early++) {
        const uint8_t *line = l->got + l->seen * LINE, *want = l->want + l->seen * LINE;
        uint64_t flag, there = __atomic_load_n((const uint64_t *)(const void *)(line + LINE - 8), __ATOMIC_ACQUIRE);
        memcpy(&flag, want + LINE - 8, sizeof(flag));
        if (there != flag)
            return 0;
        if (memcmp(line, want, LINE) != 0)
            return hw_fail(-EBADMSG, "the end of line %zu of %d bytes could be seen before its beginning", l->seen,
                           LINE);
    }
    return 0;
}

/* One message, its memory registered: polled by test and, on the receiver, by eye. */
static int one(struct comm *c, struct lines *l, void *mh)
{
    struct wait w = wait_for("a message that is watched");
    void *req = NULL;
    int done = 0, sizes[8], rc = 0;

    l->seen = 0;
    while (!rc && !req) {
        rc = net_fail(c->sends ? net_isend(c->r, c->c, l->got, BYTES, 7, mh, &req, &req)
                               : net_irecv(c->r, c->c, l->got, BYTES, 7, mh, &req, &req),
                      c->sends ? "isend" : "irecv");
        if (!rc && !req)
            rc = wait_turn(c->r, &w);
    }
    while (!rc) {
        if (!c->sends && (rc = look(l)))
            return rc;
        if ((rc = net_fail(net_test(c->r, req, &done, sizes), "test")) || done)
            break;
        rc = wait_turn(c->r, &w);
    }
    if (!rc && !c->sends)
        rc = comm_arrived(c, req, l->got, BYTES);
    if (!rc && !c->sends && memcmp(l->got, l->want, BYTES) != 0)
        rc = hw_fail(-EBADMSG, "the message is wrong in the end");
    return rc;
}

int step_lines(struct rank *r)
{
    struct lines l = {.got = aligned_alloc(4096, BYTES), .want = aligned_alloc(4096, BYTES)};
    struct comm *c;
    void *mh = NULL;
    int rc;

#ifdef __SANITIZE_THREAD__
    free(l.got);
    free(l.want);
    return SKIP("watching memory that fills is a data race");
#endif
    if (!l.got || !l.want)
        return hw_fail(-ENOMEM, "%u bytes", BYTES);
    rc = comm_open(r, 0, &c);
    if (!rc)
        rc = net_fail(net_reg(r, c->c, l.got, BYTES, &mh), "regMr");
    for (unsigned i = 0; i < MESSAGES && !rc; i++) {
        hw_pattern_fill(l.want, BYTES, i, 0);
        if (c->sends)
            memcpy(l.got, l.want, BYTES);
        rc = one(c, &l, mh);
    }
    if (!rc)
        rc = net_fail(net_dereg(r, c->c, mh), "deregMr");
    if (rc) /* a request may still use the memory */
        return rc;
    free(l.got);
    free(l.want);
    return 0;
}
