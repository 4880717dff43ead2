/* SPDX-License-Identifier: Apache-2.0 */
/* Tests knob congestion with BBR as the system's algorithm, in a lab with a layer-3 fabric, whose NICs share no subnet.
 * One rail has a delay. */
#include "lab/lab.h"
#include "tests/tap.h"
#include "transport/tcp/sock.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define PORT 5001

static char self[256], lab[HW_LAB_NAME_MAX + 1];
static struct hw_knobs knobs;

static void name_of(int fd, char out[17])
{
    socklen_t len = 16;
    memset(out, 0, 17);
    (void)getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, out, &len);
}

/* Sends each client the name of the congestion algorithm that this end of its connection uses. */
static int serve(void)
{
    union hw_addr a = {.in = {.sin_family = AF_INET, .sin_port = htons(PORT)}};
    int l = hw_sock_listen(&a, &knobs);
    if (l < 0 || write(1, "ready\n", 6) != 6)
        return 1;
    for (;;) {
        char name[17];
        struct pollfd p = {.fd = l, .events = POLLIN};
        (void)poll(&p, 1, -1);
        int s = accept(l, NULL, NULL);
        if (s < 0)
            continue;
        hw_sock_accepted(s, &knobs);
        name_of(s, name);
        (void)!write(s, name, 16);
        close(s);
    }
}

/* Connects, and prints the algorithms of both ends: "HERE THERE". */
static int dial(const char *addr)
{
    union hw_addr a = {.in = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(addr)}};
    char here[17], there[17] = "";
    int s = hw_sock_connect(NULL, &a, &knobs);
    struct pollfd p = {.fd = s, .events = POLLOUT};
    if (s < 0 || poll(&p, 1, 10000) != 1)
        return 1;
    p.events = POLLIN;
    if (poll(&p, 1, 10000) != 1 || read(s, there, 16) != 16)
        return 1;
    hw_sock_settled(s, &knobs);
    name_of(s, here);
    printf("%s %s", here, there);
    return 0;
}

/* Starts argv in a node, and stores the first part of the program's output in `out`. Returns the PID, or -1 on failure.
 */
static pid_t run(const char *node, const char *const argv[], char *out, size_t cap)
{
    int p[2];
    pid_t pid = -1;
    out[0] = 0;
    if (pipe(p) < 0)
        return -1;
    if (hw_lab_spawn(lab, node, (char *const *)argv, p[1], &pid) < 0)
        pid = -1;
    close(p[1]);
    ssize_t n = pid > 0 ? read(p[0], out, cap - 1) : 0;
    out[n > 0 ? n : 0] = 0;
    close(p[0]);
    return pid;
}

static bool make_bbr(const char *node)
{
    char out[8];
    int st = 1;
    pid_t pid =
        run(node, (const char *const[]){"sh", "-c", "echo bbr >/proc/sys/net/ipv4/tcp_congestion_control", NULL}, out,
            sizeof(out));
    return pid > 0 && waitpid(pid, &st, 0) == pid && st == 0;
}

static void test_rails(void)
{
    char out[64];
    pid_t server = run("b", (const char *const[]){self, "--serve", NULL}, out, sizeof(out));
    is_str(out, "ready\n", "a server");
    bool classic = false;
    for (int i = 0; i < 20 && !classic; i++) { /* retries, because round trips may take longer on a busy machine */
        pid_t near = run("a", (const char *const[]){self, "--dial", "198.18.0.3", NULL}, out, sizeof(out));
        classic = strcmp(out, "cubic cubic") == 0 || strcmp(out, "reno reno") == 0;
        if (near > 0)
            (void)waitpid(near, NULL, 0);
    }
    ok(classic, "no BBR in a fabric of routers, from none of the sides: %s", out);
    pid_t far = run("a", (const char *const[]){self, "--dial", "198.18.1.3", NULL}, out, sizeof(out));
    is_str(out, "bbr bbr", "the system's, BBR, over 20 ms");
    if (server > 0)
        kill(server, SIGKILL);
    for (pid_t all[] = {server, far}, *p = all; p < all + 2; p++)
        if (*p > 0)
            (void)waitpid(*p, NULL, 0);
}

int main(int argc, char **argv)
{
    struct hw_lab_spec s = {.name = lab, .nodes = 2, .nics = 2, .fabric = HW_LAB_ROUTED, .delay_us = {0, 20000}};
    if (hw_knobs_load(&knobs, NULL) < 0)
        return 1;
    if (argc == 2 && strcmp(argv[1], "--serve") == 0)
        return serve();
    if (argc == 3 && strcmp(argv[1], "--dial") == 0)
        return dial(argv[2]);
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
        return 1;
    snprintf(lab, sizeof(lab), "cc%d", (int)getpid());
    int rc = hw_lab_up(&s);
    if (rc == -EPERM || rc == -EACCES) {
        tap_skip("congestion control in a lab", hw_error());
        return tap_done();
    }
    is_int(rc, 0, "a layer-3 fabric, one rail with 20 ms");
    if (make_bbr("a") && make_bbr("b"))
        test_rails();
    else
        tap_skip("congestion control in a lab", "this kernel has no BBR, or /proc/sys cannot be written");
    is_int(hw_lab_down(lab), 0, "down");
    return tap_done();
}
