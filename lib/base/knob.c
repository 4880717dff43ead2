/* SPDX-License-Identifier: Apache-2.0 */
#include "base/knob.h"
#include "base/guess.h"
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum knob_type { COUNT, SIZE, BOOL, TEXT };

/* One row of the table of knobs. Defaults are texts, which are parsed like values that users set. */
struct knob {
    const char *name;
    size_t offset; /* offset in struct hw_knobs */
    enum knob_type type;
    const char *def;
    uint64_t min, max; /* for TEXT, max is the maximum length */
    const char *unit;
    const char *doc;
};

#define KIB        (1ull << 10)
#define MIB        (1ull << 20)
#define GIB        (1ull << 30)
#define MINUTES(n) ((n)*60000ull)
#define DAYS(n)    MINUTES((n)*24ull * 60)
#define AT(field)  offsetof(struct hw_knobs, field)

/* clang-format off */
static const struct knob table[] = {
    {"channels", AT(channels), COUNT, "0", 0, 64, "connections",
     "connections per pair of NICs, not counting those that carry only small messages; 0: 4 to 16, depending on the NIC's speed, the number of progress threads per pair and the limit on open files"},
    {"window", AT(window), SIZE, "16MiB", 64 * KIB, GIB, "bytes",
     "maximum number of bytes in flight on a connection; transport tcp uses less where the path's bandwidth-delay product is smaller"},
    {"threads", AT(threads), COUNT, "0", 0, 64, "threads",
     "number of progress threads; 0: half the number of CPUs that the process may use, but at least 2 and at most 16, or 1 on a single CPU"},
    {"pin", AT(pin), BOOL, "yes", 0, 0, "yes/no",
     "pin progress threads to the CPUs near their NIC"},
    {"spin_us", AT(spin_us), COUNT, "50", 0, 1000000, "us",
     "how long a waiting caller polls before it sleeps"},
    {"busy_us", AT(busy_us), COUNT, "0", 0, 1000000, "us",
     "the longest time that a progress thread polls for more work before it sleeps; in total it polls for at most four times as long as its work takes; while it polls, it uses a whole CPU"},
    {"busy_below", AT(busy_below), COUNT, "0", 0, 1000000000000, "Mbit/s",
     "progress threads do not poll while the context transfers at least this much, and at most twice as much, in one direction, because a NIC near its speed gains nothing from polling; 0: no limit"},
    /* The kernel limits the value to INT_MAX / 2 (net/core/sock.c, __sock_set_rcvbuf) and to net.core.[rw]mem_max. */
    {"sndbuf", AT(sndbuf), SIZE, "0", 0, GIB, "bytes",
     "SO_SNDBUF of a connection; 0: the kernel's autotuning"},
    {"rcvbuf", AT(rcvbuf), SIZE, "0", 0, GIB, "bytes",
     "SO_RCVBUF of a connection; 0: the kernel's autotuning"},
    {"congestion", AT(congestion), TEXT, "auto", 0, sizeof(((struct hw_knobs *)0)->congestion) - 1, "name",
     "TCP congestion control; auto: the system's, but cubic or reno instead of bbr to a peer on the same subnet or within 2 ms; system: always the system's"},
    {"splice", AT(splice), BOOL, "yes", 0, 0, "yes/no",
     "send host memory by reference (vmsplice) where that is faster, in a program that trusts its peers (HAWSER_TRUSTED)"},
    {"stage", AT(stage), SIZE, "8MiB", 1 * MIB, GIB, "bytes",
     "size of the pinned host memory through which GPU memory is staged, per connection and direction; rounded up to a multiple of 64 KiB"},
    {"stall_ms", AT(stall_ms), COUNT, "500", 50, MINUTES(1), "ms",
     "a connection is dead, and its rail with it, if the peer's kernel acknowledges none of its retransmissions or probes for this long, or for a shorter time while other rails still hear from the peer"},
    {"peer_timeout_ms", AT(peer_timeout_ms), COUNT, "10000", 100, MINUTES(60), "ms",
     "a peer that is silent on all rails for this long is dead; a rail that is silent for this long is reconnected"},
    {"handshake_ms", AT(handshake_ms), COUNT, "5000", 50, MINUTES(10), "ms",
     "deadline for the handshake of a connection, and for each message of the handshake"},
    {"op_timeout_ms", AT(op_timeout_ms), COUNT, "60000", 0, DAYS(7), "ms",
     "default deadline of operations, except that a receive has no deadline by default; 0: no deadline"},
    {"keepalive_ms", AT(keepalive_ms), COUNT, "5000", 100, MINUTES(60), "ms",
     "a peer that is silent for this long is sent a keepalive, at the latest after 1.5 times this time; at most a quarter of peer_timeout_ms is used"},
    {"max_peers", AT(max_peers), COUNT, "4096", 1, 1048576, "peers",
     "maximum number of peers at once, including those that this context connected to; further incoming peers are refused"},
    {"transport", AT(transport), TEXT, "tcp", 0, sizeof(((struct hw_knobs *)0)->transport) - 1, "name",
     "tcp; devmem, with which the kernel places payload into device memory, on NICs that support this; or netplugin:PLUGIN, with the path or name of a libnccl-net-*.so, which runs in a child process; must be the same on both sides"},
    {"devmem_socket", AT(devmem_socket), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->devmem_socket) - 1, "path",
     "transport devmem: hawserd's socket; empty: /run/hawser/hawserd.sock"},
    {"devmem_memory", AT(devmem_memory), TEXT, "auto", 0, sizeof(((struct hw_knobs *)0)->devmem_memory) - 1, "name",
     "transport devmem: where NICs place payload: cuda:N; host; or auto, which means the GPU that the connection is for, or else the GPU of the first memory registered before the first connection, or else a GPU near the NIC, or else host"},
    {"devmem_pool", AT(devmem_pool), SIZE, "64MiB", MIB, 4 * GIB, "bytes",
     "transport devmem: size of the memory where NICs place payload, per NIC and GPU"},
    {"devmem_queues", AT(devmem_queues), COUNT, "1", 1, 16, "queues",
     "transport devmem: number of receive queues to bind, per NIC and GPU"},
    {"devmem_piece", AT(devmem_piece), SIZE, "0", 0, 2 * MIB, "bytes",
     "transport devmem: size of the pieces of memory that NICs fill, a power of two; more than a page needs a driver that supports this (mlx5, bnxt) and memory that is contiguous in pieces of at least this size; 0: a page"},
    {"require_direct", AT(require_direct), BOOL, "no", 0, 0, "yes/no",
     "fail if received data would not be placed directly in the memory of the connection's GPU, because the transport cannot do this, because a connection would fall back to tcp, or because the data would go to other memory"},
    {"same_machine", AT(same_machine), TEXT, "auto", 0, sizeof(((struct hw_knobs *)0)->same_machine) - 1, "name",
     "whether to connect to a peer on this same machine; auto: not if the transport delivers nothing without a NIC in between (GPUDirect-TCPX); no (the default of bench and validate): not if the transport then delivers nothing or falls back to tcp (devmem); yes: always"},
    {"plugin_devices", AT(plugin_devices), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->plugin_devices) - 1, "names",
     "transport netplugin: which of the plugin's devices belongs to which NIC, as in eth1=0,eth2=1; empty: matched by name, else by PCI address"},
    {"plugin_spin_us", AT(plugin_spin_us), COUNT, "2000", 1, 1000000, "us",
     "transport netplugin: how long the plugin's process polls without finding work before it sleeps between polls"},
    {"plugin_unpack", AT(plugin_unpack), TEXT, "kernel", 0, sizeof(((struct hw_knobs *)0)->plugin_unpack) - 1, "name",
     "transport netplugin: how to gather received data that a plugin leaves as fragments in GPU memory; kernel: with hawser's GPU kernel; d2d: with one device-to-device copy per fragment; host: through host memory, for comparison"},
    {"plugin_trace", AT(plugin_trace), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->plugin_trace) - 1, "path",
     "transport netplugin: a file to which hawser appends the calls into the plugin and the plugin's log lines of all levels, for hawser trace; empty: none"},
    {"plugin_trace_polls", AT(plugin_trace_polls), BOOL, "no", 0, 0, "yes/no",
     "yes: the file of knob plugin_trace also gets a line for each call that made no progress; no: such calls are only counted"},
    {"plugin_threads", AT(plugin_threads), BOOL, "yes", 0, 0, "yes/no",
     "transport netplugin; yes: make each connection in its own thread, as NCCL does for several communicators, so that a connect or accept that blocks does not delay the others; no, for a plugin that is not thread-safe: start several processes (four times the value of knob channels, at most 16), each of which calls the plugin from one thread"},
    {"nics", AT(nics), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->nics) - 1, "names",
     "local NICs to use, comma-separated; empty: every NIC with a route to the peer"},
    {"rails", AT(rails), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->rails) - 1, "rails",
     "which NICs of two nodes may be connected: rails separated by ';', each a comma-separated list of NIC names, addresses and subnets, as in eth1,enp6s0;10.0.2.0/24, or @FILE with one rail per line; empty: any with any"},
    {"advertise", AT(advertise), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->advertise) - 1, "addresses",
     "addresses at which peers reach this node if these are not addresses of its NICs (NAT, pods): [NIC=]ADDRESS[:PORT], comma-separated"},
    {"require_nics", AT(require_nics), COUNT, "0", 0, 64, "pairs",
     "fail to connect if fewer pairs of NICs than this work; 0: one pair is enough, and a warning is logged if some pairs do not work"},
    {"path_ms", AT(path_ms), COUNT, "2000", 10, 60000, "ms",
     "the longest time that a connect probes the paths to a peer; once one path has answered, hawser stops waiting for much slower ones"},
    {"metrics", AT(metrics), BOOL, "yes", 0, 0, "yes/no",
     "provide metrics to hawser top and hawser metrics on a local socket of mode 0600; no: no socket"},
    {"metrics_dir", AT(metrics_dir), TEXT, "", 0, sizeof(((struct hw_knobs *)0)->metrics_dir) - 1, "path",
     "the folder for the metrics socket; empty: the first usable one of /run/hawser-metrics, $XDG_RUNTIME_DIR/hawser-metrics and /tmp/hawser-metrics-UID"},
    {"metrics_kind", AT(metrics_kind), TEXT, "library", 0, sizeof(((struct hw_knobs *)0)->metrics_kind) - 1, "name",
     "the value of the metrics' label `kind`; hawser serve, the NCCL plugin and the NIXL backend set it to serve, nccl and nixl, respectively"},
};
/* clang-format on */

