/* SPDX-License-Identifier: Apache-2.0 */
/* Tests operations on registered memory that the application has unmapped: the operation fails at once, and other
 * operations of the peer succeed. */
#include "pairhelp.h"

#include <sys/mman.h>

#define LEN (8u << 20)

static struct pair pr;

/* Registers LEN bytes and, unless rights is 0, exports them. Then unmaps the last quarter. */
static struct ph_buf map_part(hawser *h, uint32_t rights)
{
    struct ph_buf b = {.len = LEN};
    b.p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b.p == MAP_FAILED)
        bail("no memory");
    hw_pattern_fill(b.p, LEN, 1, 0);
    must(hawser_mem_register(h, HAWSER_MEM_HOST, b.p, LEN, &b.mem));
    if (rights) {
        must(hawser_export(b.mem, 0, LEN, rights, NULL, b.key));
        must(hawser_import(b.key, &b.region));
    }
    must(munmap(b.p + LEN / 4 * 3, LEN / 4));
    return b;
}

static void unmap_rest(struct ph_buf *b)
{
    must(hawser_mem_deregister(b->mem));
    must(munmap(b->p, LEN / 4 * 3));
}

static void test_pair(uint32_t flags, const char *how)
{
    step(how);
    pr = ph_pair(flags, NULL, flags, NULL);
    ph_far = pr.ba;
    struct ph_buf here = map_part(pr.a, 0), there = map_part(pr.b, HAWSER_REMOTE_READ);
    struct ph_buf a = ph_buf(pr.a, LEN, 0, 0, NULL);
    struct ph_buf b = ph_buf(pr.b, LEN, 0, HAWSER_REMOTE_WRITE, NULL);
    is_rc(ph_one(hawser_write, pr.ab, &here, 0, LEN, &b.region, 0), -EIO,
          "a write from memory that is not mapped fails");
    is_rc(ph_one(hawser_read, pr.ab, &a, 0, LEN, &there.region, 0), -EIO, "so does a read of such memory of the peer");
    is_rc(ph_one(hawser_write, pr.ab, &a, 0, LEN, &b.region, 0), 0, "other operations succeed");
    is_rc(hawser_peer_state(pr.ab), 0, "the peer is alive");
    unmap_rest(&here);
    unmap_rest(&there);
    ph_drop(&a);
    ph_drop(&b);
    ph_close(&pr);
}

int main(void)
{
    watchdog(50);
    test_pair(0, "default");
    test_pair(HAWSER_TRUSTED, "trusted");
    return tap_done();
}
