/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests hawser's header for NCCL's plugin ABI. The fields must be in NCCL's order, with no gaps except padding. Sizes,
 * offsets and constants must match NCCL's own headers, if installed (meson -Dnccl_headers=..., with NCCL's
 * plugins/net/example and plugins/tuner/example).
 */
#include "tests/nccl/abi/rows.h"
#include "tests/tap.h"
#include "transport/netplugin/table/abi.h"

/* clang-format off */
static const struct {
    const char *name;
    const struct abi_row *rows;
} parts[] = {
#define PART(name, ...) {name, (const struct abi_row[]){__VA_ARGS__ {NULL, NULL, 0, 0}}}
    PART("what all versions share", ABI_COMMON),
    PART("net v6", ABI_V6), PART("net v7", ABI_V7), PART("net v8", ABI_V8), PART("net v9", ABI_V9),
    PART("net v10", ABI_V10), PART("net v11", ABI_V11), PART("net v12", ABI_V12),
    PART("what all tuners share", ABI_TUNER), PART("tuner v4", ABI_TUNER_V4), PART("tuner v5", ABI_TUNER_V5),
    PART("tuner v6", ABI_TUNER_V6),
};
/* clang-format on */

/* Checks that fields are separated only by alignment padding. No field needs more than 8-byte alignment. */
static void order(const char *name, const struct abi_row *r)
{
    size_t end = 0, whole = 0, fields = 0, bad = 0;
    const char *type = "";

    for (; r->type; r++) {
        if (!r->field) {
            whole = r->size;
            end = 0;
            type = r->type;
            continue;
        }
        fields++;
        /* A struct of ints (vProps, the attributes) is aligned like an int. */
        size_t align = r->size == 8 || r->size == 4 || r->size == 2 ? r->size : 4;
        size_t want = (end + align - 1) / align * align;
        if (strcmp(type, r->type) != 0 || r->offset != want || r->offset + r->size > whole) {
            bad++;
            diag("%s.%s is at %zu, wanted %zu", r->type, r->field, r->offset, want);
        }
        end = r->offset + r->size;
        /* Only padding may follow the last field of a type. */
        if ((!r[1].type || !r[1].field) && whole - end >= 8) {
            bad++;
            diag("%s has %zu bytes behind %s", r->type, whole - end, r->field);
        }
    }
    ok(bad == 0, "%s: %zu fields in NCCL's order", name, fields);
}

static const struct abi_row *their(const char *type, const char *field)
{
    for (const struct abi_row *r = abi_theirs; r->type; r++)
        if (strcmp(r->type, type) == 0 && (r->field && field ? strcmp(r->field, field) == 0 : r->field == field))
            return r;
    return NULL;
}

static void compare(const char *name, const struct abi_row *rows)
{
    size_t n = 0, bad = 0;
    char what[96];

    snprintf(what, sizeof(what), "%s: as in NCCL's own header", name);
    if (!their(rows->type, rows->field)) {
        tap_skip(what, "no header of NCCL's with it is installed (meson -Dnccl_headers=FOLDER)");
        return;
    }
    for (const struct abi_row *r = rows; r->type; r++, n++) {
        const struct abi_row *t = their(r->type, r->field);
        if (!t || t->size != r->size || t->offset != r->offset) {
            bad++;
            diag("%s%s%s: ours has size or value %zu at %zu, NCCL's %zd at %zd", r->type, r->field ? "." : "",
                 r->field ? r->field : "", r->size, r->offset, t ? (ssize_t)t->size : -1, t ? (ssize_t)t->offset : -1);
        }
    }
    ok(bad == 0, "%s (%zu rows)", what, n);
}

int main(void)
{
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        order(parts[i].name, parts[i].rows);
        compare(parts[i].name, parts[i].rows);
    }
#ifdef THEIR_TABLES
    ok(true, "nccl/tables.c was compiled with NCCL's own header: its functions have the types that NCCL calls");
#else
    tap_skip("nccl/tables.c compiles with NCCL's own header", "no header of NCCL's with v6 to v12 is installed");
#endif
    return tap_done();
}
