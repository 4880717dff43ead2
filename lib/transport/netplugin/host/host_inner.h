/* SPDX-License-Identifier: Apache-2.0 */
/* Private definitions of the parent. host_open.c starts the child, host.c checks the child and exchanges messages with
 * it, comm.c handles connections and requests, and host_mem.c handles memory. */
#ifndef HW_NETPLUGIN_HOST_INNER_H
#define HW_NETPLUGIN_HOST_INNER_H

#include "base/list.h"
#include "transport/netplugin/child/ring.h"
#include "transport/netplugin/host/host.h"

#include <pthread.h>
#include <sys/types.h>

struct np_host {
    char plugin[256];
    const char *name; /* last component of the path, for messages */
    struct np_options o;
    struct np_info info;
    char table[64];
    const uint32_t *mine; /* value is 1, and reads as 0 in a forked process */

    struct np_shared *s;
    int pid, socket, log, warnings, trace;
    struct {
        off_t at;
        char last[200]; /* last logged line */
        unsigned again; /* number of warnings suppressed since the last logged line */
        unsigned told;  /* number of lines logged in this window */
        uint64_t window;
    } warning; /* guarded by the lock */

    pthread_mutex_t lock; /* guards the fields up to beat_at */
    uint32_t seq;
    struct hw_list comms, listeners, mems;         /* remaining objects, which np_close() frees */
    bool slot[NP_COMMS], mem[NP_MEMS], mr[NP_MRS]; /* true for numbers in use */
    uint64_t beat, beat_at;

    pthread_mutex_t devices_lock; /* guards known, device and guessed; never held while waiting */
    bool known[NP_DEVICES];
    struct np_device device[NP_DEVICES];
    char guessed[16]; /* NIC to which the first device was assigned */

    _Atomic uint64_t looked_at; /* time of np_health()'s last check */
    _Atomic bool warned;
    _Atomic int dead;      /* -errno, never reset */
    char why[HW_ERR_TEXT]; /* reason, written before dead */
};

struct np_mem {
    struct hw_list link;
    struct np_host *h;
    uint32_t id;
    uint8_t *at;
    size_t len;
    bool ours;                  /* must be unmapped */
    const struct hw_space *gpu; /* GPU of the memory, or NULL for host memory */
    uint64_t gpu_offset;        /* offset in the child's allocation */
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
    int rc; /* -errno if the connection is dead, with the reason in why */
    char why[HW_ERR_TEXT];
    uint64_t deadline; /* time by which the connection must be established */
    uint32_t max_size;
    const struct np_frag_area *frags; /* only for receives with np_options.list from a device that unpacks; else NULL */
    uint64_t posted, tested, consumed;
    struct {
        size_t len;
        uint64_t deadline;
        uint32_t frags;
    } req[NP_RING];
};

/* Encodes a GPU number for a message. */
static inline uint32_t np_gpu_word(int gpu)
{
    return gpu < 0 ? UINT32_MAX : (uint32_t)gpu;
}

/* Returns 0, or an error if the host is dead or belongs to another process. */
int np_usable(struct np_host *h);
/* Sends the message with up to two descriptors, and waits for the reply. If the reply is an error, the text of
 * hw_error() contains the reply's text, the plugin's name and the plugin's last output. out may be NULL. */
int np_ask(struct np_host *h, struct np_message *m, const int *fds, size_t n_fds, struct np_reply *out);
/* Kills the child because it sent impossible values, which hw_error() describes. Returns the host's error. */
int np_distrust(struct np_host *h);
/* Sets an error text with the plugin's name, `what`, and the plugin's last output. Returns rc. */
int np_blame(struct np_host *h, int rc, const char *what);
/* Wakes the child if it sleeps. Call this function after a change of one of the parent's counters. */
void np_wake(struct np_host *h);

/* Asks the child to close all objects and exit. Kills the child if it does not exit. */
void np_stop_child(struct np_host *h);

/* Reserves a free number and returns it, or -1 if there is none. */
int np_number(struct np_host *h, bool *used, size_t n);
void np_number_free(struct np_host *h, bool *used, uint32_t number);

/* Creates a memfd that is sealed against truncation, and maps it. Returns 0 or -errno. */
int np_shared_memory(const char *name, size_t len, int *fd, void **at);

/* Free the parent's part of an object. */
void np_comm_drop(struct np_comm *c);
void np_mem_drop(struct np_mem *m);

#endif
