/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the number of threads of this process from the speed of the NICs and from the number of usable CPUs, divided
 * by the number of processes with this plugin that share these CPUs. Processes share the CPUs of an affinity, and they
 * share a quota if they are in one control group, also if each of them has an affinity of its own. Each process makes
 * itself visible with a named abstract UNIX socket, which the kernel lists throughout the network namespace and removes
 * when the process exits. NCCL's ranks wait for each other between init and the first connection, so all processes of a
 * node exist when they are counted. */
#include "net/cpus.h"
#include "base/size.h"
#include "inner.h"
#include "wire/wire.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME      "hawser-nccl/"
#define MANY_CPUS 16 /* minimum number of CPUs per process for THREADS threads; with fewer, one thread per two CPUs */
#define THREADS   12 /* maximum number of threads: 2 * HN_LANES, for the outgoing and incoming links of one peer */
#define POLL_CPUS 8  /* with at least this many CPUs per process, threads keep polling after they run out of work */
/* Mb/s of the NICs' total speed for each thread (docs/performance.md) */
#define THREAD_MBPS 12500
/* Share of the NICs' total speed, in percent, above which polling does not make transfers faster. */
#define POLL_PERCENT 60

void hn_cpus_begin(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t mine;
    if (hn_g.presence >= 0)
        return;
    hn_g.cpus = hw_cpus_read(getpid());
    hw_random(&mine, sizeof(mine));
    int len =
        snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, NAME "%016llx/%016llx/%016llx",
                 (unsigned long long)hn_g.cpus.shared, (unsigned long long)hn_g.cpus.group, (unsigned long long)mine);
    hn_g.presence = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (hn_g.presence >= 0 && bind(hn_g.presence, (const struct sockaddr *)&a,
                                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)))
        hn_cpus_end();
}

void hn_cpus_end(void)
{
    if (hn_g.presence >= 0)
        close(hn_g.presence);
    hn_g.presence = -1;
}

/* Counts the processes with this plugin, this process included: those with this process's affinity, those in its
 * control group, and all. */
struct counts {
    unsigned mask, group, all;
};

static struct counts count_processes(void)
{
    struct counts n = {0};
    char *line = NULL;
    size_t cap = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && getline(&line, &cap, f) > 0) {
        const char *name = strstr(line, "@" NAME);
        char *end;
        if (!name)
            continue;
        unsigned long long shared = strtoull(name + strlen("@" NAME), &end, 16);
        unsigned long long group = *end == '/' ? strtoull(end + 1, &end, 16) : 0;
        if (*end != '/')
            continue;
        n.all++;
        n.mask += shared == hn_g.cpus.shared;
        n.group += group == hn_g.cpus.group;
    }
    free(line);
    if (f)
        (void)fclose(f);
    return (struct counts){HW_MAX(n.mask, 1u), HW_MAX(n.group, 1u), HW_MAX(n.all, 1u)};
}

unsigned hn_count_processes(void)
{
    return count_processes().all;
}

struct hn_threads hn_choose_threads(unsigned cpus, unsigned processes, uint64_t mbps, unsigned all)
{
    unsigned share = HW_MAX(cpus / HW_MAX(processes, 1u), 1u);
    uint64_t loops = share >= MANY_CPUS ? THREADS : share / 2;
    if (mbps)
        loops = HW_MIN(loops, (mbps + THREAD_MBPS - 1) / THREAD_MBPS);
    return (struct hn_threads){.loops = (unsigned)HW_MAX(loops, 2ull),
                               .poll = share >= POLL_CPUS,
                               .poll_below = mbps * POLL_PERCENT / 100 / HW_MAX(all, 1u)};
}

struct hn_threads hn_threads_wanted(void)
{
    const struct counts sharing = count_processes();
    unsigned cpus = hn_g.cpus.mask, processes = sharing.mask;
    /* the quota leaves less for each process than the affinity */
    if (hn_g.cpus.quota && (uint64_t)hn_g.cpus.quota * processes < (uint64_t)cpus * sharing.group) {
        cpus = hn_g.cpus.quota;
        processes = sharing.group;
    }
    uint64_t mbps = hn_sum_speeds(hn_g.nic, hn_g.nnics);
    struct hn_threads t = hn_choose_threads(cpus, processes, mbps, sharing.all);
    const char *fixed = getenv("HAWSER_THREADS"); /* overrides t.loops; HAWSER_BUSY_US overrides t.poll */
    char speed[48] = "";
    if (mbps)
        snprintf(speed, sizeof(speed), ", NICs of %llu Mb/s in total", (unsigned long long)mbps);
    if (fixed)
        hn_say(NCCL_LOG_INFO, "%u CPU%s for %u process%s with this plugin%s: HAWSER_THREADS=%s", cpus, hw_plural(cpus),
               processes, processes == 1 ? "" : "es", speed, fixed);
    else
        hn_say(NCCL_LOG_INFO, "%u CPU%s for %u process%s with this plugin%s: %u progress thread%s%s", cpus,
               hw_plural(cpus), processes, processes == 1 ? "" : "es", speed, t.loops, hw_plural(t.loops),
               t.poll && !getenv("HAWSER_BUSY_US") ? ", polling" : "");
    return t;
}
