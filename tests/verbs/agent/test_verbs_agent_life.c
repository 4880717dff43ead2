/* SPDX-License-Identifier: Apache-2.0 */
/* Tests an agent's lifetime: which setting determines a container's permissions, policy reloads, agents that exit while
 * their brokers keep running, and a thousand containers that start and exit. */
#include "base/sanitizers.h"
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/proc.h"
#include "verbs/stub/guard.h"
#include "verbs/stub/inject.h"
#include "verbs_agent.h"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define POLICY                                                                             \
    "[default]\ndevices = *\n[container gpu]\nmax_qps = 9\n[container raw]\nallow = raw\n" \
    "[container three]\nmax_pds = 3\n"

static const struct vb_agent_options usually;

/* Returns the answer of the broker of a container with these annotations, or -ENOSYS if the container has no broker. */
static int of_annotations(const char *id, const char *annotations, int code)
{
    char more[512];
    struct prog p = prog_start(NULL);
    snprintf(more, sizeof(more), ",\"annotations\":{%s}", annotations);
    tell(&p, id, more);
    int rc = prog_ask(&p, code);
    prog_end(&p);
    return rc;
}

static bool becomes(const char *text, int n)
{
    for (uint64_t end = hw_deadline(SECONDS * 1000); said(text) < n && hw_now() < end;)
        usleep(1000);
    return said(text) == n;
}

/* Returns true if no child process is left. Orphans become children of this process (PR_SET_CHILD_SUBREAPER). */
static bool none_left(void)
{
    pid_t pid = 0;
    for (uint64_t end = hw_deadline(SECONDS * 1000);
         hw_now() < end && (pid = waitpid(-1, NULL, __WALL | WNOHANG)) >= 0;)
        if (pid == 0)
            usleep(1000);
    return pid < 0 && errno == ECHILD;
}

static void annotations(void)
{
    static const struct {
        const char *text, *why, *what;
    } bad[] = {
        {"\"hawser.verbs.max_qps\":\"many\"", "annotation hawser.verbs.max_qps", "not a number"},
        {"\"hawser.verbs.policy\":\"gpu\",\"hawser.verbs.max_qps\":\"\"", "annotation hawser.verbs.max_qps", "nothing"},
        {"\"hawser.verbs.nosuch\":\"1\"", "no key of the policy has this name", "an unknown key"},
        {"\"hawser.verbs.destinations\":\"10.0.0.0/8 10.1\"", "'10.1' is neither", "half an address"},
        {"\"hawser.verbs.gids\":\"1\\n3\"", "'1?3' is not", "what would be a line of the log"},
        {"\"hawser.verbs.a\\nb\":7", "annotation hawser.verbs.a?b is not a string", "another one"},
    };
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        int before = said(bad[i].why);
        is_int(of_annotations("bad", bad[i].text, PID), -ENOSYS, bad[i].what);
        ok(becomes(bad[i].why, before + 1), "the agent says so when the container starts"); /* this may take a moment */
    }
    is_int(of_annotations("good", "\"hawser.verbs.max_qps\":\"3\",\"hawser.verbs.gids\":\"1 3\"", ANNOTATIONS), 2,
           "those that are right");
}

/* Tests that an agent's --container section overrides the section that annotations name. */
static void overruled(void)
{
    static const char wider[] = "\"hawser.verbs.policy\":\"raw\",\"hawser.verbs.max_qps\":\"3\"";
    struct agent a = agent_start(usually);
    is_int(of_annotations("free", wider, CAPS), 1, "a container whose annotation names a wider section has it");
    agent_stop(&a);
    a = agent_start((struct vb_agent_options){.section = "gpu"});
    is_int(of_annotations("held", wider, CAPS), 0, "but not where the agent's own is for all");
    ok(becomes("held: ignoring the annotation hawser.verbs.policy", 1), "which the log says");
    is_int(of_annotations("held", wider, SECTION), 3, "it has that one");
    is_int(of_annotations("held", wider, ANNOTATIONS), 1, "and is narrowed by its other annotations");
    is_int(of_annotations("held", "\"hawser.verbs.policy\":\"nosuch\"", SECTION), 3,
           "a section that is not there, too");
    is_int(of_annotations("plain", "", SECTION), 3, "and who names none");
    policy_put("[default]\ndevices = *\n[container late]\n");
    agent_order(a.reload);
    ok(becomes("has no section [container gpu]", 1), "a policy without that section is not taken");
    is_int(of_annotations("held", "", SECTION), 3, "and the old one stays");
    is_int(agent_stop(&a), 0, "the agent ends well");
}

