/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes send 8 bytes back and forth, and the connecting process prints how long a message takes.
 *     cc -o pingpong pingpong.c $(pkg-config --cflags --libs hawser)
 *     ./pingpong              on one machine: prints its port, and replies
 *     ./pingpong HOST PORT    on the other machine: connects, and measures
 * Between machines, both processes need the same secret in JOB_KEY, at least 16 characters. */
#define _POSIX_C_SOURCE 200112L
#include <hawser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WARM   200   /* rounds that are not measured */
#define ROUNDS 2000  /* rounds that are measured */
#define WAIT   10000 /* ms that one side waits for the other */

static void must(int rc, const char *what) /* if rc < 0, a call has failed, and hawser_error() has the message */
{
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", what, hawser_error());
        exit(1);
    }
}

static double read_clock(void) /* returns microseconds */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void finish(hawser_op *op, const char *what)
{
    must(hawser_wait(op, WAIT), what);
    hawser_op_free(op);
}

/* Sends a message and receives one, or receives and then sends. Both sides use the same stream and tag. A message with
 * another tag would not match. */
static void do_round(hawser_peer *p, hawser_mem *mem, const uint64_t *in, uint64_t number, int ask)
{
    struct hawser_op_options opts = {.size = sizeof(opts), .timeout_ms = WAIT, .stream = 1, .tag = 42};
    struct hawser_vec from = {.data = &number,
                              .length = sizeof(number)}; /* copied, so no registered memory is needed */
    struct hawser_vec into = {.mem = mem, .length = sizeof(number)};
    hawser_op *send, *recv;
    must(hawser_recv(p, &into, 1, &opts, &recv), "receive");
    if (!ask)
        finish(recv, "receive");
    must(hawser_send(p, &from, 1, &opts, &send), "send");
    if (ask)
        finish(recv, "receive");
    finish(send, "send");
    if (*in != number) {
        fprintf(stderr, "round %lu received the bytes of another round\n", (unsigned long)number);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    static uint64_t in;
    static double took[WARM + ROUNDS];
    const char *secret = getenv("JOB_KEY");
    struct hawser_options opts = {.size = sizeof(opts), .key = secret, .key_len = secret ? strlen(secret) : 0};
    int ask = argc == 3;
    hawser *h;
    hawser_peer *p;
    hawser_mem *mem;
    uint16_t port;
    must(hawser_open(&opts, &h), "open");
    must(hawser_mem_register(h, HAWSER_MEM_HOST, &in, sizeof(in), &mem), "register");
    if (ask) {
        must(hawser_connect(h, argv[1], (uint16_t)strtol(argv[2], NULL, 10), NULL, WAIT, &p), "connect");
    } else {
        must(hawser_listen(h, NULL, 0, &port), "listen");
        printf("port %u\n", (unsigned)port);
        fflush(stdout);
        must(hawser_accept(h, WAIT, &p), "accept");
    }
    for (int i = 0; i < WARM + ROUNDS; i++) {
        double began = read_clock();
        do_round(p, mem, &in, (uint64_t)i, ask);
        took[i] = (read_clock() - began) / 2;
    }
    qsort(took + WARM, ROUNDS, sizeof(took[0]), compare_times);
    if (ask)
        printf("8 bytes one way: %.1f us in the median of %d rounds, %.1f at best\n", took[WARM + ROUNDS / 2], ROUNDS,
               took[WARM]);
    hawser_close(h); /* also closes its peers and frees its registrations */
    return 0;
}
