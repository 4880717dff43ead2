/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hawserd holds: changed NICs, bindings, flow rules; and how each is undone.
 *
 * Every change is written to the journal before the kernel is asked for it, so that a reader of the journal can always
 * undo it. All ends - a failed step, a release, a client that disconnected, a restart - use the same undo: remove the
 * object from the wanted state, then hd_settle() brings the kernel to the wanted state. What the kernel refuses stays
 * in the journal and is retried.
 */
#ifndef HW_HELPER_STATE_H
#define HW_HELPER_STATE_H

#include "base/list.h"
#include "helper/child/inspect.h"
#include "helper/state/policy.h"
#include "sys/files.h"
#include "wire/helper.h"

#define HD_STATE_FILE "/run/hawser/hawserd.state"
#define HD_NICS_MAX   64
#define HD_LOOK_MS    1000 /* between two checks whether a rule's connection has ended */
#define HD_LOOKS      64   /* at once */

/* A NIC that was changed. */
struct hd_nic {
    struct hw_list node;
    int ifindex;
    char name[HAWSER_NIC_NAME];
    /* header split was turned on; split_was is its previous state, with has_thresh and buf_len for what changed */
    bool split_set;
    bool split_auto; /* during undo: set to automatic, or about to be */
    struct hd_split split_was;
    bool gro_set;        /* rx-gro-hw was turned on; it was off */
    bool ntuple_set;     /* flow rules were turned on; they were off */
    uint32_t n_was;      /* 0: RSS was not changed */
    uint32_t *was;       /* the previous indirection table */
    struct hd_set taken; /* queues taken out of RSS, bound or not */
    struct hd_set held;  /* of these, the queues of a binding */
    unsigned bindings;
    bool gone; /* the kernel no longer has the device */
};

struct hd_binding {
    struct hw_list node;
    struct hd_nic *nic;
    const void *owner; /* a client */
    uid_t uid;
    uint32_t id, dmabuf_id;
    int sock;
    uint64_t bytes;
    unsigned n; /* 0: for sending */
    uint32_t queue[HW_HELPER_QUEUES];
};

struct hd_held_rule {
    struct hw_list node;
    struct hd_nic *nic;
    struct hd_binding *binding; /* NULL: it has no owner any more, and could not be removed yet */
    uid_t uid;
    uint32_t id;
    bool placed;     /* rule.loc is known; otherwise the kernel may or may not have the rule */
    uint64_t cookie; /* of the connection's socket */
    uint64_t due;    /* next check of the connection, in hw_now() time */
    int port;        /* holds the connection's local port, or -1 */
    struct hd_rule rule;
};

struct hd_state {
    const struct hd_kernel *k;
    const struct hw_logger *log;
    const char *path;      /* the journal; NULL: none */
    char boot[HW_BOOT_ID]; /* of this kernel */
    uint64_t netns;        /* this network namespace's inode */
    struct hw_list nics, bindings, rules;
    unsigned n_nics;
    bool retrying; /* the failure was logged already */
    bool watching; /* reports of destroyed sockets are on */
    uint32_t last_id;
};

/* ---- state.c ---- */
void hd_state_init(struct hd_state *s, const struct hd_kernel *k, const struct hw_logger *log, const char *path);
/* Frees the state; undoes nothing. */
void hd_state_free(struct hd_state *s);
/* Frees NICs and rules; does not touch the kernel. */
void hd_state_forget(struct hd_state *s);
/* Bind or steer: set the reply from id on, or fail with -errno and no change. dmabuf: the descriptor, if f says that it
 * is a dma-buf. */
int hd_bind(struct hd_state *s, const void *owner, uid_t uid, const struct hd_rights *r, const struct hd_facts *f,
            int dmabuf, const struct hw_helper_request *q, struct hw_helper_reply *a);
int hd_steer(struct hd_state *s, const void *owner, const struct hd_rights *r, const struct hd_facts *f,
             uint32_t binding, struct hw_helper_reply *a);
/* Releases a binding or rule. -ENOENT. What could not be undone is logged and left to hd_settle_all(). */
int hd_release(struct hd_state *s, const void *owner, uint32_t id);
/* Removes the rules of sockets that the kernel reports as destroyed. If reports were lost, all connections are checked
 * soon. */