/* Replaces NULL with "". */
#define SHOW(s) ((s) ? (s) : "")

/* Former names of knobs, which still work. */
static const struct {
    const char *old, *name;
} renamed[] = {{"require_devmem", "require_direct"}};

/* Removed knobs and their replacements. The maximum chunk sizes are now constants in lib/message/peer.h. */
static const struct {
    const char *name, *instead;
} gone[] = {
    {"chunk", "the engine chooses the chunk size; knob window limits the bytes in flight on a connection"},
    {"min_chunk", "the engine chooses the chunk size; knob window limits the bytes in flight on a connection"},
    {"inline_max", "messages of up to 8 KiB in host memory are sent without waiting for their receive"},
    {"max_ops", "up to 65536 operations may be in flight to a peer"},
    {"notify_queue", "1 MiB of notifications is buffered for each peer, and later ones wait at the sender"},
    {"unexpected", "1 MiB of messages is buffered for each peer, and later ones wait at the sender for their receive"},
};

static const struct knob *find_knob(const char *name)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(renamed); i++)
        if (strcmp(name, renamed[i].old) == 0)
            name = renamed[i].name;
    for (size_t i = 0; i < HW_ARRAY_LEN(table); i++)
        if (strcmp(name, table[i].name) == 0)
            return &table[i];
    return NULL;
}

