/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the agent with simulated runtimes (correct, slow, silent and faulty), and with brokers and agents that die. */
#include "tests/proc.h"
#include "verbs_agent.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define FORBIDDEN "for a system call that the broker's seccomp filter forbids"

/* Like a runtime, sends a message with file descriptors. Returns the result of the program's request. */
static int outcome(const char *text, size_t len, unsigned fds, bool wrong_fd)
{
    struct prog p = prog_start(NULL);
    int list[16], fd = dial();
    for (unsigned i = 0; i < fds; i++)
        list[i] = i + 1 == fds && !wrong_fd ? p.listener : 1;
    for (size_t sent = 0, n; sent < len; sent += n) {
        n = HW_MIN(len - sent, (size_t)65536);
        if (!send_all(fd, text + sent, n, list, sent ? 0 : fds))
            break;
    }
    hw_close(&p.listener);
    close(fd);
    int rc = prog_ask(&p, PID);
    prog_end(&p);
    return rc;
}

static void good(const struct agent *a)
{
    struct prog p = prog_start(NULL);
    struct stat st;
    tell(&p, "web",
         ",\"annotations\":{\"hawser.verbs.policy\":\"gpu\",\"hawser.verbs.max_qps\":\"4\",\"other\":\"x\"}");
    int pid = prog_ask(&p, PID);
    ok(pid > 1 && pid != a->pid && kill(pid, 0) == 0, "a container gets a broker, a process of its own");
    is_int(prog_ask(&p, SECTION), 3, "of the section that its annotation names");
    is_int(prog_ask(&p, ANNOTATIONS), 1, "with its annotations for hawser, and no others");
    is_int(prog_ask(&p, NODE), 0, "which can make device nodes");
    char path[128];
    snprintf(path, sizeof(path), "%s/nodes", state_dir);
    is_int(proc_entries(path), 0, "that nobody else sees");
    is_int(prog_ask(&p, CAPS), 0, "with the capabilities that it needs, and no others");
    /* Descriptors 0 to 2, the listener, the stop eventfd, the join socket, a directory in /proc, and the test's status
     * socket. */
    is_int(prog_ask(&p, FDS), 8, "with no descriptor that is another's");
    ok(stat(sock_path, &st) == 0 && (st.st_mode & 07777) == 0600 && st.st_uid == 0, "the socket is root's alone");
    prog_end(&p);

    p = prog_start(NULL);
    tell(&p, "raw", ",\"annotations\":{\"hawser.verbs.policy\":\"raw\"}");
    is_int(prog_ask(&p, CAPS), 1, "CAP_NET_RAW is for who may have raw packet QPs");
    prog_end(&p);
}

static void pieces(void)
{
    char text[1024];
    struct prog p = prog_start(NULL);
    int fd = dial(), n = snprintf(text, sizeof(text), usual, (int)p.pid, "slow", (int)p.pid, "");
    for (int i = 0; i < n; i++)
        send_all(fd, text + i, 1, &p.listener, i == 7);
    hw_close(&p.listener);
    ok(prog_ask(&p, PID) > 1, "a state that comes byte by byte, and no end of file behind it");
    prog_end(&p);
    close(fd);

    p = prog_start(NULL);
    static const char two[] = "{\"fds\":[\"other\",\"seccompFd\"],\"state\":{\"id\":\"two\"}}\n";
    int list[] = {1, p.listener};
    fd = dial();
    send_all(fd, two, sizeof(two) - 1, list, 2);
    hw_close(&p.listener);
    ok(prog_ask(&p, PID) > 1, "two descriptors, of which it is the second");
    prog_end(&p);
    close(fd);
}

