/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of a plugin beyond its ABI: one const row each, found by the name in its table. The last row is for all others:
 * what NCCL itself may rely on.
 */
#ifndef HW_NETPLUGIN_QUIRKS_H
#define HW_NETPLUGIN_QUIRKS_H

#include "base/base.h"

/* An environment variable that a plugin reads. */
struct np_env {
    const char *name;
    enum np_env_rule {
        NP_ENV_IS,      /* must be `value`; unset or 0 is an error, any other value gives a warning */
        NP_ENV_UNSET,   /* should be unset: any value other than `value` gives a warning */
        NP_ENV_NICS,    /* NICs by name, "eth1,eth2": each must exist; unset gives a warning */
        NP_ENV_MANAGER, /* a folder with the socket `value` in it; unset means `fallback` */
    } rule;
    const char *value, *fallback;
    const char *why;
};

struct np_quirk {
    const char *table;      /* prefix of the table's name */
    unsigned max_requests;  /* in flight on a connection and direction; 0: the ABI's */
    uint32_t max_size;      /* bytes of one request; 0: the ABI's */
    uint32_t max_fragments; /* of one request; more end the process */
    uint32_t align;         /* of registered addresses; 0: any */
    unsigned handle_bytes;  /* bytes of the handle that are for the peer; 0: all */
    bool setup_threads;     /* connect and accept may each wait for the other: always use a thread for each */
    bool remote_only;       /* carries nothing between two ends on one machine */
    const char *wait_env;   /* variable with the microseconds that accept() sleeps; NULL: none */
    unsigned wait_ms;       /* otherwise the longest known time of listen, connect or accept */
    const struct np_env *env;
    size_t n_env;
};

/* Returns the row for the table's name; never NULL. */
const struct np_quirk *np_quirk_of(const char *table_name);

/* Returns how long accept() sleeps in this environment, in ms: a connection's deadline must allow for it. */
unsigned np_quirk_wait_ms(const struct np_quirk *q, const char *const *env);

enum np_grade { NP_GOOD, NP_WARN, NP_BAD };
typedef void (*np_report_fn)(void *arg, enum np_grade grade, const char *line);

/* Checks the plugin's environment ("NAME=VALUE", NULL-terminated): reports a line for each variable of the row, with
 * its value, why it matters and what to do. fn may be NULL. Returns how many are bad; hw_error() then has the line of
 * the first. */
int np_check_env(const struct np_quirk *q, const char *const *env, np_report_fn fn, void *arg);

/* Returns how many bytes one request may have so that it gives no more fragments than the row allows on a NIC of that
 * MTU: the row's own limit if that is smaller, UINT32_MAX without limits. */
uint32_t np_quirk_size(const struct np_quirk *q, uint32_t mtu);

#endif
