/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the C interface of the node lab as an unprivileged user, and as root if possible. To test traffic, the program
 * starts itself in the nodes (with --serve and --connect).
 */
#include "base/sanitizers.h"
#include "lab/lab.h"
#include "sys/netns.h"
#include "tests/proc.h"
#include "tests/tap.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT  5000
#define BYTES 20000

static char self[256], one[HW_LAB_NAME_MAX + 1], two[HW_LAB_NAME_MAX + 1];

/* ---- programs in the nodes ------------------------------------------------------------------ */

static void limit_waits(int s)
{
    struct timeval t = {.tv_sec = 1};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

/* Echoes BYTES bytes to each client, until killed. */
static int serve(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(l, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(l, 8) < 0 || write(1, "ready\n", 6) != 6)
        return 1;
    for (;;) {
        static char buf[BYTES];
        int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);
        if (s < 0)
            return 1;
        limit_waits(s);
        if (recv(s, buf, sizeof(buf), MSG_WAITALL) == BYTES)
            (void)!send(s, buf, sizeof(buf), MSG_NOSIGNAL);
        close(s);
    }
}

/* Returns 0 if the echo server at addr returns BYTES bytes unchanged. */
static int connect_to(const char *addr)
{
    static unsigned char out[BYTES], in[BYTES];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(addr)};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    limit_waits(s);
    for (int i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    if (connect(s, (struct sockaddr *)&a, sizeof(a)) < 0 || send(s, out, BYTES, MSG_NOSIGNAL) != BYTES ||
        recv(s, in, BYTES, MSG_WAITALL) != BYTES || memcmp(in, out, BYTES) != 0)
        return 1;
    return 0;
}

/* ---- helpers -------------------------------------------------------------------------------- */

/* An argument vector. The cast is needed because execvp() predates const. */
#define ARGV(...) ((char *const *)(const char *const[]){__VA_ARGS__, NULL})

static int wait_status(pid_t pid)
{
    int st;
    while (waitpid(pid, &st, 0) < 0 && errno == EINTR)
        ;
    return st;
}

/* Runs argv in a node, and stores the program's stdout in `out`. Returns the exit status, 1000 + signal number if a
 * signal killed the program, or -errno if the program did not start. */
static int run(const char *lab, const char *node, char *const argv[], char *out, size_t cap)
{
    int p[2];
    pid_t pid;
    if (pipe2(p, O_CLOEXEC) < 0)
        return -errno;
    int rc = hw_lab_spawn(lab, node, argv, p[1], &pid);
    close(p[1]);
    size_t n = 0;
    ssize_t got;
    while (rc == 0 && n + 1 < cap && (got = read(p[0], out + n, cap - 1 - n)) > 0)
        n += (size_t)got;
    if (cap)
        out[n] = 0;
    close(p[0]);
    if (rc < 0)
        return rc;
    int st = wait_status(pid);
    return WIFEXITED(st) ? WEXITSTATUS(st) : 1000 + WTERMSIG(st);
}

static int shell(const char *lab, const char *node, const char *script)
{
    char out[256];
    return run(lab, node, ARGV("sh", "-c", script), out, sizeof(out));
}

static bool talks(const char *lab, const char *node, const char *addr)
{
    char out[16];
    return run(lab, node, ARGV(self, "--connect", addr), out, sizeof(out)) == 0;
}

/* Starts the echo server in a node. Returns the server's PID, or 0 on failure. */
static pid_t start_server(const char *lab, const char *node)
{
    char buf[8] = "";
    int p[2];
    pid_t pid = 0;
    if (pipe2(p, O_CLOEXEC) < 0)
        return 0;
    int rc = hw_lab_spawn(lab, node, ARGV(self, "--serve"), p[1], &pid);
    close(p[1]);
    bool ready = rc == 0 && read(p[0], buf, 6) == 6;
    close(p[0]);
    if (rc < 0)
        diag("starting the server: %s", hw_error());
    return ready ? pid : 0;
}

static void stop(pid_t pid)
{
    if (pid > 0) {
        kill(pid, SIGKILL);
        wait_status(pid);
    }
}

