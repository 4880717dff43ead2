/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chooses which NICs of two nodes are paired. The choice is a pure function of both sides' addresses, the kernel's
 * routes, the names and the user's settings. The result is a list of candidates, best first, and the best assignment of
 * NICs to NICs among the candidates that are not known to fail. The caller determines which candidates work
 * (transport/pairing.c).
 *
 * Equal subnets are not required. On Google's cloud each NIC has a /32 address and reaches its peers by routes; in
 * layer-3 fabrics each NIC has a /31 address. A route through the NIC is sufficient for a candidate.
 */
#ifndef HW_PATHS_H
#define HW_PATHS_H

#include "net/nic.h"

#define HW_RAILS_MAX 65536 /* a map of rails has fewer bytes */

/* How an address is reached from a NIC: one of the first three values, plus NATURAL if the kernel would choose this NIC
 * on its own. NEVER means that the address must not be dialled even if the user requests it. */
enum { HW_WAY_NONE, HW_WAY_GATEWAY, HW_WAY_LINK, HW_WAY_NATURAL = 4, HW_WAY_NEVER = 8 };

struct hw_path_end { /* an address of a NIC, which may have several */
    char name[HAWSER_NIC_NAME];
    union hw_addr addr;
    uint64_t device; /* local NICs: number of the underlying hardware, equal for all NICs that share it; 0 if there is
                        none (veth, tunnel) */
};

struct hw_paths_in {
    const struct hw_path_end *mine, *theirs;
    unsigned n_mine, n_theirs;
    const uint8_t *way;    /* way[i * n_theirs + j] is the way from mine[i] to theirs[j] */
    int dialled;           /* index in theirs of the address that the user dialled, or -1 if unknown */
    bool only_dialled;     /* use only the dialled address */
    const char *nics;      /* local NICs to use, comma-separated; NULL or "" for all */
    const char *peer_nics; /* the peer's NICs to use; if nics is also set, the k-th NIC of nics is paired with the k-th
                              NIC of peer_nics */
    const char *rails;     /* NICs that may be paired, see hw_rails_check(); NULL or "" for no restriction */
};

struct hw_path {
    uint16_t mine, theirs;
    uint32_t weight; /* a higher value is better */
};

struct hw_paths {
    struct hw_path *list; /* best candidate first; in the user's order if exact */
    unsigned n;
    bool exact; /* the user specified the pairs, and all pairs that do not fail are used */
    /* Private: the unit of each end, that is, its NIC or hardware, which can be used once. first is the first end of
     * the same NIC or hardware, and place is the position of the unit among the units that have a route, or 0 for other
     * units. */
    struct hw_path_unit {
        uint16_t first, place;
        bool leads; /* only set in the first end: a route leads through the unit */
    } * mine, *theirs;
};

/*
 * Checks a map of rails. Each line, or each part between ';', is a rail. A rail contains names of NICs, addresses and
 * subnets, as in "eth1,enp6s0,10.0.1.0/24", separated by commas or blanks; '#' starts a comment. Two NICs may be paired
 * if one rail contains both, by name or by address. Returns 0, or -EINVAL if a word is invalid or the map is too long;
 * the error text contains the word or the size.
 */
int hw_rails_check(const char *rails);

/* Returns 0 if each name in the comma-separated list is the name of one of the n ends, or -ENODEV otherwise. whose is
 * the owner of the ends, for the error text. */
int hw_paths_check_names(const char *list, const char *whose, const struct hw_path_end *e, unsigned n);

/* Fills out, which the caller frees with hw_paths_free(). Fails with -ENODEV for an unknown NIC name, an impossible
 * pair, or lists of different lengths, with -EINVAL for a bad map of rails, and with -ENOMEM. */
int hw_paths_find(const struct hw_paths_in *in, struct hw_paths *out);
void hw_paths_free(struct hw_paths *p);

/* Chooses the best assignment among the candidates k with out[k] false (all candidates if out is NULL). If exact is
 * set, these are all chosen. Otherwise, the largest number of pairs is best, then the highest sum of weights, and no
 * NIC and no local hardware is used twice. Local NICs without hardware are only used if the user has set nics, rails or
 * only_dialled, or if nothing else is possible. Sets pick[k] for the chosen candidates. Returns the number of these
 * candidates, or -ENOMEM. */
int hw_paths_assign(const struct hw_paths_in *in, const struct hw_paths *p, const bool *out, bool *pick);

/* Returns the number of pairs that would be used if every candidate worked, or -ENOMEM. */
int hw_paths_possible(const struct hw_paths_in *in, const struct hw_paths *p);

/* Returns the reason why NIC i has no candidate, or NULL if the NIC has a candidate. ours selects local NICs or the
 * peer's. */
const char *hw_paths_why(const struct hw_paths_in *in, const struct hw_paths *p, bool ours, unsigned i);

#endif
