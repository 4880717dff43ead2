/* SPDX-License-Identifier: Apache-2.0 */
/* For test_tcpxlike.c and rude_test.c: the plugin in a process of its own for each try, since it may end it. */
#ifndef TCPXLIKE_TRY_H
#define TCPXLIKE_TRY_H

#include "../tap.h"
#include "base/base.h"
#include "transport/netplugin/abi.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNTRUE 42 /* how a child exits whose CHECK failed */

static int said = -1;       /* where a child's log goes */
static bool closed = false; /* a child closed all that it had opened: sanitizers may look for leaks */

/* In the child. */
#define CHECK(cond) ((cond) ? (void)0 : untrue(#cond, __LINE__))
__attribute__((noreturn)) static inline void untrue(const char *what, int line)
{
    dprintf(said, "line %d: not true: %s\n", line, what);
    _exit(UNTRUE);
}

__attribute__((format(printf, 5, 6))) static inline void say(ncclDebugLogLevel level, unsigned long flags,
                                                             const char *file, int line, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text) - 1, fmt, ap);
    va_end(ap);
    (void)flags, (void)file, (void)line;
    n = HW_MIN(n, (int)sizeof(text) - 2);
    text[n++] = '\n';
    if (level == NCCL_LOG_WARN && write(said, text, (size_t)n) < 0)
        _exit(UNTRUE);
}

struct outcome {
    int status;
    char log[8192];
};

/* Runs fn in a child with "NAME=value"s set and "NAME"s unset, for so long; status 0 where it returns. */
static inline struct outcome in_child(void (*fn)(void), const char *const *env, unsigned seconds)
{
    struct outcome o = {0};
    int fd[2];
    if (pipe(fd))
        exit(1);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(fd[0]);
        dup2(fd[1], STDOUT_FILENO); /* its output is no TAP */
        dup2(fd[1], STDERR_FILENO);
        close(fd[1]);
        said = STDOUT_FILENO;
        alarm(seconds);
        for (; *env; env++) {
            char name[64];
            const char *value = strchr(*env, '=');
            snprintf(name, sizeof(name), "%.*s", (int)strcspn(*env, "="), *env);
            if (value ? setenv(name, value + 1, 1) : unsetenv(name))
                _exit(UNTRUE);
        }
        fn();
        if (closed)
            exit(0);
        _exit(0);
    }
    close(fd[1]);
    size_t have = 0;
    for (ssize_t n = 1; n > 0; have += n > 0 ? (size_t)n : 0) {
        if (have == sizeof(o.log) - 1) { /* the end counts */
            memmove(o.log, o.log + sizeof(o.log) / 2, have - sizeof(o.log) / 2);
            have -= sizeof(o.log) / 2;
        }
        n = read(fd[0], o.log + have, sizeof(o.log) - 1 - have);
    }
    o.log[have] = 0;
    close(fd[0]);
    waitpid(pid, &o.status, 0);
    return o;
}

static inline void show(const struct outcome *o)
{
    diag("status 0x%x, log:", (unsigned)o->status);
    for (const char *line = o->log; *line;) {
        int len = (int)strcspn(line, "\n");
        diag("  %.*s", HW_MIN(len, 200), line);
        line += len + (line[len] == '\n');
    }
}

/* It must have returned. */
static inline void works(const char *what, void (*fn)(void), const char *const *env)
{
    struct outcome o = in_child(fn, env, 60);
    if (!ok(WIFEXITED(o.status) && WEXITSTATUS(o.status) == 0, "%s", what))
        show(&o);
}

/* It must have ended with this exit status, having said this. */
static inline void exits(const char *what, void (*fn)(void), const char *const *env, int status, const char *text)
{
    struct outcome o = in_child(fn, env, 60);
    if (!ok(WIFEXITED(o.status) && WEXITSTATUS(o.status) == status && strstr(o.log, text), "%s", what))
        show(&o);
}

/* It must have been ended by this signal, having said this. Sanitizers make an exit status of SIGSEGV. */
static inline void dies(const char *what, void (*fn)(void), const char *const *env, unsigned seconds, int sig,
                        const char *text)
{
    struct outcome o = in_child(fn, env, seconds);
    bool dead = WIFSIGNALED(o.status) && WTERMSIG(o.status) == sig;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    dead = dead || (sig == SIGSEGV && WIFEXITED(o.status) && strstr(o.log, "SEGV"));
#endif
    if (!ok(dead && strstr(o.log, text), "%s", what))
        show(&o);
}

/* Bytes that tell where they belong. */
static inline uint8_t byte_at(unsigned seed, size_t i)
{
    return (uint8_t)(seed * 29 + i * 7 + (i >> 8) * 13 + (i >> 16));
}

static inline void fill(uint8_t *p, unsigned seed, size_t len)
{
    for (size_t i = 0; i < len; i++)
        p[i] = byte_at(seed, i);
}

static inline bool filled(const uint8_t *p, unsigned seed, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (p[i] != byte_at(seed, i))
            return false;
    return true;
}

#endif