/* Counts the lines of a /proc file that contain `text`, followed by a character of `after` or by the end of the line.
 */
static int lines_with(const char *path, const char *text, const char *after)
{
    char line[1024];
    int n = 0;
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, text);
        n += at && (at[strlen(text)] == '\n' || strchr(after, at[strlen(text)]));
    }
    if (f)
        fclose(f);
    return n;
}

/* Counts the files, mounts and sockets of a lab that still exist. */
static int remains(const char *lab)
{
    char text[96];
    int n = 0;
    for (int k = 0; k <= HW_LAB_MAX_NODES; k++) {
        if (k < 26)
            snprintf(text, sizeof(text), HW_NETNS_DIR "/hawser-%s-%c", lab, 'a' + k);
        else if (k < HW_LAB_MAX_NODES)
            snprintf(text, sizeof(text), HW_NETNS_DIR "/hawser-%s-%c%c", lab, 'a' + k / 26 - 1, 'a' + k % 26);
        else
            snprintf(text, sizeof(text), HW_NETNS_DIR "/hawser-%s-switch", lab);
        n += (access(text, F_OK) == 0) + lines_with("/proc/self/mountinfo", text, " ");
    }
    snprintf(text, sizeof(text), "@hawser-lab/%u/%s", (unsigned)geteuid(), lab);
    return n + lines_with("/proc/net/unix", text, "");
}

static int up(const char *name, unsigned nodes, unsigned nics)
{
    struct hw_lab_spec s = {.name = name, .nodes = nodes, .nics = nics};
    int rc = hw_lab_up(&s);
    if (rc < 0)
        diag("up: %s", hw_error());
    return rc;
}

/* ---- the tests ------------------------------------------------------------------------------ */

static void test_parsers(void)
{
    static const struct {
        const char *text;
        int rc;
        uint64_t rate;
    } t[] = {{"250mbit", 0, 250000000},
             {"1gbit", 0, 1000000000},
             {"1.5Gbit", 0, 1500000000},
             {"0.000064gbit", 0, 64000},
             {"64000bit", 0, 64000},
             {"1tbit", 0, 1000000000000},
             {"none", 0, 0},
             {"", 0, 0},
             {"1", -EINVAL, 0},
             {"1g", -EINVAL, 0},
             {"gbit", -EINVAL, 0},
             {"1.gbit", -EINVAL, 0},
             {".5gbit", -EINVAL, 0},
             {"-1gbit", -EINVAL, 0},
             {"+1gbit", -EINVAL, 0},
             {" 1gbit", -EINVAL, 0},
             {"1gbit ", -EINVAL, 0},
             {"1gbits", -EINVAL, 0},
             {"1e3mbit", -EINVAL, 0},
             {"63kbit", -EINVAL, 0},
             {"1.1tbit", -EINVAL, 0},
             {"0mbit", -EINVAL, 0},
             {"18446744073709551617bit", -EINVAL, 0},
             {"1.0000001gbit", -EINVAL, 0}};
    int bad = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++) {
        uint64_t r = 1;
        int rc = hw_lab_parse_rate(t[i].text, &r);
        if (rc != t[i].rc || (rc == 0 && r != t[i].rate)) {
            diag("'%s' gives %d and %llu", t[i].text, rc, (unsigned long long)r);
            bad++;
        }
        char buf[32];
        uint64_t again = 1;
        if (rc == 0 && (hw_lab_parse_rate(hw_lab_format_rate(r, buf, sizeof(buf)), &again) < 0 || again != r)) {
            diag("%s does not read back as '%s'", buf, t[i].text);
            bad++;
        }
    }
    is_int(bad, 0, "rates are read strictly, and written so that they read back");
    char buf[32];
    is_str(hw_lab_format_rate(1500000000, buf, sizeof(buf)), "1.5gbit", "a rate as text");
    is_int(hw_lab_parse_rate("12parsecs", &(uint64_t){0}), -EINVAL, "a rate with a strange unit");
    ok(strstr(hw_error(), "'12parsecs'"), "its error says what was given: %s", hw_error());

    struct hw_lab_spec s = {.nics = 3};
    ok(hw_lab_parse_rates("1gbit,none,250mbit", &s) == 0 && s.rate[0] == 1000000000 && s.rate[1] == 0 &&
           s.rate[2] == 250000000,
       "a list of rates");
    ok(hw_lab_parse_rates("2gbit", &s) == 0 && s.rate[0] == 2000000000 && s.rate[2] == 2000000000, "one rate for all");
    is_int(hw_lab_parse_rates("1gbit,1gbit", &s), -EINVAL, "two rates for three NICs");
    is_int(hw_lab_parse_rates("1gbit,,1gbit,", &s), -EINVAL, "four rates for three NICs");
    unsigned nic = 99;
    ok(hw_lab_parse_nic("eth3", &nic) == 0 && nic == 3 && hw_lab_parse_nic("12", &nic) == 0 && nic == 12 &&
           hw_lab_parse_nic("enp7", &nic) == 0 && nic == 7,
       "NICs");
    ok(hw_lab_parse_nic("eth", &nic) == -EINVAL && hw_lab_parse_nic("eth32", &nic) == -EINVAL &&
           hw_lab_parse_nic("01", &nic) == -EINVAL && hw_lab_parse_nic("lo", &nic) == -EINVAL &&
           hw_lab_parse_nic("", &nic) == -EINVAL && hw_lab_parse_nic("eth-1", &nic) == -EINVAL,
       "what is no NIC");
}

