/* SPDX-License-Identifier: Apache-2.0 */
/* Defines the keys of the policy and parses their values. */
#include "base/size.h"
#include "verbs/policy/policy_int.h"

#include <arpa/inet.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX(t) VB_NUMBER, offsetof(struct vb_rules, max) + (t) * sizeof(uint64_t)
const struct vb_key vb_keys[VB_KEYS] = {
    {"devices", VB_DEVICES, 0},
    {"ports", VB_PORTS, 0},
    {"gids", VB_GIDS, 0},
    {"pkeys", VB_PKEYS, 0},
    {"qp_types", VB_QP_TYPES, 0},
    {"destinations", VB_DESTINATIONS, 0},
    {"allow", VB_ALLOW, 0},
    {"mr_bytes", VB_SIZE, offsetof(struct vb_rules, mr_bytes)},
    {"cqe", VB_NUMBER, offsetof(struct vb_rules, cqe)},
    {"qp_wr", VB_NUMBER, offsetof(struct vb_rules, qp_wr)},
    {"max_contexts", MAX(VB_CONTEXT)},
    {"max_pds", MAX(VB_PD)},
    {"max_mrs", MAX(VB_MR)},
    {"max_mws", MAX(VB_MW)},
    {"max_cqs", MAX(VB_CQ)},
    {"max_qps", MAX(VB_QP)},
    {"max_srqs", MAX(VB_SRQ)},
    {"max_ahs", MAX(VB_AH)},
    {"max_xrcds", MAX(VB_XRCD)},
    {"max_wqs", MAX(VB_WQ)},
    {"max_rwq_tables", MAX(VB_RWQ_TABLE)},
    {"max_flows", MAX(VB_FLOW)},
    {"max_dms", MAX(VB_DM)},
    {"max_counters", MAX(VB_COUNTERS)},
};

struct name {
    const char *name;
    unsigned bit;
};

static const struct name allow_names[] = {
    {"devx", VB_ALLOW_DEVX},     {"flow", VB_ALLOW_FLOW}, {"raw", VB_ALLOW_RAW},
    {"dmabuf", VB_ALLOW_DMABUF}, {"odp", VB_ALLOW_ODP},   {"multicast", VB_ALLOW_MULTICAST},
    {"xrc", VB_ALLOW_XRC},       {"lid", VB_ALLOW_LID},   {"ud-anywhere", VB_ALLOW_UD_ANYWHERE},
};

/* Types of enum ib_uverbs_qp_type. The key `allow` adds raw packet and XRC QPs. */
static const struct name type_names[] = {
    {"rc", 1u << IB_UVERBS_QPT_RC},
    {"uc", 1u << IB_UVERBS_QPT_UC},
    {"ud", 1u << IB_UVERBS_QPT_UD},
    {"driver", 1u << 31},
};

const char *vb_limit_key(enum vb_type t)
{
    for (size_t i = 0; i < VB_KEYS; i++)
        if (vb_keys[i].at == offsetof(struct vb_rules, max) + t * sizeof(uint64_t) && vb_keys[i].kind == VB_NUMBER)
            return vb_keys[i].name;
    return NULL;
}

/* Sets the rules that apply without any section: no device is allowed. */
void vb_defaults(struct vb_rules *r)
{
    static const struct {
        enum vb_type type;
        uint64_t max;
    } most[] = {{VB_CONTEXT, 64},   {VB_PD, 256},  {VB_MR, 16384}, {VB_MW, 1024},    {VB_CQ, 1024},
                {VB_QP, 1024},      {VB_SRQ, 64},  {VB_AH, 4096},  {VB_XRCD, 16},    {VB_WQ, 256},
                {VB_RWQ_TABLE, 64}, {VB_FLOW, 64}, {VB_DM, 0},     {VB_COUNTERS, 16}};
    memset(r, 0, sizeof(*r));
    r->ports = UINT64_MAX - 1;
    memset(r->gids, 0xff, sizeof(r->gids));
    r->any_pkey = true;
    r->qp_types = 1u << IB_UVERBS_QPT_RC;
    r->any_destination = true;
    r->mr_bytes = 16ull << 30;
    r->cqe = 131072;
    r->qp_wr = 16384;
    for (size_t i = 0; i < VB_TYPES; i++)
        r->max[i] = UINT64_MAX;
    for (size_t i = 0; i < HW_ARRAY_LEN(most); i++)
        r->max[most[i].type] = most[i].max;
}

