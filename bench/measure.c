/* SPDX-License-Identifier: Apache-2.0 */
#include "measure.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static void die(const char *what)
{
    perror(what);
    _exit(1);
}

static double read_clock(clockid_t id)
{
    struct timespec t = {0};
    (void)clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double read_cpu(const struct measure *m)
{
    return read_clock(CLOCK_PROCESS_CPUTIME_ID) + read_clock(m->far);
}

void begin_measure(struct measure *m, pid_t other)
{
    if (clock_getcpuclockid(other, &m->far))
        die("the other process's CPU time");
    hw_hist_reset(&m->took);
    m->ops = m->bytes = 0;
    m->cpu = read_cpu(m);
    m->began = hw_now();
}

void print_measure(const struct measure *m)
{
    double took = (double)(hw_now() - m->began) / 1e9, cpu = read_cpu(m) - m->cpu;
    printf("{\"ops\": %.1f, \"bytes\": %.0f, \"cpu\": %.4f, \"cpu_us\": %.3f, \"us\": %.2f, \"p50\": %.2f, \"p99\": "
           "%.2f}\n",
           (double)m->ops / took, (double)m->bytes / took, m->bytes ? cpu * 1e9 / (double)m->bytes : 0,
           m->ops ? cpu * 1e6 / (double)m->ops : 0, m->ops ? took * 1e6 / (double)m->ops : 0,
           (double)hw_hist_quantile(&m->took, 0.5) / 1e3, (double)hw_hist_quantile(&m->took, 0.99) / 1e3);
    (void)fflush(stdout);
}

static void set_up(int fd)
{
    const char *name = getenv("BENCH_CONGESTION");
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)) < 0)
        die("TCP_NODELAY");
    if (name && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) < 0)
        die(name);
}

void connect_pair(int end[2])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof to;
    int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    end[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (l < 0 || end[0] < 0)
        die("socket");
    set_up(l);
    set_up(end[0]);
    if (bind(l, (struct sockaddr *)&to, len) < 0 || listen(l, 1) < 0 ||
        getsockname(l, (struct sockaddr *)&to, &len) < 0 || connect(end[0], (struct sockaddr *)&to, len) < 0 ||
        (end[1] = accept4(l, NULL, NULL, SOCK_CLOEXEC)) < 0)
        die("connecting");
    set_up(end[1]);
    hw_close(&l);
}