static void test_shape_parsers(void)
{
    struct hw_lab_spec s = {.nodes = 2, .nics = 2};
    ok(hw_lab_parse_delays("10ms,250us", &s) == 0 && s.delay_us[0] == 10000 && s.delay_us[1] == 250, "delays");
    ok(hw_lab_parse_delays("1.5ms,0", &s) == 0 && s.delay_us[0] == 1500 && s.delay_us[1] == 0, "a part, and none");
    ok(hw_lab_parse_delays("10s", &s) == 0 && s.delay_us[1] == 10000000, "the most, for all");
    ok(hw_lab_parse_losses("0.1%,0.0001%", &s) == 0 && s.loss_ppm[0] == 1000 && s.loss_ppm[1] == 1, "losses");
    ok(hw_lab_parse_losses("99.9999%", &s) == 0 && s.loss_ppm[1] == 999999, "the most, for all");
    static const char *const no_delay[] = {"10",  "ms",    "-1ms",      "1.ms", ".5ms",
                                           "11s", "0.5us", "1.00001ms", "1h",   "1ms,1ms,1ms"};
    static const char *const no_loss[] = {"1", "%", "100%", "0.00001%", "-1%", "1 %", "1%%"};
    int bad = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(no_delay); i++)
        bad += hw_lab_parse_delays(no_delay[i], &s) != -EINVAL;
    for (size_t i = 0; i < HW_ARRAY_LEN(no_loss); i++)
        bad += hw_lab_parse_losses(no_loss[i], &s) != -EINVAL;
    is_int(bad, 0, "what is none is refused");
    ok(hw_lab_parse_nics("4,3", &s) == 0 && s.nics == 4 && s.node_nics[0] == 4 && s.node_nics[1] == 3, "NICs of nodes");
    ok(hw_lab_parse_nics("5", &s) == 0 && s.nics == 5 && s.node_nics[1] == 5, "for all");
    static const char *const no_nics[] = {"", "0", "33", "4,", "4,3,2", "x", "4x", "100", "-1"};
    for (size_t i = 0; i < HW_ARRAY_LEN(no_nics); i++)
        bad += hw_lab_parse_nics(no_nics[i], &s) != -EINVAL;
    is_int(bad, 0, "what is no number of NICs");
    ok(hw_lab_parse_names("eth,enp", &s) == 0 && strcmp(s.prefix[0], "eth") == 0 && strcmp(s.prefix[1], "enp") == 0,
       "names");
    ok(hw_lab_parse_names("rail", &s) == 0 && strcmp(s.prefix[1], "rail") == 0, "for all");
    static const char *const no_names[] = {"", "lo", "eth0", "a/b", "Eth", "abcdefghijkl", "eth,", "a,b,c"};
    for (size_t i = 0; i < HW_ARRAY_LEN(no_names); i++)
        bad += hw_lab_parse_names(no_names[i], &s) != -EINVAL;
    is_int(bad, 0, "what is no name");
    enum hw_lab_fabric f;
    ok(hw_lab_parse_fabric("shared-subnet", &f) == 0 && f == HW_LAB_SHARED && hw_lab_parse_fabric("gcp", &f) == 0 &&
           f == HW_LAB_GCP && hw_lab_parse_fabric("mesh", &f) == -EINVAL && hw_lab_parse_fabric("", &f) == -EINVAL,
       "fabrics");
}

