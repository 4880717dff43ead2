/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a program that arrive when the test decides: by userfaultfd, which the program makes before it has its
 * filter. */
#ifndef VERBS_SLOW_H
#define VERBS_SLOW_H

#include "tests/fakes/verbs/verbs_fake.h"

#define SLOW_PAGE   4096u
#define SLOW_PAGES  4
#define SLOW_WAIT   60000 /* ms to wait for an access to a page */
#define SLOW_NUMBER 14    /* index in fake->number[] of their address */

extern char *slow;  /* in the program: SLOW_PAGES pages, and an ordinary one before them */
extern int slow_fd; /* in the process that delays the pages, the program or the test; -1 in the other one */

bool slow_possible(void); /* sets errno if false */
/* Calls fake_reset(), and starts a program with such pages. given: it passes the file descriptor to the test, and
 * closes it. */
void slow_start(struct world *w, const char *policy, int (*fn)(void *), void *arg, bool given);
bool slow_wanted(int fd);       /* waits until something waits for a page; returns false if nothing does */
int slow_let_go(unsigned page); /* returns 0 or -errno; -ESRCH: that memory no longer exists */

#endif
