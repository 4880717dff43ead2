/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of verbs_attack share. */
#ifndef HW_TEST_VERBS_ATTACK_H
#define HW_TEST_VERBS_ATTACK_H

#include "verbs_raw.h"

enum {
    MIB = 1 << 20,
    ALLOWED = MIB,
    EVIL = 8 * MIB,
    EVIL_WR = 1024,
    ALLOWED_WR = 64
};                    /* as the test's policy has it */
extern uint8_t *area; /* EVIL bytes */
extern int dev;       /* a context, with a PD */
extern uint32_t pd;

double now(void);
uint64_t pinned(void); /* bytes, as the kernel counts them for this mm */
pid_t reap(pid_t pid, int *status);

/* verbs_attack_mr.c */
int device_writes(const void *p,
                  int writable); /* how many ways there are to have the device write there that are wrong */
int rereg(void);
int quota(void);

/* verbs_attack_procs.c */
void life(void);
void pairs(unsigned n, double seconds); /* at most */
void forks(char **argv);
void threads(unsigned n);
void kills(unsigned n, unsigned seed);
void signals(double seconds);
void stops(double seconds);
void memlock(void);
void pass(const char *path);
int take(const char *path);

#endif
