/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how many threads the NCCL plugin chooses, given its CPUs, the processes that share them, and the NICs' speed.
 */
#include "nccl/inner.h"
#include "tests/tap.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct hn_global hn_g = {.presence = -1};

void hn_say(ncclDebugLogLevel level, const char *fmt, ...)
{
    (void)level;
    (void)fmt;
}

/* Shows another process with this plugin, which has the given affinity and control group. */
static int show(uint64_t shared, uint64_t group, unsigned number)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int len = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "hawser-nccl/%016llx/%016llx/%016x",
                       (unsigned long long)shared, (unsigned long long)group, number);
    if (bind(fd, (const struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)))
        exit(99);
    return fd;
}

/* Tests which of the affinity and the quota leaves less for each process. The affinity has 16 CPUs. */
static void check_sharing(void)
{
    static const struct {
        unsigned quota, same_mask, same_group, loops;
        bool poll;
        const char *what;
    } rows[] = {
        {0, 0, 0, 12, true, "alone"},
        {0, 1, 0, 4, true, "another process with this affinity"},
        {0, 0, 7, 12, true, "a control group without a quota is not shared"},
        {8, 0, 0, 4, true, "a quota of 8 CPUs"},
        {8, 0, 7, 2, false, "a quota of 8 CPUs for 8 processes with other affinities"},
        {12, 3, 0, 2, false, "an affinity for 4 processes, of which only this one has the quota"},
        {64, 0, 15, 2, false, "a quota of more CPUs than the affinity has, for 16 processes"},
        {64, 0, 1, 12, true, "and for two"},
    };
    hn_cpus_end();
    hn_cpus_begin();
    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++) {
        int fd[32];
        unsigned n = 0;
        hn_g.cpus = (struct hw_cpus){
            .n = 1, .mask = 16, .quota = rows[i].quota, .shared = 0x5000 + i, .group = rows[i].quota ? 0x6000 + i : 0};
        fd[n++] = show(hn_g.cpus.shared, hn_g.cpus.group, 0);
        for (unsigned k = 0; k < rows[i].same_mask; k++)
            fd[n++] = show(hn_g.cpus.shared, 0x77, k);
        for (unsigned k = 0; k < rows[i].same_group; k++)
            fd[n++] = show(0x99, hn_g.cpus.group, k);
        struct hn_threads t = hn_threads_wanted();
        ok(t.loops == rows[i].loops && t.poll == rows[i].poll, "%s: %u threads", rows[i].what, t.loops);
        while (n)
            close(fd[--n]);
    }
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
        struct hn_threads t = hn_choose_threads(rows[i].cpus, rows[i].processes, rows[i].mbps, 4);
        ok(t.loops == rows[i].loops && t.poll == rows[i].poll, "%u CPUs for %u processes, %u Mb/s", rows[i].cpus,
           rows[i].processes, rows[i].mbps);
        is_int((int)t.poll_below, (int)(rows[i].mbps * 6 / 10 / 4), "polling up to 60 %% of its share");
        ok(t.loops <= 2 || t.loops * rows[i].processes <= rows[i].cpus, "and no more threads than CPUs");
    }
    hn_cpus_begin();
    ok(hn_g.presence >= 0 && hn_g.cpus.n > 0, "this process shows itself");
    struct hn_threads t = hn_threads_wanted();
    ok(t.loops == hn_choose_threads(hn_g.cpus.n, 1, 0, 1).loops, "alone it has all CPUs");
    check_sharing();
    hn_cpus_end();
    ok(hn_g.presence < 0, "and not any more");
    hn_cpus_end();
    return tap_done();
}
