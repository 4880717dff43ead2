/* SPDX-License-Identifier: Apache-2.0 */
/* Declarations shared by the parts of verbs_attack. */
#ifndef HW_TEST_VERBS_ATTACK_H
#define HW_TEST_VERBS_ATTACK_H

#include "verbs_raw.h"

/* The limits in the test's policy. */
enum { MIB = 1 << 20, ALLOWED = MIB, EVIL = 8 * MIB, EVIL_WR = 1024, ALLOWED_WR = 64 };
extern uint8_t *area; /* EVIL bytes */
extern int dev;       /* a context with a PD */
extern uint32_t pd;

double now(void);
uint64_t pinned(void); /* returns the number of bytes that the kernel has pinned for this mm */
pid_t reap(pid_t pid, int *status);

/* verbs_attack_mr.c */
int device_writes(const void *p,
                  int writable); /* returns how many kinds of device access are wrongly allowed or refused */
int rereg(void);
int quota(void);

/* verbs_attack_procs.c */
void life(void);
void pairs(unsigned n, double seconds); /* up to n pairs, for up to `seconds` */
void forks(char **argv);
void threads(unsigned n);
void kills(unsigned n, unsigned seed);
void signals(double seconds);
void stops(double seconds);
void memlock(void);
void pass(const char *path);
int take(const char *path);

#endif