/* The process id of a broker that stops itself while it runs as another user. A container's root user can also stop the
 * container's broker. */
static pid_t *stopped_pid;

static int be_stopped(const struct vb_container *c, const struct vb_broker_options *o)
{
    (void)c;
    int rc = vb_guard_serving(o->uid);
    *stopped_pid = getpid();
    return rc < 0 || raise(SIGSTOP) ? -1 : 0;
}

static void stopped(void)
{
    stopped_pid = mmap(NULL, sizeof(*stopped_pid), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int left = said("ignoring it");
    struct agent a = agent_start((struct vb_agent_options){.serve = be_stopped});
    struct prog p = prog_start(NULL);
    tell(&p, "stopped", "");
    for (uint64_t end = hw_deadline(SECONDS * 1000); !*stopped_pid && hw_now() < end;)
        usleep(1000);
    ok(*stopped_pid > 1, "a broker is stopped, as a container's root can do it");
    is_int(agent_stop(&a), 0, "the agent ends");
    is_int(said("ignoring it") - left, 0, "and leaves no broker behind");
    ok(kill(*stopped_pid, SIGKILL) < 0 && errno == ESRCH, "it was killed");
    is_int(prog_ask(&p, PID), -ENOSYS, "its program gets ENOSYS");
    prog_end(&p);
    munmap(stopped_pid, sizeof(*stopped_pid));
}

static void reloads(void)
{
    static const char late[] = "\"hawser.verbs.policy\":\"late\"";
    struct agent a = agent_start(usually);
    struct prog old = prog_start(NULL);
    int again = said("for containers that start from now on"), kept = said("the old policy stays in use");
    tell(&old, "old", "");
    is_int(prog_ask(&old, LATE), 0, "a policy without a section");
    is_int(of_annotations("early", late, PID), -ENOSYS, "so that nobody has it");
    policy_put("[default]\ndevices = *\n[container late]\nallow = raw\n");
    agent_order(a.reload);
    ok(becomes("for containers that start from now on", again + 1), "one that has it is read");
    is_int(of_annotations("new", late, LATE), 1, "a new container has it");
    is_int(of_annotations("new", late, CAPS), 1, "with all that it says");
    is_int(prog_ask(&old, LATE), 0, "one that runs has the old policy");
    static const char *const bad[] = {"[default]\nnosuch = 1\n", "no policy\n", "[container late]\n[container late]\n"};
    for (size_t i = 0; i < HW_ARRAY_LEN(bad); i++) {
        policy_put(bad[i]);
        agent_order(a.reload);
        ok(becomes("the old policy stays in use", ++kept), "a bad one is told, once");
        is_int(of_annotations("new", late, LATE), 1, "and the one before stays");
    }
    policy_put("[default]\n");
    chmod(policy_file, 0666);
    agent_order(a.reload);
    ok(becomes("the old policy stays in use", ++kept), "one that others may write");
    unlink(policy_file);
    agent_order(a.reload);
    ok(becomes("the old policy stays in use", ++kept), "and one that is not there");
    policy_put("[default]\ndevices = *\n");
    for (int i = 2; i < 5; i++) {
        agent_order(a.reload);
        ok(becomes("for containers that start from now on", again + i), "it can be read again and again");
    }
    is_int(of_annotations("new", late, PID), -ENOSYS, "and what is not in the last one is gone");
    is_int(said("the old policy stays in use"), kept, "(no more lines than were wanted)");
    prog_end(&old);
    is_int(agent_stop(&a), 0, "the agent ends well");
}

static void leaves(void)
{
    struct agent a = agent_start(usually);
    struct prog p = prog_start(NULL), half = prog_start(NULL), queued = prog_start(NULL), q = prog_start(NULL);
    char text[1024];
    tell(&p, "stays", "");
    int broker = prog_ask(&p, PID), n = snprintf(text, sizeof(text), usual, (int)half.pid, "half", (int)half.pid, "");
    int h = dial();
    send_all(h, text, 20, &half.listener, 1);
    hw_close(&half.listener);
    kill(a.pid, SIGSTOP); /* so that the agent sees all of the following at once */
    tell(&queued, "queued", "");
    agent_order(a.leave);
    kill(a.pid, SIGCONT);
    for (uint64_t end = hw_deadline(SECONDS * 1000); access(sock_path, F_OK) == 0 && hw_now() < end;)
        usleep(1000);
    ok(access(sock_path, F_OK) < 0, "an agent that leaves: nobody can come any more");
    struct agent next = agent_start(usually);
    tell(&q, "next", "");
    ok(prog_ask(&q, PID) > 1, "the next one takes new containers");
    send_all(h, text + 20, (size_t)n - 20, NULL, 0);
    close(h);
    is_int(agent_end(&a), 0, "it ends by itself");
    int late = prog_ask(&half, PID), waits = prog_ask(&queued, PID);
    ok(late > 1, "when it has served a runtime that had begun");
    ok(waits > 1, "and one that waited at its socket");
    ok(access(sock_path, F_OK) == 0, "the socket is the next one's");
    is_int(prog_ask(&p, PID), broker, "its brokers go on");
    is_int(agent_stop(&next), 0, "the next one is stopped");
    is_int(prog_ask(&q, PID), -ENOSYS, "with its brokers");
    ok(prog_ask(&p, PID) == broker && prog_ask(&half, PID) == late && prog_ask(&queued, PID) == waits,
       "but not with the first one's");
    is_int(prog_ask(&p, END), -ENOSYS, "which end when their time comes");
    prog_end(&p);
    prog_end(&half);
    prog_end(&queued);
    prog_end(&q);
    ok(none_left(), "and nothing is left of them");

    struct prog many[3];
    a = agent_start(usually);
    close(dial()); /* wait until the agent listens */
    kill(a.pid, SIGSTOP);
    for (int i = 0; i < 3; i++) {
        many[i] = prog_start(NULL);
        tell(&many[i], "many", "");
    }
    agent_order(a.leave);
    kill(a.pid, SIGCONT);
    is_int(agent_end(&a), 0, "one that leaves while three wait at its socket");
    for (int i = 0; i < 3; i++) {
        ok(prog_ask(&many[i], PID) > 1, "serves each");
        prog_end(&many[i]);
    }

    a = agent_start(usually);
    half = prog_start(NULL);
    h = dial();
    send_all(h, "{", 1, &half.listener, 1);
    hw_close(&half.listener);
    agent_order(a.leave);
    agent_order(a.stop);
    is_int(agent_end(&a), 0, "one that leaves can be stopped");
    is_int(prog_ask(&half, PID), -ENOSYS, "who has not said all then gets ENOSYS");
    close(h);
    prog_end(&half);
}

/* ---- refusals ------------------------------------------------------------------------------------------- */

#define REFUSALS 300 /* more refusals than the audit file accepts per second */

static int refused(void)
{
    uint32_t pd, other;
    int fd = app_open(0);
    must(fd >= VB_FD_FIRST && app_pd(fd, &pd) == 0);
    for (int i = 0; i < REFUSALS; i++)
        must(app_pd(fd, &other) == -ENOMEM);
    must(app_pd_free(fd, pd) == 0); /* the same broker still serves the program */
    return 0;
}

/* Sums up the numbers directly before the text in the log. */
static int sum_of(const char *text)
{
    char line[1024];
    int sum = 0;
    FILE *f = fopen(log_file, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, text);
        while (at > line && at[-1] >= '0' && at[-1] <= '9')
            at--;
        sum += at ? (int)strtol(at, NULL, 10) : 0;
    }
    if (f)
        fclose(f);
    return sum;
}

