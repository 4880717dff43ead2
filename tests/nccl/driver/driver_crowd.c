/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs many ranks. Each rank is a process that connects to all other ranks, like NCCL before its first alltoall, and
 * then exchanges messages with all of them. Prints the times and the resources of each process. Does not use GPUs.
 */
#include "driver.h"

#include "sys/json.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 3 /* number of alltoalls; the first is reported separately */

/* Results of one rank. */
struct crowd_rank {
    double connect_ms, first_ms, later_ms, cpu_s;
    int descriptors, threads; /* threads: counted while connecting */
    int open_threads;         /* threads besides the main thread that do not block SIGTERM */
    long resident_kib;
    char why[1100]; /* reason for a failure, or "" */
};

/* Shared by all ranks. */
struct crowd {
    pthread_barrier_t barrier;
    atomic_int failed;
    struct crowd_rank *rank;                     /* [ranks] */
    uint8_t (*handles)[NCCL_NET_HANDLE_MAXSIZE]; /* [receiver][sender][comm] */
};

/* One end of a connection between two ranks. */
struct crowd_end {
    void *listen, *comm, *mh, *req;
    uint8_t *handle, *buf;
    ncclNetDeviceHandle_t space, *dh;
    bool sends, done;
    unsigned from, to;
};

struct crowd_self {
    struct rank r;
    struct crowd *all;
    unsigned id, n; /* n: number of ends */
    struct crowd_end *end;
    uint8_t *memory;
};

static unsigned ranks, comms;
static int devices; /* number of the plugin's devices, which the connections use cyclically */

static uint8_t *handle_of(struct crowd *all, unsigned receiver, unsigned sender, unsigned k)
{
    return all->handles[((size_t)receiver * ranks + sender) * comms + k];
}

static void meet(struct crowd *all)
{
    (void)pthread_barrier_wait(&all->barrier);
}

/* Listens in NCCL's order: round d is for sending to the rank d positions after this one, and for receiving from the
 * rank d positions before it. */
static int listen_to_all(struct crowd_self *s)
{
    for (unsigned d = 1; d < ranks; d++)
        for (unsigned k = 0; k < comms; k++) {
            unsigned to = (s->id + d) % ranks, from = (s->id + ranks - d) % ranks;
            struct crowd_end *out = &s->end[s->n++], *in = &s->end[s->n++];
            *out =
                (struct crowd_end){.sends = true, .from = s->id, .to = to, .handle = handle_of(s->all, to, s->id, k)};
            *in = (struct crowd_end){.from = from, .to = s->id, .handle = handle_of(s->all, s->id, from, k)};
            int rc = net_fail(net_listen(&s->r, (int)k % devices, in->handle, &in->listen), "listen");
            if (rc)
                return rc;
        }
    return 0;
}

static long read_status(const char *file, const char *field, int base)
{
    char line[128];
    long n = 0;
    FILE *f = fopen(file, "re");
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, field, strlen(field)) == 0)
            n = strtol(line + strlen(field), NULL, base);
    if (f)
        (void)fclose(f);
    return n;
}

/* Counts this process's threads, and the threads that may receive the program's signals. */
static void look_at_threads(struct crowd_rank *out)
{
    char path[64];
    const struct dirent *e;
    DIR *d = opendir("/proc/self/task");
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.')
            continue;
        out->threads++;
        snprintf(path, sizeof(path), "/proc/self/task/%.20s/status", e->d_name);
        out->open_threads += atoi(e->d_name) != getpid() && !(read_status(path, "SigBlk:", 16) >> (SIGTERM - 1) & 1);
    }
    if (d)
        closedir(d);
}

static int connect_all(struct crowd_self *s)
{
    bool looked = false;
    struct wait w = wait_for("connecting to all others");
    /* a handle keeps its contents between calls */
    uint8_t(*mine)[NCCL_NET_HANDLE_MAXSIZE] = calloc(s->n, sizeof(*mine));
    unsigned left = s->n;
    int rc = mine ? 0 : hw_fail(-ENOMEM, "handles");
    for (unsigned i = 0; i < s->n && !rc; i++)
        memcpy(mine[i], s->end[i].handle, NCCL_NET_HANDLE_MAXSIZE);
    while (!rc && left) {
        unsigned before = left;
        for (unsigned i = 0; i < s->n && !rc; i++) {
            struct crowd_end *e = &s->end[i];
            if (e->comm)
                continue;
            e->dh = &e->space;
            int dev = (int)(i / 2 % comms) % devices;
            rc = e->sends ? net_fail(net_connect(&s->r, dev, mine[i], &e->comm, &e->dh), "connect")
                          : net_fail(net_accept(&s->r, e->listen, &e->comm, &e->dh), "accept");
            left -= e->comm != NULL;
        }
        if (!rc && !looked) {
            look_at_threads(&s->all->rank[s->id]);
            looked = true;
        }
        if (!rc && left == before)
            rc = wait_turn(&s->r, &w);
        else
            w.idle = 0;
    }
    free(mine);
    return rc;
}