static void test_refusals(void)
{
    struct hw_lab_spec s = {.nodes = 2, .nics = 1};
    static const char *const names[] = {"", "-a", "a/b", "..", "a b", "x123456789012345678901234567890123"};
    int bad = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(names); i++) {
        s.name = names[i];
        bad += hw_lab_up(&s) != -EINVAL || hw_lab_down(names[i]) != -EINVAL;
    }
    is_int(bad, 0, "bad names are refused");
    s.name = one;
    s.nodes = 1;
    is_int(hw_lab_up(&s), -EINVAL, "one node is no lab");
    s.nodes = HW_LAB_MAX_NODES + 1;
    is_int(hw_lab_up(&s), -EINVAL, "65 nodes are too many");
    s = (struct hw_lab_spec){.name = one, .nodes = 2, .nics = 33};
    is_int(hw_lab_up(&s), -EINVAL, "33 NICs are too many");
    s = (struct hw_lab_spec){.name = one, .nodes = 2, .nics = 1, .mtu = 100};
    is_int(hw_lab_up(&s), -EINVAL, "an MTU of 100 is too small");
    s = (struct hw_lab_spec){.name = one, .nodes = 2, .nics = 2, .node_nics = {2, 3}};
    is_int(hw_lab_up(&s), -EINVAL, "a node has no NIC without a rail");
    is_int(hw_lab_down(one), 0, "down where nothing is");
    is_int(hw_lab_link(one, "a", 0, true), -ENOENT, "link in no lab");
    is_int(remains(one), 0, "refusals leave nothing");
}

