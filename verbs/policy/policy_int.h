/* SPDX-License-Identifier: Apache-2.0 */
/* What policy.c, judge.c and objects.c share. */
#ifndef HW_VERBS_POLICY_INT_H
#define HW_VERBS_POLICY_INT_H

#include "verbs/policy/policy.h"

#include <string.h>

/* -------------------------------------------------------- contents of sections */

enum vb_key_kind {
    VB_DEVICES,
    VB_PORTS,
    VB_GIDS,
    VB_PKEYS,
    VB_QP_TYPES,
    VB_DESTINATIONS,
    VB_ALLOW,
    VB_SIZE,
    VB_NUMBER
};

struct vb_key {
    const char *name;
    enum vb_key_kind kind;
    size_t at; /* for a size or number: offset of its uint64_t in struct vb_rules */
};
#define VB_KEYS 24
extern const struct vb_key vb_keys[VB_KEYS];
const struct vb_key *vb_key_of(const char *name); /* NULL: there is none */

static inline uint64_t *vb_key_number(struct vb_rules *r, const struct vb_key *k)
{
    return (uint64_t *)(void *)((char *)r + k->at);
}

#define VB_LINE_BYTES    190 /* inih splits lines at 200 bytes (INI_MAX_LINE) without an error, */
#define VB_SECTION_BYTES 48  /* and sections at 49 (MAX_SECTION) */
#define VB_NAMES_TEXT    1024

/* The values of a section or an annotation; lists are empty at first. */
struct vb_values {
    unsigned set;                /* bit i: vb_keys[i] is given */
    char devices[VB_NAMES_TEXT]; /* "mlx5_*\0rxe0\0\0" */
    struct vb_rules r;
};
/* -EINVAL, -E2BIG: invalid value for the key. A repeated list is appended. */
int vb_take(struct vb_values *v, const struct vb_key *k, const char *value);
/* Sets the defaults. */
void vb_defaults(struct vb_rules *r);

struct vb_section {
    char name[VB_SECTION_BYTES + 1];      /* as in the file */
    char container[VB_SECTION_BYTES + 1]; /* "": any */
    char device[VB_SECTION_BYTES + 1];    /* a pattern; "": any */
    struct vb_values v;
};

struct vb_policy {
    unsigned n;
    struct vb_section *section;
};

/* --------------------------------------------------- demands of requests */

/* Returns true if gid matches the prefix. */
static inline bool vb_within(const struct vb_prefix *p, const uint8_t *gid)
{
    unsigned whole = p->bits / 8, rest = p->bits % 8;
    return memcmp(p->gid, gid, whole) == 0 &&
           (rest == 0 || ((p->gid[whole] ^ gid[whole]) & 0xff00u >> rest & 0xff) == 0);
}

/* Returns the key of a type's limit, "max_qps"; NULL: not limited, because its end is not seen (descriptors). */
const char *vb_limit_key(enum vb_type t);

/* A request's demand for registered memory. */
struct vb_mr_ask {
    enum { VB_MR_NONE, VB_MR_NEW, VB_MR_AGAIN } kind;
    bool resize;        /* VB_MR_AGAIN: its pages change */
    bool change_access; /* of VB_MR_AGAIN */
    uint32_t number;    /* of VB_MR_AGAIN */
    uint64_t bytes;     /* in whole pages */
    uint64_t access;    /* enum ib_uverbs_access_flags */
    bool writes;        /* this access pins memory for writing: ib_access_writable(), rdma/ib_verbs.h */
};
void vb_mr_ask(const struct vb_request *r, struct vb_mr_ask *m);

/* How many requests the new queues hold, by the driver's part: the kernel drivers of mlx5 and efa size them by that,
 * whatever the core's part says. Rounded down as far as libraries round up; 0: not given. */
struct vb_queue_ask {
    uint64_t send, recv;
};
void vb_queue_ask(const struct vb_request *r, struct vb_queue_ask *q);

static inline bool vb_gid_index(const struct vb_rules *rules, unsigned i)
{
    return i < 256 && (rules->gids[i / 8] >> i % 8 & 1);
}
static inline bool vb_all_gids(const struct vb_rules *rules)
{
    bool all = true;
    for (size_t i = 0; i < sizeof(rules->gids); i++)
        all &= rules->gids[i] == 0xff;
    return all;
}
/* Returns true if the application may see the GID at this port and index. No address vector can name an index above
 * 255: those are visible if all are. */
bool vb_gid_shows(const struct vb_rules *rules, uint64_t port, uint64_t index);

/* Returns true if there is a rule for the command. */
bool vb_judged(const struct vb_command *c);

/* Returns true if an MR is, was, or may be pinned read-only. */
bool vb_objects_read_only(const struct vb_objects *o);
/* For comparison with the kernel's list: returns how many of a type are counted, including those still to be made. */
uint64_t vb_objects_count(const struct vb_objects *o, enum vb_type t);
uint64_t vb_objects_bytes(const struct vb_objects *o); /* of all MRs */
void vb_objects_set_count(struct vb_objects *o, enum vb_type t, uint64_t n);
/* Returns true if the number of the MR is trusted, and sets *bytes. */
bool vb_objects_mr_known(const struct vb_objects *o, uint32_t number, uint64_t *bytes);
void vb_objects_forget_mr(struct vb_objects *o, uint32_t number); /* forgets its size, which may have changed */
struct vb_mr_seen {
    uint32_t number;
    bool known; /* bytes is known */
    uint64_t bytes;
};
/* Sets the list of all MRs. If the bytes of one are unknown, the sum does not shrink. */
void vb_objects_set_mrs(struct vb_objects *o, const struct vb_mr_seen *mr, unsigned n);
/* Returns the pinned bytes: whole pages. */
uint64_t vb_pinned_bytes(uint64_t start, uint64_t length);
/* Returns the length and the first address (iova) that a request gives to the MR it makes. */
bool vb_mr_place(struct vb_request *r, uint64_t *length, uint64_t *iova);

/* Returns the bytes of an MR whose number is trusted; 0: unknown. */
uint64_t vb_objects_mr_bytes(const struct vb_objects *o, uint32_t number);

/* Copies CORE_IN like the kernel: a struct that is too short is padded with zeros (uverbs_request(), uverbs_cmd.c). */
static inline void vb_core_in(const struct vb_request *r, void *dst, size_t n)
{
    size_t have = r->core_in ? HW_MIN((size_t)r->core_in_len, n) : 0;
    memset(dst, 0, n);
    if (have > 0)
        memcpy(dst, r->core_in, have);
}

static inline const struct vb_attr *vb_attr_find(const struct vb_request *r, uint16_t id)
{
    for (unsigned i = 0; i < r->n; i++)
        if (r->attr[i].rule && r->attr[i].raw.attr_id == id)
            return &r->attr[i];
    return NULL;
}

/* Copies an input, padded with zeros; false: it is absent. */
bool vb_attr_bytes(const struct vb_request *r, uint16_t id, void *dst, size_t n);
/* Returns an input as a number; 0 if it is absent. */
uint64_t vb_attr_u64(const struct vb_request *r, uint16_t id);

#endif
