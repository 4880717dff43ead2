/* SPDX-License-Identifier: Apache-2.0 */
/* The client's choice of NIC pairs. Probes the candidates of net/paths.h and uses the working candidates. */
#ifndef HW_PAIRING_H
#define HW_PAIRING_H

#include "net/paths.h"
#include "transport/tcp/sock.h"
#include "transport/transport.h"

enum hw_try_state {
    HW_TRY_NOT,    /* not tried yet, or not needed */
    HW_TRY_WAITS,  /* in progress */
    HW_TRY_WORKS,  /* leads to the session's server */
    HW_TRY_FAILED, /* failed; `why` contains the reason */
};

/* The probe of a candidate. */
struct hw_try {
    enum hw_try_state state;
    int fd;
    struct hw_hs *hs;
    uint64_t began;
    uint16_t reached; /* 1 + the index of the server's entry for the NIC that the connection arrived on, or 0 if there
                         is none */
    int rc;
    char why[160];
};

struct hw_pair {
    struct hw_nic nic;
    char peer_nic[HAWSER_NIC_NAME];
    uint16_t entry; /* index of the server's entry, or 0 if the dialled address has none */
    uint8_t handle[HW_HANDLE_MAX];
    uint16_t handle_len;
    bool sure; /* the pair was shown to work; otherwise the library keeps trying its channels */
};

/* The server that the client's first connection has reached, and the client's options. All pointers must stay valid
 * until the pairing is freed. */
struct hw_dial {
    const struct hw_tp_env *env;
    union hw_addr local, remote; /* ends of the first connection */
    uint64_t session;
    uint8_t secret[HW_SECRET];
    bool keyed, insecure;         /* insecure: any address may be dialled without a key */
    const char *nics, *peer_nics; /* see struct hawser_connect_options; "" if not specified */
    bool only_dialled;
    /* Called while the pairing waits, because this process may also be the server. May be NULL. */
    void (*progress)(void *arg);
    void *arg;
};

struct hw_pairing {
    const struct hw_dial *dial;
    struct hw_nic nics[HW_NIC_MAX];
    int n_nics;
    struct hw_setup setup;        /* header of the server's SETUP */
    struct hw_setup_entry *entry; /* entries of the server's SETUP */
    struct hw_path_end *mine, *theirs;
    uint8_t *way;
    char *rails;
    struct hw_paths_in in;
    struct hw_paths paths;
    struct hw_try *tries; /* one element for each of paths.list */
    struct hw_pair pair[HW_NIC_MAX];
    uint32_t n_pairs;
    unsigned n_tries;
    int possible; /* number of pairs if every candidate worked */
};

/* Reads the server's SETUP of len bytes, whose header is s. The caller frees *out, which is NULL on failure. Fails with
 * -EPROTO or -ENOMEM. */
int hw_pairing_new(const struct hw_dial *d, const uint8_t *body, size_t len, const struct hw_setup *s,
                   struct hw_pairing **out);
void hw_pairing_free(struct hw_pairing *g);

/* Finds the pairs, in the caller's thread and without locks. Returns 0 with at least one pair. Fails with a negative
 * errno, for example if no path works, if a NIC name is unknown, or if fewer pairs work than the knob require_nics
 * demands. */
int hw_pairing_run(struct hw_pairing *g, uint64_t deadline);

/* Moves the pairs of these local NICs (comma-separated) to the front. Returns the number of the other pairs, or 0 if no
 * pair uses these NICs. Fails with -ENODEV for an unknown NIC name. */
int hw_pairing_prefer(struct hw_pairing *g, const char *nics);

/* Returns an allocated array of *n entries for hawser_paths(), or NULL if out of memory. */
struct hawser_path *hw_pairing_report(const struct hw_pairing *g, uint32_t *n);

/* Returns true if the address may be used. Without a key only loopback and lab addresses are allowed, unless insecure
 * is set. */
static inline bool hw_address_allowed(bool keyed, bool insecure, const union hw_addr *a)
{
    return keyed || insecure || hw_addr_is_private_ground(a);
}

#endif