static void wrong(void)
{
    static const struct {
        const char *text;
        unsigned fds;
        bool wrong_fd;
        const char *what;
    } cases[] = {
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}}", 0, false, "no descriptor"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}}", 2, false, "one more than it names"},
        {"{\"fds\":[\"another\"],\"state\":{\"id\":\"a\"}}", 1, false, "none called seccompFd"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}}", 1, true, "one that is no listener"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"../a\"}}", 1, false, "a name that is a path"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"annotations\":{\"hawser.verbs.policy\":\"nosuch\"}}}", 1,
         false, "a section that the policy has not"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"", 1, false, "half a state"},
        {"GET / HTTP/1.1\r\n\r\n", 1, false, "no JSON"},
        {"{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"fail\"}}", 1, false, "a broker that cannot begin"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        is_int(outcome(cases[i].text, strlen(cases[i].text), cases[i].fds, cases[i].wrong_fd), -ENOSYS, cases[i].what);

    size_t len = 3u << 20;
    char *huge = malloc(len);
    memset(huge, ' ', len);
    huge[0] = '{';
    is_int(outcome(huge, len, 1, false), -ENOSYS, "a state of 3 MiB");
    free(huge);
    is_int(outcome("{", 1, 12, false), -ENOSYS, "twelve descriptors");
}

static void silent(void)
{
    enum { N = VB_AGENT_HALVES + 8 };
    int fd[N];
    for (int i = 0; i < N; i++)
        fd[i] = dial();
    struct prog p = prog_start(NULL), half = prog_start(NULL);
    int h = dial();
    send_all(h, "{\"fds\":", 7, &half.listener, 1);
    hw_close(&half.listener);
    tell(&p, "late", "");
    ok(prog_ask(&p, PID) > 1, "%d that say nothing hold nobody up for longer than their time", N);
    is_int(prog_ask(&half, PID), -ENOSYS, "who stops in the middle: its program does not wait for ever");
    prog_end(&p);
    prog_end(&half);
    for (int i = 0; i < N; i++)
        close(fd[i]);
    close(h);
}

static void deaths(void)
{
    struct prog a = prog_start(NULL), b = prog_start(NULL);
    tell(&a, "one", "");
    tell(&b, "other", "");
    int one = prog_ask(&a, PID);
    ok(one > 1 && prog_ask(&b, PID) > 1, "two containers");
    is_int(prog_ask(&a, CRASH), -ENOSYS, "a broker that crashes: its program gets ENOSYS");
    is_int(prog_ask(&a, PID), -ENOSYS, "and so on");
    int other = prog_ask(&b, PID);
    ok(other > 1, "the other container goes on");
    kill(other, SIGKILL);
    is_int(prog_ask(&b, PID), -ENOSYS, "a broker that is killed");
    struct prog more = prog_start(NULL);
    tell(&more, "other", "");
    is_int(prog_ask(&more, PID), -ENOSYS, "its container gets no other, which would count from nothing");
    prog_end(&more);
    prog_end(&a);
    prog_end(&b);
    a = prog_start(NULL);
    tell(&a, "one", "");
    is_int(said(FORBIDDEN), 0, "(no broker has made a call that is forbidden)");
    is_int(prog_ask(&a, BREACH), -ENOSYS, "a broker that makes one: its program gets ENOSYS");
    is_int(prog_ask(&a, PID), -ENOSYS, "and so on");
    for (uint64_t end = hw_deadline(SECONDS * 1000); said(FORBIDDEN) == 0 && hw_now() < end;)
        usleep(1000);
    is_int(said(FORBIDDEN), 1, "and the log says why, once");
    prog_end(&a);
    a = prog_start(NULL);
    tell(&a, "one", "");
    ok(prog_ask(&a, PID) > 1, "and the agent takes new ones");
    b = prog_start(NULL);
    tell(&b, "one", "");
    int broker = prog_ask(&a, PID);
    is_int(prog_ask(&b, PID), broker, "what is executed in a container has the container's broker");
    struct prog c = prog_start(NULL);
    tell(&c, "one", ",\"annotations\":{\"hawser.verbs.max_qps\":\"4\"}");
    is_int(prog_ask(&c, PID), -ENOSYS, "one that comes with other annotations has none");
    prog_end(&c);
    c = prog_start(NULL);
    tell(&c, "two", "");
    ok(prog_ask(&c, PID) != broker, "another container has another");
    prog_end(&a);
    is_int(prog_ask(&b, PID), broker, "the broker stays for the program that is left");
    is_int(prog_ask(&b, END), -ENOSYS, "and ends");
    prog_end(&b);
    prog_end(&c);
}

