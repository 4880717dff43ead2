/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which NICs of two nodes to join: a pure function of both sides' addresses, of what the kernel says of its routes, of
 * names, and of what the user wants. What it gives are candidates, best first, and out of those that are not known to
 * fail the best assignment of NICs to NICs. Who calls it finds out which of them work (transport/pairing.c).
 *
 * Equal subnets are not asked for: on Google's cloud each NIC has a /32 address and reaches its peers by routes, in
 * layer-3 fabrics a /31 (facts/clusters.md). A route by the NIC is what makes a candidate.
 */
#ifndef HW_PATHS_H
#define HW_PATHS_H

#include "net/nic.h"

#define HW_RAILS_MAX 65536 /* bytes of a map of rails */

/* How an address is reached from a NIC: one of the first three, and whether the kernel would take this NIC by itself.
 * NEVER: it is not to be dialled, whatever the user names. */
enum { HW_WAY_NONE, HW_WAY_GATEWAY, HW_WAY_LINK, HW_WAY_NATURAL = 4, HW_WAY_NEVER = 8 };

struct hw_path_end { /* an address of a NIC; a NIC may have several */
    char name[HAWSER_NIC_NAME];
    union hw_addr addr;
    uint64_t device; /* ours: the hardware below it, the same for all that share it; 0: none (a bridge, a tunnel) */
};

struct hw_paths_in {
    const struct hw_path_end *mine, *theirs;
    unsigned n_mine, n_theirs;
    const uint8_t *way;    /* from mine[i] to theirs[j]: way[i * n_theirs + j] */
    int dialled;           /* which of theirs the user's address leads to; -1: not known */
    bool only_dialled;     /* and nowhere else */
    const char *nics;      /* ours to use, comma-separated; NULL or "": all */
    const char *peer_nics; /* the peer's to use. With nics: pairs, the k-th of the one with the k-th of the other */
    const char *rails;     /* which NICs may be joined, see hw_rails_check(); NULL or "": all with all */
};

struct hw_path {
    uint16_t mine, theirs;
    uint32_t weight; /* higher is better */
};

struct hw_paths {
    struct hw_path *list; /* best first; where exact in the user's order */
    unsigned n;
    bool exact; /* the user has said which: all of them are to be used */
    /* private: of each end, what can be used once: the first end of the same NIC or hardware, and its place in the
     * order of these */
    struct hw_path_unit {
        uint16_t first, place;
        bool leads; /* of the first: a way leads by it */
    } * mine, *theirs;
};

/*
 * Text of rails is lines, or parts between ';': each a rail, of names of NICs, addresses and subnets
 * ("eth1,enp6s0,10.0.1.0/24"), separated by commas or blanks; what follows '#' is ignored. NICs are joined that are on
 * the same rail, by name or by address. 0 or -EINVAL with the bad word.
 */
int hw_rails_check(const char *rails);

/* 0 where each name of the comma-separated list is that of one of the n ends, which are whose; else -ENODEV. */
int hw_paths_check_names(const char *list, const char *whose, const struct hw_path_end *e, unsigned n);

/* Fills out, to be freed. -ENODEV: a name that is no NIC, or a pair that cannot be; -EINVAL: rails; -ENOMEM. */
int hw_paths_find(const struct hw_paths_in *in, struct hw_paths *out);
void hw_paths_free(struct hw_paths *p);

/* Chooses the best assignment among the candidates for which out[k] is false: most pairs first, then the highest sum
 * of weights; no NIC and no hardware of ours twice. pick[k]: candidate k is in it. Returns how many are; -ENOMEM. */
int hw_paths_assign(const struct hw_paths_in *in, const struct hw_paths *p, const bool *out, bool *pick);

/* How many pairs there could be, were every candidate to work. -ENOMEM. */
int hw_paths_possible(const struct hw_paths_in *in, const struct hw_paths *p);

/* Why NIC i of ours (or of theirs) has no candidate; NULL: it has one. */
const char *hw_paths_why(const struct hw_paths_in *in, const struct hw_paths *p, bool ours, unsigned i);

#endif