static void test_two_nodes(struct hw_lab_info *info)
{
    struct hw_lab_spec s = {.name = one, .nodes = 2, .nics = 2, .mtu = 9000, .rate = {1000000000, 0}};
    is_int(hw_lab_up(&s), 0, "up");
    is_int(hw_lab_info(one, info), 0, "info");
    bool whole = info->nodes == 2;
    for (unsigned k = 0; whole && k < 2; k++) {
        for (unsigned i = 0; i < 2; i++) {
            const struct hw_lab_nic *n = &info->node[k].nic[i];
            whole = whole && info->node[k].nics == 2 && n->link.up && n->link.running && n->link.mtu == 9000 &&
                    n->rate == s.rate[i] && ntohl(n->addr.s_addr) == (198u << 24 | 18 << 16 | i << 8 | (k + 1));
        }
    }
    ok(whole, "two nodes of two NICs, as asked, up and with a carrier");
    is_int(info->user, !hw_netns_privileged(), "kept as its user may");

    is_int(hw_lab_up(&s), -EEXIST, "up over a lab that is there");
    ok(strstr(hw_error(), "hawser lab down"), "says what to do: %s", hw_error());
    is_int(shell(one, "a", "exit 7"), 7, "an exit status comes through, and the lab is unharmed");
    is_int(shell(one, "b", "kill -USR1 $$"), 1000 + SIGUSR1, "so does a signal");
    is_int(shell(one, "a", "test -e /sys/class/net/eth1 && ! test -e /sys/class/net/eth2"), 0, "/sys is the node's");
    char out[16];
    is_int(run(one, "a", ARGV("/nonexistent/command"), out, sizeof(out)), -ENOENT, "a command that there is not");
    is_int(shell(one, "c", "true"), -ENOENT, "a node that there is not");
    ok(strstr(hw_error(), "'c'"), "named in the error: %s", hw_error());

    pid_t server = start_server(one, "b");
    ok(server > 0 && talks(one, "a", "198.18.0.2") && talks(one, "a", "198.18.1.2"), "traffic over both rails");
    ok(!talks(one, "a", "198.18.2.2"), "none over a rail that there is not");

    is_int(hw_lab_link(one, "a", 1, false), 0, "link down");
    is_int(hw_lab_info(one, info), 0, "info");
    ok(!info->node[0].nic[1].link.up && info->node[1].nic[1].link.up, "down at its end only");
    ok(!talks(one, "a", "198.18.1.2") && talks(one, "a", "198.18.0.2"), "no traffic over it, over the other there is");
    is_int(hw_lab_link(one, "a", 1, true), 0, "link up");
    bool back = false;
    for (int i = 0; i < 5 && !back; i++)
        back = talks(one, "a", "198.18.1.2");
    ok(back, "traffic flows again");
    is_int(hw_lab_link(one, "b", 1, false), 0, "link down at the other end");
    ok(!talks(one, "a", "198.18.1.2"), "no traffic over it");
    is_int(hw_lab_link(one, "b", 1, true), 0, "and up");
    for (int i = 0; i < 5 && !(back = talks(one, "a", "198.18.1.2")); i++)
        ;
    ok(back, "traffic flows again");
    is_int(hw_lab_link(one, "a", 2, false), -ENODEV, "link of a NIC that there is not");

    is_int(hw_lab_rate(one, "a", 1, 250000000), 0, "a rate where there was none");
    is_int(hw_lab_rate(one, "b", 0, 0), 0, "none where there was one");
    is_int(hw_lab_rate(one, "b", 0, 0), 0, "and again");
    is_int(hw_lab_info(one, info), 0, "info");
    ok(info->node[0].nic[1].rate == 250000000 && info->node[1].nic[1].rate == 250000000 &&
           info->node[0].nic[0].rate == 0 && info->node[1].nic[0].rate == 0,
       "rates hold both ways");
    is_int(hw_lab_rate(one, "a", 1, 40000000000), 0, "a rate above 2^32 bytes a second");
    is_int(hw_lab_info(one, info), 0, "info");
    ok(info->node[1].nic[1].rate == 40000000000, "is kept exactly");

    is_int(hw_lab_down(one), 0, "down, with a program still running");
    int st = server > 0 ? wait_status(server) : 0;
    ok(WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM, "the program was asked to end");
    is_int(remains(one), 0, "nothing is left");
    is_int(hw_lab_down(one), 0, "down again");
    is_int(up(one, 2, 1), 0, "up a second time");
    is_int(hw_lab_down(one), 0, "down a second time");
}

static void test_two_labs(struct hw_lab_info *info)
{
    is_int(up(one, 2, 1), 0, "one lab");
    is_int(up(two, 3, 2), 0, "another one, of three nodes, its name the first one's and more");
    static char names[64][HW_LAB_NAME_MAX + 1];
    int n = hw_lab_names(names, 64), seen = 0;
    for (int i = 0; i < n && i < 64; i++)
        seen += strcmp(names[i], one) == 0 || strcmp(names[i], two) == 0;
    is_int(seen, 2, "both are listed, once");
    int counted = -1; /* retries, because other tests may create and remove labs */
    for (int i = 0; i < 20 && counted != n; i++) {
        n = hw_lab_names(names, 64);
        counted = hw_lab_names(NULL, 0);
    }
    is_int(counted, n, "and counted once, even if there is no room for their names");
    pid_t server = start_server(two, "a");
    ok(server > 0 && talks(two, "c", "198.18.0.1") && talks(two, "b", "198.18.1.1"), "traffic through the switch");
    is_int(hw_lab_rate(two, "c", 1, 500000000), 0, "a rate in a lab with a switch");
    is_int(hw_lab_info(two, info), 0, "info");
    ok(info->nodes == 3 && info->node[2].nic[1].rate == 500000000 && info->node[1].nic[1].rate == 0 &&
           info->node[2].nic[0].rate == 0,
       "is that NIC's only");
    is_int(hw_lab_down(one), 0, "the first one down");
    ok(remains(one) == 0 && talks(two, "b", "198.18.0.1"), "the other one is unharmed");
    stop(server);

    int p[2];
    pid_t pid = 0;
    char byte;
    const char *stubborn = "trap '' TERM; echo; while :; do sleep 1; done";
    is_int(pipe2(p, O_CLOEXEC), 0, "pipe");
    is_int(hw_lab_spawn(two, "b", ARGV("sh", "-c", stubborn), p[1], &pid), 0, "a program that ignores SIGTERM");
    (void)!read(p[0], &byte, 1);
    close(p[0]);
    close(p[1]);
    is_int(hw_lab_down(two), 0, "down all the same");
    int st = pid > 0 ? wait_status(pid) : 0;
    ok(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL, "it was killed");
    is_int(remains(two), 0, "nothing is left");
}

