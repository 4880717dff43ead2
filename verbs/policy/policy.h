/* SPDX-License-Identifier: Apache-2.0 */
/* What a container may do with a device: a file (man page hawser-verbs-policy(5)) and annotations; and the judgement of
 * a request by these rules and by what the container already has. */
#ifndef HW_VERBS_POLICY_H
#define HW_VERBS_POLICY_H

#include "verbs/schema/request.h"

#include <limits.h>

#define VB_DESTINATIONS_MAX 64
#define VB_DEVICES_MAX      64

struct vb_prefix { /* of GIDs; IPv4 addresses are ::ffff:a.b.c.d */
    uint8_t gid[16];
    uint8_t bits;
};

enum vb_allow {
    VB_ALLOW_DEVX = 1 << 0,
    VB_ALLOW_FLOW = 1 << 1,
    VB_ALLOW_RAW = 1 << 2,    /* raw packet QPs */
    VB_ALLOW_DMABUF = 1 << 3, /* GPUDirect */
    VB_ALLOW_ODP = 1 << 4,
    VB_ALLOW_MULTICAST = 1 << 5,
    VB_ALLOW_XRC = 1 << 6,
    /* LIDs (InfiniBand), which reach any destination, although destinations are limited */
    VB_ALLOW_LID = 1 << 7,
    /* UD and driver QPs although destinations or GIDs are limited: each work request names its own, unchecked */
    VB_ALLOW_UD_ANYWHERE = 1 << 8
};

/* The rules for one device and one container. */
struct vb_rules {
    bool allowed;
    uint64_t ports;   /* bit p: port p */
    uint8_t gids[32]; /* bit i: GID index i is allowed as source */
    bool any_pkey;
    uint16_t pkeys[32]; /* the low 15 bits count */
    unsigned n_pkeys;
    /* Requests name P_Keys by index: returns the value at an index; -errno. Needed unless any_pkey. */
    int (*pkey)(void *arg, unsigned port, unsigned index, uint16_t *value);
    void *pkey_arg;
    uint32_t qp_types; /* bit t: enum ib_qp_type t (IB_QPT_RC 2, UC 3, UD 4, RAW_PACKET 8, XRC_INI 9, XRC_TGT 10, DRIVER
                          0xff is bit 31) */
    bool any_destination;
    struct vb_prefix destination[VB_DESTINATIONS_MAX];
    unsigned n_destinations;
    unsigned allow;    /* enum vb_allow */
    uint64_t mr_bytes; /* UINT64_MAX: no limit, also for the following */
    /* objects at a time, over all contexts of the container on the device; [VB_CONTEXT]: opens */
    uint64_t max[VB_TYPES];
    uint64_t cqe, qp_wr; /* entries of a CQ; work requests of a queue */
};

struct vb_policy;
/* -EINVAL with file and line; unknown sections, names and values are errors. */
int vb_policy_load(const char *path, struct vb_policy **out);
int vb_policy_parse(const char *text, size_t len, const char *name, struct vb_policy **out);
void vb_policy_free(struct vb_policy *p);
/* A container's rules for a device. container: its name ("hawser.verbs.policy" annotation or --container), NULL: the
 * default section. annotation: n key and value pairs, which may narrow (never widen) the file's rules. */
struct vb_annotation {
    const char *key, *value;
};
/* -ENOENT: the policy has no section for that container; -EINVAL: an annotation is invalid. */
int vb_policy_rules(const struct vb_policy *p, const char *container, const struct vb_annotation *a, unsigned n,
                    const char *device, struct vb_rules *out);
bool vb_policy_has(const struct vb_policy *p, const char *container); /* is there a section of that name? */

/* What a container holds on a device. */
struct vb_usage {
    uint64_t n[VB_TYPES];
    uint64_t mr_bytes;
};

/* An open file of the application on a device, with its objects. */
struct vb_objects;
struct vb_objects *vb_objects_new(struct vb_usage *of); /* counts in *of; NULL: out of memory */
void vb_objects_free(struct vb_objects *o);             /* and subtracts its objects */

struct vb_verdict {
    int rc;         /* 0, or -errno for the application */
    char rule[64];  /* "max_qps = 4"; "": a normal error (no GID at that index), which is not logged */
    char text[160]; /* "4 QPs are there already" */
};
/* Judges one more open of the device. vb_objects_new() counts the open. */
void vb_judge_open(const struct vb_rules *rules, const struct vb_usage *u, struct vb_verdict *v);
/* Judges a request; counts nothing. Also for replies that are made without the kernel. */
void vb_judge(const struct vb_rules *rules, const struct vb_usage *u, const struct vb_objects *o,
              const struct vb_request *r, struct vb_verdict *v);
/* Call it before the request runs: reserves what it may make, so that two concurrent requests cannot exceed a limit
 * together; -ENOMEM. Then call vb_settle() exactly once for each, before o is freed. */
int vb_reserve(struct vb_objects *o, const struct vb_request *r, uint64_t *ticket);
/* rc is the kernel's result, or VB_UNKNOWN if it is not known (the process died): then the outcome with the higher
 * count is assumed. trusted: the application could not write where the reply's numbers were written; otherwise an MR's
 * bytes stay counted until the kernel lists the objects (reconcile.c), or its context ends. Other objects are only
 * counted, which needs no numbers: an object that the kernel has destroyed existed. */
#define VB_UNKNOWN INT_MIN
void vb_settle(struct vb_objects *o, const struct vb_request *r, uint64_t ticket, int rc, bool trusted);
/* Removes from a reply what the application must not see (GID entries that it may not use), and lowers a device's
 * limits to those of the rules, so that programs that request the maximum succeed. */
void vb_filter_reply(const struct vb_rules *rules, struct vb_request *r);

#endif
