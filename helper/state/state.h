/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hawserd holds: NICs that it changed, bindings, flow rules; and how each thing is undone.
 *
 * Every change is written to the journal before the kernel is asked for it, so that whatever happens next can be undone
 * by whoever reads the journal. There is one way back for all ends - a step that failed, a release, a client that went
 * away, a restart: take the thing off what is wanted, then hd_settle() brings the kernel to what is wanted. What the
 * kernel refuses then stays in the journal and is tried again.
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
#define HD_LOOK_MS    1000 /* between two looks whether a rule's connection has ended */
#define HD_LOOKS      64   /* at once */

/* A NIC that is not as it was found. */
struct hd_nic {
    struct hw_list node;
    int ifindex;
    char name[HAWSER_NIC_NAME];
    bool split_set;  /* header split was turned on; this is how it was, with has_thresh and buf_len for what changed */
    bool split_auto; /* on the way back: set to automatic, or about to be */
    struct hd_split split_was;
    bool gro_set;        /* rx-gro-hw was turned on; it was off */
    bool ntuple_set;     /* flow rules were turned on; they were off */
    uint32_t n_was;      /* 0: RSS was not touched */
    uint32_t *was;       /* the indirection table as it was */
    struct hd_set taken; /* queues that are out of RSS for us; bound or not */
    struct hd_set held;  /* of these, those of a binding */
    unsigned bindings;
    bool gone; /* the kernel knows it no more */
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
    struct hd_binding *binding; /* NULL: nobody's any more, and could not be removed yet */
    uid_t uid;
    uint32_t id;
    bool placed;     /* rule.loc is known; else the kernel may have it, or not */
    uint64_t cookie; /* of the connection's socket */
    uint64_t due;    /* when to look at the connection next, in hw_now() terms */
    int port;        /* holds the connection's local port, or -1 */
    struct hd_rule rule;
};

struct hd_state {
    const struct hd_kernel *k;
    const struct hw_logger *log;
    const char *path;      /* the journal's; NULL: none is kept */
    char boot[HW_BOOT_ID]; /* of this kernel */
    uint64_t netns;        /* this network namespace's inode */
    struct hw_list nics, bindings, rules;
    unsigned n_nics;
    bool retrying; /* what failed was said already */
    bool watching; /* destroyed sockets are reported */
    uint32_t last_id;
};

/* ---- state.c ---- */
void hd_state_init(struct hd_state *s, const struct hd_kernel *k, const struct hw_logger *log, const char *path);
/* Frees what is known; undoes nothing. */
void hd_state_free(struct hd_state *s);
/* Of NICs and rules the same, the kernel untouched. */
void hd_state_forget(struct hd_state *s);
/* Fill the answer, id and on, or fail with -errno and nothing changed. dmabuf: the descriptor, where f says that it is
 * one. */
int hd_bind(struct hd_state *s, const void *owner, uid_t uid, const struct hd_rights *r, const struct hd_facts *f,
            int dmabuf, const struct hw_helper_request *q, struct hw_helper_reply *a);
int hd_steer(struct hd_state *s, const void *owner, const struct hd_rights *r, const struct hd_facts *f,
             uint32_t binding, struct hw_helper_reply *a);
/* -ENOENT. What could not be undone stays for hd_settle_all(), and is logged. */
int hd_release(struct hd_state *s, const void *owner, uint32_t id);
/* Removes the rules whose sockets the kernel reports as destroyed. Where reports were lost, all are looked at soon. */
void hd_take_reports(struct hd_state *s);
/* Looks at connections whose time has come, HD_LOOKS at most, and removes the rules of those that have ended: not every
 * end is reported (helper/kernel/diag.h). Returns when to come again; HW_NEVER: there is none. */
uint64_t hd_look(struct hd_state *s);
/* All of an owner's. */
void hd_drop(struct hd_state *s, const void *owner);

/* ---- split.c, nic.c ---- */
struct hd_nic *hd_nic_find(const struct hd_state *s, int ifindex);
struct hd_nic *hd_nic_add(struct hd_state *s, int ifindex, const char *name); /* NULL with hw_error() */
void hd_nic_free(struct hd_state *s, struct hd_nic *nic);
/* Header split on, or NIC's ntuple rules on; 0 where they were already. link: of the NIC. */
int hd_split_on(struct hd_state *s, struct hd_nic *nic, const struct hd_link *link);
int hd_ntuple_on(struct hd_state *s, struct hd_nic *nic);
/* What rx-buf-len is to be for pieces of whole pages; 0: as it is. */
uint32_t hd_buf_len(const struct hd_split *now, unsigned mtu);
/* Has anybody memory bound to one of n queues: a dma-buf, or io_uring's? */
bool hd_any_bound(const struct hd_queue *q, unsigned n);
/* Header split, and then rx-gro-hw, as they were. bound: somebody has a queue bound. */
int hd_split_back(struct hd_state *s, struct hd_nic *nic, bool bound);
int hd_gro_back(struct hd_state *s, struct hd_nic *nic);
/* Which n queues a binding would get. -EBUSY with the reason. rss: as it is now. */
int hd_choose(struct hd_state *s, const struct hd_link *link, const struct hd_rights *r, unsigned n, uint32_t *queue,
              const struct hd_rss *rss);
/* Takes them out of RSS. */
int hd_take(struct hd_state *s, struct hd_nic *nic, const struct hd_rss *rss, const uint32_t *queue, unsigned n);
/* Brings the NIC to what is wanted of it, or as near as it goes; where nothing of ours is left on it, forgets it. */
void hd_settle(struct hd_state *s, struct hd_nic *nic);
/* All of them, and rules that are nobody's. Returns hd_left(). */
unsigned hd_settle_all(struct hd_state *s);
/* How many things are still to be undone. */
unsigned hd_left(const struct hd_state *s);
bool hd_rule_same(const struct hd_rule *a, const struct hd_rule *b);
/* Removes a rule from the NIC: 0 also where it is not there, or not as we made it. */
int hd_unplace(struct hd_state *s, struct hd_held_rule *r);
/* Forgets a rule that is not on the NIC any more, and lets go of its port. */
void hd_rule_free(struct hd_state *s, struct hd_held_rule *r);

/* ---- journal.c ---- */
int hd_journal_write(struct hd_state *s);
/* Reads the journal into s, which is empty; what it holds is nobody's. -ENOENT none; -ESTALE another boot's: void;
 * -EXDEV another network namespace's; -EPROTO damaged. */
int hd_journal_read(struct hd_state *s);
int hd_journal_parse(struct hd_state *s, const char *text, size_t len); /* the text alone; -EPROTO */
/* The same as a text, which the caller frees; NULL: no memory. */
char *hd_journal_text(const struct hd_state *s, size_t *len);
/* What a dead hawserd left is undone. Waits for queues that are still bound, wait_ms at most. Returns what is left to
 * be undone (0: all is as it was before), or -errno. */
int hd_recover(struct hd_state *s, int wait_ms);
/* Takes the lock that the living hawserd holds beside the journal: a descriptor, or -EBUSY with its pid. */
int hd_journal_lock(const char *path);
/* Gives the journal and its lock to the owner of their folder: root has written them for a hawserd of another user. */
int hd_journal_chown(const char *path);
/* The process id of the hawserd that lives and keeps this journal, 0 if none does. */
int hd_journal_alive(const char *path);

#endif
