/* SPDX-License-Identifier: Apache-2.0 */
/* The parent's inside: host_open.c makes the child, host.c watches it and exchanges messages with it, comm.c has
 * connections and requests, host_mem.c memory. */
#ifndef HW_NETPLUGIN_HOST_INNER_H
#define HW_NETPLUGIN_HOST_INNER_H

#include "base/list.h"
#include "transport/netplugin/child/ring.h"
#include "transport/netplugin/host/host.h"

#include <pthread.h>
#include <sys/types.h>

struct np_host {
    char plugin[256];
    const char *name; /* its last part, for messages */
    struct np_options o;
    struct np_info info;
    char table[64];
    const uint32_t *mine; /* 1, and 0 in a process that was forked off */

    struct np_shared *s;
    int pid, socket, log, warnings, trace;
    struct {
        off_t at;
        char last[200]; /* told */
        unsigned again; /* the same since */
        unsigned told;  /* lines in this window */
        uint64_t window;
    } warning; /* under the lock */

    pthread_mutex_t lock; /* for all below */
    uint32_t seq;
    struct hw_list comms, listeners, mems;         /* np_close() frees what is left */
    bool slot[NP_COMMS], mem[NP_MEMS], mr[NP_MRS]; /* in use */
    uint64_t beat, beat_at;

    pthread_mutex_t devices_lock; /* for these, and held for no wait */
    bool known[NP_DEVICES];
    struct np_device device[NP_DEVICES];
    char guessed[16]; /* the NIC that the first device is taken for */

    _Atomic uint64_t looked_at; /* np_health(), the last time that it looked */
    _Atomic bool warned;
    _Atomic int dead;      /* -errno, for good: */
    char why[HW_ERR_TEXT]; /* written before */
};

struct np_mem {
    struct hw_list link;
    struct np_host *h;
    uint32_t id;
    uint8_t *at;
    size_t len;
    bool ours;                  /* to be unmapped */
    const struct hw_space *gpu; /* whose it is; NULL: host memory */
    uint64_t gpu_offset;        /* in the child's allocation */
    _Atomic unsigned regs;
};

struct np_listener {
    struct hw_list link;
    struct np_host *h;
    uint32_t slot;
    unsigned dev;
    bool taken;
};

struct np_mr {
    struct hw_list link;
    struct np_comm *c;
    struct np_mem *m;
    uint32_t id;
    size_t len;
};

struct np_comm {
    struct hw_list link, mrs;
    struct np_host *h;
    struct np_ring *ring;
    uint32_t slot;
    bool sends, open, own_event;
    int event;
    int rc; /* -errno: it is dead, and why */
    char why[HW_ERR_TEXT];
    uint64_t deadline; /* to be established by */
    uint32_t max_size;
    const struct np_frag_area *frags; /* NULL: np_options.list is off, or the device does not unpack */
    uint64_t posted, tested, consumed;
    struct {
        size_t len;
        uint64_t deadline;
        uint32_t frags;
    } req[NP_RING];
};

/* A GPU in a message. */
static inline uint32_t np_gpu_word(int gpu)
{
    return gpu < 0 ? UINT32_MAX : (uint32_t)gpu;
}

/* 0, or the host is dead or another process's. */
int np_usable(struct np_host *h);
/* Sends the message with up to two descriptors, and waits for the answer. The answer's own error is wrapped with the
 * plugin's name. out may be NULL. */
int np_ask(struct np_host *h, struct np_message *m, const int *fds, size_t n_fds, struct np_reply *out);
/* Ends the child: what it said cannot be. hw_error() says what; returns the host's error from now on. */
int np_distrust(struct np_host *h);
/* An error of the plugin's, with its last line. Returns rc. */
int np_blame(struct np_host *h, int rc, const char *what);
/* Wakes the child, if it sleeps; after a counter of the parent's was moved. */
void np_wake(struct np_host *h);

/* Lets the child close what it has, or ends it. */
void np_stop_child(struct np_host *h);

/* A number not in use; -1. */
int np_number(struct np_host *h, bool *used, size_t n);
void np_number_free(struct np_host *h, bool *used, uint32_t number);

/* A sealed memfd that cannot be cut short, and its mapping. -errno. */
int np_shared_memory(const char *name, size_t len, int *fd, void **at);

/* What is left of these at np_close(), the child being gone. */
void np_comm_drop(struct np_comm *c);
void np_mem_drop(struct np_mem *m);

#endif
