/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libnccl-net-rude.so: a net plugin for tests, with table v9, that misbehaves in the ways selected by the environment:
 * RUDE=way,way=number... Without RUDE, the plugin works, with host memory over TCP on loopback. rude_help() prints the
 * ways, which are listed below. An unknown way aborts the process when the plugin is loaded, because it is an error in
 * the test.
 */
#ifndef RUDE_H
#define RUDE_H

#include "transport/netplugin/table/abi.h"

#include <stdbool.h>

/* X(NAME, name in RUDE, default number, behaviour, expected reaction of a host) */
#define RUDE_WAYS(X)                                                                                                  \
    X(LOAD_CRASH, "load-crash", 0, "SIGSEGV while it is loaded", "an error that names the plugin and the signal")     \
    X(LOAD_HANG, "load-hang", 0, "never returns from dlopen", "an error once the deadline is over")                   \
    X(LOAD_EXIT, "load-exit", 1, "exits with that status while it is loaded", "an error with the status")             \
    X(TABLE_NULL, "table-null", 0, "the table has no isend", "an error that names the entry, and no call")            \
    X(TABLE_NAME, "table-name", 0, "the table has no name", "an error, or any name: never strlen(NULL)")              \
    X(INIT_FAIL, "init-fail", 2, "init returns that code", "an error with the code; no further calls")                \
    X(INIT_CRASH, "init-crash", 0, "SIGSEGV in init", "an error that names the call and the signal")                  \
    X(INIT_HANG, "init-hang", 0, "init never returns", "an error once the deadline is over")                          \
    X(INIT_EXIT, "init-exit", 1, "exit() with that status in init", "an error with the status and the last log line") \
    X(INIT_SLOW, "init-slow", 300, "init takes that many ms", "nothing: it is in time")                               \
    X(DEVICES, "devices", 0, "that many devices (0, -1, 1000), of which only 0 works",                                \
      "an error; no more than it can")                                                                                \
    X(DEVICES_FAIL, "devices-fail", 2, "devices returns that code", "an error with the code")                         \
    X(DEVICES_NONE, "devices-unwritten", 0, "devices succeeds and writes nothing",                                    \
      "0 devices: set it before the call")                                                                            \
    X(PROPS_FAIL, "props-fail", 2, "getProperties returns that code", "an error with the code")                       \
    X(PROPS_NONE, "props-unwritten", 0, "getProperties succeeds and writes nothing", "an error: zero them first")     \
    X(PROPS_NAME, "props-no-name", 0, "the name is NULL", "an error, or a name of its own")                           \
    X(PROPS_LONG, "props-long-name", 65536, "a name of that many bytes, control ones too", "cut, and made printable") \
    X(PROPS_GARBAGE, "props-garbage", 0, "every number is absurd, some negative or NaN",                              \
      "an error, or its own bounds")                                                                                  \
    X(PROPS_WILD, "props-wild", 0, "the name points nowhere", "the crash is the plugin's process's")                  \
    X(LISTEN_FAIL, "listen-fail", 2, "listen returns that code", "an error with the code")                            \
    X(LISTEN_NULL, "listen-null", 0, "listen succeeds with NULL", "an error")                                         \
    X(LISTEN_OVERRUN, "listen-overrun", 64, "writes that far past the 128 bytes", "the host's memory is untouched")   \
    X(CONNECT_NEVER, "connect-never", 0, "NULL for ever", "an error once the deadline is over")                       \
    X(CONNECT_FAIL, "connect-fail", 2, "returns that code, of the ABI or not", "an error with the code")              \
    X(CONNECT_CODES, "connect-codes", 0, "returns 1 to 7 in turn, then works", "an error at the first")               \
    X(CONNECT_SLOW, "connect-slow", 300, "each call takes that many ms", "other connections go on; or the deadline")  \
    X(ACCEPT_NEVER, "accept-never", 0, "NULL for ever", "an error once the deadline is over")                         \
    X(ACCEPT_FAIL, "accept-fail", 3, "returns that code", "an error with the code")                                   \
    X(REGMR_EVERY, "regmr-every", 2, "every so manieth regMr fails", "an error, and no leak of the others")           \
    X(REGMR_NULL, "regmr-null", 0, "succeeds with a NULL mhandle", "nothing: NULL is passed on as it is")             \
    X(ISEND_NULL, "isend-null", 5, "so many NULL requests before each real one", "nothing: it calls again")           \
    X(IRECV_NULL, "irecv-null", 5, "likewise", "nothing: it calls again")                                             \
    X(ISEND_NEVER, "isend-never", 0, "success with NULL for ever", "an error once the deadline is over")              \
    X(IRECV_NEVER, "irecv-never", 0, "success with NULL for ever", "an error once the deadline is over")              \
    X(ISEND_FAIL, "isend-fail", 3, "the so manieth isend fails", "an error; the connection is over")                  \
    X(IRECV_FAIL, "irecv-fail", 3, "the so manieth irecv fails", "an error; the connection is over")                  \
    X(TEST_LARGER, "test-larger", 1, "a size that much larger than posted", "an error: it never believes more")       \
    X(TEST_NEGATIVE, "test-negative", 0, "a size of -1", "an error")                                                  \
    X(TEST_SIZE, "test-no-size", 0, "the size is never written", "the size it has set before, or its own")            \
    X(TEST_GARBAGE, "test-garbage", 0, "done is 0x5a5a5a5a where it should be 1", "done, or an error")                \
    X(TEST_UNWRITTEN, "test-unwritten", 0, "done is not written before it is", "not done: set it before the call")    \
    X(TEST_EARLY, "test-early", 0, "done before the data is there", "data that is checked is found wrong")            \
    X(TEST_NEVER, "test-never", 0, "never done", "an error once the deadline is over")                                \
    X(TEST_CRASH, "test-crash", 3, "SIGSEGV in the so manieth test", "an error that names the call and the signal")   \
    X(TEST_EXIT, "test-exit", 3, "exit(1) in the so manieth test", "an error with the last log line")                 \
    X(TEST_HANG, "test-hang", 3, "never returns from the so manieth test", "an error once the deadline is over")      \
    X(TEST_SLOW, "test-slow", 50, "each test takes that many ms", "it is slow, and that is all")                      \
    X(ERRORS, "errors", 10, "one isend, irecv or test in so many fails, any code", "an error with the code")          \
    X(RECV_OVERRUN, "recv-overrun", 64, "writes that many bytes past the posted size",                                \
      "the host's memory is untouched")                                                                               \
    X(RECV_CORRUPT, "recv-corrupt", 0, "one bit of each message is wrong", "data that is checked is found wrong")     \
    X(CLOSE_FAIL, "close-fail", 3, "close* return that code", "a line in the log: there is nothing left to close")    \
    X(CLOSE_CRASH, "close-crash", 0, "SIGSEGV in close*", "what was transferred stays valid")                         \
    X(CLOSE_HANG, "close-hang", 0, "a deadlock in close*", "it goes on once a deadline is over")                      \
    X(FLOOD, "flood", 4, "so many MiB to stdout and stderr", "they are read or thrown away: nothing blocks")          \
    X(LOG_FLOOD, "log-flood", 20000, "so many lines to the logger, from a thread of its own", "bounded memory")       \
    X(LOG_WILD, "log-wild", 0, "log lines with control characters, 64 KiB long, a NULL file", "cut and printable")    \
    X(SPIN, "spin", 2, "so many threads that spin", "they end with the plugin's process")                             \
    X(CLOSE_FDS, "close-fds", 0, "closes all descriptors but 0 to 2", "an error; the host's own are untouched")       \
    X(SIGNALS, "signals", 0, "ignores or handles all signals, blocks them", "it can be ended still; the host's stay") \
    X(ENVIRON, "environ", 0, "empties the environment, sets LD_PRELOAD, PATH", "the host's is untouched")             \
    X(CHDIR, "chdir", 0, "changes directory and umask, lowers RLIMIT_NOFILE", "the host's are untouched")             \
    X(FORK, "fork", 20, "leaves a child that holds all descriptors, for so many s", "no waiting for end of file")     \
    X(LATE_EXIT, "late-exit", 200, "a thread of its own calls exit(1) after so many ms",                              \
      "an error in whatever it does")                                                                                 \
    X(LATE_CRASH, "late-crash", 200, "likewise, SIGSEGV", "an error in whatever it does")

