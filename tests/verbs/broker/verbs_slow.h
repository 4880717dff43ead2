/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a program that arrive when the test decides. The program creates the pages with userfaultfd before it
 * installs its filter. */
#ifndef VERBS_SLOW_H
#define VERBS_SLOW_H

#include "tests/fakes/verbs/verbs_fake.h"

#define SLOW_PAGE   4096u
#define SLOW_PAGES  4
#define SLOW_WAIT   60000 /* ms to wait for an access to a page */
#define SLOW_NUMBER 14    /* index in fake->number[] of the pages' address */

extern char *slow;  /* in the program: an ordinary page, followed by SLOW_PAGES delayed pages */
extern int slow_fd; /* valid in the process (program or test) that delays the pages; -1 in the other process */

bool slow_possible(void); /* sets errno if false */
/* Calls fake_reset(), and starts a program with delayed pages. If `given` is set, the program passes the userfaultfd to
 * the test, and closes its own copy. */
void slow_start(struct world *w, const char *policy, int (*fn)(void *), void *arg, bool given);
bool slow_wanted(int fd);       /* waits for an access to a page; returns false after a timeout */
int slow_let_go(unsigned page); /* returns 0 or -errno; -ESRCH if the program's memory no longer exists */

#endif
