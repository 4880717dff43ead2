/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A played operating system for vb_serve(): processes, threads, descriptors, seccomp notifications, and the kernel's
 * RDMA. The broker's calls come here by the linker's --wrap. Whatever the tenant does, it does inside one of these
 * calls, so that each race between two calls of the broker is a matter of the input's bytes.
 *
 * Memory: a process has four pages at an address of its own. Which process an address was made for is told by its upper
 * bits; which byte it means, by the lower ones alone, in any process. So a request of one process that is run with
 * another's memory finds something there, as it would where two programs are laid out alike, and is seen to do so.
 */
#ifndef HW_FUZZ_TENANT_H
#define HW_FUZZ_TENANT_H

#include "fuzz/fuzz.h"
#include "verbs/broker/broker.h"
#include "verbs/stub/inject.h"

#include <linux/seccomp.h>
#include <sys/stat.h>

#define T_FD_FIRST  (1 << 20) /* the broker's descriptors here; lower ones are true ones */
#define T_FDS       512
#define T_TABLE     1024 /* of a program's descriptors */
#define T_THREADS   20   /* at once, and so many thread IDs: 2 and up */
#define T_DEVICES   3    /* the policy allows all but the last one */
#define T_OBJECTS   48   /* of a context */
#define T_PAGE      4096ul
#define T_MEMORY    (4 * T_PAGE)
#define T_READ_ONLY 2 /* of the pages: it cannot be written; */
#define T_DELAYED   3 /* it takes long to arrive */
#define T_WINDOW_AT 0x8000u
#define T_NODES_DEV 77 /* the file system of the broker's device nodes */

enum t_kind {
    T_NOTHING,
    T_LISTENER,
    T_EPOLL,
    T_INOTIFY,
    T_EVENT,
    T_DEVICE,
    T_PIDFD,
    T_FOLDER, /* of a thread below /proc */
    T_CHANNEL,
    T_DMABUF,
    T_PLAIN,
    T_WINDOW,
    T_JOIN,
    T_REPLY, /* and who asks for the status */
    T_STATUS
};

struct t_object {
    uint8_t type; /* enum vb_type; 0: there is none */
    bool read_only, writes;
    uint64_t length, iova, bytes;
};

struct t_file {
    enum t_kind kind;
    unsigned refs;
    bool stranger; /* of a process outside the container */
    bool killable; /* of a listener: once a notification is received only SIGKILL takes the call back */
    bool foreign;  /* of a listener: its programs cannot be seen from the broker's PID namespace */
    unsigned ups;  /* of a listener: its semaphore */
    unsigned device;
    ino_t ino;
    int watch;
    bool given;      /* to a program */
    uint32_t serial; /* of a pidfd: the thread's, or its process's */
    bool process;
    bool readable;       /* of an eventfd */
    struct t_file *next; /* node */
    unsigned objects;    /* above these there was never one */
    struct t_object object[T_OBJECTS];
};

struct t_table {
    unsigned refs;
    struct t_entry {
        struct t_file *file;
        bool cloexec;
    } fd[T_TABLE];
};

/* What stub and broker share; the broker's vb_stub.mine. */
struct t_window {
    unsigned refs;
    uint8_t *room, *mine;
};

struct t_mm {
    unsigned refs;
    uint32_t tag;
    uint8_t byte[T_MEMORY];
    struct t_window *window;
};

struct t_process {
    unsigned threads; /* that live */
    uint32_t serial;
    pid_t tgid;
    bool stranger, stopped;
    struct t_mm *mm;
    struct t_file *listener;
    /* A filter of its own, which answers its stub's calls number from to to - 1 with err, and fails its copies. */
    struct {
        unsigned from, to, err;
        bool copies;
    } filter;
    struct t_process *next;
};

enum t_call_state { T_IDLE, T_QUEUED, T_SENT };

struct t_thread {
    bool used, zombie;
    uint32_t serial;
    pid_t tid;
    struct t_process *process;
    struct t_table *table;
    enum t_call_state call;
    uint64_t id;
    struct seccomp_data data;
    int64_t result; /* of its last call */
    bool again;     /* its call was taken back by a stop, and is made again when it goes on */
    const struct vb_command *asked;
    unsigned nofile;
    /* Of a stub: its registers, and what it is at. */
    bool stub, spins;
    uint64_t seq, r9;
    unsigned nosys;
    enum { T_STUB_WAITS, T_STUB_CALLS, T_STUB_RUNS, T_STUB_COPIES } at;
    unsigned copy, copies;
};

