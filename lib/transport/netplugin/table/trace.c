/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/netplugin/table/trace.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BUCKETS = 4096, LINE = 1600, KINDS = 4, NAMES = 4 };

/* A named object of the plugin. */
struct thing {
    struct thing *next;
    const void *at;
    char name[48];
    uint64_t again;    /* number of calls without a result */
    uint64_t requests; /* number of requests of a connection */
};

static struct {
    int fd;
    bool on, polls;
    pthread_mutex_t lock; /* guards all fields below */
    struct thing *bucket[BUCKETS];
    unsigned made[KINDS];
} trace = {.fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static __thread int gpu_now = -1;

void np_trace_open(int fd, bool polls)
{
    trace.fd = fd;
    trace.polls = polls;
    trace.on = true;
}

bool np_trace_on(void)
{
    return trace.on;
}

bool np_trace_polls(void)
{
    return trace.polls;
}

void np_trace_gpu(int gpu)
{
    gpu_now = gpu;
}

int np_trace_gpu_now(void)
{
    return gpu_now;
}

uint64_t np_trace_begin(void)
{
    return trace.on ? hw_now() : 0;
}

/* ---- lines ---------------------------------------------------------------------------------- */

/* Writes the time ns and the process and thread ids: "12.345678 PID.TID ". */
static int write_stamp(char *line, size_t cap, uint64_t ns)
{
    return snprintf(line, cap, "%llu.%06llu %d.%ld ", (unsigned long long)(ns / 1000000000u),
                    (unsigned long long)(ns / 1000 % 1000000u), (int)getpid(), syscall(SYS_gettid));
}

/* Writes a line with a single write(), so that lines of different threads and processes do not mix. */
static void write_trace_line(char *line, size_t len)
{
    len = HW_MIN(len, (size_t)LINE - 1);
    line[len] = '\n';
    (void)!write(trace.fd, line, len + 1);
}

void np_trace_call(uint64_t begin, const char *call, const char *fmt, ...)
{
    char line[LINE + 64];
    const uint64_t now = hw_now();
    va_list ap;
    if (!begin)
        return;
    int at = write_stamp(line, LINE, begin);
    at += snprintf(line + at, (size_t)(LINE - at), "%s ", call);
    va_start(ap, fmt);
    at += vsnprintf(line + at, (size_t)(LINE - at), fmt, ap);
    va_end(ap);
    at = HW_MIN(at, LINE - 40);
    at += snprintf(line + at, (size_t)(LINE - at), " us=%llu.%03llu", (unsigned long long)((now - begin) / 1000),
                   (unsigned long long)((now - begin) % 1000));
    write_trace_line(line, (size_t)at);
}

void np_trace_log(int level, const char *file, int line_number, const char *text)
{
    static const char *const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
    char line[LINE + 64];
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (!trace.on)
        return;
    int at = write_stamp(line, LINE, hw_now());
    at += snprintf(line + at, (size_t)(LINE - at), "log %s %.60s:%d %.*s",
                   (unsigned)level < HW_ARRAY_LEN(names) ? names[level] : "?",
                   slash  ? slash + 1
                   : file ? file
                          : "-",
                   line_number, (int)strcspn(text, "\n"), text);
    at = HW_MIN(at, LINE - 1);
    for (int i = 0; i < at; i++)
        if ((unsigned char)line[i] < ' ' || line[i] == 0x7f)
            line[i] = '?';
    write_trace_line(line, (size_t)at);
}

/* ---- names ---------------------------------------------------------------------------------- */

static struct thing **find_trace_slot(const void *at)
{
    struct thing **t = &trace.bucket[((uintptr_t)at >> 4) % BUCKETS];
    while (*t && (*t)->at != at)
        t = &(*t)->next;
    return t;
}

/* Copies a name to a buffer that stays valid after unlocking. */
static const char *copy_trace_name(const char *name)
{
    static __thread char room[NAMES][sizeof(((struct thing *)0)->name)];
    static __thread unsigned at;
    at = (at + 1) % NAMES;
    memcpy(room[at], name, sizeof(room[at]));
    return room[at];
}

/* Returns the entry of an address, and resets an existing entry. Returns NULL if out of memory. Called with the lock
 * held. */
static struct thing *add_thing(const void *at)
{
    struct thing **t = find_trace_slot(at);
    if (!*t && (*t = calloc(1, sizeof(**t))))
        (*t)->at = at;
    if (*t)
        (*t)->again = (*t)->requests = 0;
    return *t;
}

const char *np_trace_new(char kind, const void *at)
{
    static const char kinds[KINDS + 1] = "LSRM";
    const char *k = strchr(kinds, kind);
    if (!trace.on || !at || !k)
        return "-";
    pthread_mutex_lock(&trace.lock);
    struct thing *t = add_thing(at);
    if (t)
        snprintf(t->name, sizeof(t->name), "%c%u", kind, trace.made[k - kinds]++);
    const char *name = t ? copy_trace_name(t->name) : "?";
    pthread_mutex_unlock(&trace.lock);
    return name;
}

const char *np_trace_name(const void *at)
{
    if (!trace.on || !at)
        return "-";
    pthread_mutex_lock(&trace.lock);
    const struct thing *t = *find_trace_slot(at);
    const char *name = t ? copy_trace_name(t->name) : "?";
    pthread_mutex_unlock(&trace.lock);
    return name;
}

void np_trace_gone(const void *at)
{
    if (!trace.on || !at)
        return;
    pthread_mutex_lock(&trace.lock);
    struct thing **place = find_trace_slot(at), *t = *place;
    if (t) {
        *place = t->next;
        free(t);
    }
    pthread_mutex_unlock(&trace.lock);
}

const char *np_trace_request(const void *comm, const void *request)
{
    if (!trace.on || !request)
        return "-";
    pthread_mutex_lock(&trace.lock);
    struct thing *c = *find_trace_slot(comm);
    char owner[16];
    const uint64_t number = c ? c->requests++ : 0;
    snprintf(owner, sizeof(owner), "%.15s", c ? c->name : "?");
    struct thing *r = add_thing(request);
    if (r)
        snprintf(r->name, sizeof(r->name), "%s#%llu", owner, (unsigned long long)number);
    const char *name = r ? copy_trace_name(r->name) : "?";
    pthread_mutex_unlock(&trace.lock);
    return name;
}

void np_trace_again(const void *at)
{
    if (!trace.on || !at)
        return;
    pthread_mutex_lock(&trace.lock);
    struct thing **t = find_trace_slot(at);
    if (!*t && (*t = calloc(1, sizeof(**t)))) /* the handle of a connect(): there is no entry yet, because the
                                                 connection does not exist */
        (*t)->at = at;
    if (*t)
        (*t)->again++;
    pthread_mutex_unlock(&trace.lock);
}

uint64_t np_trace_agains(const void *at)
{
    uint64_t n = 0;
    if (!trace.on || !at)
        return 0;
    pthread_mutex_lock(&trace.lock);
    struct thing *t = *find_trace_slot(at);
    if (t) {
        n = t->again;
        t->again = 0;
    }
    pthread_mutex_unlock(&trace.lock);
    return n;
}
