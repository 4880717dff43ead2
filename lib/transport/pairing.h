/* SPDX-License-Identifier: Apache-2.0 */
/* The client's choice of NICs to NICs: what net/paths.h proposes is tried, and what was shown to work is used. */
#ifndef HW_PAIRING_H
#define HW_PAIRING_H

#include "net/paths.h"
#include "transport/tcp/sock.h"
#include "transport/transport.h"

enum hw_try_state {
    HW_TRY_NOT,    /* not tried, as better ones worked */
    HW_TRY_WAITS,  /* under way */
    HW_TRY_WORKS,  /* it leads to the session's server */
    HW_TRY_FAILED, /* see why */
};

/* A candidate, and the connection that tries it. */
struct hw_try {
    enum hw_try_state state;
    int fd;
    struct hw_hs *hs;
    uint64_t began;
    uint16_t reached; /* 1 + the server's entry by which it came in there; 0: none of them */
    int rc;
    char why[160];
};

struct hw_pair {
    struct hw_nic nic;
    char peer_nic[HAWSER_NIC_NAME];
    uint16_t entry; /* the server's */
    uint8_t handle[HW_HANDLE_MAX];
    uint16_t handle_len;
    bool sure; /* it was shown to work; else its channels are tried on */
};

/* What the client knows of a server that its first connection has reached. All of it outlives the pairing. */
struct hw_dial {
    const struct hw_tp_env *env;
    union hw_addr local, remote; /* of that connection */
    uint64_t session;
    uint8_t secret[HW_SECRET];
    bool keyed, insecure;         /* insecure: any address may be dialled without a key */
    const char *nics, *peer_nics; /* as those of struct hawser_connect_options; "": not said */
    bool only_dialled;
    void (*progress)(void *arg); /* called while it waits, as it may be this process that is to answer; NULL: not */
    void *arg;
};

struct hw_pairing {
    const struct hw_dial *dial;
    struct hw_nic nics[HW_NIC_MAX];
    int n_nics;
    struct hw_setup setup;        /* the server's */
    struct hw_setup_entry *entry; /* and its entries */
    struct hw_path_end *mine, *theirs;
    uint8_t *way;
    char *rails;
    struct hw_paths_in in;
    struct hw_paths paths;
    struct hw_try *tries; /* one for each of paths.list */
    struct hw_pair pair[HW_NIC_MAX];
    uint32_t n_pairs;
    unsigned n_tries;
    int possible; /* pairs, were every candidate to work */
};

/* Reads the server's SETUP, len bytes, of which s is the head. *out is to be freed; NULL on errors. -EPROTO, -ENOMEM.
 */
int hw_pairing_new(const struct hw_dial *d, const uint8_t *body, size_t len, const struct hw_setup *s,
                   struct hw_pairing **out);
void hw_pairing_free(struct hw_pairing *g);

/* Finds the pairs, in the caller's thread and without locks. 0 with one at least, or -errno: no path works, a name that
 * is no NIC, fewer than knob require_nics. */
int hw_pairing_run(struct hw_pairing *g, uint64_t deadline);

/* Moves the pairs of these NICs of ours, comma-separated, to the front. Returns how many pairs are not of them; 0 too
 * where none is of them. -ENODEV: a name that is no NIC. */
int hw_pairing_prefer(struct hw_pairing *g, const char *nics);

/* What hawser_paths() is to say of it: allocated, *n entries. NULL: no memory. */
struct hawser_path *hw_pairing_report(const struct hw_pairing *g, uint32_t *n);

/* Without a key only loopback and a lab's addresses are spoken to, unless the user insists. */
static inline bool hw_address_allowed(bool keyed, bool insecure, const union hw_addr *a)
{
    return keyed || insecure || hw_addr_is_private_ground(a);
}

#endif
