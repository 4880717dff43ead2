/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `hawser demo`. */
#ifndef HW_TOOL_DEMO_H
#define HW_TOOL_DEMO_H

#include "lab/lab.h"
#include "tool/page/run.h"
#include "tool/tool.h"

#include <jansson.h>
#include <sys/types.h>

#define DEMO_NICS   4
#define DEMO_VICTIM 1 /* the NIC that goes down, on the benchmark's node */
#define DEMO_DOWN   "taken down"
#define DEMO_UP     "back up"
#define DEMO_PROVED 10
#define DEMO_PATH   4200

struct demo {
    char lab[HW_LAB_NAME_MAX + 1];
    char self[4096];
    const char *dir;
    const char *kv_push; /* a program that pushes a KV cache through NIXL; NULL: left out */
    /* files in dir */
    char result[DEMO_PATH], lists[DEMO_PATH], second[DEMO_PATH], report[DEMO_PATH], faults[DEMO_PATH];
    char kv[DEMO_PATH], hosts[DEMO_PATH], mesh[DEMO_PATH], mesh_page[DEMO_PATH];
    char proved[DEMO_PROVED][400]; /* what the run has shown */
    size_t n_proved;
    struct run run;
    bool up;
    pid_t serve, bench, decode;
    int serve_out;
};

extern const uint64_t demo_rates[DEMO_NICS]; /* bits a second */

/* Returns the exit status of *pid once it is over (128 + the signal that killed it), -ETIMEDOUT at the deadline, -EINTR
 * after a signal to the demo. *pid becomes 0 when over. */
int demo_await(pid_t *pid, uint64_t deadline);
/* Ends *pid by that signal, three seconds later by SIGKILL. Does nothing where *pid is 0. */
void demo_end(pid_t *pid, int sig);

/* Pushes a KV cache between the lab's two nodes, where d->kv_push names a program that can. -EIO where the push failed
 * or a block was not verified, -ETIMEDOUT, -EINTR. */
int demo_push_kv(struct demo *d);
/* Makes a lab of eight nodes, one with a bad NIC, and starts mesh there. The lab stays, d->up tells. -EIO, -ETIMEDOUT,
 * -EINTR, or what making the lab failed with. */
int demo_run_mesh(struct demo *d);
/* Each says what its part has shown. -EIO where that is not what it must show. */
int demo_check_kv(struct demo *d);
int demo_check_mesh(struct demo *d);

/* Says what the benchmarks and the drill have shown. -EIO where that is not what they must show. */
int demo_check(struct demo *d);
/* Notes a sentence for the report, and prints the sentence in lines of 78 columns. */
__attribute__((format(printf, 2, 3))) void demo_prove(struct demo *d, const char *fmt, ...);
/* Returns the lines of a result file as one array, which is the caller's; NULL with hw_error(). */
json_t *demo_read_lines(const char *path);
/* Returns a number of an object, NAN where there is none; a text, "" where there is none. */
double demo_get_number(const json_t *o, const char *key);
const char *demo_get_text(const json_t *o, const char *key);

#endif
