/* SPDX-License-Identifier: Apache-2.0 */
/* The C part of write8.py, which loads it into its process: the same writes to the same peer, without Python. */
#include "hawser.h"
#include <time.h>

enum { WAIT_MS = 30000 };

double write8_repeat(hawser_peer *peer, const struct hawser_vec *vecs, size_t n, unsigned times);

/* Writes a list `times` times, one write after the other. Returns the seconds, or a negative number if a write has
 * failed. */
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
