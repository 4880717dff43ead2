/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hawser nccl bench --hosts`: processes on several hosts. The supervisor starts an agent on a host, which is this
 * program again (the hidden option --agent), by a command that reaches the host: ssh, or what --ssh says. The agent's
 * standard input and output are the wire; its standard error is overheard. All words of the command line are plain, so
 * that no shell on the way changes them; what else is to be said goes over the wire.
 *
 *   agent to supervisor: struct nb_greeting, as the first bytes that begin with NB_MAGIC (a shell may print before)
 *   supervisor to agent: struct nb_ask and its items
 *   NB_ASK_PROBE: the agent answers with struct nb_probe, and takes another ask
 *   NB_ASK_RANK:  the agent starts a rank, and passes on orders and replies
 *   NB_ASK_RUN:   the agent starts a command, whose standard output follows
 * An agent whose standard input ends, ends what it started.
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

/* len bytes of items follow, each a letter, text, and a NUL:
 *   a WORD        of the command line, after the program's name
 *   s NAME=VALUE  set in its environment
 *   u NAME        taken out of it
 *   d             the folder of our plugin is put in front of LD_LIBRARY_PATH
 *   k HEX         a key; the word NB_KEY_WORD becomes the path of a file with it
 *   f PATH        of a probe: is there such a file? */
struct nb_ask {
    uint32_t type, len;
};
#define NB_KEY_WORD "{key}"

struct nb_probe {
    int32_t gpus;  /* or -errno */
    uint32_t file; /* the number of the first file that is there, from 1; 0: none */
    char text[HW_ERR_TEXT];
};

struct nb_hosts {
    char *text; /* what the names point into */
    const char *host[NB_RANKS];
    unsigned n, per_host;    /* ranks */
    unsigned node[NB_RANKS]; /* which hosts are one node: the number of its first one */
    int gpu[NB_RANKS];       /* of the host's first rank */
    unsigned other;          /* the first host on another node than host 0; 0: there is none */
    int via;                 /* hosts are processes that a launcher has started (nccl_launch.h); else -1 */
    char *ssh_text, *ssh[NB_HOST_ARGS / 2];
    char remote[4096]; /* the program's path there */
    char *label;       /* the launched ones in a list; else NULL */
    const char *tcpx;  /* the plugin's path on all hosts; NULL: not on all */
    char tcpx_path[256];
};

/* "a,b", "ssh -oBatchMode=yes", the path or NULL. -EINVAL, -ENOMEM. */
int nb_hosts_parse(struct nb_hosts *hosts, const char *list, const char *ssh, const char *remote);
/* The hosts are processes that a launcher has started: one on each node, or several, with a rank each. */
struct nb_seat_row;
int nb_hosts_launched(struct nb_hosts *hosts, const struct nb_seat_row *row, uint32_t n, int via);
void nb_hosts_free(struct nb_hosts *hosts);
/* Where a rank is, and its GPU there. */
static inline unsigned nb_host_of(const struct nb_hosts *hosts, unsigned rank)
{
    return rank / hosts->per_host;
}
static inline int nb_gpu_of(const struct nb_hosts *hosts, unsigned rank)
{
    return hosts->gpu[nb_host_of(hosts, rank)] + (int)(rank % hosts->per_host);
}
/* Asks each host for its version, its GPUs (the least of all in *gpus) and its TCPX plugin. Of several hosts on one
 * node each gets a GPU of its own, as far as each sees more than one. */
int nb_hosts_probe(struct nb_hosts *hosts, const char *tcpx, int *gpus);

/* Items of an ask, as they are added. */
struct nb_items {
    char *at;
    size_t len;
    bool full;
};
void nb_item(struct nb_items *items, char tag, const char *fmt, ...) HW_PRINTF(3, 4);

/* Starts an agent and hears its greeting; m is to be ended by nb_agent_end() in any case. */
int nb_agent_start(struct nb_member *m, const struct nb_hosts *hosts, unsigned host);
/* Starts argv with a socket as its standard input and output, and a pipe as its errors. -errno. */
int nb_agent_process(char **argv, pid_t *pid, int *fd, int *err);
int nb_agent_ask(struct nb_member *m, enum nb_ask_type type, const struct nb_items *items);
/* Lets it end within ms, by force after that. show: what it said last goes to standard error. Its status. */
int nb_agent_end(struct nb_member *m, int ms, bool show);

/* The other end: its whole life. The exit code. */
int nb_agent(void);

/* Measures hawser's own transfer from the second host to the first one: `hawser serve` and `hawser bench`. */
int nb_own_run(const struct nb_hosts *hosts, struct nb_table *t, int timeout_ms);

#endif
