/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of a program's that come when the test likes: userfaultfd's, which the program makes before it has its filter.
 */
#ifndef VERBS_SLOW_H
#define VERBS_SLOW_H

#include "tests/fakes/verbs/verbs_fake.h"

#define SLOW_PAGE   4096u
#define SLOW_PAGES  4
#define SLOW_WAIT   60000 /* ms: how long somebody may take to want a page */
#define SLOW_NUMBER 14    /* fake->number[] of it is where they are */

extern char *slow;  /* the program's: so many pages, and one before them that is as usual */
extern int slow_fd; /* of the program, or of the test: who holds the pages up. -1: the other one */

bool slow_possible(void); /* false: errno */
/* fake_reset(), and a program with such pages. given: it gives the test the descriptor, and has it no more. */
void slow_start(struct world *w, const char *policy, int (*fn)(void *), void *arg, bool given);
bool slow_wanted(int fd);       /* waits until somebody waits for a page; false: nobody does */
int slow_let_go(unsigned page); /* 0; -ESRCH: there is no such memory any more */

#endif
