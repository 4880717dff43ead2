/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The basis of the simulations: a source of random numbers that depend only on a seed, a trace that is printed if a
 * check fails, and connections whose bytes arrive in pieces, late, or never. A schedule consists of a seed, a set of
 * features, and limits on faults and operations. The same values reproduce the schedule exactly.
 */
#ifndef HW_SIM_H
#define HW_SIM_H

#include "core/link.h"

/* Features that a schedule may have. A failing schedule is run again without each feature in turn, to find the features
 * that the failure needs. */
enum sim_feature {
    SIM_PARTIAL, /* reads and writes may move only part of the data */
    SIM_RESET,   /* a connection ends, and the two sides notice the end at different times */
    SIM_SILENT,  /* a connection stops carrying data, without an error */
    SIM_CANCEL,  /* operations are cancelled */
    SIM_REVOKE,  /* the receiver revokes memory */
    SIM_BOTH,    /* both sides send */
    SIM_LINKS,   /* there may be several links and rails */
    SIM_SCATTER, /* payloads consist of many pieces */
    SIM_MEMORY,  /* some of the library's allocations fail */
    SIM_LIAR,    /* side 1 makes false statements, such as acknowledgements of frames that it has not received */
    SIM_APART,   /* connections carry large payloads on a second stream, and read memory after accepting it */
    SIM_HALF,    /* a connection loses all data in one direction, and all acknowledgements of the other */
    SIM_SLOW,    /* NICs slow down, fail and recover, or stop without an error */
    SIM_JUMP,    /* the clock jumps forward for one or both nodes, as if a machine had been suspended */
    SIM_STUCK,   /* node 1's home loop stops, while its rails on the other loop work */
    SIM_CLOSE,   /* streams are closed, and a side announces that it is closing */
    SIM_FEATURES
};
extern const char *const sim_feature_name[SIM_FEATURES];

#define SIM_FAULTS 20 /* a schedule has fewer faults than this .. */
#define SIM_OPS    60 /* .. and at most this many operations per side */

struct sim {
    uint64_t seed, state, step;
    uint32_t features;              /* bits of enum sim_feature */
    uint32_t most_faults, most_ops; /* a failing schedule is run again with smaller limits */
    uint64_t print;                 /* fingerprint of the run */
    bool trace;                     /* print each event as it happens */
    char failed[256];               /* "" or the first check that failed */
};

/* Return the schedule's number of faults, or one side's number of operations, which is at most `most`. */
uint32_t sim_pick_faults(struct sim *s);
uint32_t sim_pick_ops(struct sim *s, uint32_t most);
/* Returns a number in [0, n). */
uint64_t sim_random(struct sim *s, uint64_t n);
/* Returns true once in n calls on average. */
bool sim_chance(struct sim *s, uint64_t n);
bool sim_has(const struct sim *s, enum sim_feature f);
/* Logs one event to the trace. */
void sim_say(struct sim *s, const char *fmt, ...) HW_PRINTF(2, 3);
/* Records the first failure, which ends the schedule. */
void sim_fail(struct sim *s, const char *fmt, ...) HW_PRINTF(2, 3);

/* Starts random allocation failures (if s has SIM_MEMORY), or stops them (NULL). Used around calls into the library. */
void sim_fail_memory(struct sim *s);
/* Returns the number of allocated memory blocks. */
long sim_count_memory(void);
/* Makes libsodium's random numbers depend on this seed. */
void sim_seed_library(uint64_t seed);

#define SIM_PIPE       4096 /* size of one direction's buffers, in bytes */
#define SIM_HELD       2048 /* bytes that one direction holds by reference */
#define SIM_POISON     0xdb /* what applications write to memory that they own again: it must not be sent */
#define SIM_POISON_ROW 8    /* this many poison bytes in a row are no coincidence */

/* One direction of a stream: [0, ready) can be read, [ready, n) is in flight. */
struct sim_pipe {
    uint8_t buf[SIM_PIPE];
    uint32_t ready, n;
    uint32_t unacked; /* bytes that were read but whose acknowledgement is lost */
};

/* One direction of the second stream of a connection. */
struct sim_apart {
    struct hw_link_apart is; /* .tx belongs to the sender, .rx to its peer */
    struct sim_pipe pipe;
    /* Memory that is sent by reference is read when its bytes are delivered, and again before it is released, as if
     * retransmitted. Byte k of the stream is at from[k % SIM_HELD]. Running totals: released <= delivered <= sent. */
    uint64_t sent, delivered, released;
    const uint8_t *from[SIM_HELD];
    unsigned poison; /* number of consecutive poison bytes that were read */
    /* A read by the sender's device that is pending or done. Its bytes are not counted as sent yet. */
    struct {
        const uint8_t *from; /* NULL once the bytes are read */
        uint8_t buf[SIM_PIPE];
        uint32_t n;
    } fetch;
    /* A pending write by the receiver's device. */
    struct {
        uint8_t *to; /* NULL to discard the bytes */
        uint8_t buf[SIM_PIPE];
        uint32_t n;
    } gather;
};

/* A connection between side 0 and side 1. */
struct sim_conn {
    struct sim_pipe pipe[2];   /* pipe[i] carries what side i sends */
    struct sim_apart apart[2]; /* the second stream's data */
    uint32_t room;             /* capacity of each pipe, in bytes */
    bool closed[2];            /* side i has closed it */
    bool silent;               /* no data moves */
    bool lost[2];              /* nothing that side i sends arrives, not even acknowledgements */
    bool hung;                 /* no data moves because a device has stopped; the path does not look dead */
    bool told[2];              /* side i gets an error when it writes, or when it has nothing to read */
};

void sim_conn_open(struct sim *s, struct sim_conn *c);
/* Returns how the connection carries the payloads that `side` sends and receives. */
struct hw_link_apart sim_conn_apart(const struct sim_conn *c, int side);
/* Like sim_conn_move(), but for the second stream; may also return -EBUSY. */
int64_t sim_conn_move_apart(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece, uint32_t n,
                            bool out);
/* Stops the device from reading the memory from which `side` sends. */
void sim_conn_stop_reading(struct sim_conn *c, int side);
/* Stops the device from writing to the memory in which it gathers the data for `side`. */
void sim_conn_discard(struct sim_conn *c, int side);
/* Delivers some or all of the data in flight in one direction. */
void sim_conn_deliver(struct sim *s, struct sim_conn *c);
/* Closes one side. Some of the data in flight from this side is lost, and all data in flight to it. */
void sim_conn_close(struct sim *s, struct sim_conn *c, int side);
/* Writes (out) or reads piece after piece for `side`. Returns the number of bytes moved, -EAGAIN or -ECONNRESET. */
int64_t sim_conn_move(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece, uint32_t n, bool out);

/* Breaks a connection in a random way that the schedule allows. Returns a description. */
const char *sim_conn_break(struct sim *s, struct sim_conn *c);
/* Returns true if some of the data sent never arrives, and TCP detects the loss in time. */
bool sim_conn_is_dead(const struct sim_conn *c);
/* Returns true if the network has not acknowledged everything that `side` has sent. */
bool sim_conn_is_sending(const struct sim_conn *c, int side);

/* Run one part of a schedule to its end; s contains the seed and the features. Set s->failed if a check fails. */
void sim_run_links(struct sim *s);
void sim_run_loops(struct sim *s);
void sim_run_sessions(struct sim *s);
void sim_run_messages(struct sim *s);
void sim_run_matches(struct sim *s);

#endif
