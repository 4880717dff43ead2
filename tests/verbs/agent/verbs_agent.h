/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the agent: starts an agent in a separate process, runtimes, and programs below the filter. Their
 * broker, unless the test has another one, answers a verbs ioctl with what it is asked about itself. */
#ifndef VERBS_AGENT_H
#define VERBS_AGENT_H

#include "tests/tap.h"
#include "verbs/agent/agent.h"

#include <sys/types.h>

#define SECONDS 60 /* for what takes almost no time on an idle machine */

/* What a broker can be asked. LATE: whether its policy has a section of that name. */
enum ask { PID, FDS, NODE, CAPS, ANNOTATIONS, SECTION, NAME, LATE, CRASH, BREACH, END };

extern char sock_path[64], state_dir[64], policy_file[64], log_file[64];

/* Call once, first; skips the test if it is not possible here. */
void agents_start(const char *policy);
void agents_end(void);
int said(const char *text);        /* number of lines of the log with this text */
void policy_put(const char *text); /* writes to policy_file */

struct agent {
    pid_t pid;
    int stop, leave, reload; /* eventfds */
};
/* Starts an agent. more: its options; NULL and 0 mean the default. */
struct agent agent_start(struct vb_agent_options more);
int agent_order(int fd);        /* gives an order by one of its eventfds */
int agent_end(struct agent *a); /* waits for its end; returns its status */
int agent_stop(struct agent *a);
int reap(pid_t pid); /* returns its status */
int dial(void);

struct prog {
    pid_t pid;
    int listener, ask, told;
};
/* Starts a program that asks its broker what it is told to, or, after prog_go(), exits with the result of fn. */
struct prog prog_start(int (*fn)(void));
int prog_ask(const struct prog *p, int code);
bool prog_go(const struct prog *p); /* runs fn; its exit status is available from prog_exit() afterwards */
int prog_exit(
    struct prog *p); /* runs fn, and returns the exit status, or -1 if it takes too long; replaces prog_end() */
void prog_end(struct prog *p);

bool send_all(int sock, const char *text, size_t len, const int *fds, unsigned n);
extern const char usual[]; /* the state that a runtime sends: pid, id, pid, more of the state */
/* Sends the state like a runtime: from now on only the broker has the listener. */
void tell(struct prog *p, const char *id, const char *more);

#endif