enum rude_way {
#define X(name, word, number, what, must) RUDE_##name,
    RUDE_WAYS(X)
#undef X
        RUDE_N
};

/* Return whether the way is selected, and the way's number. */
bool rude(enum rude_way way);
long rude_number(enum rude_way way);
/* End the process with SIGSEGV, or hang the calling thread. */
__attribute__((noreturn)) void rude_crash(void);
void rude_hang(void);

/* ---- rude_net.c: correct versions of the same calls ---- */
ncclResult_t net_listen(int dev, void *handle, void **comm);
ncclResult_t net_connect(int dev, void *handle, void **comm, ncclNetDeviceHandle_v9_t **device);
ncclResult_t net_accept(void *listener, void **comm, ncclNetDeviceHandle_v9_t **device);
ncclResult_t net_isend(void *comm, void *data, size_t size, int tag, void *mhandle, void **request);
ncclResult_t net_irecv(void *comm, int n, void **data, size_t *sizes, int *tags, void **mhandles, void **request);
ncclResult_t net_test(void *request, int *done, int *size);
ncclResult_t net_close(void *comm);
ncclResult_t net_close_listen(void *listener);
/* Forgets a request that the host believes to be complete. */
void net_forget(void *request);
/* Return whether a request is a receive, and the posted buffer and size. */
bool net_is_receive(const void *request);
void net_posted(const void *request, unsigned char **data, size_t *size);

#endif
