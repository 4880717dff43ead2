/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser nccl bench` in processes that a launcher started (mpirun, srun, torchrun). Each process is a seat. Rank 0's
 * process is the hub and has two children: the supervisor, which measures as with --hosts, and rank 0's own seat. The
 * supervisor reaches a seat through a command, as it reaches a host through ssh. The command is this program with the
 * hidden option --via; it passes its descriptors to the hub and waits for a status. The hub and the seats exchange
 * notifications on hawser's own connections, on which both sides have proved that they know the key. The seat starts
 * the agent (nccl_hosts.h).
 *
 *   HELLO  seat to hub: identifies the seat
 *   OPEN   hub to seat: start agent `id`
 *   DATA   both ways: bytes of agent `id`; value is 0 for its standard input, 1 for output, 2 for errors
 *   SHUT   hub to seat: the agent's standard input has ended
 *   KILL   hub to seat: the agent is no longer needed
 *   ENDED  seat to hub: the agent has ended; `value` is the agent's wait status
 *   BYE    hub to seat: the seat is no longer needed
 */
#ifndef HW_TOOL_NCCL_LAUNCH_H
#define HW_TOOL_NCCL_LAUNCH_H

#include "tool/launch/launch_meet.h"
#include "tool/nccl/bench/nccl_hosts.h"

#define NB_SILENT_MS      30000 /* ms; a process that is silent for this long counts as dead */
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

/* Writes the message to buf. Returns its length, or -EINVAL if the message is invalid. */
int nb_tube_encode(const struct nb_tube *m, uint8_t buf[NB_TUBE_MOST]);
/* Decodes a message of len bytes. Fails with -EPROTO if the message is invalid. */
int nb_tube_decode(const uint8_t *buf, size_t len, struct nb_tube *m);
/* Sends a message to p. data is a struct nb_hello for NB_TUBE_HELLO, otherwise len bytes. Returns 0 or -errno. */
int nb_tube_send(hawser_peer *p, enum nb_tube_type type, uint32_t id, uint32_t value, const void *data, size_t len);

/* A process in which ranks can be started, as the hub describes it to the supervisor. */
struct nb_seat_row {
    char name[LAUNCH_NAME];
    uint64_t node;
};

struct nb_launch {
    const struct common *common; /* holds the key */
    struct launch_seat *seat;
    struct launch_place place;
    uint64_t wait_ms; /* ms to wait for all ranks */
};

/* Runs rank 0: meets all seats, and then calls supervise() in a child process, with n rows, ordered by rank, and the
 * descriptor for --via. Returns the child's exit code, or TOOL_FAILED after an error before this call. */
int nb_hub(struct nb_launch *l, int (*supervise)(void *arg, const struct nb_seat_row *row, uint32_t n, int via),
           void *arg);
/* Runs a seat. Returns TOOL_OK if the hub dismissed the seat, or TOOL_FAILED after an error. */
int nb_seat(struct nb_launch *l);
/* Runs a process that represents a seat's agent. told is "FD,SEAT", the value of --via. Returns the
 * agent's exit code, or 255 if the hub cannot know it, or TOOL_USAGE or TOOL_FAILED after an error of its own. */
int nb_via(const char *told);

#endif
