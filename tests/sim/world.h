/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes of two loops each, connected by up to three rails that die, become silent and are connected again, while
 * handshakes are lost. Shared by the simulations of sessions and of the layers above them.
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
    uint32_t faults; /* still to come; without further ones everything has to end */
    uint64_t now;
    struct hw_rail_limits limits;

    /* mostly for world.c */
    struct pipes *pipes[WORLD_RAILS][WORLD_LINKS]; /* the newest of each */
    struct pipes *all[4096];
    unsigned n_all;
    struct attempt {
        enum { NONE, HELLO, AT_SERVER, WELCOME } at;
        uint32_t gen;
        struct hw_word client, server;
    } attempt[WORLD_RAILS];   /* a handshake in progress */
    bool broken[WORLD_RAILS]; /* the newest connection */
    struct nic {
        enum { NIC_WORKS, NIC_SLOW, NIC_DARK } is;
        uint32_t slow;  /* it moves something once in this many steps */
        uint64_t until; /* step */
    } nic[WORLD_RAILS];
    uint64_t steps;
    uint64_t still[2]; /* the node's process is suspended until this step */
    uint64_t resumed;  /* when the clock last jumped, or a process or loop was last suspended, in ns */
    struct hw_loop
        *late; /* takes no turns until late_until, while time goes on faster, like a thread that gets no CPU */
    uint64_t late_until;
    bool stuck; /* node 1's home loop takes no turns */
    bool lies;  /* node 1 makes false statements: the checks only cover what it must not do to node 0 */
    uint64_t
        excused; /* until this time (ns) a working rail may be given up, because a process was suspended, or slow */
};

extern const struct hw_rail_io world_io;
#define WORLD_DEAD 2000000 /* ns of silence after which a rail is given up */

/* Chooses the numbers of rails, links and faults, and makes the loops. The caller sets side[].session. */
void world_init(struct world *w, struct sim *s);
/* Executes one event of the network, of a handshake or of a loop: everything except what the upper layer does. */
void world_step(struct world *w);
/* Runs some tasks of one of a node's loops. */
void world_turn(struct world *w, int side, unsigned budget);
/* Returns true if the node's process is suspended, so that it does nothing. */
bool world_is_still(const struct world *w, int side);
/* Ends the current faults of the nodes themselves: suspended processes and loops, slow and dead NICs. */
void world_calm(struct world *w);
/* Lets a side perhaps learn that the other one has closed a connection. */
void world_notice(struct world *w, int side);
/* The upper layer passes on these notifications. */
void world_note_end(struct world *w, int side, unsigned rail, int why);
void world_note_down(struct world *w, int side, unsigned rail);
/* Checks, after both sessions have died, that each connection was closed by the side that had it. */
void world_check_closed(struct world *w);
/* Frees the connections. */
void world_free(struct world *w);

#endif