/* Returns the process that keeps an unprivileged user's lab alive and listens on the lab's name, or 0. */
static pid_t keeper_of(const char *lab)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct ucred c = {0};
    socklen_t len = sizeof(c);
    int n = snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1, "hawser-lab/%u/%s", (unsigned)geteuid(), lab);
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (connect(s, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) < 0 ||
        getsockopt(s, SOL_SOCKET, SO_PEERCRED, &c, &len) < 0)
        c.pid = 0;
    close(s);
    return c.pid;
}

/* Returns the process that delays a lab's packets, or 0. For root, this process is in the network namespace of the
 * lab's switch. For other users, it is a child of the lab's process. */
static pid_t relay_of(const char *lab)
{
    char path[96], line[256];
    struct stat want = {0}, st;
    pid_t keeper = hw_netns_privileged() ? 0 : keeper_of(lab), found = 0;
    snprintf(path, sizeof(path), HW_NETNS_DIR "/hawser-%s-switch", lab);
    DIR *d = keeper || stat(path, &want) == 0 ? opendir("/proc") : NULL;
    const struct dirent *e;
    while (d && !found && (e = readdir(d)) != NULL) {
        int ppid = 0;
        snprintf(path, sizeof(path), "/proc/%.20s/stat", e->d_name);
        FILE *f = fopen(path, "re");
        bool relay = f && fgets(line, sizeof(line), f) && sscanf(line, "%*d (hawser-relay) %*c %d", &ppid) == 1;
        if (f)
            fclose(f);
        snprintf(path, sizeof(path), "/proc/%.20s/ns/net", e->d_name);
        if (relay && (keeper ? ppid == keeper : stat(path, &st) == 0 && st.st_ino == want.st_ino))
            found = (pid_t)atoi(e->d_name);
    }
    if (d)
        closedir(d);
    return found;
}

/* Waits up to 10 s for a process to exit, and returns whether the process has exited. It is not a child of this
 * process, so waitpid() is impossible. */
static bool has_ended(pid_t pid)
{
    char path[64], state = 0;
    for (int i = 0; i < 1000; i++, poll(NULL, 0, 10)) {
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        FILE *f = fopen(path, "re");
        if (!f || fscanf(f, "%*d (%*[^)]) %c", &state) != 1 || state == 'Z')
            pid = 0;
        if (f)
            fclose(f);
        if (!pid)
            return true;
    }
    return false;
}

static uint64_t time_talk(const char *addr)
{
    uint64_t t0 = hw_now();
    return talks(one, "a", addr) ? (hw_now() - t0) / HW_MS : UINT64_MAX;
}

