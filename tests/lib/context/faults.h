/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that the fault tests and test_prefer share: a server process that checks arriving data, and a client that
 * transfers checked data. Both sides use the pattern, and commands are notifications. The server reports to the test in
 * shared memory.
 *
 * Late and stray bytes are detected too: after a buffer was checked, it is filled with poison, which is checked before
 * the buffer's next use. The guards around each buffer are checked too.
 */
#ifndef FAULTS_H
#define FAULTS_H

#include "base/base.h"
#include "hawser.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

#define F_CHANS_MAX 64
#define F_LOG_SIZE  (256 * 1024)

enum f_op { F_WRITE, F_READ, F_SEND };

/* The phase of a client. */
enum f_phase { F_BORN, F_CONNECT, F_SETUP, F_IDLE, F_IN_WRITE, F_IN_READ, F_IN_SEND, F_CLOSING, F_PHASES };

/* State of one server process. */
struct f_server {
    atomic_int port;         /* > 0: listening; < 0: -errno */
    atomic_int stop;         /* set by the test */
    atomic_uint sessions;    /* existing sessions */
    atomic_uint accepted;    /* sessions ever accepted */
    atomic_uint died;        /* sessions that ended without a BYE */
    atomic_uint untyped;     /* sessions that ended with an error for which f_typed() is false */
    atomic_int last_rc;      /* result of the last session that ended */
    atomic_ullong last_end;  /* hw_now() */
    atomic_ullong bad;       /* wrong bytes seen by the server */
    atomic_ullong rx_bytes;  /* payload received by channels, of ended sessions */
    atomic_uint lost;        /* how often channels of existing sessions were lost */
    atomic_uint probe, seen; /* when probe changes, the server sets fds, heap and rss, and then seen to it */
    atomic_uint fds;
    atomic_ullong heap, rss; /* bytes */
    atomic_uint log_len;
    char log[F_LOG_SIZE];
};

/* The job key of servers started from now on, or NULL. */
extern const char *f_job_key;

/* Runs a server until sv->stop is set. Returns the exit status for the process. size: bytes of the region for each
 * peer. knobs: a NULL-terminated list for hawser_open(). */
int f_serve(struct f_server *sv, const char *addr, size_t size, const char *const *knobs);
/* Makes the server measure itself. Returns false if it does not answer within 5 s. */
bool f_probe(struct f_server *sv);
/* Return the bytes of this process's heap in use, the number of its open file descriptors, and its resident bytes. */
size_t f_heap(void);
unsigned f_fds(void);
size_t f_rss(void);
bool f_sanitized(void); /* true with ASan or TSan */

struct f_client {
    hawser *h;
    hawser_peer *p;
    size_t size;
    uint8_t *raw, *buf; /* buffer with guards; buffer without guards */
    hawser_mem *mem;
    struct hawser_region region;
    atomic_int *phase; /* may be NULL */
    atomic_ullong *moved;
    int timeout_ms; /* timeout of each operation; 0 means 30 s */
    bool poisoned;
};

/* Connects and gets the region. Returns 0 or -errno. End the client with f_close() in any case. */
int f_connect(struct f_client *c, hawser *h, const char *addr, uint16_t port, size_t size,
              const struct hawser_connect_options *o, int timeout_ms);
/* Makes one operation of len bytes, which is checked at the destination. Returns 0, -errno, or -EBADMSG for wrong
 * bytes, whose number is added to *bad. *ns is the duration of the operation. ns and bad may be NULL. */
int f_transfer(struct f_client *c, enum f_op op, uint64_t seed, size_t len, uint64_t *ns, uint64_t *bad);
void f_close(struct f_client *c);

/* Returns whether rc is one of the errors that hawser.h specifies for a lost peer. */
bool f_typed(int rc);
const char *f_op_name(enum f_op op);

/* Allocates memory that is shared with processes forked later. Unless fd is NULL, executed programs inherit *fd, and
 * can map the memory. */
void *f_shared(size_t size, int *fd);
/* Forks. The child dies with its parent, and after limit_s in any case. */
pid_t f_fork(unsigned limit_s);
/* Waits for a child. Returns its exit status, or 1000 plus the signal that ended it. Kills the child after timeout_ms,
 * and then returns -1. */
int f_reap(pid_t pid, int timeout_ms);
bool f_until(bool (*done)(void *), void *arg, int timeout_ms);
void f_sleep_ms(unsigned ms);
/* Waits until *v >= want. Returns false after timeout_ms. */
bool f_reaches(atomic_int *v, int want, int timeout_ms);

#endif
