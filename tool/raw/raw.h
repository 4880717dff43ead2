/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What plain TCP sockets reach over the same path, channel count and memory: the honest rival of hawser.
 * One blocking thread per stream and side, send() and recv() of up to 1 MiB, kernel autotuning, TCP_NODELAY, hawser's
 * congestion control; the streams pull their next piece from one shared counter, so that a slow NIC carries less and
 * does not set the pace.
 *
 * Both halves must hold the same plan and token; the caller carries them, and the ports, from one to the other:
 *   serve:  raw_server_start() -> ports -> (told to the client) ... raw_server_finish()
 *   bench:  raw_client_run()
 * Every wait ends at the deadline (in hw_now() terms) at the latest. 0 or -errno with hw_error() as everywhere.
 */
#ifndef HW_TOOL_RAW_H
#define HW_TOOL_RAW_H

#include "base/knob.h"
#include "tool/report/hist.h"

#define RAW_TOKEN_SIZE  16
#define RAW_MAX_PATHS   64
#define RAW_MAX_STREAMS 512 /* paths x streams */
#define RAW_MESSAGE     (1u << 20)

enum raw_dir {
    RAW_CLIENT_SENDS, /* like hawser write and send */
    RAW_SERVER_SENDS, /* as hawser read */
};

struct raw_plan {
    enum raw_dir dir;
    uint32_t streams; /* per path */
    /* presented by the client on every connection; the server drops connections without it */
    uint8_t token[RAW_TOKEN_SIZE];
    uint64_t message;             /* bytes per send and recv call; callers pass HW_MIN(size, RAW_MESSAGE) */
    uint64_t total;               /* bytes to move over all streams; 0: use duration_ms */
    uint64_t duration_ms;         /* how long to send when total is 0 */
    uint64_t warmup;              /* bytes moved per stream before the clocks start (windows, page faults); may be 0 */
    const struct hw_knobs *knobs; /* source of knob congestion; NULL: the system's algorithm. Must outlive the run */
};

struct raw_result {
    uint64_t bytes; /* sent and acknowledged, or received; without the warm-up */
    double seconds; /* sender: first send to the last stream's acknowledgement. Receiver: its own view of the same */
    double cpu_seconds;  /* user + system time of this side's stream threads in that time */
    char congestion[16]; /* algorithm of the first stream; "" if the kernel does not report it */
};
/* Report bytes / seconds of the sending side. */

struct raw_server;

/* Listens on an ephemeral port of each address (IPv4 or IPv6 as text, "%scope" allowed) and accepts streams in its own
 * threads. It receives into (or sends from) buf..len cyclically, and uses it until raw_server_finish(). If a stream's
 * part would be smaller than a message, the stream gets a private buffer of one message, so that its calls stay large.
 * ports[i] receives the port of addrs[i]. -EINVAL: bad plan or address; -EADDRNOTAVAIL, -ENOMEM, -EMFILE. */
int raw_server_start(const struct raw_plan *plan, const char *const *addrs, size_t n_addrs, void *buf, size_t len,
                     uint64_t deadline, struct raw_server **out, uint16_t *ports);

/* Waits for the end of the run (or the deadline), and always frees s. out may be NULL. NULL s is allowed. -ETIMEDOUT,
 * -ECONNRESET, -ECANCELED. */
int raw_server_finish(struct raw_server *s, struct raw_result *out);

/* Ends the run at once, from any thread; raw_server_finish() then soon returns -ECANCELED. */
void raw_server_cancel(struct raw_server *s);

struct raw_path {
    const char *addr; /* the server's address, as text */
    uint16_t port;
    const char *bind_addr; /* local address to bind to; NULL: by route */
    const char *bind_dev;  /* SO_BINDTODEVICE if permitted (-EPERM is ignored); NULL: none */
};

/* Connects plan->streams streams on each path, runs the plan, closes everything. out is filled on success.
 * -EINVAL, -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET, -ENODEV, -ENOMEM. */
int raw_client_run(const struct raw_plan *plan, const struct raw_path *paths, size_t n_paths, void *buf, size_t len,
                   uint64_t deadline, struct raw_result *out);

/* ---- latency -------------------------------------------------------------------------------- */

struct raw_pingpong {
    uint8_t token[RAW_TOKEN_SIZE];
    uint32_t size;                /* bytes each way, 1 to RAW_MESSAGE */
    uint32_t iters;               /* measured round trips, at least 1 */
    uint32_t warmup;              /* round trips before them */
    bool spin;                    /* both sides poll with MSG_DONTWAIT; otherwise both block in recv() */
    const struct hw_knobs *knobs; /* as in struct raw_plan */
};

struct raw_latency {
    uint64_t p50_ns, p99_ns, p999_ns; /* half round trips */
    double cpu_seconds;               /* of this side's thread, over the whole run */
    uint64_t iters;
};

struct raw_pp_server;

/* Like raw_server_start(), on one address and for one connection. */
int raw_pp_server_start(const struct raw_pingpong *pp, const char *addr, uint64_t deadline, struct raw_pp_server **out,
                        uint16_t *port);
/* Like raw_server_finish(); *cpu_seconds may be NULL. */
int raw_pp_server_finish(struct raw_pp_server *s, double *cpu_seconds);
void raw_pp_server_cancel(struct raw_pp_server *s);

/* Runs the round trips. hist (may be NULL) receives every half round trip in ns. */
int raw_pp_client_run(const struct raw_pingpong *pp, const struct raw_path *path, uint64_t deadline,
                      struct raw_latency *out, struct hw_hist *hist);

#endif
