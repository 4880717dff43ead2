/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser nccl bench --hosts`: processes on several hosts. The supervisor starts an agent on each host. The agent is
 * another instance of this program, with the hidden option --agent. A command that reaches the host starts the agent:
 * ssh, or the command of --ssh. On this host, the agent is started directly. The agent's standard input and output are
 * the connection; its standard error is captured. The agent's command line contains only words that need no quoting;
 * everything else is sent through the connection.
 *
 *   agent to supervisor: struct nb_greeting, the first bytes that begin with NB_MAGIC (a shell may print text before)
 *   supervisor to agent: struct nb_ask and its items
 *   NB_ASK_PROBE: the agent answers with struct nb_probe, and accepts another request
 *   NB_ASK_RANK:  the agent starts a rank, and forwards orders and replies
 *   NB_ASK_RUN:   the agent starts a command, whose standard output follows
 * When an agent's standard input ends, the agent ends the process that it started.
 */
#ifndef HW_TOOL_NCCL_HOSTS_H
#define HW_TOOL_NCCL_HOSTS_H

#include "tool/nccl/bench/nccl_bench.h"

#define NB_MAGIC     "hawser-nccl-agent" /* 18 bytes with its NUL */
#define NB_ASK_MOST  (256u << 10)
#define NB_GREET_MS  30000
#define NB_HOST_ARGS 64

struct nb_greeting {
    char magic[20], version[44];
    uint32_t order_size, reply_size;
};

enum nb_ask_type { NB_ASK_PROBE = 1, NB_ASK_RANK, NB_ASK_RUN };

/* len bytes of items follow. Each item is a letter, a text and a NUL:
 *   a WORD        argument of the command, after the program's name
 *   s NAME=VALUE  set in the command's environment
 *   u NAME        removed from the command's environment
 *   d             prepend the folder of our plugin to LD_LIBRARY_PATH
 *   k HEX         a key; the word NB_KEY_WORD becomes the path of a file with the key
 *   f PATH        in a probe: a file that should be readable */
struct nb_ask {
    uint32_t type, len;
};
#define NB_KEY_WORD "{key}"

struct nb_probe {
    int32_t gpus;  /* number of GPUs, or -errno */
    uint32_t file; /* number of the first readable file, counted from 1; 0 if none is readable */
    char text[HW_ERR_TEXT];
};

struct nb_hosts {
    char *text; /* storage of the names */
    const char *host[NB_RANKS];
    unsigned n, per_host;    /* number of hosts; ranks per host */
    unsigned node[NB_RANKS]; /* node of each host, as the index of the first host on that node */
    int gpu[NB_RANKS];       /* GPU of each host's first rank */
    unsigned other;          /* first host that is not on the node of host 0; 0 if there is none */
    /* descriptor for --via if the hosts are a launcher's processes (nccl_launch.h), otherwise -1 */
    int via;
    char *ssh_text, *ssh[NB_HOST_ARGS / 2];
    char remote[4096]; /* path of the program on the hosts */
    char *label;       /* list of the launcher's processes, or NULL */
    const char *tcpx;  /* path of the TCPX plugin, or NULL if not all hosts have it */
    char tcpx_path[256];
};

/* Parses a list of hosts such as "a,b". ssh is a command such as "ssh -oBatchMode=yes"; remote is the program's path on
 * the hosts. Both may be NULL. Fails with -EINVAL, -E2BIG or -ENOMEM. */
int nb_hosts_parse(struct nb_hosts *hosts, const char *list, const char *ssh, const char *remote);
/* Treats each process that a launcher started as a host. If a node has several processes, each process has one rank.
 * Fails with -E2BIG or -ENOMEM. */
struct nb_seat_row;
int nb_hosts_launched(struct nb_hosts *hosts, const struct nb_seat_row *row, uint32_t n, int via);
void nb_hosts_free(struct nb_hosts *hosts);
/* Return the host of a rank, and the rank's GPU on that host. */
static inline unsigned nb_host_of(const struct nb_hosts *hosts, unsigned rank)
{
    return rank / hosts->per_host;
}
static inline int nb_gpu_of(const struct nb_hosts *hosts, unsigned rank)
{
    return hosts->gpu[nb_host_of(hosts, rank)] + (int)(rank % hosts->per_host);
}
/* Queries each host's version, its GPUs (the smallest number is stored in *gpus) and its TCPX plugin. Hosts on the same
 * node get different GPUs if each host detects enough GPUs. */
int nb_hosts_probe(struct nb_hosts *hosts, const char *tcpx, int *gpus);

/* The items of a request, while they are collected. */
struct nb_items {
    char *at;
    size_t len;
    bool full;
};
void nb_item(struct nb_items *items, char tag, const char *fmt, ...) HW_PRINTF(3, 4);

/* Starts an agent and reads its greeting. The caller calls nb_agent_end() in any case. */
int nb_agent_start(struct nb_member *m, const struct nb_hosts *hosts, unsigned host);
/* Starts argv with a socket as standard input and output, and a pipe as standard error. Returns 0 or -errno. */
int nb_agent_process(char **argv, pid_t *pid, int *fd, int *err);
int nb_agent_ask(struct nb_member *m, enum nb_ask_type type, const struct nb_items *items);
/* Closes the agent's standard input, waits up to ms for the agent to exit, and kills the agent if it has not. If show
 * is set, prints the agent's last output to standard error. Returns the wait status. */
int nb_agent_end(struct nb_member *m, int ms, bool show);

/* Runs an agent. Returns the exit code. */
int nb_agent(void);

/* Measures hawser's own transfer to the first host from a host on another node, with `hawser serve` and `hawser bench`.
 */
int nb_own_run(const struct nb_hosts *hosts, struct nb_table *t, int timeout_ms);

#endif