static void tells_refusals(struct vb_audit *audit, const char *what)
{
    struct agent a = agent_start((struct vb_agent_options){.kernel = &fake_kernel, .serve = vb_serve, .audit = audit});
    int ended = said("has ended"), before = said("refused with ENOMEM") + sum_of(" more refusal");
    struct prog p = prog_start(refused);
    tell(&p, "quiet", ",\"annotations\":{\"hawser.verbs.max_pds\":\"1\"}");
    is_int(prog_exit(&p), 0, what);
    ok(becomes("has ended", ended + 1) && said("by signal") == 0,
       "its broker goes on after a refusal, and ends by itself");
    is_int(said("refused with ENOMEM") + sum_of(" more refusal") - before, REFUSALS,
           "the log has each refusal, or counts it");
    is_int(agent_stop(&a), 0, "the agent ends well");
}

/* ---- a thousand containers ------------------------------------------------------------------------------ */

#define LIVES    1000
#define TOGETHER 8
/* Heap growth that is not treated as a leak. AddressSanitizer keeps freed memory for a while. A leak of 100 bytes per
 * container would exceed this limit. */
#define GROWS_KIB (HW_ASAN ? 65536 : 96)

static int life(void)
{
    static char page[4096];
    struct ib_uverbs_reg_mr_resp resp;
    uint32_t pd;
    int fd = app_open(0),
        ran = vb_inject_possible() == 0 ? -ENOTTY : -EOPNOTSUPP; /* ENOTTY is the answer of /dev/null */
    must(fd >= VB_FD_FIRST && app_pd(fd, &pd) == 0);
    must(app_reg(fd, page, sizeof(page), &resp) == ran);
    return 0;
}

