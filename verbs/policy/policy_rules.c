/* SPDX-License-Identifier: Apache-2.0 */
/* Determines the rules for a container on a device. Sections are applied from the most general to the most specific.
 * Annotations are applied last and can only restrict the rules. */
#include "verbs/policy/policy_int.h"

#include <fnmatch.h>
#include <rdma/ib_user_ioctl_verbs.h>

static bool names_device(const struct vb_values *v, const char *device)
{
    for (const char *w = v->devices; *w; w += strlen(w) + 1)
        if (fnmatch(w, device, 0) == 0)
            return true;
    return false;
}

/* Replaces the values in r with the values that are set in v. */
static void replace_verbs_rules(struct vb_rules *r, const struct vb_values *v, const char *device)
{
    for (size_t i = 0; i < VB_KEYS; i++) {
        if (!(v->set & 1u << i))
            continue;
        switch (vb_keys[i].kind) {
        case VB_DEVICES:
            r->allowed = names_device(v, device);
            break;
        case VB_PORTS:
            r->ports = v->r.ports;
            break;
        case VB_GIDS:
            memcpy(r->gids, v->r.gids, sizeof(r->gids));
            break;
        case VB_PKEYS:
            r->any_pkey = v->r.any_pkey;
            r->n_pkeys = v->r.n_pkeys;
            memcpy(r->pkeys, v->r.pkeys, sizeof(r->pkeys));
            break;
        case VB_QP_TYPES:
            r->qp_types = v->r.qp_types;
            break;
        case VB_DESTINATIONS:
            r->any_destination = v->r.any_destination;
            r->n_destinations = v->r.n_destinations;
            memcpy(r->destination, v->r.destination, sizeof(r->destination));
            break;
        case VB_ALLOW:
            r->allow = v->r.allow;
            break;
        case VB_SIZE:
        case VB_NUMBER:
            *vb_key_number(r, &vb_keys[i]) = *vb_key_number((struct vb_rules *)&v->r, &vb_keys[i]);
        }
    }
}

static void narrow_pkeys(struct vb_rules *r, const struct vb_rules *by)
{
    if (by->any_pkey)
        return;
    struct vb_rules old = *r;
    r->n_pkeys = 0;
    for (unsigned i = 0; i < by->n_pkeys; i++) {
        bool in = old.any_pkey;
        for (unsigned k = 0; k < old.n_pkeys; k++)
            in |= ((old.pkeys[k] ^ by->pkeys[i]) & 0x7fff) == 0;
        if (in)
            r->pkeys[r->n_pkeys++] = by->pkeys[i];
    }
    r->any_pkey = false;
}

/* Returns true if every address of b is in a. */
static bool contains_prefix(const struct vb_prefix *a, const struct vb_prefix *b)
{
    return a->bits <= b->bits && vb_within(a, b->gid);
}

/* Restricts the destinations of r to the destinations of by. Two prefixes are either disjoint, or one contains the
 * other. */
static int narrow_destinations(struct vb_rules *r, const struct vb_rules *by)
{
    if (by->any_destination)
        return 0;
    struct vb_rules old = *r;
    r->n_destinations = 0;
    r->any_destination = false;
    if (old.any_destination) {
        old.destination[0] = (struct vb_prefix){{0}, 0};
        old.n_destinations = 1;
    }
    for (unsigned i = 0; i < old.n_destinations; i++)
        for (unsigned k = 0; k < by->n_destinations; k++) {
            const struct vb_prefix *a = &old.destination[i], *b = &by->destination[k];
            const struct vb_prefix *less = contains_prefix(a, b) ? b : contains_prefix(b, a) ? a : NULL;
            if (less && r->n_destinations == VB_DESTINATIONS_MAX)
                return hw_fail(-E2BIG, "the annotation results in more than %d destinations", VB_DESTINATIONS_MAX);
            if (less)
                r->destination[r->n_destinations++] = *less;
        }
    return 0;
}

