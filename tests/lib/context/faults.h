/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that the fault tests and test_prefer share: a server process that checks the data that it receives, and a client
 * that transfers data. Both sides use the test pattern, and the client sends commands to the server as notifications.
 * The server reports to the test through shared memory.
 *
 * To detect late and stray bytes, a buffer is filled with poison after it has been checked, and the poison is checked
 * before the buffer's next use. The guards around each buffer are also checked.
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

/* The phases of a client. */
enum f_phase { F_BORN, F_CONNECT, F_SETUP, F_IDLE, F_IN_WRITE, F_IN_READ, F_IN_SEND, F_CLOSING, F_PHASES };

/* The state of one server process. */
struct f_server {
    atomic_int port;         /* the port after listening, or -errno */
    atomic_int stop;         /* set by the test */
    atomic_uint sessions;    /* existing sessions */
    atomic_uint accepted;    /* all sessions that were ever accepted */
    atomic_uint died;        /* sessions that ended without a BYE */
    atomic_uint untyped;     /* sessions that ended with an error for which f_typed() is false */
    atomic_int last_rc;      /* result of the last session that ended */
    atomic_ullong last_end;  /* time when the last session ended, from hw_now() */
    atomic_ullong bad;       /* wrong bytes seen by the server */
    atomic_ullong rx_bytes;  /* payload that the channels of ended sessions received */
    atomic_uint lost;        /* how often channels of existing sessions were lost */
    atomic_uint probe, seen; /* when probe changes, the server updates fds, heap and rss, then sets seen to probe */
    atomic_uint fds;
    atomic_ullong heap, rss; /* bytes */
    atomic_uint log_len;
    char log[F_LOG_SIZE];
};

/* The job key for servers that are started later, or NULL. */
extern const char *f_job_key;

/* Runs a server until sv->stop is set, with a region of `size` bytes for each peer and a NULL-terminated list of knobs
 * for hawser_open(). Returns the exit status for the process. */
int f_serve(struct f_server *sv, const char *addr, size_t size, const char *const *knobs);
/* Makes the server update fds, heap and rss. Returns false if the server does not respond within 5 s. */
bool f_probe(struct f_server *sv);
/* Return this process's heap bytes in use, number of open file descriptors, and resident bytes, respectively. */
size_t f_heap(void);
unsigned f_fds(void);
size_t f_rss(void);
bool f_sanitized(void); /* true with ASan or TSan */

struct f_client {
    hawser *h;
    hawser_peer *p;
    size_t size;
    uint8_t *raw, *buf; /* the buffer with and without its guards */
    hawser_mem *mem;
    struct hawser_region region;
    atomic_int *phase; /* may be NULL */
    atomic_ullong *moved;
    int timeout_ms; /* timeout of each operation; 0 means 30 s */
    bool poisoned;
};

/* Connects to a server and imports its region. Returns 0 or -errno. The caller must call f_close() in either case. */
int f_connect(struct f_client *c, hawser *h, const char *addr, uint16_t port, size_t size,
              const struct hawser_connect_options *o, int timeout_ms);
/* Runs one operation of len bytes, and checks the data at its destination. Stores the operation's duration in *ns, and
 * adds the number of wrong bytes to *bad; both pointers can be NULL. Returns 0, -EBADMSG if bytes are wrong, or another
 * -errno. */
int f_transfer(struct f_client *c, enum f_op op, uint64_t seed, size_t len, uint64_t *ns, uint64_t *bad);
void f_close(struct f_client *c);

/* Returns true if rc is one of the errors that hawser.h specifies for a lost peer. */
bool f_typed(int rc);
const char *f_op_name(enum f_op op);

/* Allocates memory that is shared with child processes. If fd is not NULL, stores a file descriptor in *fd that
 * executed programs inherit and can map. */
void *f_shared(size_t size, int *fd);
/* Forks a child that is killed when its parent dies, and after limit_s seconds at the latest. */
pid_t f_fork(unsigned limit_s);
/* Waits for a child. Returns its exit status, or 1000 plus the number of the signal that killed the child. If the child
 * does not exit within timeout_ms, kills it and returns -1. */
int f_reap(pid_t pid, int timeout_ms);
bool f_until(bool (*done)(void *), void *arg, int timeout_ms);
void f_sleep_ms(unsigned ms);
/* Waits up to timeout_ms until *v >= want. Returns false if *v is still smaller. */
bool f_reaches(atomic_int *v, int want, int timeout_ms);

#endif
