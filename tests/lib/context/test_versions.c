/* SPDX-License-Identifier: Apache-2.0 */
/* Tests builds that support different ranges of session protocol versions (HW_SESSION_LEAST to HW_SESSION_MOST). Two
 * builds with a common version can transfer data, whichever side connects. Without a common version, connecting fails.
 *
 *     test_versions LATER NEW      LATER supports this build's version and newer versions; NEW only newer versions
 *     test_versions serve          listens, writes its port, receives a message
 *     test_versions dial PORT      connects, sends a message */
#include "tests/lib/context/pairhelp.h"

#include <stdio.h>
#include <sys/wait.h>

#define BYTES 300000

static hawser_mem *make_memory(hawser *h, uint8_t **p)
{
    hawser_mem *mem;
    must(hawser_mem_alloc(h, HAWSER_MEM_HOST, -1, BYTES, &mem));
    *p = hawser_mem_ptr(mem);
    return mem;
}

/* Sends a message with the test pattern, or receives a message and checks the pattern. */
static int move_message(hawser *h, hawser_peer *p, bool out)
{
    uint8_t *bytes;
    struct hawser_vec v = {.mem = make_memory(h, &bytes), .length = BYTES};
    hawser_op *op;
    if (out)
        hw_pattern_fill(bytes, BYTES, 5, 0);
    must(out ? hawser_send(p, &v, 1, NULL, &op) : hawser_recv(p, &v, 1, NULL, &op));
    int rc = hawser_wait(op, 10000);
    hawser_op_free(op);
    return rc < 0 ? rc : out || hw_pattern_check(bytes, BYTES, 5, 0, NULL) == 0 ? 0 : -EIO;
}

static int serve(void)
{
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    uint16_t port;
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    printf("%u\n", port);
    fflush(stdout);
    int rc = hawser_accept(h, 5000, &p);
    rc = rc < 0 ? rc : move_message(h, p, false);
    hawser_close(h);
    return rc < 0;
}

static char refusal[300]; /* error message if dial() could not connect */

static int dial(uint16_t port)
{
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    int rc = hawser_connect(h, "127.0.0.1", port, NULL, 5000, &p);
    (void)snprintf(refusal, sizeof refusal, "%s", rc < 0 ? hawser_error() : "");
    bool refused = rc == -EPROTONOSUPPORT;
    rc = rc < 0 ? rc : move_message(h, p, true);
    hawser_close(h);
    return refused ? 3 : rc < 0;
}

static int start(const char *program, const char *mode, const char *arg, FILE **out)
{
    int fd[2];
    if (pipe(fd) < 0)
        bail("no pipe");
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(fd[1], 1);
        (void)close(fd[0]);
        (void)close(fd[1]);
        (void)execl(program, program, mode, arg, (char *)NULL);
        _exit(9);
    }
    (void)close(fd[1]);
    *out = fdopen(fd[0], "r");
    return pid;
}

static int get_status(int pid)
{
    int status;
    return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Connects this build to a process of the other build. */
static int call(const char *program, int *theirs)
{
    FILE *out;
    unsigned port;
    int pid = start(program, "serve", NULL, &out);
    if (fscanf(out, "%u", &port) != 1)
        bail("%s says no port", program);
    int rc = dial((uint16_t)port);
    if (rc)
        (void)kill(pid, SIGKILL); /* the process is still waiting for a client */
    *theirs = get_status(pid);
    (void)fclose(out);
    return rc;
}

/* Lets a process of the other build connect to this build. */
static int be_called(const char *program, int *theirs)
{
    hawser *h = ph_open(0, NULL);
    hawser_peer *p;
    uint16_t port;
    char text[8];
    FILE *out;
    must(hawser_listen(h, "127.0.0.1", 0, &port));
    (void)snprintf(text, sizeof text, "%u", port);
    int pid = start(program, "dial", text, &out);
    int rc = hawser_accept(h, 3000, &p);
    rc = rc < 0 ? rc : move_message(h, p, false);
    *theirs = get_status(pid);
    (void)fclose(out);
    hawser_close(h);
    return rc;
}

int main(int argc, char **argv)
{
    int theirs;
    if (argc > 1 && strcmp(argv[1], "serve") == 0)
        return serve();
    if (argc > 2 && strcmp(argv[1], "dial") == 0)
        return dial((uint16_t)atoi(argv[2]));
    if (argc < 3)
        bail("usage: test_versions LATER NEW");
    watchdog(60);
    step("a later build listens");
    is_int(call(argv[1], &theirs), 0, "this build sends to one that speaks this version and later ones");
    is_int(theirs, 0, "which receives");
    step("a later build connects");
    is_rc(be_called(argv[1], &theirs), 0, "and receives from one");
    is_int(theirs, 0, "which sends");
    step("a new build listens");
    is_int(call(argv[2], &theirs), 3, "one that speaks later versions only is told apart");
    ok(strstr(refusal, "the peer supports session protocol versions 2 to 3, but this side supports 1 to 1"),
       "with the reason: %s", refusal);
    step("a new build connects");
    ok(be_called(argv[2], &theirs) < 0, "and does not get in");
    is_int(theirs, 3, "for the same reason");
    return tap_done();
}
