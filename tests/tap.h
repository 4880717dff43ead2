/* SPDX-License-Identifier: Apache-2.0 */
/* TAP for tests in C: ok() and similar macros each report one result; tap_done() prints the plan. */
#ifndef TAP_H
#define TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int tap_n, tap_failed;

__attribute__((format(printf, 4, 5), unused)) static bool tap_ok(bool pass, const char *file, int line, const char *fmt,
                                                                 ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("%sok %d - ", pass ? "" : "not ", ++tap_n);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
    if (!pass) {
        tap_failed++;
        printf("# failed at %s:%d\n", file, line);
    }
    fflush(stdout);
    return pass;
}

#define ok(cond, ...) tap_ok((cond), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, want, what)                                  \
    do {                                                         \
        long long g_ = (long long)(got), w_ = (long long)(want); \
        if (!tap_ok(g_ == w_, __FILE__, __LINE__, "%s", (what))) \
            printf("# got %lld, wanted %lld\n", g_, w_);         \
    } while (0)
#define is_str(got, want, what)                                                          \
    do {                                                                                 \
        const char *g_ = (got), *w_ = (want);                                            \
        if (!tap_ok(g_ && w_ && strcmp(g_, w_) == 0, __FILE__, __LINE__, "%s", (what)))  \
            printf("# got '%s', wanted '%s'\n", g_ ? g_ : "(null)", w_ ? w_ : "(null)"); \
    } while (0)
#define diag(...) (printf("# "), printf(__VA_ARGS__), putchar('\n'), (void)fflush(stdout))

/* Skips the whole test program: prints the reason on the plan line and exits with status 77. */
#define tap_skip_all(...) (printf("1..0 # SKIP "), printf(__VA_ARGS__), putchar('\n'), exit(77))
/* Reports one assertion as skipped, with the reason. */
#define tap_skip(what, why) (printf("ok %d - %s # SKIP %s\n", ++tap_n, (what), (why)), (void)fflush(stdout))

__attribute__((unused)) static int tap_done(void)
{
    printf("1..%d\n", tap_n);
    return tap_failed ? 1 : 0;
}

#endif