static int reject_unknown_knob(const char *name)
{
    struct hw_guess g = {.word = name};

    for (size_t i = 0; i < HW_ARRAY_LEN(gone); i++)
        hw_guess(&g, gone[i].name);
    for (size_t i = 0; i < HW_ARRAY_LEN(gone); i++)
        if (g.near == gone[i].name && g.edits == 0 && strlen(name) == strlen(g.near))
            return hw_fail(-EINVAL, "knob '%s' was removed: %s", gone[i].name, gone[i].instead);
    g = (struct hw_guess){.word = name};
    for (size_t i = 0; i < HW_ARRAY_LEN(table); i++)
        hw_guess(&g, table[i].name);
    if (!g.near)
        return hw_fail(-EINVAL, "unknown knob '%.60s': see hawser(7) or `hawser help knobs`", name);
    return hw_fail(-EINVAL, "unknown knob '%.60s'; did you mean '%s' (%s)?", name, g.near, find_knob(g.near)->doc);
}

static bool parse_bool(const char *s, bool *out)
{
    static const struct {
        const char *word;
        bool value;
    } words[] = {
        {"yes", true}, {"no", false},  {"1", true},    {"0", false},
        {"on", true},  {"off", false}, {"true", true}, {"false", false},
    };

    for (size_t i = 0; i < HW_ARRAY_LEN(words); i++)
        if (strcasecmp(s, words[i].word) == 0) {
            *out = words[i].value;
            return true;
        }
    return false;
}

