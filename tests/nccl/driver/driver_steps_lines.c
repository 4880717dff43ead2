/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests what NCCL's LL and LL128 protocols require of a receive beyond the ABI. Their kernels poll flags in the receive
 * buffer while it fills. LL writes 8-byte words whose upper half is the flag. LL128 writes 128-byte lines whose last 8
 * bytes are the flag. When a flag is visible, the data of its word or line must be visible too.
 *
 * For words, the test allows no exception. For lines it must, because the kernel fills a receive with rep movsb, whose
 * stores may become visible out of order on some machines (Intel SDM, "Fast-String Operation and Out-of-Order Stores").
 * With a plain recv() and an observing thread, this happens to a few lines in a million. A plugin that splits lines
 * breaks hundreds of times as many.
 */
#include "base/sanitizers.h"
#include "driver.h"

#include "base/pattern.h"

#include <stdlib.h>
#include <string.h>

#define LINE     128
#define MESSAGES 300
#define BYTES    (256u * 1024)

#define ONE_IN 10000

struct lines {
    uint8_t *got, *want; /* BYTES bytes, aligned to a line */
    size_t words, lines; /* number of each seen so far in this message */
    unsigned broken;     /* number of lines whose end was visible before the rest */
};

static bool flag_seen(const struct lines *l, size_t at)
{
    uint32_t want, got = __atomic_load_n((const uint32_t *)(const void *)(l->got + at), __ATOMIC_ACQUIRE);
    memcpy(&want, l->want + at, sizeof(want));
    return got == want;
}

/* Checks the data that has arrived since the last call. */
static int look(struct lines *l)
{
    for (; l->words < BYTES / 8 && flag_seen(l, l->words * 8 + 4); l->words++)
        if (memcmp(l->got + l->words * 8, l->want + l->words * 8, 4) != 0)
            return hw_fail(-EBADMSG, "the upper half of word %zu could be seen before the lower one", l->words);
    for (; l->lines < BYTES / LINE && flag_seen(l, l->lines * LINE + LINE - 4); l->lines++)
        l->broken += memcmp(l->got + l->lines * LINE, l->want + l->lines * LINE, LINE) != 0;
    return 0;
}

/* Transfers one message in registered memory. Polls with test, and also reads the memory on the receiving rank. */
static int one(struct comm *c, struct lines *l, void *mh)
{
    struct wait w = wait_for("a message that is watched");
    void *req = NULL;
    struct phandle ph;
    int done = 0, sizes[8], rc = 0;

    l->words = l->lines = 0;
    prof_begin(&ph, c->sends, BYTES, BYTES);
    while (!rc && !req) {
        rc = net_fail(c->sends ? net_isend(c->r, c->c, l->got, BYTES, 7, mh, &ph, &req)
                               : net_irecv(c->r, c->c, l->got, BYTES, 7, mh, &ph, &req),
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
    if (!rc)
        rc = prof_end(&ph, "done");
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

#if HW_TSAN
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
        memcpy(l.got, l.want, BYTES);
        for (size_t k = 0; k < BYTES && !c->sends; k++)
            l.got[k] = (uint8_t)~l.got[k]; /* ensures that no flag matches by chance */
        rc = one(c, &l, mh);
    }
    if (!rc && l.broken > (uint64_t)MESSAGES * BYTES / LINE / ONE_IN)
        rc =
            hw_fail(-EBADMSG, "the ends of %u lines of %d bytes could be seen before their beginnings", l.broken, LINE);
    if (!rc)
        rc = net_fail(net_dereg(r, c->c, mh), "deregMr");
    if (rc) /* a request may still use the memory */
        return rc;
    free(l.got);
    free(l.want);
    return 0;
}
