/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures plain TCP sockets over paths and memory that the caller provides, for comparison with hawser. Each stream
 * has one blocking thread on each side, with send() and recv() of up to 1 MiB, kernel autotuning, TCP_NODELAY and the
 * congestion control of the plan's knobs. The streams take their next piece from one shared counter, so that a slow NIC
 * carries less and does not slow down the others.
 *
 * Both sides must have the same plan and token. The caller transfers these, and the ports, from one side to the other:
 *   serve:  raw_server_start() -> ports -> (sent to the client) ... raw_server_finish()
 *   bench:  raw_client_run()
 * The deadline (in terms of hw_now()) limits all waits. Functions that return int return 0, or -errno with hw_error().
 */
#ifndef HW_TOOL_RAW_H
#define HW_TOOL_RAW_H

#include "base/knob.h"
#include "tool/report/hist.h"

#define RAW_TOKEN_SIZE  16
#define RAW_MAX_PATHS   64
#define RAW_MAX_STREAMS 512 /* paths times streams per path */
#define RAW_MESSAGE     (1u << 20)

enum raw_dir {
    RAW_CLIENT_SENDS, /* like hawser's writes and sends */
    RAW_SERVER_SENDS, /* like hawser's reads */
};

struct raw_plan {
    enum raw_dir dir;
    uint32_t streams; /* number per path */
    /* token that the client presents on every connection; the server drops connections without it */
    uint8_t token[RAW_TOKEN_SIZE];
    uint64_t message;     /* bytes per send() and recv() call, 1 to RAW_MESSAGE */
    uint64_t total;       /* bytes to move over all streams, or 0 to use duration_ms */
    uint64_t duration_ms; /* ms to send if total is 0 */
    /* bytes to move per stream before the clocks start, so that windows grow and page faults occur; may be 0 */
    uint64_t warmup;
    /* source of the knob congestion, which must outlive the run; NULL means the system's algorithm */
    const struct hw_knobs *knobs;
};

/* Callers should report bytes / seconds of the sending side. */
struct raw_result {
    uint64_t bytes; /* sent and acknowledged, or received; without the warm-up */
    /* from the first send (on the receiver, from the first byte received) to the last stream's acknowledgement */
    double seconds;
    double cpu_seconds;  /* user and system time of this side's stream threads, without the warm-up */
    char congestion[16]; /* on the client: algorithm of the first stream, or "" if unknown */
};

struct raw_server;

/* Listens on an ephemeral port of each address (IPv4 or IPv6 as text, "%scope" allowed), and accepts streams in its own
 * threads. Receives into, or sends from, buf[0..len) cyclically; buf must stay valid until raw_server_finish() returns.
 * If buf is too small to give each of several receiving streams room for a message, each stream gets a private buffer
 * of one message. ports[i] receives the port of addrs[i]. Fails with -EINVAL for an invalid plan or address, or with
 * another -errno such as -EADDRNOTAVAIL, -ENOMEM, -EMFILE or -EAGAIN. */
int raw_server_start(const struct raw_plan *plan, const char *const *addrs, size_t n_addrs, void *buf, size_t len,
                     uint64_t deadline, struct raw_server **out, uint16_t *ports);

/* Waits for the end of the run or for the deadline, and always frees s. s and out may be NULL. Fails with -errno such
 * as -ETIMEDOUT, -ECONNRESET, -EINTR or -ECANCELED. */
int raw_server_finish(struct raw_server *s, struct raw_result *out);

/* Ends the run at once. May be called from any thread. raw_server_finish() then soon returns -ECANCELED, unless the run
 * had already ended. */
void raw_server_cancel(struct raw_server *s);

struct raw_path {
    const char *addr; /* the server's address, as text */
    uint16_t port;
    const char *bind_addr; /* local address to bind to, or NULL to let the route decide */
    const char *bind_dev;  /* device for SO_BINDTODEVICE if permitted (-EPERM is ignored), or NULL */
};

/* Connects plan->streams streams on each path, runs the plan, and closes everything. Fills in out on success. Fails
 * with -EINVAL for an invalid plan or address, or with another -errno such as -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET or
 * -ENODEV. */
int raw_client_run(const struct raw_plan *plan, const struct raw_path *paths, size_t n_paths, void *buf, size_t len,
                   uint64_t deadline, struct raw_result *out);

/* ---- latency -------------------------------------------------------------------------------- */

struct raw_pingpong {
    uint8_t token[RAW_TOKEN_SIZE];
    uint32_t size;                /* bytes each way, 1 to RAW_MESSAGE */
    uint32_t iters;               /* measured round trips, at least 1 */
    uint32_t warmup;              /* round trips before the measured ones */
    bool spin;                    /* both sides poll with MSG_DONTWAIT; otherwise both block in recv() */
    const struct hw_knobs *knobs; /* as in struct raw_plan */
};

struct raw_latency {
    uint64_t p50_ns, p99_ns, p999_ns; /* percentiles of half of a round trip */
    double cpu_seconds;               /* of this side's thread, over the whole run */
    uint64_t iters;
};

struct raw_pp_server;

/* Like raw_server_start(), but for one address and one connection. */
int raw_pp_server_start(const struct raw_pingpong *pp, const char *addr, uint64_t deadline, struct raw_pp_server **out,
                        uint16_t *port);
/* Like raw_server_finish(); *cpu_seconds may be NULL. */
int raw_pp_server_finish(struct raw_pp_server *s, double *cpu_seconds);
void raw_pp_server_cancel(struct raw_pp_server *s);

/* Runs the round trips. hist, unless NULL, receives half of every measured round trip in ns. */
int raw_pp_client_run(const struct raw_pingpong *pp, const struct raw_path *path, uint64_t deadline,
                      struct raw_latency *out, struct hw_hist *hist);

#endif