/* Sets a knob. `as` names the source of the value in messages, such as "knob window" or "HAWSER_WINDOW". */
static int set_knob_value(struct hw_knobs *k, const struct knob *d, const char *as, const char *value)
{
    char *field = (char *)k + d->offset;
    char min[32], max[32];
    size_t len = strlen(value);
    uint64_t v;
    bool b;

    switch (d->type) {
    case COUNT:
        if (hw_parse_u64(value, d->min, d->max, &v) < 0)
            return hw_fail(-EINVAL, "%s='%.60s': must be a whole number from %" PRIu64 " to %" PRIu64 " (%s)", as,
                           value, d->min, d->max, d->unit);
        memcpy(field, &v, sizeof(v));
        return 0;
    case SIZE:
        if (hw_parse_size(value, &v) < 0 || v < d->min || v > d->max)
            return hw_fail(-EINVAL, "%s='%.60s': must be a size from %s to %s (bytes, or with a unit as in 64KiB)", as,
                           value, hw_format_size(d->min, min, sizeof(min)), hw_format_size(d->max, max, sizeof(max)));
        memcpy(field, &v, sizeof(v));
        return 0;
    case BOOL:
        if (!parse_bool(value, &b))
            return hw_fail(-EINVAL, "%s='%.60s': must be yes or no (or 1, 0, true, false, on, off)", as, value);
        memcpy(field, &b, sizeof(b));
        return 0;
    case TEXT:
        if (len > d->max)
            return hw_fail(-EINVAL, "%s='%.60s'%s is %zu bytes long: at most %" PRIu64 " are allowed (%s)", as, value,
                           len > 60 ? "..." : "", len, d->max, d->unit);
        for (size_t i = 0; i < len; i++)
            if (value[i] <= ' ' || value[i] > '~')
                return hw_fail(
                    -EINVAL,
                    "%s: byte %zu of the value is 0x%02x, but only printable ASCII without blanks is allowed (%s)", as,
                    i, (unsigned char)value[i], d->unit);
        memcpy(field, value, len + 1);
        return 0;
    }
    return hw_fail(-EINVAL, "%s: the knob's type is unknown", as);
}