void hd_take_reports(struct hd_state *s);
/* Checks connections that are due, at most HD_LOOKS, and removes the rules of ended ones, because not every end is
 * reported (helper/kernel/diag.h). Returns when to call again; HW_NEVER: there are none. */
uint64_t hd_look(struct hd_state *s);
/* Releases everything of an owner. */
void hd_drop(struct hd_state *s, const void *owner);

/* ---- split.c, nic.c ---- */
struct hd_nic *hd_nic_find(const struct hd_state *s, int ifindex);
struct hd_nic *hd_nic_add(struct hd_state *s, int ifindex, const char *name); /* NULL with hw_error() */
void hd_nic_free(struct hd_state *s, struct hd_nic *nic);
/* Turn on header split, or the NIC's ntuple rules; 0 also if already on. link: of the NIC. */
int hd_split_on(struct hd_state *s, struct hd_nic *nic, const struct hd_link *link);
int hd_ntuple_on(struct hd_state *s, struct hd_nic *nic);
/* Returns the rx-buf-len for buffers of whole pages; 0: unchanged. */
uint32_t hd_buf_len(const struct hd_split *now, unsigned mtu);
/* Returns true if one of n queues is bound to memory: a dma-buf, or io_uring's. */
bool hd_any_bound(const struct hd_queue *q, unsigned n);
/* Restore header split, and then rx-gro-hw. bound: some process has a queue bound. */
int hd_split_back(struct hd_state *s, struct hd_nic *nic, bool bound);
int hd_gro_back(struct hd_state *s, struct hd_nic *nic);
/* Chooses the n queues that a binding would get. -EBUSY with the reason. rss: the current state. */
int hd_choose(struct hd_state *s, const struct hd_link *link, const struct hd_rights *r, unsigned n, uint32_t *queue,
              const struct hd_rss *rss);
/* Takes the queues out of RSS. */
int hd_take(struct hd_state *s, struct hd_nic *nic, const struct hd_rss *rss, const uint32_t *queue, unsigned n);
/* Brings the NIC as close as possible to the wanted state; forgets it if nothing of ours is left on it. */
void hd_settle(struct hd_state *s, struct hd_nic *nic);
/* Settles all NICs, and rules without an owner. Returns hd_left(). */
unsigned hd_settle_all(struct hd_state *s);
/* Returns how many things must still be undone. */
unsigned hd_left(const struct hd_state *s);
bool hd_rule_same(const struct hd_rule *a, const struct hd_rule *b);
/* Removes a rule from the NIC: 0 also if it is absent, or was changed by others. */
int hd_unplace(struct hd_state *s, struct hd_held_rule *r);
/* Forgets a rule that is no longer on the NIC, and releases its port. */
void hd_rule_free(struct hd_state *s, struct hd_held_rule *r);

/* ---- journal.c ---- */
int hd_journal_write(struct hd_state *s);
/* Reads the journal into the empty s; its objects have no owner. -ENOENT: none; -ESTALE: of another boot, void; -EXDEV:
 * of another network namespace; -EPROTO: damaged. */
int hd_journal_read(struct hd_state *s);
int hd_journal_parse(struct hd_state *s, const char *text, size_t len); /* the text alone; -EPROTO */
/* Returns the journal as text, which the caller frees; NULL: no memory. */
char *hd_journal_text(const struct hd_state *s, size_t *len);
/* Undoes what a dead hawserd left. Waits for queues that are still bound, at most wait_ms. Returns how much is left to
 * undo (0: everything is restored), or -errno. */
int hd_recover(struct hd_state *s, int wait_ms);
/* Takes the lock next to the journal, which a live hawserd holds: returns a descriptor, or -EBUSY with that hawserd's
 * pid. */
int hd_journal_lock(const char *path);
/* Gives the journal and its lock to the owner of their folder, because root has written them for a hawserd that runs as
 * another user. */
int hd_journal_chown(const char *path);
/* Returns the process id of the live hawserd that keeps this journal, 0 if there is none. */
int hd_journal_alive(const char *path);

#endif