static void test_relay(void)
{
    struct hw_lab_spec s = {.name = one, .nodes = 3, .nics = 2, .delay_us = {40000, 0}};
    is_int(hw_lab_up(&s), 0, "up, with a delay of one rail");
    pid_t server = start_server(one, "c"), relay = relay_of(one);
    ok(server > 0 && relay > 0, "a process carries its packets");
    uint64_t slow = time_talk("198.18.0.3"), fast = time_talk("198.18.1.3");
    diag("%llu ms with a delay of 40 ms, %llu ms without", (unsigned long long)slow, (unsigned long long)fast);
    ok(slow >= 160 && slow != UINT64_MAX, "a connection and an answer take two round trips");
    ok(fast != UINT64_MAX, "the other rail works");
    is_int(hw_lab_link(one, "a", 0, false), 0, "its NIC down");
    ok(!talks(one, "a", "198.18.0.3"), "no traffic");
    is_int(hw_lab_link(one, "a", 0, true), 0, "and up");
    bool back = false;
    for (int i = 0; i < 5 && !back; i++)
        back = talks(one, "a", "198.18.0.3");
    ok(back && relay_of(one) == relay, "traffic flows again, by the same process");
    is_int(hw_lab_down(one), 0, "down");
    ok(relay > 0 && has_ended(relay), "the process has ended");
    stop(server);
    s = (struct hw_lab_spec){.name = one, .nodes = 2, .nics = 1, .loss_ppm = {999999}};
    is_int(hw_lab_up(&s), 0, "up, with nearly all lost");
    relay = relay_of(one);
    server = start_server(one, "b");
    ok(relay > 0 && server > 0 && !talks(one, "a", "198.18.0.2"), "nothing comes through");
    stop(server);
    if (hw_netns_privileged()) /* as after a crash: removes the nodes, but not the relay */
        for (int node = 'a'; node <= 'b'; node++) {
            char ns[64];
            snprintf(ns, sizeof(ns), "hawser-%s-%c", one, node);
            is_int(hw_netns_remove(ns), 0, "a node gone");
        }
    else
        kill(keeper_of(one), SIGKILL);
    ok(relay > 0 && has_ended(relay), "the process ends with the nodes, or their keeper");
    is_int(hw_lab_down(one), 0, "down");
    is_int(remains(one), 0, "nothing is left");
}

/* Kills `up` with SIGKILL at points that are spread over the whole duration of `up`. */
static void test_killed(void)
{
    enum { ROUNDS = 24 };
    uint64_t t0 = hw_now();
    is_int(up(one, 3, 4), 0, "up, timed");
    uint64_t whole = hw_now() - t0;
    is_int(hw_lab_down(one), 0, "down");
    int partly = 0, bad = 0;
    for (int i = 0; i < ROUNDS; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(up(one, 3, 4) == 0 ? 0 : 1);
        struct timespec t = {.tv_nsec = (long)(whole * (uint64_t)i / ROUNDS)};
        nanosleep(&t, NULL);
        kill(pid, SIGKILL);
        int st = wait_status(pid);
        partly += WIFSIGNALED(st);
        int rc = hw_lab_down(one), left = remains(one);
        if (rc < 0 || left) {
            diag("round %d: down %d (%s), %d things left", i, rc, rc < 0 ? hw_error() : "", left);
            bad++;
        }
    }
    diag("%d of %d ups killed before their end, which takes %llu us", partly, ROUNDS, (unsigned long long)whole / 1000);
    ok(partly >= ROUNDS / 4, "enough of them were killed under way");
    is_int(bad, 0, "down cleans up after each, and nothing is left");
    is_int(up(one, 2, 1), 0, "up works afterwards");
    is_int(hw_lab_down(one), 0, "down");
}

static void test_race(void)
{
    int won = 0, lost = 0, rounds = 10;
    for (int i = 0; i < rounds; i++) {
        pid_t pid[3];
        for (int k = 0; k < 3; k++) {
            pid[k] = fork();
            if (pid[k] == 0) {
                struct hw_lab_spec s = {.name = one, .nodes = 2, .nics = 1};
                int rc = hw_lab_up(&s);
                _exit(rc == 0 ? 0 : rc == -EEXIST ? 1 : 2);
            }
        }
        for (int k = 0; k < 3; k++) {
            int st = wait_status(pid[k]);
            won += WIFEXITED(st) && WEXITSTATUS(st) == 0;
            lost += WIFEXITED(st) && WEXITSTATUS(st) == 1;
        }
        if (hw_lab_down(one) < 0 || remains(one))
            diag("round %d: not taken down", i), won = -1000;
    }
    is_int(won, rounds, "of three ups at once one wins");
    is_int(lost, 2 * rounds, "and two are told that there is one already");
}