/* ------------------------------------------------------------------ values */

/* Parses a number ("4") or a range ("4-7") whose ends must be within [min, max]. */
static int parse_number_range(const char *word, uint64_t min, uint64_t max, uint64_t *from, uint64_t *to)
{
    char text[VB_LINE_BYTES + 1];
    snprintf(text, sizeof(text), "%s", word);
    char *dash = strchr(text, '-');
    if (dash)
        *dash = 0;
    int rc = hw_parse_u64(text, min, max, from);
    *to = *from;
    if (rc == 0 && dash)
        rc = hw_parse_u64(dash + 1, *from, max, to);
    return rc;
}

static int one_port(struct vb_rules *r, const char *word)
{
    uint64_t from = 1, to = 63;
    int rc = strcmp(word, "any") == 0 ? 0 : parse_number_range(word, 1, 63, &from, &to);
    for (uint64_t p = from; rc == 0 && p <= to; p++)
        r->ports |= 1ull << p;
    return rc;
}

static int one_gid(struct vb_rules *r, const char *word)
{
    uint64_t from = 0, to = 255;
    int rc = strcmp(word, "any") == 0 ? 0 : parse_number_range(word, 0, 255, &from, &to);
    for (uint64_t i = from; rc == 0 && i <= to; i++)
        r->gids[i / 8] |= (uint8_t)(1u << i % 8);
    return rc;
}

static int one_pkey(struct vb_rules *r, const char *word)
{
    uint64_t v = 0;
    if (strcmp(word, "any") == 0) {
        r->any_pkey = true;
        return 0;
    }
    if (word[0] == '0' && (word[1] == 'x' || word[1] == 'X')) {
        size_t n = strspn(word + 2, "0123456789abcdefABCDEF");
        if (n == 0 || n > 4 || word[2 + n])
            return hw_fail(-EINVAL, "'%.80s' is not a P_Key: expected a number such as 0x8001 or 32769", word);
        v = strtoul(word, NULL, 16);
    } else if (hw_parse_u64(word, 0, UINT16_MAX, &v) < 0) {
        return hw_fail(-EINVAL, "'%.80s' is not a P_Key: expected a number such as 0x8001 or 32769", word);
    }
    if ((v & 0x7fff) == 0)
        return hw_fail(-EINVAL, "'%.80s' is not a valid P_Key, because its low 15 bits are 0", word);
    if (r->n_pkeys == HW_ARRAY_LEN(r->pkeys))
        return hw_fail(-E2BIG, "the list has more than %zu P_Keys", HW_ARRAY_LEN(r->pkeys));
    r->pkeys[r->n_pkeys++] = (uint16_t)v;
    return 0;
}

static int one_of(const struct name *names, size_t n, const char *word, unsigned *mask)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(names[i].name, word) == 0) {
            *mask |= names[i].bit;
            return 0;
        }
    return hw_fail(-EINVAL, "'%.80s' is unknown", word);
}

/* Parses a prefix ("10.0.0.0/8", "fe80::/10"), an address, or "any". */
static int one_destination(struct vb_rules *r, const char *word)
{
    if (strcmp(word, "any") == 0) {
        r->any_destination = true;
        return 0;
    }
    char text[VB_LINE_BYTES + 1];
    struct vb_prefix p = {{0}, 128};
    uint64_t bits = 128;
    snprintf(text, sizeof(text), "%s", word);
    char *slash = strchr(text, '/');
    if (slash)
        *slash = 0;
    bool v4 = inet_pton(AF_INET, text, p.gid + 12) == 1;
    if (v4)
        p.gid[10] = p.gid[11] = 0xff;
    else if (inet_pton(AF_INET6, text, p.gid) != 1)
        return hw_fail(-EINVAL, "'%.80s' is neither an IPv4 nor an IPv6 address (write a GID as an IPv6 address)",
                       word);
    if (slash && hw_parse_u64(slash + 1, 0, v4 ? 32 : 128, &bits) < 0)
        return hw_wrap(-EINVAL, "the prefix length of '%.80s'", word);
    p.bits = (uint8_t)(v4 && slash ? bits + 96 : bits);
    for (unsigned i = p.bits; i < 128; i++)
        if (p.gid[i / 8] & 0x80u >> i % 8)
            return hw_fail(-EINVAL, "'%.80s' has bits set beyond its prefix of %u bits", word, (unsigned)bits);
    if (r->n_destinations == VB_DESTINATIONS_MAX)
        return hw_fail(-E2BIG, "the list has more than %d destinations", VB_DESTINATIONS_MAX);
    r->destination[r->n_destinations++] = p;
    return 0;
}

