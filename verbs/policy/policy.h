/* SPDX-License-Identifier: Apache-2.0 */
/* What a container may do with a device: a file (man page hawser-verbs-policy(5)) and annotations; and the judgement of
 * a request by it and by what the container has already. */
#ifndef HW_VERBS_POLICY_H
#define HW_VERBS_POLICY_H

#include "verbs/schema/request.h"

#include <limits.h>

#define VB_DESTINATIONS_MAX 64
#define VB_DEVICES_MAX      64

struct vb_prefix { /* of a GID; IPv4 addresses are ::ffff:a.b.c.d */
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
    VB_ALLOW_LID = 1 << 7,        /* LIDs (InfiniBand), by which packets go anywhere, where destinations are limited */
    VB_ALLOW_UD_ANYWHERE = 1 << 8 /* UD and driver QPs where destinations or GIDs are limited: each work request names
                                     its own, which nobody judges */
};

/* For one device and one container. */
struct vb_rules {
    bool allowed;
    uint64_t ports;   /* bit p: port p */
    uint8_t gids[32]; /* bit i: GID index i may be a source */
    bool any_pkey;
    uint16_t pkeys[32]; /* low 15 bits count */
    unsigned n_pkeys;
    /* Requests name P_Keys by index: the broker says what value is there; -errno. Needed unless any_pkey. */
    int (*pkey)(void *arg, unsigned port, unsigned index, uint16_t *value);
    void *pkey_arg;
    uint32_t qp_types; /* bit t: enum ib_qp_type t (IB_QPT_RC 2, UC 3, UD 4, RAW_PACKET 8, XRC_INI 9, XRC_TGT 10, DRIVER
                          0xff is bit 31) */
    bool any_destination;
    struct vb_prefix destination[VB_DESTINATIONS_MAX];
    unsigned n_destinations;
    unsigned allow;         /* enum vb_allow */
    uint64_t mr_bytes;      /* UINT64_MAX: no limit, as for the following */
    uint64_t max[VB_TYPES]; /* objects at once, over all contexts of the container on the device; [VB_CONTEXT]: opens */
    uint64_t cqe, qp_wr;    /* entries of one CQ; work requests of one queue */
};

struct vb_policy;
/* -EINVAL with file and line; unknown sections, names, values are errors. */
int vb_policy_load(const char *path, struct vb_policy **out);
int vb_policy_parse(const char *text, size_t len, const char *name, struct vb_policy **out);
void vb_policy_free(struct vb_policy *p);
/* A container's rules for a device. container: its name ("hawser.verbs.policy" annotation or --container), NULL: the
 * default section. annotation: key and value pairs that may narrow (never widen) what the file says; n of them. */
struct vb_annotation {
    const char *key, *value;
};
/* -ENOENT: the policy has no section of that container; -EINVAL: an annotation. */
int vb_policy_rules(const struct vb_policy *p, const char *container, const struct vb_annotation *a, unsigned n,
                    const char *device, struct vb_rules *out);
bool vb_policy_has(const struct vb_policy *p, const char *container); /* is there a section of that name? */

/* What a container has of a device. */
struct vb_usage {
    uint64_t n[VB_TYPES];
    uint64_t mr_bytes;
};

/* An open file of the application's on a device, and its objects by number. */
struct vb_objects;
struct vb_objects *vb_objects_new(struct vb_usage *of); /* counts there; NULL: out of memory */
void vb_objects_free(struct vb_objects *o);             /* and takes all of it off */

struct vb_verdict {
    int rc;         /* 0, or -errno for the application */
    char rule[64];  /* "max_qps = 4"; "": an ordinary answer (there is no GID at that index), nothing to be logged */
    char text[160]; /* "4 QPs are there already" */
};
/* May it open the device once more? vb_objects_new() counts the open. */
void vb_judge_open(const struct vb_rules *rules, const struct vb_usage *u, struct vb_verdict *v);
/* May it? Counts nothing. Also where a reply is to be made without the kernel. */
void vb_judge(const struct vb_rules *rules, const struct vb_usage *u, const struct vb_objects *o,
              const struct vb_request *r, struct vb_verdict *v);
/* Before it runs: takes up what it may make, so that two under way do not pass one limit together; -ENOMEM. Then
 * exactly one settle (with its result) for each, before o is freed. */
int vb_reserve(struct vb_objects *o, const struct vb_request *r, uint64_t *ticket);
/* rc is the kernel's, or VB_UNKNOWN where nobody knows it (its process died): then it is taken for done where that
 * counts more. trusted: numbers in the reply were written where the application could not reach; else an MR's bytes are
 * counted, and stay so until the kernel says what there is (reconcile.c), or its context ends. Of all else there is
 * only a count, which needs no numbers: what the kernel has destroyed was there. */
#define VB_UNKNOWN INT_MIN
void vb_settle(struct vb_objects *o, const struct vb_request *r, uint64_t ticket, int rc, bool trusted);
/* What of a reply the application must not see (GID entries that it may not use) is taken out; a device's limits are
 * shown as the smaller ones of the rules, so that programs which ask for all there is get it. */
void vb_filter_reply(const struct vb_rules *rules, struct vb_request *r);

#endif
