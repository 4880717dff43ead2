/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of hawserd: changed NICs, bindings and flow rules, and the information for undoing each change.
 *
 * A change to a NIC's settings or flow rules is written to the journal before it is requested from the kernel, so that
 * it can be undone from the journal. A binding ends when its socket is closed. After a failed step, a release, the end
 * of a client or a restart, hawserd undoes the changes that are no longer needed. Undo steps that the kernel refuses
 * remain in the journal and are tried again.
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
#define HD_LOOK_MS    1000 /* milliseconds between two checks of a rule's connection */
#define HD_LOOKS      64   /* maximum number of checks at once */

/* A NIC with bindings, or with changes that must be undone. */
struct hd_nic {
    struct hw_list node;
    int ifindex;
    char name[HAWSER_NIC_NAME];
    /* Header split was turned on. split_was is the previous state; has_thresh and buf_len are set in it only if these
     * settings were changed too. */
    bool split_set;
    bool split_auto; /* during undo: header split was set to automatic, or is about to be */
    struct hd_split split_was;
    bool gro_set;        /* rx-gro-hw was off and was turned on */
    bool ntuple_set;     /* flow rules were off and were turned on */
    uint32_t n_was;      /* number of entries of `was`, or 0 if no table was saved */
    uint32_t *was;       /* the previous indirection table */
    struct hd_set taken; /* queues that hawserd keeps out of RSS, whether or not they are bound */
    struct hd_set held;  /* queues of bindings, a subset of `taken` */
    unsigned bindings;
    bool gone; /* the device no longer exists */
};

struct hd_binding {
    struct hw_list node;
    struct hd_nic *nic;
    const void *owner; /* the client */
    uid_t uid;
    uint32_t id, dmabuf_id;
    int sock;
    uint64_t bytes;
    unsigned n; /* number of queues, or 0 for sending */
    uint32_t queue[HW_HELPER_QUEUES];
};

struct hd_held_rule {
    struct hw_list node;
    struct hd_nic *nic;
    struct hd_binding *binding; /* NULL if the rule no longer has an owner but could not be removed yet */
    uid_t uid;
    uint32_t id;
    bool placed;     /* rule.loc is known; otherwise the kernel may or may not have the rule */
    uint64_t cookie; /* cookie of the connection's socket */
    uint64_t due;    /* next check of the connection, in hw_now() time */
    int port;        /* socket that reserves the connection's local port, or -1 */
    struct hd_rule rule;
};

struct hd_state {
    const struct hd_kernel *k;
    const struct hw_logger *log;
    const char *path;      /* path of the journal, or NULL for none */
    char boot[HW_BOOT_ID]; /* id of the current boot */
    uint64_t netns;        /* inode of hawserd's network namespace */
    struct hw_list nics, bindings, rules;
    unsigned n_nics;
    bool retrying; /* failures have been logged before */
    bool watching; /* reports of destroyed sockets are on */
    uint32_t last_id;
};

/* ---- state.c ---- */
void hd_state_init(struct hd_state *s, const struct hd_kernel *k, const struct hw_logger *log, const char *path);
/* Frees the state without undoing changes to NICs. Ends bindings. */
void hd_state_free(struct hd_state *s);
/* Frees NICs and rules without changing the kernel's settings. */
void hd_state_forget(struct hd_state *s);
/* Handle requests to bind and to steer. Fill in the reply. On failure, undo all changes and return -errno. dmabuf is
 * the request's descriptor, and is valid only if f->rc is 0. */
int hd_bind(struct hd_state *s, const void *owner, uid_t uid, const struct hd_rights *r, const struct hd_facts *f,
            int dmabuf, const struct hw_helper_request *q, struct hw_helper_reply *a);
int hd_steer(struct hd_state *s, const void *owner, const struct hd_rights *r, const struct hd_facts *f,
             uint32_t binding, struct hw_helper_reply *a);
/* Releases a binding or a rule. Fails with -ENOENT if the owner has no binding or rule with this id. Changes that
 * cannot be undone are logged and left to hd_settle_all(). */
int hd_release(struct hd_state *s, const void *owner, uint32_t id);
/* Removes the rules of sockets that the kernel reports as destroyed. If reports were lost, makes the checks of all
 * connections due. */
void hd_take_reports(struct hd_state *s);
/* Checks up to HD_LOOKS connections that are due, and removes the rules of connections that have ended. This is
 * necessary because the kernel does not report every connection that ends (helper/kernel/diag.h). Returns the time at
 * which to call hd_look() again, or HW_NEVER if there are no connections. */