int hw_knob_set(struct hw_knobs *k, const char *name, const char *value)
{
    const struct knob *d = name ? find_knob(name) : NULL;
    char as[80];

    if (!d)
        return reject_unknown_knob(SHOW(name));
    snprintf(as, sizeof(as), "knob %s", name);
    return set_knob_value(k, d, as, SHOW(value));
}

/* Builds the name of the environment variable, such as "HAWSER_WINDOW" for "window". */
static void env_name(const char *name, char *buf, size_t cap)
{
    int n = snprintf(buf, cap, "HAWSER_%s", name);

    for (int i = 0; i < n; i++)
        if (buf[i] >= 'a' && buf[i] <= 'z')
            buf[i] = (char)(buf[i] - 'a' + 'A');
}

/* Rejects removed knobs in the environment, because the program would run without the effect that the user expects. */
static int reject_gone_in_environment(void)
{
    char env[48];

    for (size_t i = 0; i < HW_ARRAY_LEN(gone); i++) {
        env_name(gone[i].name, env, sizeof(env));
        if (getenv(env))
            return hw_fail(-EINVAL, "%s is set, but that knob was removed: %s", env, gone[i].instead);
    }
    return 0;
}

int hw_knobs_load(struct hw_knobs *k, const char *const *list)
{
    struct hw_knobs n;
    char env[48], name[64];
    int rc = reject_gone_in_environment();

    if (rc < 0)
        return rc;
    memset(&n, 0, sizeof(n));
    for (size_t i = 0; i < HW_ARRAY_LEN(table); i++) {
        const char *value;
        rc = set_knob_value(&n, &table[i], table[i].name, table[i].def);
        for (size_t j = 0; j < HW_ARRAY_LEN(renamed) && rc == 0; j++) {
            env_name(renamed[j].old, env, sizeof(env));
            if (strcmp(renamed[j].name, table[i].name) == 0 && (value = getenv(env)))
                rc = set_knob_value(&n, &table[i], env, value);
        }
        env_name(table[i].name, env, sizeof(env));
        if (rc == 0 && (value = getenv(env)))
            rc = set_knob_value(&n, &table[i], env, value);
        if (rc < 0)
            return rc;
    }
    for (; list && *list; list++) {
        const char *eq = strchr(*list, '=');
        if (!eq)
            return hw_fail(-EINVAL, "knob '%.60s' has no value: write name=value", *list);
        if ((size_t)(eq - *list) >= sizeof(name))
            return reject_unknown_knob(*list);
        memcpy(name, *list, (size_t)(eq - *list));
        name[eq - *list] = 0;
        rc = hw_knob_set(&n, name, eq + 1);
        if (rc < 0)
            return rc;
    }
    *k = n;
    return 0;
}

bool hw_knob_text(const struct hw_knobs *k, size_t i, const char **name, char *buf, size_t cap)
{
    const char *field;
    uint64_t v;
    bool b;

    if (i >= HW_ARRAY_LEN(table))
        return false;
    field = (const char *)k + table[i].offset;
    *name = table[i].name;
    switch (table[i].type) {
    case COUNT:
        memcpy(&v, field, sizeof(v));
        snprintf(buf, cap, "%" PRIu64, v);
        break;
    case SIZE:
        memcpy(&v, field, sizeof(v));
        hw_format_size(v, buf, cap);
        break;
    case BOOL:
        memcpy(&b, field, sizeof(b));
        snprintf(buf, cap, "%s", b ? "yes" : "no");
        break;
    case TEXT:
        snprintf(buf, cap, "%s", field);
        break;
    }
    return true;
}

void hawser_knobs(void (*fn)(void *arg, const char *name, const char *env, const char *def, const char *unit,
                             const char *doc),
                  void *arg)
{
    char env[48];

    for (size_t i = 0; i < HW_ARRAY_LEN(table); i++) {
        env_name(table[i].name, env, sizeof(env));
        fn(arg, table[i].name, env, table[i].def, table[i].unit, table[i].doc);
    }
}
