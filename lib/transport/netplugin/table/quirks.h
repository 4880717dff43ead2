/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a plugin beyond its ABI: one const row each, found by the name in its table. The last row is for all
 * others: what NCCL itself may rely on.
 */
#ifndef HW_NETPLUGIN_QUIRKS_H
#define HW_NETPLUGIN_QUIRKS_H

#include "base/base.h"

/* A variable of the environment that a plugin reads. */
struct np_env {
    const char *name;
    enum np_env_rule {
        NP_ENV_IS,      /* must be `value`; unset or 0 fails, anything else is warned of */
        NP_ENV_UNSET,   /* is best left alone: set to anything but `value` it is warned of */
        NP_ENV_NICS,    /* NICs by name, "eth1,eth2": each must be there; unset is warned of */
        NP_ENV_MANAGER, /* a folder with the socket `value` in it; unset means `fallback` */
    } rule;
    const char *value, *fallback;
    const char *why;
};

struct np_quirk {
    const char *table;      /* how the table's name begins */
    unsigned max_requests;  /* in flight on a connection and direction; 0: the ABI's */
    uint32_t max_size;      /* bytes of one request; 0: the ABI's */
    uint32_t max_fragments; /* of one request; more end the process */
    uint32_t align;         /* of registered addresses; 0: any */
    unsigned handle_bytes;  /* of the handle that are meant for the peer; 0: all */
    bool setup_threads;     /* connect and accept may each wait for the other: a thread each, whatever the host wants */
    bool remote_only;       /* between two ends on one machine nothing arrives */
    const char *wait_env;   /* a variable with the microseconds that accept() sleeps; NULL: none */
    unsigned wait_ms;       /* ... else what listen, connect or accept is known to take */
    const struct np_env *env;
    size_t n_env;
};

/* The row of the table's name; never NULL. */
const struct np_quirk *np_quirk_of(const char *table_name);

/* What accept() sleeps in this environment, in ms: a connection's deadline must allow for it. */
unsigned np_quirk_wait_ms(const struct np_quirk *q, const char *const *env);

enum np_grade { NP_GOOD, NP_WARN, NP_BAD };
typedef void (*np_report_fn)(void *arg, enum np_grade grade, const char *line);

/* What the plugin will find in the environment ("NAME=VALUE", NULL at the end): a line for each variable of the row,
 * with what it is, why that matters and what to do. fn may be NULL. Returns how many are bad; hw_error() then has the
 * first one's line. */
int np_check_env(const struct np_quirk *q, const char *const *env, np_report_fn fn, void *arg);

/* The bytes that one request may have so that no more fragments than the row allows can come of it, on a NIC of that
 * MTU: the row's own limit where it is smaller, UINT32_MAX where there is neither. */
uint32_t np_quirk_size(const struct np_quirk *q, uint32_t mtu);

#endif