/* Tests that down kills the programs of a lab whose keeper process was killed. */
static void test_keeper(struct hw_lab_info *info)
{
    is_int(up(one, 28, 1), 0, "up");
    pid_t keeper = keeper_of(one);
    if (!ok(keeper > 0, "the lab is kept by a process"))
        return;
    pid_t server = start_server(one, "ab");
    ok(server > 0, "a program in its last node");
    kill(keeper, SIGKILL);
    while (remains(one) && kill(keeper, 0) == 0)
        poll(NULL, 0, 10);
    is_int(hw_lab_info(one, info), -ENOENT, "the process killed, the lab is gone");
    is_int(hw_lab_down(one), 0, "down");
    int end = server > 0 ? wait_status(server) : 0;
    ok(WIFSIGNALED(end), "ends its programs too");
    is_int(up(one, 2, 1), 0, "up again");
    is_int(hw_lab_down(one), 0, "down");
}

static void test_most_nodes(struct hw_lab_info *info)
{
    is_int(up(one, HW_LAB_MAX_NODES, 1), 0, "a lab of as many nodes as there may be");
    is_int(hw_lab_info(one, info), 0, "info");
    ok(info->nodes == HW_LAB_MAX_NODES && strcmp(info->node[25].name, "z") == 0 &&
           strcmp(info->node[26].name, "aa") == 0 && strcmp(info->node[63].name, "bl") == 0,
       "they are called a to z, and aa to bl");
    pid_t server = start_server(one, "a");
    ok(server > 0 && talks(one, "bl", "198.18.0.1"), "the last one talks to the first one");
    is_int(hw_lab_down(one), 0, "down, with what runs in it");
    if (server > 0)
        waitpid(server, NULL, 0);
}

static void suite(void)
{
    struct hw_lab_info *info = malloc(sizeof(*info));
    int fds = proc_entries("/proc/self/fd");
    test_refusals();
    test_two_nodes(info);
    test_two_labs(info);
    test_most_nodes(info);
    test_relay();
    test_killed();
    test_race();
    if (!hw_netns_privileged())
        test_keeper(info);
    is_int(proc_entries("/proc/self/fd"), fds, "no descriptor is left open");
    free(info);
}

/* Returns whether this user can create labs. If not, hw_error() returns the reason. */
static bool possible(void)
{
    struct hw_lab_spec s = {.name = one, .nodes = 2, .nics = 1};
    int rc = hw_lab_up(&s);
    if (rc == 0)
        (void)hw_lab_down(one);
    return rc != -EPERM && rc != -EACCES; /* the tests report any other failure */
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--serve") == 0)
        return serve();
    if (argc == 3 && strcmp(argv[1], "--connect") == 0)
        return connect_to(argv[2]);

    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return 1;
    snprintf(one, sizeof(one), "t%d", (int)getpid());
    snprintf(two, sizeof(two), "t%d-a", (int)getpid());
    test_parsers();
    test_shape_parsers();
    if (geteuid() == 0) {
        if (hw_netns_privileged()) {
            diag("as root");
            suite();
        } else {
            tap_skip("the suite as root", "root without CAP_SYS_ADMIN and CAP_NET_ADMIN");
        }
        /* Become user nobody permanently. After the change of user, root would own this process's /proc files until the
         * next exec, so make the process dumpable. */
        if (setgroups(0, NULL) < 0 || setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0 ||
            prctl(PR_SET_DUMPABLE, 1) < 0) {
            tap_skip("the suite as an unprivileged user", "this root may not become another user");
            return tap_done();
        }
    }
    /* CLONE_NEWUSER fails with EINVAL in a process with several threads (unshare(2)), and ThreadSanitizer starts a
     * thread in every process. */
    const bool threads = HW_TSAN;
    if (threads) {
        tap_skip("the suite as an unprivileged user", "ThreadSanitizer's own thread forbids a user namespace");
    } else if (access(self, X_OK) < 0) {
        tap_skip("the suite as an unprivileged user",
                 "nobody may not run this program where it lies: reachable.py does");
    } else if (possible()) {
        diag("as user %u", (unsigned)geteuid());
        suite();
    } else {
        tap_skip("the suite as an unprivileged user", hw_error());
    }
    return tap_done();
}
