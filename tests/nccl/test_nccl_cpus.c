/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many threads the NCCL plugin starts for a number of CPUs and of processes that share them. */
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
        unsigned cpus, processes, loops;
        bool poll;
    } rows[] = {
        {1, 1, 2, false},  {2, 1, 2, false},   {2, 128, 2, false}, {8, 1, 4, true},    {8, 2, 2, false},
        {15, 1, 7, true},  {16, 1, 12, true},  {32, 2, 12, true},  {64, 4, 12, true},  {96, 8, 6, true},
        {48, 8, 3, false}, {192, 8, 12, true}, {224, 8, 12, true}, {224, 1, 12, true}, {0, 0, 2, false},
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++) {
        struct hn_threads t = hn_choose_threads(rows[i].cpus, rows[i].processes);
        ok(t.loops == rows[i].loops && t.poll == rows[i].poll, "%u CPUs for %u processes", rows[i].cpus,
           rows[i].processes);
        ok(t.loops <= 2 || t.loops * rows[i].processes <= rows[i].cpus, "and no more threads than CPUs");
    }
    hn_cpus_begin();
    ok(hn_g.presence >= 0 && hn_g.cpus.n > 0, "this process shows itself");
    struct hn_threads t = hn_threads_wanted();
    ok(t.loops == hn_choose_threads(hn_g.cpus.n, 1).loops, "alone it has all CPUs");
    hn_cpus_end();
    ok(hn_g.presence < 0, "and not any more");
    hn_cpus_end();
    return tap_done();
}
