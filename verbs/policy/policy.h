/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the policy, which defines what a container may do with a device, from a file (see hawser-verbs-policy(5)) and
 * from the container's annotations. Checks requests against the resulting rules and against the container's existing
 * objects. */
#ifndef HW_VERBS_POLICY_H
#define HW_VERBS_POLICY_H

#include "verbs/schema/request.h"

#include <limits.h>

#define VB_DESTINATIONS_MAX 64
#define VB_DEVICES_MAX      64

struct vb_prefix { /* a prefix of GIDs; an IPv4 address is the GID ::ffff:a.b.c.d */
    uint8_t gid[16];
    uint8_t bits;
};

enum vb_allow {
    VB_ALLOW_DEVX = 1 << 0,
    VB_ALLOW_FLOW = 1 << 1,
    VB_ALLOW_RAW = 1 << 2,    /* raw packet QPs */
    VB_ALLOW_DMABUF = 1 << 3, /* MRs in dma-bufs (GPUDirect RDMA) */
    VB_ALLOW_ODP = 1 << 4,
    VB_ALLOW_MULTICAST = 1 << 5,
    VB_ALLOW_XRC = 1 << 6,
    /* Allows LIDs (InfiniBand) even if destinations are limited. A LID can stand for any destination. */
    VB_ALLOW_LID = 1 << 7,
    /* Allows UD and driver QPs even if destinations or GIDs are limited. Work requests of these QPs can contain
       addresses, which the broker cannot check. */
    VB_ALLOW_UD_ANYWHERE = 1 << 8
};

/* The rules for a container on a device. */
struct vb_rules {
    bool allowed;     /* the container may open the device */
    uint64_t ports;   /* bit p is set if port p is allowed */
    uint8_t gids[32]; /* bit i is set if GID index i is allowed as the source */
    bool any_pkey;
    uint16_t pkeys[32]; /* only the low 15 bits are compared */
    unsigned n_pkeys;
    /* Stores in *value the P_Key at this index of the port's table. Returns 0 or -errno. Required unless any_pkey is
     * set, because requests contain indices of P_Keys. */
    int (*pkey)(void *arg, unsigned port, unsigned index, uint16_t *value);
    void *pkey_arg;
    uint32_t qp_types; /* bit t stands for enum ib_qp_type t (IB_QPT_RC 2, UC 3, UD 4, RAW_PACKET 8, XRC_INI 9, XRC_TGT
                          10); bit 31 for DRIVER (0xff) */
    bool any_destination;
    struct vb_prefix destination[VB_DESTINATIONS_MAX];
    unsigned n_destinations;
    unsigned allow;    /* bits of enum vb_allow */
    uint64_t mr_bytes; /* maximum registered memory; UINT64_MAX means no limit, here and in the members below */
    /* Maximum number of existing objects of each type, in all contexts of the container on the device. max[VB_CONTEXT]
     * limits the open files. */
    uint64_t max[VB_TYPES];
    uint64_t cqe, qp_wr; /* maximum number of entries of a CQ, and of work requests of a queue */
};

struct vb_policy;
/* Read a policy from a file or from text. Fail with -EINVAL and a message with `name` (or path) and the line if a
 * section, a key or a value is invalid, or with another -errno. The caller frees *out with vb_policy_free(). */
int vb_policy_load(const char *path, struct vb_policy **out);
int vb_policy_parse(const char *text, size_t len, const char *name, struct vb_policy **out);
void vb_policy_free(struct vb_policy *p);
/* An annotation of a container. Annotations can only restrict the rules of the file. */
struct vb_annotation {
    const char *key, *value;
};
/* Stores a container's rules for a device in *out. container is the name in the annotation "hawser.verbs.policy" or in
 * --container; NULL or "" selects only the sections without a container. Fails with -ENOENT if the policy has no
 * section for the container, and with -EINVAL or -E2BIG for an invalid annotation. */
int vb_policy_rules(const struct vb_policy *p, const char *container, const struct vb_annotation *a, unsigned n,
                    const char *device, struct vb_rules *out);
/* Returns true if the policy has a section for the container. */
bool vb_policy_has(const struct vb_policy *p, const char *container);

/* The objects and the registered memory of a container on a device. */
struct vb_usage {
    uint64_t n[VB_TYPES];
    uint64_t mr_bytes;
};

/* The objects of an open file of the application on a device. */
struct vb_objects;
/* Creates the list of objects of an open file. Counts the file, and later its objects, in *of. Returns NULL if out of
 * memory. */
struct vb_objects *vb_objects_new(struct vb_usage *of);
/* Subtracts the file and its objects from the usage, and frees o. */
void vb_objects_free(struct vb_objects *o);

struct vb_verdict {
    int rc;         /* 0, or the -errno that the application gets */
    char rule[64];  /* for example "max_qps = 4"; empty for an ordinary error, which is not logged */
    char text[160]; /* for example "the limit of 4 is reached" */
};
/* Checks whether the container may open the device one more time. Does not count the open, because vb_objects_new()
 * does. */
void vb_judge_open(const struct vb_rules *rules, const struct vb_usage *u, struct vb_verdict *v);
/* Checks whether the container may make a request. Counts nothing. */
void vb_judge(const struct vb_rules *rules, const struct vb_usage *u, const struct vb_objects *o,
              const struct vb_request *r, struct vb_verdict *v);
/* Counts the objects and bytes that a request may create. Call it before the request runs, so that two concurrent
 * requests cannot exceed a limit together. After each call, call vb_settle() exactly once before o is freed. Returns
 * 0. */
int vb_reserve(struct vb_objects *o, const struct vb_request *r, uint64_t *ticket);
/* Corrects the counts after a request has run or was given up. rc is the result, or VB_UNKNOWN if the result is
 * unknown; the reservation is then kept.
 *
 * If trusted is false, the application could write to the memory that the reply's numbers were read from. The bytes of
 * a new MR then remain counted until the kernel lists the objects (reconcile.c) or the context ends. Objects of other
 * types are counted without their numbers, because the kernel can only destroy an object that exists. */
#define VB_UNKNOWN INT_MIN
void vb_settle(struct vb_objects *o, const struct vb_request *r, uint64_t ticket, int rc, bool trusted);
/* Removes from a reply the GID entries that the application is not allowed to see. In the replies to QUERY_DEVICE and
 * EX_QUERY_DEVICE, lowers limits of the device to the limits of the rules, so that programs that request the maximum
 * succeed, and hides capabilities that the rules do not allow. */
void vb_filter_reply(const struct vb_rules *rules, struct vb_request *r);

#endif
