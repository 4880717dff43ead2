/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which NICs of two nodes to pair: a pure function of both sides' addresses, the kernel's routes, names and the
 * user's wishes. Returns candidates, best first, and the best assignment of NICs to NICs among the candidates that are
 * not known to fail. The caller finds out which candidates work (transport/pairing.c).
 *
 * Equal subnets are not required: on Google's cloud each NIC has a /32 address and reaches its peers by routes, in
 * layer-3 fabrics a /31 (facts/clusters.md). A route through the NIC makes a candidate.
 */
#ifndef HW_PATHS_H
#define HW_PATHS_H

#include "net/nic.h"

#define HW_RAILS_MAX 65536 /* most bytes of a map of rails */

/* How an address is reached from a NIC: one of the first three, plus NATURAL if the kernel would choose this NIC by
 * itself. NEVER: do not dial it, whatever the user names. */
enum { HW_WAY_NONE, HW_WAY_GATEWAY, HW_WAY_LINK, HW_WAY_NATURAL = 4, HW_WAY_NEVER = 8 };

struct hw_path_end { /* an address of a NIC; a NIC may have several */
    char name[HAWSER_NIC_NAME];
    union hw_addr addr;
    uint64_t device; /* local NICs: hardware below, equal for all NICs that share it; 0: none (bridge, tunnel) */
};

struct hw_paths_in {
    const struct hw_path_end *mine, *theirs;
    unsigned n_mine, n_theirs;
    const uint8_t *way;    /* way[i * n_theirs + j]: from mine[i] to theirs[j] */
    int dialled;           /* index in theirs of the address that the user dialled; -1: unknown */
    bool only_dialled;     /* use no other address */
    const char *nics;      /* local NICs to use, comma-separated; NULL or "": all */
    const char *peer_nics; /* the peer's NICs to use; with nics: pairs, the k-th of nics with the k-th of peer_nics */
    const char *rails;     /* which NICs may be paired, see hw_rails_check(); NULL or "": all with all */
};

struct hw_path {
    uint16_t mine, theirs;
    uint32_t weight; /* higher is better */
};

struct hw_paths {
    struct hw_path *list; /* best first; if exact, in the user's order */
    unsigned n;
    bool exact; /* the user named the pairs: use all of them */
    /* private: for each end its unit, which can be used once: the first end of the same NIC or hardware, and the
     * position of the unit in the order of units */
    struct hw_path_unit {
        uint16_t first, place;
        bool leads; /* in the first end: a way leads through the unit */
    } * mine, *theirs;
};

/*
 * Checks a map of rails. Each line, or part between ';', is a rail: names of NICs, addresses and subnets
 * ("eth1,enp6s0,10.0.1.0/24"), separated by commas or blanks; '#' starts a comment. Two NICs may be paired if one rail
 * contains both, by name or by address. 0, or -EINVAL with the bad word.
 */
int hw_rails_check(const char *rails);

/* Returns 0 if each name of the comma-separated list is the name of one of the n ends, else -ENODEV. whose: the owner
 * of the ends, for the message. */
int hw_paths_check_names(const char *list, const char *whose, const struct hw_path_end *e, unsigned n);

/* Fills out, which the caller frees with hw_paths_free(). -ENODEV: a name that is no NIC, or an impossible pair;
 * -EINVAL: rails; -ENOMEM. */
int hw_paths_find(const struct hw_paths_in *in, struct hw_paths *out);
void hw_paths_free(struct hw_paths *p);

/* Chooses the best assignment among the candidates with out[k] false: the most pairs first, then the highest sum of
 * weights; no NIC and no local hardware twice. Sets pick[k] if candidate k is chosen. Returns the number chosen, or
 * -ENOMEM. */
int hw_paths_assign(const struct hw_paths_in *in, const struct hw_paths *p, const bool *out, bool *pick);

/* Returns how many pairs there would be if every candidate worked, or -ENOMEM. */
int hw_paths_possible(const struct hw_paths_in *in, const struct hw_paths *p);

/* Returns why local NIC i (ours false: the peer's) has no candidate; NULL: it has one. */
const char *hw_paths_why(const struct hw_paths_in *in, const struct hw_paths *p, bool ours, unsigned i);

#endif
