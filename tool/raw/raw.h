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
    RAW_CLIENT_SENDS, /* as hawser write and send */
    RAW_SERVER_SENDS, /* as hawser read */
};

struct raw_plan {
    enum raw_dir dir;
    uint32_t streams;              /* per path */
    uint8_t token[RAW_TOKEN_SIZE]; /* shown by the client on every connection; connections without it are dropped */
    uint64_t message;              /* bytes per send and recv call; the caller wants HW_MIN(size, RAW_MESSAGE) */
    uint64_t total;                /* bytes to move, all streams together; 0: go by duration_ms */
    uint64_t duration_ms;          /* how long to send when total is 0 */
    uint64_t warmup;               /* bytes moved per stream before the clocks start (windows, page faults); may be 0 */
    const struct hw_knobs *knobs;  /* knob congestion is theirs, too; NULL: the system's algorithm. It lives on */
};

struct raw_result {
    uint64_t bytes; /* sent and acknowledged, or received: without the warm-up */
    double seconds; /* sender: first send to the last stream's acknowledgement. Receiver: its own view of the same */
    double cpu_seconds;  /* user + system of this side's stream threads, over the same time */
    char congestion[16]; /* algorithm of the first stream; "" where the kernel does not say */
};
/* The number to report is bytes / seconds of the sending side. */

struct raw_server;

/* Listens on an ephemeral port of each address (IPv4 or IPv6 as text, "%scope" allowed) and starts taking streams in
 * threads of its own. buf..len is received into (or sent from) and cycled through; it is the server's until finish.
 * Where a stream's part of it would be smaller than a message, it gets a private buffer of one message instead, so that
 * the rival keeps its large calls. ports[i] receives the port of addrs[i]. -EINVAL bad plan or address, -EADDRNOTAVAIL,
 * -ENOMEM, -EMFILE. */
int raw_server_start(const struct raw_plan *plan, const char *const *addrs, size_t n_addrs, void *buf, size_t len,
                     uint64_t deadline, struct raw_server **out, uint16_t *ports);

/* Waits for the run to end (or the deadline), frees s in every case. out may be NULL. NULL s is allowed.
 * -ETIMEDOUT, -ECONNRESET, -ECANCELED. */
int raw_server_finish(struct raw_server *s, struct raw_result *out);

/* Ends the run at once, from any thread; raw_server_finish() then returns -ECANCELED soon. */
void raw_server_cancel(struct raw_server *s);

struct raw_path {
    const char *addr; /* the server's address, as text */
    uint16_t port;
    const char *bind_addr; /* local address to bind to; NULL: the route's */
    const char *bind_dev;  /* SO_BINDTODEVICE where that is allowed (-EPERM is passed over); NULL: none */
};

/* Connects plan->streams streams on each path, runs the plan, closes everything. out is filled on success.
 * -EINVAL, -ECONNREFUSED, -ETIMEDOUT, -ECONNRESET, -ENODEV, -ENOMEM. */
int raw_client_run(const struct raw_plan *plan, const struct raw_path *paths, size_t n_paths, void *buf, size_t len,
                   uint64_t deadline, struct raw_result *out);

/* ---- latency -------------------------------------------------------------------------------- */

struct raw_pingpong {
    uint8_t token[RAW_TOKEN_SIZE];
    uint32_t size;                /* bytes each way, 1 to RAW_MESSAGE */
    uint32_t iters;               /* round trips that count, at least 1 */
    uint32_t warmup;              /* round trips before them */
    bool spin;                    /* both sides poll by MSG_DONTWAIT; else both block in recv() */
    const struct hw_knobs *knobs; /* as of struct raw_plan */
};

struct raw_latency {
    uint64_t p50_ns, p99_ns, p999_ns; /* half round trips */
    double cpu_seconds;               /* of this side's thread, whole run */
    uint64_t iters;
};

struct raw_pp_server;

/* As raw_server_start(), on one address and for one connection. */
int raw_pp_server_start(const struct raw_pingpong *pp, const char *addr, uint64_t deadline, struct raw_pp_server **out,
                        uint16_t *port);
/* As raw_server_finish(); *cpu_seconds may be NULL. */
int raw_pp_server_finish(struct raw_pp_server *s, double *cpu_seconds);
void raw_pp_server_cancel(struct raw_pp_server *s);

/* Runs the round trips. hist (may be NULL) gets every half round trip added, in ns. */
int raw_pp_client_run(const struct raw_pingpong *pp, const struct raw_path *path, uint64_t deadline,
                      struct raw_latency *out, struct hw_hist *hist);

#endif
