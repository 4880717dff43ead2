/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser nccl bench`: collective operations over real NCCL, a process for each GPU. Each process is this program
 * again, a rank, which loads NCCL and CUDA and does what it is told; the supervisor loads neither, since NCCL reads its
 * parameters once in a process and each configuration is to have its own.
 *
 * Orders and replies are one SOCK_SEQPACKET message each; both ends are the same program.
 */
#ifndef HW_TOOL_NCCL_BENCH_H
#define HW_TOOL_NCCL_BENCH_H

#include "base/base.h"

#include <stdio.h>
#include <sys/types.h>

#define NB_RANKS   256 /* the sums of more than 367 ranks would not be exact in float32 */
#define NB_NICS    16
#define NB_SIZES   64
#define NB_SET     12 /* variables of a configuration */
#define NB_UID     128
#define NB_TAIL    3072 /* of a rank's output */
#define NB_LINE    200  /* of its last line */
#define NB_RANK_FD 3    /* of a rank: where its supervisor is */
#define NB_LEAVE   10000
#define NB_ROUNDS  99

enum nb_op { NB_ALL_REDUCE, NB_SENDRECV, NB_ALLTOALL, NB_ALL_GATHER, NB_REDUCE_SCATTER, NB_BROADCAST, NB_OPS };

const char *nb_op_name(enum nb_op op);
/* What of `size` bytes an operation among n ranks moves, as nccl-tests count: busbw = algbw times this. The size of an
 * all_gather is that of its output, of a reduce_scatter that of its input. */
double nb_bus_factor(enum nb_op op, unsigned n);
/* The floats of which a size must be a multiple: n where each rank has a part of its own, else 1. */
unsigned nb_parts(enum nb_op op, unsigned n);
/* The size as it is moved: whole floats, as many for each rank. 0: too small. */
uint64_t nb_fit(enum nb_op op, unsigned n, uint64_t size);

/* ---- orders and replies --------------------------------------------------------------------- */

enum nb_order_type { NB_MAKE_UID = 1, NB_JOIN_COMM, NB_RUN, NB_END };
struct nb_order {
    uint32_t type, op;
    uint64_t size; /* NB_RUN: bytes; NB_JOIN_COMM: the most that will be run */
    uint32_t iters, warmup;
    uint8_t uid[NB_UID];
};

/* Counters of a node's NICs: since it was started, or what they grew by. */
struct nb_nic {
    char name[HAWSER_NIC_NAME];
    uint64_t sent, received, dropped; /* the kernel's: bytes, bytes, packets */
    uint64_t retransmits;             /* segments, of the TCP connections that this process has */
};

struct nb_counts {
    uint64_t node; /* the same in processes that share a kernel and a network namespace */
    uint32_t n;
    struct nb_nic nic[NB_NICS];
};

uint64_t nb_node_id(void);
/* Reads the counters of the NICs that are up and have an address. */
void nb_count(struct nb_counts *c);
/* Leaves in c what its counters have grown by. */
void nb_count_since(struct nb_counts *c, struct nb_counts *before);

struct nb_reply {
    int32_t rc; /* 0, or -errno and text says why */
    int32_t version;
    double seconds, cpu; /* of all iterations; cpu of the whole process, over the same time */
    double first_op;     /* seconds of the communicator's first operation of this kind; 0: it was not this one */
    uint64_t checked, bad, first; /* elements; first: the index of the first bad one */
    struct nb_counts counts;      /* NB_RUN: meanwhile */
    uint8_t uid[NB_UID];
    char text[HW_ERR_TEXT];
};

/* A rank's life: told FD,RANK,RANKS,GPU by the hidden option --rank. The exit code. */
int nb_rank(const char *told, const char *nccl);

/* ---- the ranks of one configuration --------------------------------------------------------- */

struct nb_var {
    const char *name, *value; /* value NULL: taken out of the environment */
};

/* What is measured: NCCL with these variables. */
struct nb_config {
    const char *name; /* "hawser", "socket-1x1" */
    const char *about;
    bool socket, tuned;
    bool theirs; /* another plugin than ours */
    struct nb_var set[NB_SET];
};

struct nb_member {
    pid_t pid;
    const char *host; /* NULL: here */
    int fd, err, gpu;
    size_t got; /* bytes of the reply */
    bool answered;
    struct nb_reply reply;
    char network[40]; /* as NCCL says */
    char tail[NB_TAIL + 1];
    size_t tail_len, line; /* line: where its last line begins */
};

struct nb_crew {
    const char *config;
    unsigned n;
    struct nb_member m[NB_RANKS];
    int version;
    bool verbose;
};

/* All that it has written so far; its last NB_TAIL bytes are kept, from the start of a line on. */
void nb_overhear(struct nb_member *m, bool verbose);
/* Those on standard error, where there are any. */
/* The last line of it, cut at NB_LINE. */
void nb_last_line(const struct nb_member *m, char line[NB_LINE]);
void nb_show_tail(const struct nb_member *m, const char *who);

/* How ranks are started. */
struct nb_hosts;
struct nb_start {
    const char *nccl;                   /* NULL: libnccl.so.2 */
    const char *lab;                    /* ranks live in its nodes; NULL: here */
    const struct nb_hosts *hosts;       /* ranks live on them; NULL: here */
    const char *library_path;           /* put in front of LD_LIBRARY_PATH; "": nothing */
    const struct nb_var *common, *more; /* each ends with a NULL name */
    unsigned n;
    int timeout_ms; /* for each order */
    bool verbose;
};

/* Starts the ranks and makes their communicator. In any case to be ended by nb_crew_end(). */
int nb_crew_start(struct nb_crew *c, const struct nb_config *config, const struct nb_start *s, uint64_t most);
/* All ranks carry out the order; their replies are in m[].reply. -ETIMEDOUT, -EPIPE, what a rank says. */
int nb_crew_order(struct nb_crew *c, const struct nb_order *o, int ms);
/* Ends all ranks, in good order after rc 0 and by force else. Then, what they said last goes to standard error. rc, or
 * what came of the good order. */
int nb_crew_end(struct nb_crew *c, int rc);

/* ---- results -------------------------------------------------------------------------------- */

struct nb_sample {
    double us, cpu; /* of one iteration */
    double first;   /* us of the first of its kind, in which NCCL connects; 0: it was not this one */
};

/* One NIC of one node, over all samples of a cell. */
struct nb_counted {
    uint64_t node;
    char host[64];
    struct nb_nic nic;
};

struct nb_counted_list {
    struct nb_counted *at; /* to be freed */
    size_t n;
};

/* Adds what a rank of the crew has told in its last reply; the NICs of a node count once. -ENOMEM. */
int nb_counted_add(struct nb_counted_list *l, const struct nb_crew *c, unsigned rank);

struct page;
struct hw_json;
struct nb_cell {
    struct nb_sample sample[NB_ROUNDS];
    unsigned n; /* samples */
    uint64_t checked, bad;
    struct nb_counted_list nics;
};

/* A row is one operation and size; a cell of it, one configuration. */
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
    char (*network)[40]; /* of each configuration */
    struct nb_row *row;
    size_t n_rows;
    unsigned ranks, rounds;
    struct nb_raw raw[NB_RAWS];
    size_t n_raw;
    const char *hosts; /* "a,b"; NULL: all ranks are here */
    struct nb_own own[NB_SIZES];
    size_t n_own;
};

/* One round of so many plain sockets over the loopback. */
int nb_raw_run(uint32_t streams, double *GBps);

/* Medians over the rounds; NAN where nothing was measured. */
double nb_us(const struct nb_cell *c);
double nb_cpu_per_GB(const struct nb_cell *c, uint64_t size);
double nb_first_ms(const struct nb_cell *c); /* NAN also where another row has it */
void nb_print(FILE *out, const struct nb_table *t);
void nb_print_nics(FILE *out, const struct nb_table *t);
void nb_json_nics(struct hw_json *j, const struct nb_cell *cell);
/* For a report: arg is a struct nb_table. */
void nb_write_page(struct page *p, const void *arg);
/* A line for each operation, size and configuration, and one for each kind of plain sockets; schema
 * hawser-nccl-bench-1. -EIO. */
int nb_print_json(FILE *out, const struct nb_table *t);

#endif
