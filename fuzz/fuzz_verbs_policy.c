/* SPDX-License-Identifier: Apache-2.0 */
/* A policy file, optionally followed by a byte 0x01 and an annotation "key=value". An accepted policy has rules for any
 * known container and any device, and an annotation never grants more than the file. A refused file sets an error text
 * that includes the file's name. */
#include "fuzz.h"
#include "verbs/policy/policy_int.h"

static bool in_one(const struct vb_rules *r, const struct vb_prefix *p)
{
    bool in = r->any_destination;
    for (unsigned i = 0; i < r->n_destinations; i++)
        in |= r->destination[i].bits <= p->bits && vb_within(&r->destination[i], p->gid);
    return in;
}

static void sound(const struct vb_rules *r)
{
    FUZZ_CHECK(!(r->ports & 1) && r->n_pkeys <= HW_ARRAY_LEN(r->pkeys) && r->n_destinations <= VB_DESTINATIONS_MAX);
    for (unsigned i = 0; i < r->n_destinations; i++)
        FUZZ_CHECK(r->destination[i].bits <= 128);
    FUZZ_CHECK((r->qp_types & 1u << 8) ? (r->allow & VB_ALLOW_RAW) != 0 : !(r->allow & VB_ALLOW_RAW));
    FUZZ_CHECK((r->qp_types & 1u << 9) ? (r->allow & VB_ALLOW_XRC) != 0 : !(r->allow & VB_ALLOW_XRC));
}

static void not_wider(const struct vb_rules *less, const struct vb_rules *r)
{
    FUZZ_CHECK(!less->allowed || r->allowed);
    FUZZ_CHECK(!(less->ports & ~r->ports) && !(less->qp_types & ~r->qp_types) && !(less->allow & ~r->allow));
    for (size_t i = 0; i < sizeof(r->gids); i++)
        FUZZ_CHECK(!(less->gids[i] & ~r->gids[i]));
    FUZZ_CHECK(!less->any_pkey || r->any_pkey);
    for (unsigned i = 0; i < less->n_pkeys; i++) {
        bool in = r->any_pkey;
        for (unsigned k = 0; k < r->n_pkeys; k++)
            in |= ((r->pkeys[k] ^ less->pkeys[i]) & 0x7fff) == 0;
        FUZZ_CHECK(in);
    }
    FUZZ_CHECK(!less->any_destination || r->any_destination);
    for (unsigned i = 0; i < less->n_destinations; i++)
        FUZZ_CHECK(in_one(r, &less->destination[i]));
    FUZZ_CHECK(less->mr_bytes <= r->mr_bytes && less->cqe <= r->cqe && less->qp_wr <= r->qp_wr);
    for (unsigned t = 0; t < VB_TYPES; t++)
        FUZZ_CHECK(less->max[t] <= r->max[t]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const containers[] = {NULL, "", "a", "training"}, *const devices[] = {"rxe0", "mlx5_0", ""};
    struct vb_policy *p;
    struct vb_rules r, less;
    const uint8_t *cut = size ? memchr(data, 1, size) : NULL;
    size_t n = cut ? (size_t)(cut - data) : size;
    char *text = fuzz_text(data, n), *note = cut ? fuzz_text(cut + 1, size - n - 1) : NULL;
    char *value = note ? strchr(note, '=') : NULL;
    if (value)
        *value++ = 0;
    hw_fail(0, "%s", "");
    int rc = vb_policy_parse(text, n, "p", &p);
    FUZZ_CHECK(rc == 0 ? p != NULL : (rc == -EINVAL || rc == -E2BIG) && !p && strncmp(hw_error(), "p", 1) == 0);
    for (size_t i = 0; rc == 0 && i < HW_ARRAY_LEN(containers) * HW_ARRAY_LEN(devices); i++) {
        const char *c = containers[i % HW_ARRAY_LEN(containers)], *d = devices[i / HW_ARRAY_LEN(containers)];
        bool known = !c || !*c || vb_policy_has(p, c);
        FUZZ_CHECK(vb_policy_rules(p, c, NULL, 0, d, &r) == (known ? 0 : -ENOENT));
        FUZZ_CHECK(known || !r.allowed);
        if (!known)
            continue;
        sound(&r);
        struct vb_annotation a = {note, value};
        if (value && vb_policy_rules(p, c, &a, 1, d, &less) == 0) {
            sound(&less);
            not_wider(&less, &r);
        } else if (value) {
            FUZZ_CHECK(!less.allowed && *hw_error());
        }
    }
    vb_policy_free(p);
    free(text);
    free(note);
    return 0;
}
