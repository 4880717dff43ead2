/* SPDX-License-Identifier: Apache-2.0 */
/* The options of `hawser nccl bench`. */
#ifndef HW_TOOL_NCCL_ARGS_H
#define HW_TOOL_NCCL_ARGS_H

#include "tool/nccl/bench/nccl_bench.h"
#include "tool/opts.h"

#define NB_CMD     "nccl bench"
#define NB_SETS    32
#define NB_SOCKETS 32

struct nb_args {
    bool op[NB_OPS], vs;
    uint64_t size[NB_SIZES], gpus, rounds, iters, warmup, timeout_ms;
    size_t n_sizes;
    const char *nccl, *plugin, *json, *report, *lab, *rank, *hosts, *ssh, *remote, *tcpx, *meet, *via;
    uint64_t wait_ms;
    struct common common; /* holds the key */
    char *rails;          /* map of rails as passed to the ranks, or NULL */
    bool verbose, agent, local;
    struct nb_var set[NB_SETS + 1];
    char *set_text[NB_SETS];
    size_t n_set;
    struct nb_config sockets[NB_SOCKETS];
    char *sockets_text[NB_SOCKETS], sockets_name[NB_SOCKETS][16];
    size_t n_sockets;
    uint32_t raw[NB_RAWS];
    size_t n_raw;
};

/* Parses the command line. Returns OPTS_GO, or the exit status after printing an error or the help. */
int nb_args_parse(struct nb_args *a, int argc, char **argv);
void nb_args_free(struct nb_args *a);

#endif
