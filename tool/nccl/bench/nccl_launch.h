/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser nccl bench` as processes that a launcher has started (mpirun, srun, torchrun): a seat each. Rank 0's process
 * is the hub and has two children: the supervisor, which measures as for --hosts, and rank 0's own seat. The supervisor
 * reaches a seat by a command as it reaches a host by ssh: this program with the hidden option --via, which hands its
 * descriptors to the hub and waits for a status. The hub and the seats talk by notifications of hawser's own
 * connections, which both sides have proved the key on; the seat starts the agent (nccl_hosts.h).
 *
 *   HELLO  seat to hub: who I am
 *   OPEN   hub to seat: start agent `id`
 *   DATA   both ways: bytes of agent `id`; value: 0 its standard input, 1 its output, 2 its errors
 *   SHUT   hub to seat: its standard input ends
 *   KILL   hub to seat: nobody waits for it any more
 *   ENDED  seat to hub: it has ended, with status `value` as of waitpid()
 *   BYE    hub to seat: all is measured
 */
#ifndef HW_TOOL_NCCL_LAUNCH_H
#define HW_TOOL_NCCL_LAUNCH_H

#include "tool/launch/launch_meet.h"
#include "tool/nccl/bench/nccl_hosts.h"

#define NB_SILENT_MS      30000 /* a process that is silent for so long is dead */
#define NB_TUBE_DATA_MOST 16384
#define NB_TUBE_MOST      (NB_TUBE_DATA_MOST + 16)

enum nb_tube_type {
    NB_TUBE_HELLO = 1,
    NB_TUBE_OPEN,
    NB_TUBE_DATA,
    NB_TUBE_SHUT,
    NB_TUBE_KILL,
    NB_TUBE_ENDED,
    NB_TUBE_BYE,
    NB_TUBE_TYPES
};

struct nb_hello {
    uint32_t rank, size;
    uint64_t node; /* nb_node_id() */
    char name[LAUNCH_NAME], version[16];
};

struct nb_tube {
    enum nb_tube_type type;
    uint32_t id, value;
    struct nb_hello hello;
    size_t len;
    uint8_t data[NB_TUBE_DATA_MOST];
};

/* Writes the message to buf. Its length, or -EINVAL: a caller's bug. */
int nb_tube_encode(const struct nb_tube *m, uint8_t buf[NB_TUBE_MOST]);
/* Reads a message of len bytes. -EPROTO with hw_error() for anything that nb_tube_encode() does not write. */
int nb_tube_decode(const uint8_t *buf, size_t len, struct nb_tube *m);
/* Sends a message to p; data may be NULL where len is 0. -errno. */
int nb_tube_send(hawser_peer *p, enum nb_tube_type type, uint32_t id, uint32_t value, const void *data, size_t len);

/* Where ranks can be started, as the supervisor is told. */
struct nb_seat_row {
    char name[LAUNCH_NAME];
    uint64_t node;
};

struct nb_launch {
    const struct common *common; /* its key */
    struct launch_seat *seat;
    struct launch_place place;
    uint64_t wait_ms; /* for all ranks to come */
};

/* Rank 0: meets the other seats and has supervise() measure with them in a process of its own, whose exit code comes
 * back. row: n of them, by rank; via: the descriptor for --via. */
int nb_hub(struct nb_launch *l, int (*supervise)(void *arg, const struct nb_seat_row *row, uint32_t n, int via),
           void *arg);
/* A seat's whole life. The exit code: TOOL_OK once the hub has let it go. */
int nb_seat(struct nb_launch *l);
/* A process that stands for the agent of a seat: told "FD,SEAT" by --via. The agent's exit code. */
int nb_via(const char *told);

#endif
