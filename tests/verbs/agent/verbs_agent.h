/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the agent's tests: an agent in a separate process, simulated runtimes, and programs under the filter.
 * Unless a test uses another broker, the simulated broker answers a verbs ioctl with facts about itself (enum ask). */
#ifndef VERBS_AGENT_H
#define VERBS_AGENT_H

#include "tests/tap.h"
#include "verbs/agent/agent.h"

#include <sys/types.h>

#define SECONDS 60 /* timeout for steps that take almost no time on an idle machine */

/* Questions that a program can ask its broker. LATE: whether the policy has a section named "late". */
enum ask { PID, FDS, NODE, CAPS, ANNOTATIONS, SECTION, NAME, LATE, CRASH, BREACH, END };

extern char sock_path[64], state_dir[64], policy_file[64], log_file[64];

/* Must be the first call of a test. Skips the test if this machine cannot run it. */
void agents_start(const char *policy);
void agents_end(void);
int said(const char *text);        /* returns the number of log lines that contain the text */
void policy_put(const char *text); /* writes to policy_file */

struct agent {
    pid_t pid;
    int stop, leave, reload; /* eventfds */
};
/* Starts an agent. `more` sets its options; NULL and 0 select the defaults. */
struct agent agent_start(struct vb_agent_options more);
int agent_order(int fd);        /* sends an order through one of the agent's eventfds */
int agent_end(struct agent *a); /* waits until the agent exits; returns its wait status */
int agent_stop(struct agent *a);
int reap(pid_t pid); /* waits until the process exits; returns its wait status */
int dial(void);

struct prog {
    pid_t pid;
    int listener, ask, told;
};
/* Starts a program under the filter. If fn is NULL, the program asks its broker the questions that prog_ask() passes.
 * Otherwise, the program runs fn after prog_go(), and exits with the result. */
struct prog prog_start(int (*fn)(void));
int prog_ask(const struct prog *p, int code);
bool prog_go(const struct prog *p); /* tells the program to run fn; prog_exit() returns the result */
/* runs fn and calls prog_end(); returns fn's exit status, or -1 if fn runs for too long */
int prog_exit(struct prog *p);
void prog_end(struct prog *p);

bool send_all(int sock, const char *text, size_t len, const int *fds, unsigned n);
extern const char usual[]; /* format of a runtime's message; arguments: pid, id, pid, more JSON */
/* Sends the program's listener and state to the agent like a runtime, then closes the program's copy of the
 * listener. */
void tell(struct prog *p, const char *id, const char *more);

#endif
