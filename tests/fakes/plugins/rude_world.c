/* SPDX-License-Identifier: Apache-2.0 */
/* Reads RUDE, and misbehaves in ways that affect the whole process. */
#include "rude_world.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const struct {
    const char *word;
    long number;
    const char *what, *must;
} ways[] = {
#define X(name, word, number, what, must) {word, number, what, must},
    RUDE_WAYS(X)
#undef X
};

static bool asked[RUDE_N];
static long numbers[RUDE_N];
static ncclDebugLogger_t logger;

bool rude(enum rude_way way)
{
    return asked[way];
}

long rude_number(enum rude_way way)
{
    return numbers[way];
}

/* Prints a line for each way: its name, default number, behaviour, and the expected reaction of a host. */
__attribute__((visibility("default"))) void rude_help(void);
void rude_help(void)
{
    for (unsigned i = 0; i < RUDE_N; i++)
        printf("%s\t%ld\t%s\t%s\n", ways[i].word, ways[i].number, ways[i].what, ways[i].must);
    fflush(stdout);
}

void rude_read(void)
{
    const char *v = getenv("RUDE");
    while (v && *v) {
        size_t len = strcspn(v, ","), word = strcspn(v, ",=");
        unsigned i = 0;
        while (i < RUDE_N && (strlen(ways[i].word) != word || strncmp(ways[i].word, v, word) != 0))
            i++;
        char *end = NULL;
        if (i < RUDE_N) {
            asked[i] = true;
            numbers[i] = ways[i].number;
            end = (char *)v + word;
            if (*end == '=')
                numbers[i] = strtol(v + word + 1, &end, 10);
        }
        if (end != v + len) {
            fprintf(stderr, "rude: RUDE=%s?\n", v);
            abort();
        }
        v += len + (v[len] == ',');
    }
}

void rude_crash(void)
{
    (void)raise(SIGSEGV);
    abort();
}

void rude_hang(void)
{
    for (;;)
        pause();
}

void rude_sleep(enum rude_way way)
{
    if (rude(way))
        usleep((useconds_t)rude_number(way) * 1000);
}

/* ---- threads ---------------------------------------------------------------------------------- */

static void thread(void *(*fn)(void *))
{
    pthread_t t;
    if (pthread_create(&t, NULL, fn, NULL) == 0)
        pthread_detach(t);
}

static void *spin(void *arg)
{
    (void)arg;
    time_t end = time(NULL) + 60; /* time limit, in case nothing ends the thread */
    while (time(NULL) < end)
        ;
    return NULL;
}

static void *log_flood(void *arg)
{
    (void)arg;
    for (long i = 0; i < rude_number(RUDE_LOG_FLOOD); i++)
        logger(i % 2 ? NCCL_LOG_INFO : NCCL_LOG_WARN, NCCL_NET, __FILE__, __LINE__, "line %ld of a flood", i);
    return NULL;
}

static void *late_exit(void *arg)
{
    (void)arg;
    rude_sleep(RUDE_LATE_EXIT);
    exit(1);
}

static void *late_crash(void *arg)
{
    (void)arg;
    rude_sleep(RUDE_LATE_CRASH);
    rude_crash();
}

/* ---- the process ------------------------------------------------------------------------------ */

static void flood(void)
{
    char line[1024];
    memset(line, 'x', sizeof(line));
    line[sizeof(line) - 1] = '\n';
    for (long i = 0; i < rude_number(RUDE_FLOOD) * 1024; i++)
        for (int fd = 1; fd <= 2; fd++)
            if (write(fd, line, sizeof(line)) < 0)
                return;
}

static void log_wild(void)
{
    char *line = malloc(65537);
    memset(line, 'y', 65536);
    line[65536] = 0;
    logger(NCCL_LOG_WARN, NCCL_NET, NULL, -1, "%s", line);
    logger(NCCL_LOG_WARN, ~0ul, __FILE__, __LINE__, "two\nlines\r\t\x1b[31m and \x01 \xff\xfe control characters%c", 7);
    logger((ncclDebugLogLevel)77, 0, "", 0, "%s", "");
    free(line);
}

static void on_signal(int sig)
{
    (void)sig;
}

static void signals(void)
{
    sigset_t all;
    for (int i = 1; i < NSIG; i++)
        (void)signal(i, i % 2 ? SIG_IGN : on_signal);
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, NULL);
}

static void environment(void)
{
    (void)clearenv();
    (void)setenv("LD_PRELOAD", "/nonexistent.so", 1);
    (void)setenv("PATH", "/nonexistent", 1);
    (void)setenv("HAWSER_LOG", "nonsense", 1);
}

static void chdir_and_limits(void)
{
    struct rlimit few = {8, 8};
    (void)umask(0777);
    if (chdir("/") || setrlimit(RLIMIT_NOFILE, &few))
        abort();
}

static void leave_child(void)
{
    if (fork() == 0) {
        (void)setsid();
        (void)signal(SIGTERM, SIG_IGN);
        sleep((unsigned)rude_number(RUDE_FORK));
        _exit(0);
    }
}

void rude_world(ncclDebugLogger_t log)
{
    static bool before;
    logger = log;
    if (before)
        return;
    before = true;
    if (rude(RUDE_FLOOD))
        flood();
    if (rude(RUDE_LOG_FLOOD) && logger)
        thread(log_flood);
    if (rude(RUDE_LOG_WILD) && logger)
        log_wild();
    for (long i = 0; rude(RUDE_SPIN) && i < rude_number(RUDE_SPIN); i++)
        thread(spin);
    if (rude(RUDE_CLOSE_FDS))
        (void)close_range(3, ~0u, 0);
    if (rude(RUDE_SIGNALS))
        signals();
    if (rude(RUDE_ENVIRON))
        environment();
    if (rude(RUDE_CHDIR))
        chdir_and_limits();
    if (rude(RUDE_FORK))
        leave_child();
    if (rude(RUDE_LATE_EXIT))
        thread(late_exit);
    if (rude(RUDE_LATE_CRASH))
        thread(late_crash);
}