uint64_t hd_look(struct hd_state *s);
/* Releases all bindings and rules of an owner. */
void hd_drop(struct hd_state *s, const void *owner);

/* ---- split.c, nic.c ---- */
struct hd_nic *hd_nic_find(const struct hd_state *s, int ifindex);
/* Adds a NIC. Returns NULL and sets hw_error() on failure. */
struct hd_nic *hd_nic_add(struct hd_state *s, int ifindex, const char *name);
void hd_nic_free(struct hd_state *s, struct hd_nic *nic);
/* Turn on header split or the NIC's flow rules (ntuple). Also return 0 if the setting is already on. */
int hd_split_on(struct hd_state *s, struct hd_nic *nic, const struct hd_link *link);
int hd_ntuple_on(struct hd_state *s, struct hd_nic *nic);
/* Returns the rx-buf-len for receive buffers of a whole page, or 0 if rx-buf-len need not be changed. */
uint32_t hd_buf_len(const struct hd_split *now, unsigned mtu);
/* Returns true if one of n queues is bound to a dma-buf or to memory of io_uring. */
bool hd_any_bound(const struct hd_queue *q, unsigned n);
/* Restore header split and rx-gro-hw. Call hd_split_back() first. bound is true if any process has bound a queue of the
 * NIC. */
int hd_split_back(struct hd_state *s, struct hd_nic *nic, bool bound);
int hd_gro_back(struct hd_state *s, struct hd_nic *nic);
/* Chooses n queues for a binding. rss is the current state of RSS. Fails with -EBUSY and the reason if not enough
 * queues are available. */
int hd_choose(struct hd_state *s, const struct hd_link *link, const struct hd_rights *r, unsigned n, uint32_t *queue,
              const struct hd_rss *rss);
/* Removes the queues from RSS. rss is the current state of RSS. */
int hd_take(struct hd_state *s, struct hd_nic *nic, const struct hd_rss *rss, const uint32_t *queue, unsigned n);
/* Undoes, as far as possible, the changes to the NIC that are no longer needed. Frees nic if no change, binding or rule
 * is left. */
void hd_settle(struct hd_state *s, struct hd_nic *nic);
/* Calls hd_settle() for all NICs and removes rules without an owner. Returns hd_left(). */
unsigned hd_settle_all(struct hd_state *s);
/* Returns the number of rules and NICs with changes that must still be undone. */
unsigned hd_left(const struct hd_state *s);
/* Returns true if both rules send the same connection to the same queue. */
bool hd_rule_same(const struct hd_rule *a, const struct hd_rule *b);
/* Removes a rule from the NIC. Also returns 0 if the NIC does not have the rule or another program has changed the
 * rule. */
int hd_unplace(struct hd_state *s, struct hd_held_rule *r);
/* Frees a rule that is no longer on the NIC, and releases its port. */
void hd_rule_free(struct hd_state *s, struct hd_held_rule *r);

/* ---- journal.c ---- */
/* Replaces the journal with the current state. */
int hd_journal_write(struct hd_state *s);
/* Reads the journal into s, which must be empty. The objects have no owner. Fails with -ENOENT if there is no journal,
 * -ESTALE if it is from an earlier boot and therefore obsolete, -EXDEV if it is from another network namespace, -EPROTO
 * if it is damaged, or another -errno. */
int hd_journal_read(struct hd_state *s);
/* Parses the text of a journal. Fails like hd_journal_read(). */
int hd_journal_parse(struct hd_state *s, const char *text, size_t len);
/* Returns the text of the journal, which the caller must free, or NULL if out of memory. */
char *hd_journal_text(const struct hd_state *s, size_t *len);
/* Undoes the changes of a hawserd that has died. Waits up to wait_ms for queues that are still bound. Returns
 * hd_left(), which is 0 if everything was restored, or -errno. */
int hd_recover(struct hd_state *s, int wait_ms);
/* Locks the journal with a lock file next to it. Returns the descriptor of the lock. Fails with -EBUSY and the PID in
 * hw_error() if a running hawserd or `hawser devmem undo` holds the lock. */
int hd_journal_lock(const char *path);
/* Changes the owner of the journal and its lock to the owner of their folder. This is needed if root has written these
 * files for a hawserd that runs as another user. */
int hd_journal_chown(const char *path);
/* Returns the PID of the running hawserd or `hawser devmem undo` that uses this journal (1 if the PID is unknown), 0 if
 * no such process is running, or -errno. */
int hd_journal_alive(const char *path);

#endif
