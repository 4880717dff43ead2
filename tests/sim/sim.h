/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The basis of a simulation: one source of random numbers from a seed, a trace that is printed if a check fails, and
 * connections whose bytes arrive in pieces, late, or never. A schedule is a seed, a set of features, and limits for
 * faults and operations; the same values replay it exactly.
 */
#ifndef HW_SIM_H
#define HW_SIM_H

#include "core/link.h"

/* What a schedule may have. A failing schedule is run again without each of these in turn, to find those that it
 * needs. */
enum sim_feature {
    SIM_PARTIAL, /* reads and writes move only a part of what they could */
    SIM_RESET,   /* a connection ends, and both sides learn of it at different times */
    SIM_SILENT,  /* a connection carries nothing more, without an error */
    SIM_CANCEL,  /* operations are cancelled */
    SIM_REVOKE,  /* the receiver revokes memory */
    SIM_BOTH,    /* both sides send */
    SIM_LINKS,   /* there may be several links and rails */
    SIM_SCATTER, /* payloads of many pieces */
    SIM_MEMORY,  /* allocations of the product sometimes fail */
    SIM_LIAR,    /* side 1 makes false statements, such as acknowledgements of frames that it has not received */
    SIM_APART,   /* connections carry large payloads on a second stream, and read memory after it was handed over */
    SIM_HALF,    /* a connection carries nothing more in one direction, nor the acknowledgements of the other one */
    SIM_SLOW,    /* NICs slow down, die and come back, or stop without an error */
    SIM_JUMP,    /* the clock jumps forward, as on a machine that was paused; or for one node only */
    SIM_STUCK,   /* the loop of node 1's home stops, while its rails on another loop work */
    SIM_CLOSE,   /* streams are closed, and a side announces that it closes */
    SIM_FEATURES
};
extern const char *const sim_feature_name[SIM_FEATURES];

#define SIM_FAULTS 20 /* a schedule has fewer faults .. */
#define SIM_OPS    60 /* .. and no more operations of one side than this */

struct sim {
    uint64_t seed, state, step;
    uint32_t features;              /* bits of enum sim_feature */
    uint32_t most_faults, most_ops; /* a failing schedule is run again with fewer */
    uint64_t print;                 /* fingerprint of the run */
    bool trace;                     /* print each event as it happens */
    char failed[256];               /* "" or the first check that failed */
};

/* Return the number of faults, or of operations of one side up to `most`, that the schedule has. */
uint32_t sim_pick_faults(struct sim *s);
uint32_t sim_pick_ops(struct sim *s, uint32_t most);
/* Returns a number in [0, n). */
uint64_t sim_random(struct sim *s, uint64_t n);
/* Returns true once in n calls on average. */
bool sim_chance(struct sim *s, uint64_t n);
bool sim_has(const struct sim *s, enum sim_feature f);
/* Reports one event, for the trace. */
void sim_say(struct sim *s, const char *fmt, ...) HW_PRINTF(2, 3);
/* Records the first failure; the schedule then ends. */
void sim_fail(struct sim *s, const char *fmt, ...) HW_PRINTF(2, 3);

/* From now on allocations may fail (s with SIM_MEMORY), or may not (NULL). Used around calls into the product. */
void sim_fail_memory(struct sim *s);
/* Returns the number of allocated pieces of memory. */
long sim_count_memory(void);
/* Lets the random numbers of libsodium come from this seed. */
void sim_seed_library(uint64_t seed);

#define SIM_PIPE       4096 /* bytes of one direction's buffers */
#define SIM_HELD       2048 /* bytes that a direction holds by reference */
#define SIM_POISON     0xdb /* what applications write to memory that is theirs again: it must not cross the network */
#define SIM_POISON_ROW 8    /* this many bytes of it in a row are no coincidence */

/* One direction of a stream: [0, ready) can be read, [ready, n) is in flight. */
struct sim_pipe {
    uint8_t buf[SIM_PIPE];
    uint32_t ready, n;
    uint32_t unacked; /* bytes that were read, and whose acknowledgement is lost */
};

/* One direction of the second stream of a connection. */
struct sim_apart {
    struct hw_link_apart is; /* .tx is of the sender, .rx of its peer */
    struct sim_pipe pipe;
    /* Memory that is sent by reference: it is read when its bytes are delivered, and once more before it is released,
     * as if retransmitted. Running totals: released <= delivered <= sent; byte k of the stream is at from[k %
     * SIM_HELD]. */
    uint64_t sent, delivered, released;
    const uint8_t *from[SIM_HELD];
    unsigned poison; /* poison bytes that were read in a row */
    /* The sender's device is about to read these bytes, which are not counted, or has read them. */
    struct {
        const uint8_t *from; /* NULL: already read */
        uint8_t buf[SIM_PIPE];
        uint32_t n;
    } fetch;
    /* The receiver's device is about to write these bytes there. */
    struct {
        uint8_t *to; /* NULL: nowhere */
        uint8_t buf[SIM_PIPE];
        uint32_t n;
    } gather;
};

/* A connection between side 0 and side 1. */
struct sim_conn {
    struct sim_pipe pipe[2];   /* pipe[i] carries what side i sends */
    struct sim_apart apart[2]; /* likewise */
    uint32_t room;             /* bytes that each pipe holds */
    bool closed[2];            /* side i has closed it */
    bool silent;               /* nothing moves */
    bool lost[2];              /* nothing that side i sends moves, not even acknowledgements */
    bool hung;                 /* nothing moves, because a device has stopped; the path does not look dead */
    bool told[2];              /* side i gets an error once it writes, or has nothing to read */
};

void sim_conn_open(struct sim *s, struct sim_conn *c);
/* Returns how the connection carries the payloads that side sends and receives. */
struct hw_link_apart sim_conn_apart(const struct sim_conn *c, int side);
/* Like sim_conn_move(), for the second stream; may also return -EBUSY. */
int64_t sim_conn_move_apart(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece, uint32_t n,
                            bool out);
/* From now on the device does not read the memory that side sends from. */
void sim_conn_stop_reading(struct sim_conn *c, int side);
/* From now on the device does not write to the memory where it gathers what side receives. */
void sim_conn_discard(struct sim_conn *c, int side);
/* Moves some or all of the data in flight in one direction to its end. */
void sim_conn_deliver(struct sim *s, struct sim_conn *c);
/* Closes one side. Some of its sent data that has not arrived is lost, and all data for it. */
void sim_conn_close(struct sim *s, struct sim_conn *c, int side);
/* Writes (out) or reads for side, piece after piece. Returns the bytes moved, -EAGAIN or -ECONNRESET. */
int64_t sim_conn_move(struct sim *s, struct sim_conn *c, int side, const struct hw_piece *piece, uint32_t n, bool out);

/* Breaks a connection in one of the ways that the schedule may have. Returns a description. */
const char *sim_conn_break(struct sim *s, struct sim_conn *c);
/* Returns true if some of what is sent never arrives, and TCP detects that in time. */
bool sim_conn_is_dead(const struct sim_conn *c);
/* Returns true if the network has not acknowledged everything that side has sent. */
bool sim_conn_is_sending(const struct sim_conn *c, int side);

/* Run one part of a schedule to its end; s has the seed and the features. Set s->failed if a check fails. */
void sim_run_links(struct sim *s);
void sim_run_loops(struct sim *s);
void sim_run_sessions(struct sim *s);
void sim_run_messages(struct sim *s);
void sim_run_matches(struct sim *s);

#endif