static void restarts(struct agent *a)
{
    struct prog p = prog_start(NULL), q = prog_start(NULL);
    tell(&p, "stays", "");
    int broker = prog_ask(&p, PID);
    struct agent second = agent_start((struct vb_agent_options){0});
    ok(WEXITSTATUS(agent_end(&second)) == 3, "a second agent on the same socket is refused");
    kill(a->pid, SIGKILL);
    agent_end(a);
    is_int(prog_ask(&p, PID), broker, "the agent is killed: its brokers go on");
    *a = agent_start((struct vb_agent_options){.containers_max = 2});
    tell(&q, "stays", "");
    is_int(prog_ask(&q, PID), broker, "a new agent gives it what is executed in its container");
    prog_end(&q);
    q = prog_start(NULL);
    tell(&q, "new", "");
    ok(prog_ask(&q, PID) > 1, "a new agent takes new containers");
    is_int(prog_ask(&p, PID), broker, "and leaves the old ones alone");
    prog_end(&p);

    struct prog r = prog_start(NULL), s = prog_start(NULL);
    tell(&r, "second", "");
    ok(prog_ask(&r, PID) > 1, "two containers where two may be");
    tell(&s, "third", "");
    is_int(prog_ask(&s, PID), -ENOSYS, "and no third one");
    is_int(agent_stop(a), 0, "the agent ends when it is asked to");
    is_int(prog_ask(&q, PID), -ENOSYS, "and its brokers with it");
    is_int(prog_ask(&r, PID), -ENOSYS, "all of them");
    ok(access(sock_path, F_OK) < 0, "and its socket");
    prog_end(&q);
    prog_end(&r);
    prog_end(&s);
}

static void parser(void)
{
    struct vb_container c;
    unsigned which = 9;
    bool whole;
    static const char text[] =
        " {\"fds\":[\"x\",\"seccompFd\"],\"pid\":7,\"state\":{\"id\":\"a\\u0062\",\"annotations\":"
        "{\"hawser.verbs.a\":\"1\",\"hawser.verbs.spec\":\"mine\",\"hawser.other\":\"2\"}}}\n";
    size_t end = sizeof(text) - 2;
    unsigned early = 0;
    for (size_t i = 0; i < end; i++)
        early += vb_state_parse(text, i, 2, &c, &which, &whole) != 0 || whole;
    is_int(early, 0, "no beginning of it is whole");
    ok(vb_state_parse(text, end, 2, &c, &which, &whole) == 0 && whole && which == 1 && c.pid == 7 &&
           !strcmp(c.id, "ab") && c.n_annotations == 1 && !strcmp(c.annotations[0].key, "hawser.verbs.a") &&
           c.listener == -1,
       "all of it is");
    vb_container_free(&c);
    static const char *const bad[] = {
        "[]",
        "7",
        "\"{\"",
        "}",
        "{}",
        "{\"state\":{\"id\":\"a\"}}",
        "{\"fds\":[7],\"state\":{\"id\":\"a\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\".a\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\\u0000b\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"},\"pid\":\"7\"}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"},\"pid\":-1}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"},\"pid\":4294967303}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"id\":\"b\"}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"annotations\":[]}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\",\"annotations\":{\"hawser.verbs.a\":1}}}",
        "{\"fds\":[\"seccompFd\"],\"state\":{\"id\":\"a\"}} more",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        ok(vb_state_parse(bad[i], strlen(bad[i]), 1, &c, &which, &whole) == -EINVAL && *hw_error(), "refused: %s",
           bad[i]);
    char deep[4096];
    memset(deep, '[', sizeof(deep));
    ok(vb_state_parse(deep, sizeof(deep), 1, &c, &which, &whole) == 0 && !whole, "a depth that goes on");
    memset(deep + 2048, ']', 2048);
    ok(vb_state_parse(deep, sizeof(deep), 1, &c, &which, &whole) == -EINVAL, "and one that is whole, and too deep");
}

int main(void)
{
    static const char text[] =
        "[default]\ndevices = rxe0\n[container gpu]\nmax_qps = 9\n[container raw]\nallow = raw\n";
    alarm(600);
    parser();
    agents_start(text);
    struct agent a = agent_start((struct vb_agent_options){0});
    good(&a);
    pieces();
    wrong();
    silent();
    deaths();
    restarts(&a);
    agents_end();
    return tap_done();
}
