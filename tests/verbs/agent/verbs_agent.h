/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the agent: one in a process of its own, runtimes, and programs below the filter, whose broker, where
 * the test brings no other, answers a verbs ioctl with what it is asked about itself. */
#ifndef VERBS_AGENT_H
#define VERBS_AGENT_H

#include "tests/tap.h"
#include "verbs/agent/agent.h"

#include <sys/types.h>

#define SECONDS 60 /* for what takes no time on an idle machine */

/* What a broker can be asked. LATE: whether its policy has a section of that name. */
enum ask { PID, FDS, NODE, CAPS, ANNOTATIONS, SECTION, NAME, LATE, CRASH, BREACH, END };

extern char sock_path[64], state_dir[64], policy_file[64], log_file[64];

/* Once, first; skips the test where it cannot be. */
void agents_start(const char *policy);
void agents_end(void);
int said(const char *text);        /* how many lines of the log have it */
void policy_put(const char *text); /* into policy_file */

struct agent {
    pid_t pid;
    int stop, leave, reload; /* eventfds */
};
/* more: what is not as usual, which NULL and 0 are. */
struct agent agent_start(struct vb_agent_options more);
int agent_order(int fd);        /* one of its eventfds: the order is given */
int agent_end(struct agent *a); /* its status, once it has ended by itself */
int agent_stop(struct agent *a);
int reap(pid_t pid); /* its status */
int dial(void);

struct prog {
    pid_t pid;
    int listener, ask, told;
};
/* A program that asks its broker what it is told to, or, once it is asked something, exits with what fn returns. */
struct prog prog_start(int (*fn)(void));
int prog_ask(const struct prog *p, int code);
bool prog_go(const struct prog *p); /* has fn run; its exit status by prog_exit() still */
int prog_exit(struct prog *p);      /* has fn run: the exit status, -1: none in time; instead of prog_end() */
void prog_end(struct prog *p);

bool send_all(int sock, const char *text, size_t len, const int *fds, unsigned n);
extern const char usual[]; /* the state that a runtime sends: pid, id, pid, more of the state */
/* As a runtime: the listener is the broker's alone from here on. */
void tell(struct prog *p, const char *id, const char *more);

#endif