/* Restricts r to the values that are set in v. */
static int narrow_verbs_rules(struct vb_rules *r, const struct vb_values *v, const char *device)
{
    int rc = 0;
    for (size_t i = 0; i < VB_KEYS && rc == 0; i++) {
        if (!(v->set & 1u << i))
            continue;
        switch (vb_keys[i].kind) {
        case VB_DEVICES:
            r->allowed &= names_device(v, device);
            break;
        case VB_PORTS:
            r->ports &= v->r.ports;
            break;
        case VB_GIDS:
            for (size_t k = 0; k < sizeof(r->gids); k++)
                r->gids[k] &= v->r.gids[k];
            break;
        case VB_PKEYS:
            narrow_pkeys(r, &v->r);
            break;
        case VB_QP_TYPES:
            r->qp_types &= v->r.qp_types;
            break;
        case VB_DESTINATIONS:
            rc = narrow_destinations(r, &v->r);
            break;
        case VB_ALLOW:
            r->allow &= v->r.allow;
            break;
        case VB_SIZE:
        case VB_NUMBER:
            *vb_key_number(r, &vb_keys[i]) =
                HW_MIN(*vb_key_number(r, &vb_keys[i]), *vb_key_number((struct vb_rules *)&v->r, &vb_keys[i]));
        }
    }
    return rc;
}

static int apply_annotation(struct vb_rules *r, const struct vb_annotation *a, const char *device)
{
    static const char mine[] = "hawser.verbs.";
    struct vb_values v = {0};
    if (strncmp(a->key, mine, sizeof(mine) - 1) != 0 || strcmp(a->key + sizeof(mine) - 1, "policy") == 0)
        return 0;
    const struct vb_key *k = vb_key_of(a->key + sizeof(mine) - 1);
    int rc = k ? vb_take(&v, k, a->value) : hw_fail(-EINVAL, "no key of the policy has this name");
    if (rc == 0)
        rc = narrow_verbs_rules(r, &v, device);
    return rc ? hw_wrap(rc, "annotation %.80s", a->key) : 0;
}

/* Returns 0 for [default], 1 for [device ...], 2 for [container ...], and 3 for a section with both. */
static int get_section_rank(const struct vb_section *s)
{
    return (*s->container ? 2 : 0) + (*s->device ? 1 : 0);
}

bool vb_policy_has(const struct vb_policy *p, const char *container)
{
    for (unsigned i = 0; i < p->n; i++)
        if (*container && strcmp(p->section[i].container, container) == 0)
            return true;
    return false;
}

int vb_policy_rules(const struct vb_policy *p, const char *container, const struct vb_annotation *a, unsigned n,
                    const char *device, struct vb_rules *out)
{
    int rc = 0;
    vb_defaults(out);
    if (container && *container && !vb_policy_has(p, container))
        return hw_fail(-ENOENT, "the policy has no section [container %.60s]", container);
    for (int order = 0; order < 4; order++)
        for (unsigned i = 0; i < p->n; i++) {
            const struct vb_section *s = &p->section[i];
            if (get_section_rank(s) == order &&
                (!*s->container || (container && strcmp(s->container, container) == 0)) &&
                (!*s->device || fnmatch(s->device, device, 0) == 0))
                replace_verbs_rules(out, &s->v, device);
        }
    for (unsigned i = 0; i < n && rc == 0; i++)
        rc = apply_annotation(out, &a[i], device);
    /* Only `allow` controls raw packet and XRC QPs; qp_types does not. */
    if (out->allow & VB_ALLOW_RAW)
        out->qp_types |= 1u << IB_UVERBS_QPT_RAW_PACKET;
    if (out->allow & VB_ALLOW_XRC)
        out->qp_types |= 1u << IB_UVERBS_QPT_XRC_INI | 1u << IB_UVERBS_QPT_XRC_TGT;
    if (rc)
        out->allowed = false;
    return rc;
}
