/* SPDX-License-Identifier: Apache-2.0 */
/* Finds NICs that are slower than the others. Each NIC is compared with the other NICs of the same link rate. NICs
 * of unknown rate are compared with each other. */
#include "tool/field/field.h"
#include "tool/load/stats.h"

#include <math.h>
#include <string.h>

#define SLOW 0.6 /* a NIC below this fraction of the other NICs' median is slow */

struct mark {
    const char *nic;
    double GBps, rate; /* GBps: highest measured rate; rate: link rate in Mbit/s, 0 if unknown */
};

static double get_rate(const struct field *f, const char *nic)
{
    json_t *n;
    size_t i;
    json_array_foreach(json_object_get(json_object_get(json_object_get(f->doc, "nodes"), "here"), "nics"), i, n)
    {
        const char *name = json_string_value(json_object_get(n, "nic"));
        if (name && strcmp(name, nic) == 0)
            return json_number_value(json_object_get(n, "speed_Mbps"));
    }
    return 0;
}

/* Returns the median of the rates that the other NICs with the same link rate reached, or 0 if there are none. */
static double find_median(const struct mark *m, size_t n, size_t of)
{
    double v[FIELD_NICS];
    size_t k = 0;
    for (size_t i = 0; i < n; i++)
        if (i != of && fabs(m[i].rate - m[of].rate) < 1)
            v[k++] = m[i].GBps;
    return stats_median(v, k);
}

/* Stores the highest rate that each NIC reached alone in operations of this kind, in any test, and returns the number
 * of NICs. Rates of plain sockets count too: a slow NIC slows down hawser and plain sockets alike, and other load on
 * the machine usually does not. */
static size_t collect_marks(const struct field *f, const char *op, struct mark m[FIELD_NICS])
{
    json_t *row;
    size_t n = 0, i;
    json_array_foreach(json_object_get(f->doc, "bench"), i, row)
    {
        const char *nic = json_string_value(json_object_get(row, "nic"));
        const char *what = json_string_value(json_object_get(row, "op"));
        const double own = json_number_value(json_object_get(row, "GBps"));
        const double plain = json_number_value(json_object_get(row, "raw_GBps"));
        size_t k = 0;
        if (!nic || !what || strcmp(nic, "all") == 0 || strcmp(what, op) != 0)
            continue;
        while (k < n && strcmp(m[k].nic, nic) != 0)
            k++;
        if (k == FIELD_NICS)
            continue;
        if (k == n)
            m[n++] = (struct mark){.nic = nic, .rate = get_rate(f, nic)};
        m[k].GBps = HW_MAX(m[k].GBps, HW_MAX(own, plain));
    }
    return n;
}

/* Returns true if the NIC is much slower than the others. *percent receives the NIC's rate as a percentage of the
 * others' median. */
static bool is_slow(const struct mark *m, size_t n, size_t i, double *percent)
{
    const double median = find_median(m, n, i);
    *percent = median > 0 ? 100 * m[i].GBps / median : 100;
    return *percent < 100 * SLOW;
}

size_t field_suspects(const struct field *f, const char *op, const char *nic[FIELD_NICS])
{
    struct mark m[FIELD_NICS];
    double percent;
    size_t found = 0;
    const size_t n = collect_marks(f, op, m);
    for (size_t i = 0; i < n; i++)
        if (is_slow(m, n, i, &percent))
            nic[found++] = m[i].nic;
    return found;
}

void field_judge(struct field *f)
{
    static const char *const ops[][2] = {{"write", "sends"}, {"read", "receives"}};
    struct mark m[FIELD_NICS];
    double percent;
    for (size_t k = 0; k < HW_ARRAY_LEN(ops); k++) {
        const size_t n = collect_marks(f, ops[k][0], m);
        for (size_t i = 0; i < n; i++)
            if (is_slow(m, n, i, &percent))
                field_wrong(
                    f, FIELD_BENCH,
                    "%s %s at %.0f %% of the median rate of this node's other NICs with %s link rate: check the NIC, "
                    "the cable and the switch port, also on the peer",
                    m[i].nic, ops[k][1], percent, m[i].rate > 0 ? "the same" : "unknown");
    }
}
