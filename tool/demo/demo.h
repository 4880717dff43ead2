/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of `hawser demo`. */
#ifndef HW_TOOL_DEMO_H
#define HW_TOOL_DEMO_H

#include "lab/lab.h"
#include "tool/page/run.h"
#include "tool/tool.h"

#include <jansson.h>
#include <sys/types.h>

#define DEMO_NICS   4
#define DEMO_VICTIM 1 /* index of the NIC that is taken down, on the client's node */
#define DEMO_DOWN   "taken down"
#define DEMO_UP     "back up"
#define DEMO_PROVED 10
#define DEMO_PATH   4200

struct demo {
    char lab[HW_LAB_NAME_MAX + 1];
    char self[4096];
    const char *dir;
    const char *kv_push; /* program that transfers a KV cache through NIXL, or NULL to omit this part */
    /* paths of files in dir */
    char result[DEMO_PATH], lists[DEMO_PATH], second[DEMO_PATH], report[DEMO_PATH], faults[DEMO_PATH];
    char kv[DEMO_PATH], hosts[DEMO_PATH], mesh[DEMO_PATH], mesh_page[DEMO_PATH];
    char proved[DEMO_PROVED][400]; /* sentences about what the run has shown */
    size_t n_proved;
    struct run run;
    bool up;
    pid_t serve, bench, decode;
    int serve_out;
};

extern const uint64_t demo_rates[DEMO_NICS]; /* bits per second */

/* Waits for *pid to end. Returns the process's exit status or 128 + signal number, -ETIMEDOUT at the deadline,
 * -EINTR if the demo received a signal, or another -errno. Sets *pid to 0 once the process has ended. */
int demo_await(pid_t *pid, uint64_t deadline);
/* Sends the signal to *pid, and SIGKILL three seconds later if the process still runs. Does nothing if *pid is 0. */
void demo_end(pid_t *pid, int sig);

/* Transfers a KV cache between the lab's two nodes with the program d->kv_push, if set. Returns 0 or -errno, which is
 * -EIO if the program failed. */
int demo_push_kv(struct demo *d);
/* Creates a lab of eight nodes, one of them with a slow NIC, and runs mesh there. Leaves the lab up, and sets d->up.
 * Returns 0 if mesh exited with TOOL_FAILED, as it does after a finding. Fails with -EIO after another exit status, or
 * with another -errno. */
int demo_run_mesh(struct demo *d);
/* Print what the KV cache transfer and mesh have shown. Return 0, or -errno if a result is missing or is not
 * as expected. */
int demo_check_kv(struct demo *d);
int demo_check_mesh(struct demo *d);

/* Prints what the benchmarks and the drill have shown. Returns 0, or -EIO if a result is missing or is not as
 * expected. */
int demo_check(struct demo *d);
/* Adds a sentence to the report, and prints the sentence in lines of at most 78 columns. */
__attribute__((format(printf, 2, 3))) void demo_prove(struct demo *d, const char *fmt, ...);
/* Returns the JSON lines of a result file as one array, which the caller releases, or NULL with hw_error(). */
json_t *demo_read_lines(const char *path);
/* Return the number or the text at key of an object, or NAN or "" if there is none. */
double demo_get_number(const json_t *o, const char *key);
const char *demo_get_text(const json_t *o, const char *key);

#endif