static int one_device(struct vb_values *v, const char *word)
{
    size_t at = 0;
    unsigned n = 0;
    for (; v->devices[at]; at += strlen(v->devices + at) + 1)
        n++;
    size_t len = strlen(word) + 1;
    if (n == VB_DEVICES_MAX || at + len + 1 > sizeof(v->devices))
        return hw_fail(-E2BIG, "the list has more than %d devices, or more than %d bytes", VB_DEVICES_MAX,
                       VB_NAMES_TEXT - 2);
    memcpy(v->devices + at, word, len);
    v->devices[at + len] = 0;
    return 0;
}

static int one_word(struct vb_values *v, enum vb_key_kind kind, const char *word)
{
    switch (kind) {
    case VB_DEVICES:
        return one_device(v, word);
    case VB_PORTS:
        return one_port(&v->r, word);
    case VB_GIDS:
        return one_gid(&v->r, word);
    case VB_PKEYS:
        return one_pkey(&v->r, word);
    case VB_QP_TYPES:
        if (strncmp(word, "xrc", 3) == 0 || strncmp(word, "raw", 3) == 0)
            return hw_fail(-EINVAL, "'%.80s' is unknown: to allow such QPs, set allow = %.3s", word, word);
        return one_of(type_names, HW_ARRAY_LEN(type_names), word, &v->r.qp_types);
    case VB_DESTINATIONS:
        return one_destination(&v->r, word);
    case VB_ALLOW:
        return strcmp(word, "none") == 0 ? 0 : one_of(allow_names, HW_ARRAY_LEN(allow_names), word, &v->r.allow);
    default:
        return hw_fail(-EINVAL, "not a list");
    }
}

/* The lists of v are initially empty, so each word only adds to them. */
int vb_take(struct vb_values *v, const struct vb_key *k, const char *value)
{
    unsigned bit = 1u << (k - vb_keys);
    if (k->kind == VB_SIZE || k->kind == VB_NUMBER) {
        uint64_t *n = vb_key_number(&v->r, k);
        if (v->set & bit)
            return hw_fail(-EINVAL, "occurs twice");
        v->set |= bit;
        *n = UINT64_MAX;
        if (strcmp(value, "unlimited") == 0)
            return 0;
        return k->kind == VB_SIZE ? hw_parse_size(value, n) : hw_parse_u64(value, 0, UINT32_MAX, n);
    }
    /* A list may continue on another line, which repeats the key or is indented. inih reports both forms in the same
     * way. */
    char text[VB_LINE_BYTES + 1], *save = NULL;
    if (strlen(value) > VB_LINE_BYTES)
        return hw_fail(-EINVAL, "the value is longer than %d bytes", VB_LINE_BYTES);
    snprintf(text, sizeof(text), "%s", value);
    int rc = 0, n = 0;
    for (char *w = strtok_r(text, ", \t", &save); w && rc == 0; w = strtok_r(NULL, ", \t", &save), n++)
        rc = one_word(v, k->kind, w);
    v->set |= bit;
    return rc || n > 0 ? rc : hw_fail(-EINVAL, "the list is empty");
}

const struct vb_key *vb_key_of(const char *name)
{
    for (size_t i = 0; i < VB_KEYS; i++)
        if (strcmp(vb_keys[i].name, name) == 0)
            return &vb_keys[i];
    return NULL;
}
