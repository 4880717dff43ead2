/* SPDX-License-Identifier: Apache-2.0 */
/* The actions of `hawser verbs`. argv[0] is the action's name. */
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

/* A hw_logger's function: a line on stderr. arg: the command's name. */
void verbs_log(void *arg, int level, const char *line);
/* Prints text that a program or a file chose, with what could steer a terminal replaced. */
void verbs_put(FILE *f, const char *text);

/* What agent and run start from. */
struct verbs_base {
    struct hw_logger log;
    struct vb_audit audit;
    struct vb_policy *policy;
    struct rlimit files; /* as it was: it has been raised */
};
/* The policy, the audit file (NULL: none), a warning where this machine has no RDMA device, enough descriptors. A
 * tool_exit, said on stderr as `hawser CMD`'s. To be freed after either. */
int verbs_base_open(struct verbs_base *b, const char *cmd, const char *policy, const char *audit);
void verbs_base_close(struct verbs_base *b);
/* The folder of path, and with itself path as another one, where they are not there. */
int verbs_folder(const char *path, bool itself);
/* The signals of set, blocked, as a descriptor; *old: what was blocked before. */
int verbs_signals(const int *set, size_t n, int flags, sigset_t *old);

#endif