static int register_all(struct crowd_self *s)
{
    s->memory = mmap(NULL, s->n * opt.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (s->memory == MAP_FAILED)
        return hw_fail(-ENOMEM, "memory for %u messages", s->n);
    int rc = 0;
    for (unsigned i = 0; i < s->n && !rc; i++) {
        s->end[i].buf = s->memory + i * opt.size;
        rc = net_fail(net_reg(&s->r, s->end[i].comm, s->end[i].buf, opt.size, &s->end[i].mh), "regMr");
    }
    return rc;
}

static uint8_t pattern(const struct crowd_end *e, unsigned round)
{
    return (uint8_t)(e->from * 31 + e->to * 7 + round + 1);
}

static int check_message(const struct crowd_end *e, unsigned round)
{
    for (uint64_t i = 0; i < opt.size; i++)
        if (e->buf[i] != pattern(e, round))
            return hw_fail(-EBADMSG, "byte %llu from rank %u is wrong", (unsigned long long)i, e->from);
    return 0;
}

static int exchange_with_all(struct crowd_self *s, unsigned round)
{
    struct wait w = wait_for("an alltoall");
    unsigned left = s->n;
    int rc = 0;
    for (unsigned i = 0; i < s->n; i++) {
        s->end[i].done = false;
        memset(s->end[i].buf, s->end[i].sends ? pattern(&s->end[i], round) : 0, opt.size);
    }
    while (!rc && left) {
        unsigned before = left;
        for (unsigned i = 0; i < s->n && !rc; i++) {
            struct crowd_end *e = &s->end[i];
            int done = 0, sizes[8];
            if (e->done)
                continue;
            if (!e->req)
                rc = e->sends ? net_fail(net_isend(&s->r, e->comm, e->buf, opt.size, 0, e->mh, NULL, &e->req), "isend")
                              : net_fail(net_irecv(&s->r, e->comm, e->buf, opt.size, 0, e->mh, NULL, &e->req), "irecv");
            if (e->req && !rc)
                rc = net_fail(net_test(&s->r, e->req, &done, sizes), "test");
            if (done) {
                e->req = NULL;
                e->done = true;
                left--;
                rc = e->sends ? 0 : check_message(e, round);
            }
        }
        if (!rc && left == before)
            rc = wait_turn(&s->r, &w);
        else
            w.idle = 0;
    }
    return rc;
}

static int close_all(struct crowd_self *s)
{
    int rc = 0;
    for (unsigned i = 0; i < s->n && !rc; i++) {
        struct crowd_end *e = &s->end[i];
        rc = net_fail(net_dereg(&s->r, e->comm, e->mh), "deregMr");
        if (!rc)
            rc = e->sends ? net_fail(net_close_send(&s->r, e->comm), "closeSend")
                          : net_fail(net_close_recv(&s->r, e->comm), "closeRecv");
        if (!rc && e->listen)
            rc = net_fail(net_close_listen(&s->r, e->listen), "closeListen");
    }
    return rc ? rc : net_unload(&s->r);
}

static double ms_since(uint64_t start)
{
    return (double)(hw_now() - start) / 1e6;
}

static void take_costs(struct crowd_rank *out)
{
    out->resident_kib = read_status("/proc/self/status", "VmRSS:", 10);
    out->descriptors = entries("/proc/self/fd");
}

static int run_steps(struct crowd_self *s, struct crowd_rank *out)
{
    int rc = net_load(&s->r);
    if (!rc)
        rc = net_fail(net_devices(&s->r, &devices), "devices");
    if (!rc && devices < 1)
        rc = hw_fail(-ENODEV, "the plugin has no device");
    meet(s->all); /* NCCL's ranks exchange information about their devices before they listen */
    if (!rc)
        rc = listen_to_all(s);
    meet(s->all);
    uint64_t start = hw_now();
    if (!rc)
        rc = connect_all(s);
    out->connect_ms = ms_since(start);
    if (rc)
        return rc;
    if ((rc = register_all(s)))
        return rc;
    meet(s->all);
    for (unsigned round = 0; round < ROUNDS && !rc; round++) {
        start = hw_now();
        rc = exchange_with_all(s, round);
        *(round ? &out->later_ms : &out->first_ms) = ms_since(start);
    }
    if (rc)
        return rc;
    take_costs(out);
    meet(s->all);
    return close_all(s);
}

/* Runs a rank in its process. If a rank fails, run_crowd() kills all ranks, because the others may be waiting for the
 * failed rank at a barrier. */
static void run_crowd_rank(struct crowd *all, unsigned id)
{
    struct crowd_rank *out = &all->rank[id];
    struct crowd_self s = {.all = all, .id = id};
    struct rusage u;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    s.end = calloc(2 * (size_t)ranks * comms, sizeof(*s.end));
    s.r.sh = calloc(1, sizeof(*s.r.sh));
    int rc = s.end && s.r.sh ? run_steps(&s, out) : hw_fail(-ENOMEM, "memory for a rank");
    getrusage(RUSAGE_SELF, &u);
    out->cpu_s =
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
    if (rc) {
        snprintf(out->why, sizeof(out->why), "%s; the plugin said: %s", hw_error(), s.r.sh ? s.r.sh->warn[0] : "");
        atomic_fetch_add(&all->failed, 1);
    }
    _exit(rc != 0);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double largest(double *v)
{
    qsort(v, ranks, sizeof(*v), compare_doubles);
    return v[ranks - 1];
}

static void print_crowd(const struct crowd *all)
{
    static double v[CROWD_MAX];
    double cpu = 0;
    int descriptors = 0, threads = 0, open_threads = 0;
    long resident = 0;
    struct {
        const char *name;
        size_t at;
    } times[] = {{"connect_ms", offsetof(struct crowd_rank, connect_ms)},
                 {"first_ms", offsetof(struct crowd_rank, first_ms)},
                 {"later_ms", offsetof(struct crowd_rank, later_ms)}};
    printf("{\"ranks\": %u, \"comms\": %u, \"size\": %llu", ranks, comms, (unsigned long long)opt.size);
    for (size_t t = 0; t < HW_ARRAY_LEN(times); t++) {
        for (unsigned i = 0; i < ranks; i++)
            memcpy(&v[i], (const char *)&all->rank[i] + times[t].at, sizeof(double));
        printf(", \"%s\": %.1f", times[t].name, largest(v));
    }
    for (unsigned i = 0; i < ranks; i++) {
        descriptors = HW_MAX(descriptors, all->rank[i].descriptors);
        threads = HW_MAX(threads, all->rank[i].threads);
        open_threads += all->rank[i].open_threads;
        resident = HW_MAX(resident, all->rank[i].resident_kib);
        cpu += all->rank[i].cpu_s;
    }
    printf(", \"descriptors\": %d, \"threads\": %d, \"open_threads\": %d, \"resident_kib\": %ld, \"cpu_s\": %.2f}\n",
           descriptors, threads, open_threads, resident, cpu);
}

static void *map_shared(size_t len)
{
    void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

int run_crowd(void)
{
    ranks = (unsigned)opt.ranks;
    comms = (unsigned)opt.comms;
    struct crowd *all = map_shared(sizeof(*all));
    pthread_barrierattr_t attr;
    if (all) {
        all->rank = map_shared(ranks * sizeof(*all->rank));
        all->handles = map_shared((size_t)ranks * ranks * comms * sizeof(*all->handles));
    }
    if (!all || !all->rank || !all->handles) {
        fprintf(stderr, "driver: no memory for %u ranks\n", ranks);
        return 1;
    }
    pthread_barrierattr_init(&attr);
    pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&all->barrier, &attr, ranks);
    for (unsigned i = 0; i < ranks; i++) {
        pid_t pid = fork();
        if (pid == 0)
            run_crowd_rank(all, i);
        if (pid < 0) {
            perror("driver: fork");
            return 1;
        }
    }
    for (unsigned i = 0; i < ranks && !atomic_load(&all->failed); i++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            atomic_fetch_add(&all->failed, 1);
    }
    for (unsigned i = 0; i < ranks; i++)
        if (all->rank[i].why[0])
            fprintf(stderr, "driver: rank %u: %s\n", i, all->rank[i].why);
    if (atomic_load(&all->failed))
        return 1; /* the other ranks are killed when this process exits */
    print_crowd(all);
    return 0;
}
