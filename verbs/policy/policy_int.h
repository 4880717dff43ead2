/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations that the files of the policy share. The broker uses some of them. */
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
    size_t at; /* for VB_SIZE and VB_NUMBER: offset of the uint64_t in struct vb_rules */
};
#define VB_KEYS 24
extern const struct vb_key vb_keys[VB_KEYS];
const struct vb_key *vb_key_of(const char *name); /* returns NULL if there is no such key */

static inline uint64_t *vb_key_number(struct vb_rules *r, const struct vb_key *k)
{
    return (uint64_t *)(void *)((char *)r + k->at);
}

/* Maximum length of a line. Debian's inih splits lines of 200 bytes or more (INI_MAX_LINE) without an error. */
#define VB_LINE_BYTES 190
/* Maximum length of a section's name. inih truncates longer names to 49 bytes (MAX_SECTION) without an error. */
#define VB_SECTION_BYTES 48
#define VB_NAMES_TEXT    1024

/* The values of a section or an annotation. Lists are initially empty. */
struct vb_values {
    unsigned set;                /* bit i is set if the key vb_keys[i] was set */
    char devices[VB_NAMES_TEXT]; /* for example "mlx5_*\0rxe0\0\0" */
    struct vb_rules r;
};
/* Parses the value of a key. Appends to the list if the key is a list that was set before; a number or size may be set
 * only once. Fails with -EINVAL or -E2BIG for an invalid value. */
int vb_take(struct vb_values *v, const struct vb_key *k, const char *value);
/* Sets the rules that apply without any section. */
void vb_defaults(struct vb_rules *r);

struct vb_section {
    char name[VB_SECTION_BYTES + 1];      /* as written in the file */
    char container[VB_SECTION_BYTES + 1]; /* empty for all containers */
    char device[VB_SECTION_BYTES + 1];    /* pattern, or empty for all devices */
    struct vb_values v;
};

struct vb_policy {
    unsigned n;
    struct vb_section *section;
};

/* ---------------------------------------------------- checks of requests */

/* Returns true if gid matches the prefix. */
static inline bool vb_within(const struct vb_prefix *p, const uint8_t *gid)
{
    unsigned whole = p->bits / 8, rest = p->bits % 8;
    return memcmp(p->gid, gid, whole) == 0 &&
           (rest == 0 || ((p->gid[whole] ^ gid[whole]) & 0xff00u >> rest & 0xff) == 0);
}

/* Returns the key that limits a type, for example "max_qps". Returns NULL for VB_NONE, and for VB_CHANNEL and VB_ASYNC,
 * which are file descriptors: the broker is not informed when they are closed. */
const char *vb_limit_key(enum vb_type t);

/* The registered memory that a request asks for. */
struct vb_mr_ask {
    enum { VB_MR_NONE, VB_MR_NEW, VB_MR_AGAIN } kind;
    bool resize;        /* for VB_MR_AGAIN: the request changes the pages */
    bool change_access; /* for VB_MR_AGAIN: the request changes the access flags */
    uint32_t number;    /* for VB_MR_AGAIN: number of the MR */
    uint64_t bytes;     /* size of the pages that contain the memory; 0 for device memory */
    uint64_t access;    /* enum ib_uverbs_access_flags */
    bool writes; /* the kernel pins memory with this access for writing: ib_access_writable() in rdma/ib_verbs.h */
};
void vb_mr_ask(const struct vb_request *r, struct vb_mr_ask *m);

/* The number of work requests in the new queues according to the driver's part of the request. The kernel drivers of
 * mlx5 and efa take the size of the queues from this part, not from the core part. The numbers are rounded down,
 * because libraries round up. 0 means that the driver's part contains no size, or that a queue is too small to
 * matter. */
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
/* Returns true if the application may see the GID at this index of the port. An index above 255, which does not fit in
 * an address vector, is visible if all GIDs are allowed. */
bool vb_gid_shows(const struct vb_rules *rules, uint64_t port, uint64_t index);

/* Returns true if judge.c has a row for the command. */
bool vb_judged(const struct vb_command *c);

/* Returns true if an MR of the file is, was, or may have been pinned read-only. */
bool vb_objects_read_only(const struct vb_objects *o);
/* Returns the number of counted objects of a type, including those that running requests may create. Used for
 * comparison with the kernel's list. */
uint64_t vb_objects_count(const struct vb_objects *o, enum vb_type t);
uint64_t vb_objects_bytes(const struct vb_objects *o); /* returns the counted bytes of all MRs */
void vb_objects_set_count(struct vb_objects *o, enum vb_type t, uint64_t n);
/* If the number of an MR is trusted and its size known, stores the size in *bytes and returns true. Otherwise stores 0
 * and returns false. */
bool vb_objects_mr_known(const struct vb_objects *o, uint32_t number, uint64_t *bytes);
/* Marks the size of an MR as unknown, because a request may have changed it. */
void vb_objects_forget_mr(struct vb_objects *o, uint32_t number);
struct vb_mr_seen {
    uint32_t number;
    bool known; /* true if bytes is the size of the MR */
    uint64_t bytes;
};
/* Replaces the list of all MRs. If the size of an MR is unknown, the sum of bytes does not decrease. */
void vb_objects_set_mrs(struct vb_objects *o, const struct vb_mr_seen *mr, unsigned n);
/* Returns the size of the pages that contain the memory, in bytes, or 2^56 if length exceeds 2^56. */
uint64_t vb_pinned_bytes(uint64_t start, uint64_t length);
/* Stores the length and the first address (iova) of the MR that r, a REG_MR request, creates. Returns false if r lacks
 * them. */
bool vb_mr_place(struct vb_request *r, uint64_t *length, uint64_t *iova);

/* Returns the size of an MR in bytes, or 0 if the size is unknown or the number is not trusted. */
uint64_t vb_objects_mr_bytes(const struct vb_objects *o, uint32_t number);

/* Copies CORE_IN. Pads a struct that is too short with zeros, as uverbs_request() in uverbs_cmd.c does. */
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

/* Copies an input to dst and pads it with zeros to n bytes. Returns false if the request does not have the
 * attribute. */
bool vb_attr_bytes(const struct vb_request *r, uint16_t id, void *dst, size_t n);
/* Returns an input as a number, or 0 if the request does not have the attribute. */
uint64_t vb_attr_u64(const struct vb_request *r, uint16_t id);

#endif
