/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two nodes of two loops each, connected by up to three rails that fail, become silent and reconnect, while handshakes
 * are lost. Shared by the simulations of sessions and of the layers above them.
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
    struct hw_loop *rail_loop[WORLD_RAILS]; /* for hw_session_init(); loop[0] is the home loop */
};

struct world {
    struct sim *s;
    struct world_side side[2];
    unsigned rails, links;
    uint32_t faults; /* faults left to inject; without any, everything has to end */
    uint64_t now;
    struct hw_rail_limits limits;

    /* mostly used by world.c */
    struct pipes *pipes[WORLD_RAILS][WORLD_LINKS]; /* newest pipes of each link */
    struct pipes *all[4096];
    unsigned n_all;
    struct attempt {
        enum { NONE, HELLO, AT_SERVER, WELCOME } at;
        uint32_t gen;
        struct hw_word client, server;
    } attempt[WORLD_RAILS];   /* the rail's handshake in progress */
    bool broken[WORLD_RAILS]; /* whether the rail's newest connection is broken */
    struct nic {
        enum { NIC_WORKS, NIC_SLOW, NIC_DARK } is;
        uint32_t slow;  /* moves data once in this many steps */
        uint64_t until; /* step at which the state may change */
    } nic[WORLD_RAILS];
    uint64_t steps;
    uint64_t still[2]; /* the node's process is suspended until this step */
    uint64_t resumed;  /* time (ns) of the last clock jump or suspension of a process or loop */
    struct hw_loop
        *late; /* takes no turns until late_until, while time advances faster, like a thread that gets no CPU */
    uint64_t late_until;
    bool stuck; /* node 1's home loop takes no turns */
    bool lies;  /* node 1 lies: the checks only cover damage to node 0 */
    uint64_t
        excused; /* a working rail may be given up until this time (ns), because a process was suspended or was slow */
};

extern const struct hw_rail_io world_io;
#define WORLD_DEAD 2000000 /* ns of silence after which a rail is given up */

/* Chooses the numbers of rails, links and faults, and creates the loops. The caller sets side[].session. */
void world_init(struct world *w, struct sim *s);
/* Executes one event of the network, a handshake or a loop: everything except the actions of the upper layer. */
void world_step(struct world *w);
/* Runs some tasks of one of a node's loops. */
void world_turn(struct world *w, int side, unsigned budget);
/* Returns true if the node's process is suspended. */
bool world_is_still(const struct world *w, int side);
/* Ends the current faults of the nodes: suspended processes and loops, and slow and dead NICs. */
void world_calm(struct world *w);
/* May let a side detect that the other side has closed a connection. */
void world_notice(struct world *w, int side);
/* The upper layer forwards these notifications to the world. */
void world_note_end(struct world *w, int side, unsigned rail, int why);
void world_note_down(struct world *w, int side, unsigned rail);
/* Checks, after both sessions have died, that each connection was closed by every side that held it. */
void world_check_closed(struct world *w);
/* Frees the connections. */
void world_free(struct world *w);

#endif
