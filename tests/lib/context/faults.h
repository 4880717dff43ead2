/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fault tests share: a server process that checks what arrives, and a client that moves checked data to it.
 * Both sides know the pattern; commands travel as notifications. Processes tell each other things through one struct
 * in shared memory.
 *
 * Late or stray bytes are seen too: whoever has checked a buffer poisons it, and looks whether the poison is still
 * whole before the buffer's next use. Every byte of guard before and behind the buffer is looked at with it.
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

/* Where a client is in its life. */
enum f_phase { F_BORN, F_CONNECT, F_SETUP, F_IDLE, F_IN_WRITE, F_IN_READ, F_IN_SEND, F_CLOSING, F_PHASES };

/* Of one server process. */
struct f_server {
    atomic_int port;         /* > 0: listening; < 0: -errno */
    atomic_int stop;         /* set by the test */
    atomic_uint sessions;    /* alive now */
    atomic_uint accepted;    /* ever */
    atomic_uint died;        /* ended without a BYE */
    atomic_uint untyped;     /* ended with an error that hawser.h does not name for it */
    atomic_int last_rc;      /* of the last that ended */
    atomic_ullong last_end;  /* hw_now() */
    atomic_ullong bad;       /* wrong bytes seen by the server */
    atomic_ullong rx_bytes;  /* payload that channels took in, of sessions that ended */
    atomic_uint lost;        /* channels lost, of sessions that are alive */
    atomic_uint probe, seen; /* the server fills what follows whenever probe moved, then sets seen to it */
    atomic_uint fds;
    atomic_ullong heap, rss; /* bytes */
    atomic_uint log_len;
    char log[F_LOG_SIZE];
};

/* The job key of servers begun from now on; NULL: none. */
extern const char *f_job_key;

/* Knobs for hawser_open(), NULL-terminated. Runs until sv->stop; the exit status for the process. size: of the region
 * that each peer gets. */
int f_serve(struct f_server *sv, const char *addr, size_t size, const char *const *knobs);
/* The server measures itself now. False where it does not answer within 5 s. */
bool f_probe(struct f_server *sv);
/* Live heap of this process, and its open descriptors. */
size_t f_heap(void);
unsigned f_fds(void);
size_t f_rss(void);
bool f_sanitized(void); /* by ASan or TSan */

struct f_client {
    hawser *h;
    hawser_peer *p;
    size_t size;
    uint8_t *raw, *buf; /* with guards; without */
    hawser_mem *mem;
    struct hawser_region region;
    atomic_int *phase; /* may be NULL */
    atomic_ullong *moved;
    int timeout_ms; /* of each operation; 0: 30 s */
    bool poisoned;
};

/* Connects, gets the region. -errno with hawser_error(). Whatever it returns, end it by f_close(). */
int f_connect(struct f_client *c, hawser *h, const char *addr, uint16_t port, size_t size,
              const struct hawser_connect_options *o, int timeout_ms);
/* One operation of len bytes, checked where they arrived. 0, the operation's error, or -EBADMSG for wrong bytes (their
 * number in *bad). ns (may be NULL): how long the operation itself took. */
int f_transfer(struct f_client *c, enum f_op op, uint64_t seed, size_t len, uint64_t *ns, uint64_t *bad);
void f_close(struct f_client *c);

/* A typed error is one that hawser.h names for a peer that went away. */
bool f_typed(int rc);
const char *f_op_name(enum f_op op);

/* Memory shared with the processes forked or started later; *fd (may be NULL) is inherited by those that exec. */
void *f_shared(size_t size, int *fd);
/* fork() for the tests: the child dies with its parent, and after limit_s in any case. */
pid_t f_fork(unsigned limit_s);
/* The status of a child that ended; it is killed after timeout_ms (-1 then). */
int f_reap(pid_t pid, int timeout_ms);
bool f_until(bool (*done)(void *), void *arg, int timeout_ms);
void f_sleep_ms(unsigned ms);
/* Waits until *v >= want; false after timeout_ms. */
bool f_reaches(atomic_int *v, int want, int timeout_ms);

#endif