struct t_os {
    bool playing, over, honest, wide; /* wide: the policy that allows more */
    const uint8_t *input;
    size_t size, pos;
    unsigned tail; /* so many bytes come behind the input, of a generator that it sets off */
    uint64_t random;
    FILE *written;
    uint64_t now, notification;
    uint32_t serial, tags;
    int watch;
    struct t_entry broker[T_FDS];
    struct {
        struct t_file *file;
        int fd;
    } watched[T_FDS]; /* by epoll */
    unsigned n_watched;
    struct t_thread thread[T_THREADS];
    struct t_process *processes;
    struct t_file *nodes; /* that have not ended */
    unsigned freed;       /* the thread that ended last */
    int ended[64];        /* inotify's events */
    unsigned n_ended;
    bool inode[256];
    struct t_file *other;                  /* another container's device, which strangers have */
    struct t_file *listener, *stop, *join; /* what vb_serve() is given */
    struct {
        struct t_file *listener;
        unsigned words;
    } joining;
    unsigned hold;   /* steps before epoll_wait() returns */
    unsigned rounds; /* of events since the last step */
    /* The tenant's next steps inside a call of the broker's: after so many calls, so many. */
    unsigned race_at, race_steps;
    unsigned hold_stubs; /* steps until stubs go on */
    unsigned forge_at;   /* where the next result of a stub's is replaced, and one more; 0: nowhere */
    uint32_t forge;
    bool asks_status, racing, lose, no_thread_pidfds, tracer_dead, tracer_slow;
    int fail_rdma, fail_inject, fail_call;
    uint64_t calls, calls_at;       /* of the broker's; as many there were at its last epoll_wait() */
    uint32_t call_serial;           /* the thread whose notification was received last */
    bool read_other;                /* since then memory of another thread's was read for it; */
    bool raced;                     /* the tenant has done something */
    const struct t_file *call_file; /* what is at the number that it names */
    bool finished;
    int end;
    uint64_t ends_at;
};
extern struct t_os t;

/* For the last lines of a run. */
struct t_totals {
    uint64_t steps, inputs, calls, requests, by_stub, made, answered, refused, copies, opens, stubs, races, told;
};
extern struct t_totals t_totals;

/* A rule that does not hold. */
#define T_HOLDS(cond, ...)                                                                            \
    do {                                                                                              \
        if (!(cond)) {                                                                                \
            fprintf(stderr, "%s:%d: after %llu steps the broker breaks a rule: ", __FILE__, __LINE__, \
                    (unsigned long long)t_totals.steps);                                              \
            fprintf(stderr, __VA_ARGS__);                                                             \
            fprintf(stderr, "\n");                                                                    \
            abort();                                                                                  \
        }                                                                                             \
    } while (0)

/* libFuzzer looks at no branch of these: there are many, and which thread or descriptor it is tells nothing. */
#ifdef __clang__
#define T_UNSEEN __attribute__((no_sanitize("coverage")))
#else
#define T_UNSEEN
#endif

/* With HAWSER_TEST_VERBOSE in the environment: what happens. */
extern bool t_verbose;
#define T_SAY(...)                        \
    do {                                  \
        if (t_verbose) {                  \
            fprintf(stderr, "# ");        \
            fprintf(stderr, __VA_ARGS__); \
            fprintf(stderr, "\n");        \
        }                                 \
    } while (0)

/* os.c: processes, threads, files, memory */
uint8_t t_byte(void);
struct t_file *t_file_new(enum t_kind kind);
void t_file_put(struct t_file *f);
int t_broker_fd(struct t_file *f);       /* takes a reference over; -1: errno */
struct t_file *t_broker_file(int fd);    /* NULL: errno */
struct t_thread *t_thread_by(pid_t tid); /* NULL: there is none, or it is dead */
struct t_thread *t_thread_serial(uint32_t serial);
struct t_thread *t_thread_new(struct t_process *p, struct t_table *shared); /* NULL: no thread ID is free */
struct t_process *t_process_new(struct t_mm *shared, struct t_file *listener, bool stranger);
void t_thread_end(struct t_thread *th);
void t_process_end(struct t_process *p);
void t_process_drop(struct t_process *p); /* which has no thread */
struct t_table *t_table_copy(const struct t_table *from, bool exec);
void t_table_put(struct t_table *table);
void t_table_set(struct t_table *table, unsigned at, struct t_file *f, bool cloexec); /* takes a reference over */
struct t_file *t_table_get(const struct t_table *table, int64_t fd);                  /* NULL: nothing is there */
unsigned t_listener_users(const struct t_file *listener);
struct t_mm *t_mm_new(void);
void t_mm_put(struct t_mm *mm);
void t_window_put(struct t_window *w);
uint64_t t_address(const struct t_mm *mm, uint32_t offset);
/* n bytes at that address of mm, or NULL. *made_for: the mm's tag whose address it is. */
uint8_t *t_bytes(struct t_mm *mm, uint64_t address, uint64_t n, uint32_t *made_for);
bool t_is_tag(uint32_t tag); /* of any process that there was */
void t_os_start(const uint8_t *input, size_t size);
void t_os_end(void);

/* calls.c */
void t_tick(void); /* the broker has made a call: the tenant may do something first */

/* seccomp.c */
void t_call_make(struct t_thread *th, const struct seccomp_data *d);
void t_call_end(struct t_thread *th, int64_t result);
void t_call_take_back(struct t_thread *th); /* a signal */
int t_listener_ioctl(struct t_file *f, unsigned long request, void *arg);
struct t_thread *t_call_waiting(const struct t_file *listener);

/* stub.c */
void t_stub_call(struct t_thread *th);
void t_stub_answer(struct t_thread *th, int64_t rax);
void t_stubs_run(void);

/* rdma.c, quota.c */
/* th: the stub that makes the call; NULL: the broker. */
int t_rdma_run(struct t_file *device, void *h, struct t_thread *th);
extern const struct vb_kernel t_kernel;
uint32_t t_driver(unsigned device);
void t_rdma_check(void);              /* quotas */
void t_rdma_status(const char *text); /* that what it tells is not less than there is */
const char *t_policy(bool wide);

/* steps.c */
void t_step(void); /* of the tenant's */
void t_finish(void);
void t_begin(void);

#endif
