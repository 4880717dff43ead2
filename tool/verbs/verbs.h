/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser verbs`, and code that they share. argv[0] is the action's name. */
#ifndef HW_TOOL_VERBS_H
#define HW_TOOL_VERBS_H

#include "tool/tool.h"
#include "verbs/agent/agent.h"

#include <sys/resource.h>

#define VERBS_AUDIT_FILE "/var/log/hawser/verbs.jsonl"

int verbs_agent_main(int argc, char **argv);
int verbs_run_main(int argc, char **argv);
int verbs_spec_main(int argc, char **argv);
int verbs_status_main(int argc, char **argv);
int verbs_audit_main(int argc, char **argv);

/* Log function for a struct hw_logger: prints a line to stderr. arg is the command's name. */
void verbs_log(void *arg, int level, const char *line);
/* Prints text from a program or a file, and replaces control characters and bytes that are not ASCII. */
void verbs_put(FILE *f, const char *text);

/* Setup that agent and run share. */
struct verbs_base {
    struct hw_logger log;
    struct vb_audit audit;
    struct vb_policy *policy;
    struct rlimit files; /* limit before it was raised */
};
/* Loads the policy, opens the audit file (unless audit is NULL), warns if this machine has no RDMA device, and raises
 * the limit on descriptors. Returns an exit code, after reporting errors to stderr as `hawser CMD`. The caller closes b
 * in any case. */
int verbs_base_open(struct verbs_base *b, const char *cmd, const char *policy, const char *audit);
void verbs_base_close(struct verbs_base *b);
/* Creates the parent folder of path, if it is missing. If itself is set, also creates path as a folder. Returns 0 or
 * -errno. */
int verbs_folder(const char *path, bool itself);
/* Blocks the signals of set, and returns a signalfd for them or -errno. *old receives the previous mask. */
int verbs_signals(const int *set, size_t n, int flags, sigset_t *old);

#endif
