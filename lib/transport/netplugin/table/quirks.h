/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about plugins beyond the ABI, in one const row for each plugin. Rows are found by the name in the plugin's
 * table. The last row is for all other plugins, and assumes only the behavior that NCCL itself relies on.
 */
#ifndef HW_NETPLUGIN_QUIRKS_H
#define HW_NETPLUGIN_QUIRKS_H

#include "base/base.h"

/* An environment variable that a plugin reads. */
struct np_env {
    const char *name;
    enum np_env_rule {
        NP_ENV_IS,      /* must be `value`; unset or 0 is an error, and any other value causes a warning */
        NP_ENV_UNSET,   /* should be unset; any value other than `value` causes a warning */
        NP_ENV_NICS,    /* list of NIC names, "eth1,eth2", which must exist; unset causes a warning */
        NP_ENV_MANAGER, /* folder that must contain the socket `value`; `fallback` if unset */
    } rule;
    const char *value, *fallback;
    const char *why;
};

struct np_quirk {
    const char *table;      /* prefix of the table's name */
    unsigned max_requests;  /* maximum requests in flight per connection and direction, or 0 for the ABI's limit */
    uint32_t max_size;      /* maximum bytes of one request, or 0 for the ABI's limit */
    uint32_t max_fragments; /* maximum fragments of a request; with more, the plugin ends the process; 0: no limit */
    uint32_t align;         /* required alignment of registered addresses in bytes, or 0 for none */
    unsigned handle_bytes;  /* number of handle bytes that the peer needs, or 0 for all */
    bool setup_threads;     /* connect and accept may each wait for the peer, so each must have a thread */
    bool remote_only;       /* cannot connect two endpoints on the same machine */
    const char *wait_env;   /* variable with the time in us for which accept() sleeps, or NULL */
    unsigned wait_ms;       /* default for wait_env, or the longest known time of listen, connect or accept, in ms */
    const struct np_env *env;
    size_t n_env;
};

/* Returns the row for the table's name. Never returns NULL. */
const struct np_quirk *np_quirk_of(const char *table_name);

/* Returns the time in ms that listen, connect or accept may take in this environment. A connection's deadline must
 * allow for this time. */
unsigned np_quirk_wait_ms(const struct np_quirk *q, const char *const *env);

enum np_grade { NP_GOOD, NP_WARN, NP_BAD };
typedef void (*np_report_fn)(void *arg, enum np_grade grade, const char *line);

/* Checks the plugin's environment (a NULL-terminated list of "NAME=VALUE"). Reports a line for each variable of the
 * row. fn may be NULL. Returns the number of errors. If there are errors, hw_error() returns the line of the first
 * error. */
int np_check_env(const struct np_quirk *q, const char *const *env, np_report_fn fn, void *arg);

/* Returns the maximum size in bytes of a request that produces no more fragments than the row allows, on a NIC of this
 * MTU. Returns the row's own size limit if that is smaller, and UINT32_MAX if the row has no limits. */
uint32_t np_quirk_size(const struct np_quirk *q, uint32_t mtu);

#endif
