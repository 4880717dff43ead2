/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser nccl bench` runs operations of the real NCCL, with one process per GPU. Each of these processes is called a
 * rank, and executes this same program. A rank loads NCCL and CUDA and executes orders. The supervisor does not load
 * NCCL, because NCCL reads its parameters once per process, and each configuration needs its own parameters.
 *
 * Orders and replies are structures that instances of the same build exchange: as messages of a SOCK_SEQPACKET socket
 * on one host, and as parts of a byte stream between hosts.
 */
#ifndef HW_TOOL_NCCL_BENCH_H
#define HW_TOOL_NCCL_BENCH_H

#include "base/base.h"

#include <stdio.h>
#include <sys/types.h>

#define NB_RANKS   256 /* maximum ranks; with more than 369 ranks, a sum could exceed 2^24 and be inexact in float32 */
#define NB_NICS    16
#define NB_SIZES   64
#define NB_SET     12 /* size of a configuration's list of variables, including its end */
#define NB_UID     128
#define NB_TAIL    3072 /* maximum bytes kept of a rank's output */
#define NB_LINE    200  /* maximum bytes of the last line of a rank's output, including the NUL */
#define NB_RANK_FD 3    /* a rank's descriptor for the connection to its supervisor */
#define NB_LEAVE   10000
#define NB_ROUNDS  99

enum nb_op { NB_ALL_REDUCE, NB_SENDRECV, NB_ALLTOALL, NB_ALL_GATHER, NB_REDUCE_SCATTER, NB_BROADCAST, NB_OPS };

const char *nb_op_name(enum nb_op op);
/* Returns the factor between algbw and busbw, as in nccl-tests. The size of an all_gather is that of its output, and
 * the size of a reduce_scatter is that of its input. */
double nb_bus_factor(enum nb_op op, unsigned n);
/* Returns the number of floats of which a size must be a multiple: n if each rank has its own part, otherwise 1. */
unsigned nb_parts(enum nb_op op, unsigned n);
/* Returns the size, rounded down to a multiple of nb_parts() floats. Returns 0 if the size is too small. */
uint64_t nb_fit(enum nb_op op, unsigned n, uint64_t size);

/* ---- orders and replies --------------------------------------------------------------------- */

enum nb_order_type { NB_MAKE_UID = 1, NB_JOIN_COMM, NB_RUN, NB_END };
struct nb_order {
    uint32_t type, op;
    uint64_t size; /* NB_RUN: bytes; NB_JOIN_COMM: the largest size that will be run */
    uint32_t iters, warmup;
    uint8_t uid[NB_UID];
};

/* Counters of a NIC: absolute values, or their increase. */
struct nb_nic {
    char name[HAWSER_NIC_NAME];
    uint64_t sent, received, dropped; /* the kernel's counters: bytes, bytes, packets */
    uint64_t retransmits;             /* retransmitted segments of the ranks' TCP connections */
};

struct nb_counts {
    uint64_t node; /* the same in processes that share a kernel and a network namespace */
    uint32_t n;
    struct nb_nic nic[NB_NICS];
};

uint64_t nb_node_id(void);
/* Reads the counters of at most NB_NICS of the NICs that hw_nics_list() returns. */
void nb_count(struct nb_counts *c);
/* Replaces the counters in c with their increase since `before`. */
void nb_count_since(struct nb_counts *c, struct nb_counts *before);

struct nb_reply {
    int32_t rc; /* 0, or -errno with the reason in text */
    int32_t version;
    double seconds, cpu; /* duration of all iterations, and the process's CPU time in this period, in seconds */
    double first_op;     /* seconds of the communicator's first operation of this kind; 0 if not measured */
    uint64_t checked, bad, first; /* checked and wrong elements; index of the first wrong one */
    struct nb_counts counts;      /* NB_RUN: increase during the run */
    uint8_t uid[NB_UID];
    char text[HW_ERR_TEXT];
};

/* Runs a rank. told is FD,RANK,RANKS,GPU, the value of the hidden option --rank. Returns the exit code. */
int nb_rank(const char *told, const char *nccl);

/* ---- the ranks of one configuration --------------------------------------------------------- */

struct nb_var {
    const char *name, *value; /* a NULL value removes the variable from the environment */
};

/* A configuration to measure: NCCL with these variables. */
struct nb_config {
    const char *name; /* such as "hawser" or "socket-1x1-16ch" */
    const char *about;
    bool socket, tuned;
    bool theirs; /* uses a plugin other than hawser's */
    struct nb_var set[NB_SET];
};

struct nb_member {
    pid_t pid;
    const char *host; /* NULL if the rank was started without an agent */
    int fd, err, gpu;
    size_t got; /* bytes of the reply received so far */
    bool answered;
    struct nb_reply reply;
    char network[40]; /* network that NCCL reports */
    char tail[NB_TAIL + 1];
    size_t tail_len, line; /* line is the offset of the last line */
};

struct nb_crew {
    const char *config;
    unsigned n;
    struct nb_member m[NB_RANKS];
    int version;
    bool verbose;
};

/* Reads all available output, and keeps at most its last NB_TAIL bytes. With verbose, also prints the output to
 * standard error. */
void nb_overhear(struct nb_member *m, bool verbose);
/* nb_last_line() copies the last line of the output, truncated to NB_LINE bytes. nb_show_tail() prints the kept output,
 * if there is any, to standard error. */
void nb_last_line(const struct nb_member *m, char line[NB_LINE]);
void nb_show_tail(const struct nb_member *m, const char *who);

/* Parameters for starting ranks. */
struct nb_hosts;
struct nb_start {
    const char *nccl;                   /* NULL means libnccl.so.2 */
    const char *lab;                    /* lab in whose nodes the ranks run, or NULL */
    const struct nb_hosts *hosts;       /* hosts on which the ranks run, or NULL for this host */
    const char *library_path;           /* prepended to LD_LIBRARY_PATH of local ranks that use hawser, unless "" */
    const struct nb_var *common, *more; /* each terminated by a NULL name */
    unsigned n;
    int timeout_ms; /* for each order */
    bool verbose;
};

/* Starts the ranks, creates their communicator, and checks which network NCCL uses. most is the largest size of an
 * order. The caller calls nb_crew_end() in any case. */
int nb_crew_start(struct nb_crew *c, const struct nb_config *config, const struct nb_start *s, uint64_t most);
/* Has all ranks execute the order; their replies are in m[].reply. Fails with -ETIMEDOUT, -EINTR, -EPIPE, or the error
 * of a rank. */
int nb_crew_order(struct nb_crew *c, const struct nb_order *o, int ms);
/* Ends all ranks with an order if rc is 0, and by force if rc is an error or the order fails. After an error other than
 * an interruption, prints the ranks' last output to standard error, unless c->verbose is set. Returns rc, or the result
 * of the order. */
int nb_crew_end(struct nb_crew *c, int rc);

/* ---- results -------------------------------------------------------------------------------- */

struct nb_sample {
    double us, cpu; /* per iteration: duration on the slowest rank; CPU seconds of all ranks */
    double first;   /* us of the first operation of its kind, in which NCCL connects; 0 if not measured */
};

/* Counters of one NIC of one node, summed over samples. */
struct nb_counted {
    uint64_t node;
    char host[64];
    struct nb_nic nic;
};

struct nb_counted_list {
    struct nb_counted *at; /* freed by the caller */
    size_t n;
};

/* Adds the counters that a rank of the crew sent in its last reply. Of the ranks on a node, only the first rank's
 * kernel counters are added. Fails with -ENOMEM. */
int nb_counted_add(struct nb_counted_list *l, const struct nb_crew *c, unsigned rank);

struct page;
struct hw_json;
struct nb_cell {
    struct nb_sample sample[NB_ROUNDS];
    unsigned n; /* number of samples */
    uint64_t checked, bad;
    struct nb_counted_list nics;
};

/* A row of the table is one operation and size. Each of its cells is one configuration. */
struct nb_row {
    enum nb_op op;
    uint64_t size;
    uint32_t iters, warmup;
    struct nb_cell *cell;
};

struct nb_raw {
    uint32_t streams;
    double GBps[NB_ROUNDS];
    unsigned n;
};

#define NB_RAWS 4

/* hawser's own transfer between two hosts. */
struct nb_own {
    uint64_t size;
    double GBps[NB_ROUNDS];
    unsigned n;
    uint64_t checked, bad; /* bytes */
};

struct nb_table {
    const struct nb_config *config;
    size_t n_configs;
    char (*network)[40]; /* network of each configuration */
    struct nb_row *row;
    size_t n_rows;
    unsigned ranks, rounds;
    struct nb_raw raw[NB_RAWS];
    size_t n_raw;
    const char *hosts; /* such as "a,b"; NULL without --hosts or a launcher */
    struct nb_own own[NB_SIZES];
    size_t n_own;
};

/* Runs one round of `streams` plain sockets over loopback. */
int nb_raw_run(uint32_t streams, double *GBps);

/* Return medians over the rounds, or NAN if nothing was measured. */
double nb_us(const struct nb_cell *c);
double nb_cpu_per_GB(const struct nb_cell *c, uint64_t size);
/* Also returns NAN if no first operation was measured in this cell. */
double nb_first_ms(const struct nb_cell *c);
void nb_print(FILE *out, const struct nb_table *t);
void nb_print_nics(FILE *out, const struct nb_table *t);
void nb_json_nics(struct hw_json *j, const struct nb_cell *cell);
/* Writes a report; arg is a struct nb_table. */
void nb_write_page(struct page *p, const void *arg);
/* Writes JSON lines with schema hawser-nccl-bench-1: one for each operation, size and configuration, for each number of
 * plain sockets, and for each size of hawser's own transfer. Omits lines without a sample, except those of plain
 * sockets. Fails with -EIO. */
int nb_print_json(FILE *out, const struct nb_table *t);

#endif
