/* SPDX-License-Identifier: Apache-2.0 */
/* The C side of write8.py, loaded into the same process: the same writes with the same peer, without Python. */
#include "hawser.h"
#include <time.h>

enum { WAIT_MS = 30000 };

double write8_repeat(hawser_peer *peer, const struct hawser_vec *vecs, size_t n, unsigned times);

/* Returns seconds for `times` writes of a list, one after the other; below 0: one has failed. */
__attribute__((visibility("default"))) double write8_repeat(hawser_peer *peer, const struct hawser_vec *vecs, size_t n,
                                                            unsigned times)
{
    struct timespec begun, ended;
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    for (unsigned k = 0; k < times; k++) {
        hawser_op *op = NULL;
        if (hawser_write(peer, vecs, n, NULL, &op) || hawser_wait(op, WAIT_MS))
            return -1;
        hawser_op_free(op);
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &ended);
    return (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9;
}
