/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes of two loops each, joined by up to three rails that die, fall silent and are connected again, while
 * handshakes are lost: what simulations of sessions, and of the layers above them, have in common.
 */
#ifndef HW_SIM_WORLD_H
#define HW_SIM_WORLD_H

#include "core/session.h"
#include "sim.h"

#define WORLD_RAILS  3
#define WORLD_LINKS  3
#define WORLD_LOOPS  2
#define WORLD_POISON SIM_POISON

struct world_side {
    struct hw_session *session;
    struct hw_loop loop[WORLD_LOOPS];
    struct hw_loop *rail_loop[WORLD_RAILS]; /* for hw_session_init(); loop[0] is the home */
};

struct world {
    struct sim *s;
    struct world_side side[2];
    unsigned rails, links;
    uint32_t faults; /* that are still to come; without further ones everything has to end */
    uint64_t now;
    struct hw_rail_limits limits;

    /* the world's own */
    struct pipes *pipes[WORLD_RAILS][WORLD_LINKS]; /* the newest of each */
    struct pipes *all[4096];
    unsigned n_all;
    struct attempt {
        enum { NONE, HELLO, AT_SERVER, WELCOME } at;
        uint32_t gen;
        struct hw_word client, server;
    } attempt[WORLD_RAILS];   /* a handshake under way */
    bool broken[WORLD_RAILS]; /* the newest connection */
    struct nic {
        enum { NIC_WORKS, NIC_SLOW, NIC_DARK } is;
        uint32_t slow;  /* it moves something once in so many times */
        uint64_t until; /* step */
    } nic[WORLD_RAILS];
    uint64_t steps;
    uint64_t still[2];    /* the node's process is suspended up to this step */
    uint64_t resumed;     /* ns: the clock jumped, or somebody was suspended, last */
    struct hw_loop *late; /* takes no turns up to this step, while time goes on faster: a thread that gets no CPU */
    uint64_t late_until;
    bool stuck;       /* node 1's home loop takes no turns */
    bool lies;        /* node 1 says what is not so: only what it may not do to node 0 is checked */
    uint64_t excused; /* ns: up to then a rail that works may be given up, since somebody was suspended, or slow */
};

extern const struct hw_rail_io world_io;
#define WORLD_DEAD 2000000 /* ns: a rail is given up after so much silence */

/* Chooses how many rails, links and faults there are, and makes the loops. The caller sets side[].session. */
void world_init(struct world *w, struct sim *s);
/* One event of the network, a handshake or a loop: everything but what the upper layer does. */
void world_step(struct world *w);
/* Some tasks of one of a node's loops run. */
void world_turn(struct world *w, int side, unsigned budget);
/* True if the node's process is suspended: it does nothing. */
bool world_is_still(const struct world *w, int side);
/* Nothing more befalls the nodes themselves. */
void world_calm(struct world *w);
/* A side may learn that the other has closed a connection. */
void world_notice(struct world *w, int side);
/* What the upper layer is told, and passes on. */
void world_note_end(struct world *w, int side, unsigned rail, int why);
void world_note_down(struct world *w, int side, unsigned rail);
/* Both sessions are gone: each connection was closed by the side that had it. */
void world_check_closed(struct world *w);
/* Frees loops and connections. */
void world_free(struct world *w);

#endif