static long lines(const char *path, const char *key, long *value)
{
    char line[1024];
    long n = 0;
    FILE *f = fopen(path, "re");
    for (; f && fgets(line, sizeof(line), f); n++)
        if (key && strncmp(line, key, strlen(key)) == 0)
            *value = strtol(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return n;
}

/* Resources of the agent, and resources that its containers may have leaked elsewhere. */
struct held {
    long fds, threads, children, files, mounts, orphans, kib;
};

static struct held weigh(const struct agent *a)
{
    struct held h = {.children = proc_children(a->pid)};
    char path[64];
    for (uint64_t end = hw_deadline(SECONDS * 1000); (h.orphans = proc_children(getpid()) - 1) && hw_now() < end;)
        if (waitpid(-1, NULL, __WALL | WNOHANG) <= 0) /* a child may still be exiting */
            usleep(1000);
    snprintf(path, sizeof(path), "/proc/%d/fd", (int)a->pid);
    h.fds = proc_entries(path);
    snprintf(path, sizeof(path), "/proc/%d/task", (int)a->pid);
    h.threads = proc_entries(path);
    h.files = proc_entries(state_dir);
    h.mounts = lines("/proc/self/mountinfo", NULL, NULL);
    snprintf(path, sizeof(path), "/proc/%d/status", (int)a->pid);
    lines(path, "RssAnon:", &h.kib);
    return h;
}

/* Runs n containers, TOGETHER at a time. Each container opens a device, and creates a PD and an MR. Returns the number
 * of containers that exited successfully. */
static int lives(int n)
{
    int ended = said("has ended"), well = 0;
    for (int i = 0; i < n; i += TOGETHER) {
        struct prog p[TOGETHER];
        char id[32];
        for (int k = 0; k < TOGETHER; k++) {
            p[k] = prog_start(life);
            snprintf(id, sizeof(id), "life%d", i + k);
            tell(&p[k], id, ",\"annotations\":{\"hawser.verbs.policy\":\"gpu\",\"hawser.verbs.max_mrs\":\"4\"}");
        }
        for (int k = 0; k < TOGETHER; k++)
            well += prog_exit(&p[k]) == 0;
    }
    ok(becomes("has ended", ended + n), "%d brokers end by themselves", n);
    of_annotations("none", "\"hawser.verbs.nosuch\":\"1\"", PID); /* the agent handles this after all others */
    return well;
}

/* Tries to allocate three PDs. */
static int greedy(void)
{
    uint32_t pd;
    int fd = app_open(0);
    must(fd >= 0);
    for (int i = 0; i < 3; i++)
        fake->number[0] += app_pd(fd, &pd) == 0;
    fake->seen++;
    while (fake->go == 0)
        usleep(1000);
    return 0;
}

/* Tests several programs in one container, each with its own listener. The programs share the container's quota. */
static void executed(void)
{
    enum { PROGRAMS = 3 };
    struct prog p[PROGRAMS];
    fake_reset();
    struct agent a = agent_start((struct vb_agent_options){.kernel = &fake_kernel, .serve = vb_serve});
    for (int i = 0; i < PROGRAMS; i++) {
        p[i] = prog_start(greedy);
        tell(&p[i], "shared", ",\"annotations\":{\"hawser.verbs.policy\":\"three\"}");
        prog_go(&p[i]);
    }
    for (uint64_t end = hw_deadline(SECONDS * 1000); fake->seen < PROGRAMS && hw_now() < end;)
        usleep(1000);
    is_int(fake->number[0], 3, "three programs of a container have three PDs together");
    is_int(fake->live, 3, "as the kernel has it");
    fake->go = 1;
    for (int i = 0; i < PROGRAMS; i++)
        is_int(prog_exit(&p[i]), 0, "(a program ends)");
    ok(becomes("shared: the container's broker now serves another program, too", 2),
       "two have joined the first one's broker");
    is_int(agent_stop(&a), 0, "the agent ends well");
}

static void thousand(void)
{
    struct agent a = agent_start((struct vb_agent_options){.kernel = &fake_kernel, .serve = vb_serve});
    is_int(lives(TOGETHER), TOGETHER, "a few containers, so that everything is there that stays");
    struct held was = weigh(&a);
    is_int(lives(LIVES), LIVES, "a thousand come and go");
    struct held is = weigh(&a);
    is_int(is.fds, was.fds, "the agent has no descriptor more");
    is_int(is.threads, 1, "no thread");
    is_int(is.children, 0, "no child");
    is_int(is.orphans, 0, "(nor are there children of brokers without one)");
    is_int(is.files, was.files, "no file of its state is left");
    is_int(is.mounts, was.mounts, "no mount");
    ok(is.kib - was.kib < GROWS_KIB, "nor memory: %ld KiB", is.kib - was.kib);
    is_int(said("with an error") + said("by signal"), 0, "(all ended as they should)");
    is_int(agent_stop(&a), 0, "the agent ends well");
}

int main(void)
{
    alarm(600);
    /* If permitted, use a separate mount namespace, so that mounts of other tests are not counted. */
    if (unshare(CLONE_NEWNS) == 0 && mount("", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        return 1;
    fake_start();
    agents_start(POLICY);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    struct agent a = agent_start(usually);
    annotations();
    agent_stop(&a);
    overruled();
    reloads();
    leaves();
    executed();
    tells_refusals(NULL, "an agent without an audit");
    tells_refusals(&(struct vb_audit){.fd = -1}, "an agent with one");
    thousand();
    stopped();
    agents_end();
    fake_end();
    return tap_done();
}
