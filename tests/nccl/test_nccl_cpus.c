/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many threads the NCCL plugin chooses, given its CPUs, the processes that share them, and the NICs' speed.
 */
#include "nccl/inner.h"
#include "tests/tap.h"

struct hn_global hn_g = {.presence = -1};

void hn_say(ncclDebugLogLevel level, const char *fmt, ...)
{
    (void)level;
    (void)fmt;
}

int main(void)
{
    static const struct {
        unsigned cpus, processes, mbps, loops;
        bool poll;
    } rows[] = {
        {1, 1, 0, 2, false},          {2, 1, 0, 2, false},      {2, 128, 0, 2, false},     {8, 1, 0, 4, true},
        {8, 2, 0, 2, false},          {15, 1, 0, 7, true},      {16, 1, 0, 12, true},      {32, 2, 0, 12, true},
        {64, 4, 0, 12, true},         {96, 8, 0, 6, true},      {48, 8, 0, 3, false},      {192, 8, 0, 12, true},
        {224, 8, 0, 12, true},        {224, 1, 0, 12, true},    {0, 0, 0, 2, false},       {64, 1, 1000, 2, true},
        {64, 1, 10000, 2, true},      {64, 1, 25000, 2, true},  {64, 1, 40000, 4, true},   {64, 1, 100000, 8, true},
        {96, 8, 8 * 400000, 6, true}, {4, 1, 100000, 2, false}, {64, 1, 400000, 12, true},
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++) {
        struct hn_threads t = hn_choose_threads(rows[i].cpus, rows[i].processes, rows[i].mbps);
        ok(t.loops == rows[i].loops && t.poll == rows[i].poll, "%u CPUs for %u processes, %u Mb/s", rows[i].cpus,
           rows[i].processes, rows[i].mbps);
        is_int((int)t.poll_below, (int)(rows[i].mbps * 6 / 10 / HW_MAX(rows[i].processes, 1u)), "polling up to 60 %% of its share");
        ok(t.loops <= 2 || t.loops * rows[i].processes <= rows[i].cpus, "and no more threads than CPUs");
    }
    hn_cpus_begin();
    ok(hn_g.presence >= 0 && hn_g.cpus.n > 0, "this process shows itself");
    struct hn_threads t = hn_threads_wanted();
    ok(t.loops == hn_choose_threads(hn_g.cpus.n, 1, 0).loops, "alone it has all CPUs");
    hn_cpus_end();
    ok(hn_g.presence < 0, "and not any more");
    hn_cpus_end();
    return tap_done();
}
