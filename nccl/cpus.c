/* SPDX-License-Identifier: Apache-2.0 */
/* Determines how many CPUs this process may keep busy: its usable CPUs, divided among the processes with this plugin
 * that share them. Each process makes itself visible with a named abstract UNIX socket, which the kernel lists
 * throughout the network namespace and removes when the process exits. NCCL's ranks wait for each other between init
 * and the first connection, so all processes of a node exist when they are counted. */
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
#define MANY_CPUS 16 /* CPUs per process from which there are THREADS threads */
#define THREADS   12 /* one for each outgoing and each incoming link of one peer */
#define POLL_CPUS 8  /* CPUs per process from which threads poll after they had work */

void hn_cpus_begin(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    uint64_t mine;
    if (hn_g.presence >= 0)
        return;
    hn_g.cpus = hw_cpus_read(getpid());
    hw_random(&mine, sizeof(mine));
    int len = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, NAME "%016llx/%016llx",
                       (unsigned long long)hn_g.cpus.shared, (unsigned long long)mine);
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

static unsigned count_names(const char *name)
{
    char *line = NULL;
    size_t cap = 0;
    unsigned n = 0;
    FILE *f = fopen("/proc/net/unix", "re");
    while (f && getline(&line, &cap, f) > 0)
        n += strstr(line, name) != NULL;
    free(line);
    if (f)
        (void)fclose(f);
    return HW_MAX(n, 1u);
}

/* Counts the processes that may run on the same CPUs, this process included. */
static unsigned count_sharing(void)
{
    char name[64];
    snprintf(name, sizeof(name), "@" NAME "%016llx/", (unsigned long long)hn_g.cpus.shared);
    return count_names(name);
}

unsigned hn_count_processes(void)
{
    return count_names("@" NAME);
}

struct hn_threads hn_choose_threads(unsigned cpus, unsigned processes)
{
    unsigned share = HW_MAX(cpus / HW_MAX(processes, 1u), 1u);
    return (struct hn_threads){.loops = share >= MANY_CPUS ? THREADS : HW_MAX(share / 2, 2u),
                               .poll = share >= POLL_CPUS};
}

struct hn_threads hn_threads_wanted(void)
{
    unsigned processes = count_sharing();
    struct hn_threads t = hn_choose_threads(hn_g.cpus.n, processes);
    hn_say(NCCL_LOG_INFO, "%u CPUs for %u process%s with this plugin: %u threads%s", hn_g.cpus.n, processes,
           processes == 1 ? "" : "es", t.loops, t.poll ? ", polling" : "");
    return t;
}
