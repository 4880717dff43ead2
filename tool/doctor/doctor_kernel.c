/* SPDX-License-Identifier: Apache-2.0 */
/* Doctor's checks of the kernel and of the process's resource limits. */
#include "net/sysfs.h"
#include "tool/doctor/doctor.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define CONFIG_MAX     (4u << 20) /* bytes; a kernel's configuration takes about 250 KiB */
#define NETDEV_BIND_RX 13         /* enum netdev_cmd, include/uapi/linux/netdev.h */
#define NETDEV_BIND_TX 15

unsigned dr_kernel(const char *release)
{
    char *dot, *end;
    unsigned long major = strtoul(release, &dot, 10);
    unsigned long minor = *dot == '.' ? strtoul(dot + 1, &end, 10) : ULONG_MAX;
    return dot == release || minor > 999 || major > 999 || end == dot + 1 ? 0 : (unsigned)(major * 1000 + minor);
}

void dr_kernel_version(struct dr_report *d)
{
    const char *r = d->m->release;
    unsigned v = dr_kernel(r);
    if (v == 0)
        dr_say(d, DR_SKIP, NULL, "the kernel release '%s' does not start with a version", r);
    else if (v >= 6016)
        dr_say(d, DR_PASS, NULL, "%s: devmem receive and send", r);
    else if (v >= 6012)
        dr_say(d, DR_WARN, NULL, "%s: devmem receive, but not send", r);
    else
        dr_say(d, DR_WARN, NULL,
               "%s: upstream Linux has no devmem TCP before 6.12; GPU memory is staged through host memory", r);
    if (v != 0 && v < 6016)
        dr_mend(d, "apt install -t trixie-backports linux-image-amd64 && reboot   # or any kernel from 6.16 up");
}

/* Returns true if text, a kernel's configuration, has the option built in or as a module. */
static bool config_set(const char *text, const char *option)
{
    size_t n = strlen(option);
    for (const char *p = strstr(text, option); p; p = strstr(p + 1, option))
        if ((p == text || p[-1] == '\n') && p[n] == '=' && (p[n + 1] == 'y' || p[n + 1] == 'm'))
            return true;
    return false;
}

/* Returns the kernel's configuration as text, which the caller frees, or NULL with hw_error(). Writes the path of
 * the file to from. */
static char *kernel_config(const struct dr_machine *m, char *from, size_t cap)
{
    snprintf(from, cap, "/proc/config.gz");
    int fd = hw_root_fd(m->root, O_RDONLY | O_NONBLOCK, "proc/config.gz");
    if (fd < 0) {
        snprintf(from, cap, "/boot/config-%s", m->release);
        fd = hw_root_fd(m->root, O_RDONLY | O_NONBLOCK, "boot/config-%s", m->release);
    }
    if (fd < 0) {
        hw_fail(fd, "neither /proc/config.gz nor %s can be read", from);
        return NULL;
    }
    gzFile gz = gzdopen(fd, "rb"); /* zlib also reads uncompressed files */
    char *text = malloc(CONFIG_MAX + 1);
    int n = gz && text ? gzread(gz, text, CONFIG_MAX) : -1;
    if (gz)
        gzclose_r(gz);
    else
        hw_close(&fd);
    if (n <= 0) {
        hw_fail(-EIO, "%s cannot be read", from);
        free(text);
        return NULL;
    }
    text[n] = 0;
    return text;
}

void dr_kernel_devmem(struct dr_report *d)
{
    const struct dr_machine *m = d->m;
    bool rx = m->netdev_rc == 0 && (m->netdev_ops >> NETDEV_BIND_RX & 1) != 0;
    bool tx = m->netdev_rc == 0 && (m->netdev_ops >> NETDEV_BIND_TX & 1) != 0;
    const char *knows = rx && tx ? "bind-rx and bind-tx" : rx ? "bind-rx" : "neither bind-rx nor bind-tx";
    char from[160];
    char *config = kernel_config(m, from, sizeof from);
    bool read = config != NULL, set = read && config_set(config, "CONFIG_NET_DEVMEM");
    free(config);
    if (set)
        dr_say(d, DR_PASS, NULL, "CONFIG_NET_DEVMEM is set in %s%s%s", from,
               m->netdev_rc == 0 ? "; the netlink family netdev has " : "", m->netdev_rc == 0 ? knows : "");
    else if (read)
        dr_say(d, DR_WARN, NULL, "CONFIG_NET_DEVMEM is not set in %s", from);
    else if (m->netdev_rc == 0 && !rx)
        dr_say(d, DR_WARN, NULL, "the netlink family netdev has %s", knows);
    else if (m->netdev_rc == 0)
        /* The commands exist even without the option, but return EOPNOTSUPP (net/core/devmem.h). */
        dr_say(d, DR_SKIP, NULL,
               "the netlink family netdev has %s, but the kernel's build configuration cannot be read: %s", knows,
               hw_error());
    else
        dr_say(d, DR_SKIP, NULL, "%s, and the netlink family netdev cannot be queried: %s", hw_error(),
               hw_errno_text(-m->netdev_rc));
    if (d->r && d->r[d->n - 1].outcome == DR_WARN)
        dr_mend(d, "boot Linux 6.16 or later, built with CONFIG_NET_DEVMEM=y (as Debian's kernels are)");
}

/* Checks the third value, the maximum, of net.ipv4.tcp_rmem and tcp_wmem. */
void dr_kernel_tcp_mem(struct dr_report *d)
{
    static const char *const name[] = {"tcp_rmem", "tcp_wmem"};
    for (size_t i = 0; i < HW_ARRAY_LEN(name); i++) {
        char text[128];
        uint64_t top = 0;
        int rc = hw_root_text(d->m->root, text, sizeof text, "proc/sys/net/ipv4/%s", name[i]);
        const char *last = rc < 0 ? NULL : strpbrk(text, " \t");
        last = last ? strpbrk(last + strspn(last, " \t"), " \t") : NULL;
        if (!last || hw_text_u64(last + strspn(last, " \t"), &top) < 0) {
            dr_say(d, DR_SKIP, name[i], "%s", rc < 0 ? hw_error() : "not three numbers");
            continue;
        }
        /* With the default tcp_adv_win_scale, half of the buffer is available as the window. A round trip of 0.1 ms
         * is long within a data centre. */
        double gbit = (double)top / 2 * 8 / 1e-4 / 1e9;
        if (top >= 4u << 20)
            dr_say(d, DR_PASS, name[i],
                   "up to %.1f MiB: enough for up to %.0f Gbit/s per connection if a round trip takes 0.1 ms",
                   (double)top / (1 << 20), gbit);
        else {
            dr_say(d, top < 256u << 10 ? DR_FAIL : DR_WARN, name[i],
                   "only up to %.2f MiB: enough for at most %.1f Gbit/s per connection if a round trip takes 0.1 ms",
                   (double)top / (1 << 20), gbit);
            dr_mend(d, "sysctl -w net.ipv4.%s='4096 131072 33554432'", name[i]);
        }
    }
}

void dr_kernel_sock_mem(struct dr_report *d)
{
    static const char *const name[] = {"rmem_max", "wmem_max"};
    for (size_t i = 0; i < HW_ARRAY_LEN(name); i++) {
        uint64_t v;
        if (hw_root_u64(d->m->root, &v, "proc/sys/net/core/%s", name[i]) < 0)
            dr_say(d, DR_SKIP, name[i], "%s", hw_error());
        else if (v >= 4u << 20)
            dr_say(d, DR_PASS, name[i], "%.1f MiB", (double)v / (1 << 20));
        else {
            dr_say(d, DR_WARN, name[i],
                   "only %.2f MiB; this limits hawser only if the knobs sndbuf or rcvbuf are set, because otherwise "
                   "the kernel sizes the buffers",
                   (double)v / (1 << 20));
            dr_mend(d, "sysctl -w net.core.%s=33554432", name[i]);
        }
    }
}

void dr_kernel_congestion(struct dr_report *d)
{
    char now[64], can[256] = "";
    if (hw_root_text(d->m->root, now, sizeof now, "proc/sys/net/ipv4/tcp_congestion_control") < 0) {
        dr_say(d, DR_SKIP, NULL, "%s", hw_error());
        return;
    }
    if (hw_root_text(d->m->root, can, sizeof can, "proc/sys/net/ipv4/tcp_available_congestion_control") < 0)
        snprintf(can, sizeof can, "unknown");
    if (strncmp(now, "bbr", 3) == 0) {
        dr_say(
            d, DR_WARN, NULL,
            "%s (available: %s); by default hawser uses another algorithm over short paths, but other programs do not",
            now, can);
        dr_mend(d, "sysctl -w net.ipv4.tcp_congestion_control=cubic");
    } else {
        dr_say(d, DR_PASS, NULL, "%s (available: %s)", now, can);
    }
}

static const char *limit_text(rlim_t v, char *buf, size_t cap, bool bytes)
{
    if (v == RLIM_INFINITY)
        snprintf(buf, cap, "unlimited");
    else if (bytes)
        snprintf(buf, cap, "%.1f MiB", (double)v / (1 << 20));
    else
        snprintf(buf, cap, "%llu", (unsigned long long)v);
    return buf;
}

void dr_limits_memlock(struct dr_report *d)
{
    rlim_t v = d->m->memlock.rlim_cur;
    char now[32], top[32];
    limit_text(v, now, sizeof now, true);
    limit_text(d->m->memlock.rlim_max, top, sizeof top, true);
    bool rdma = hw_root_has(d->m->root, "sys/class/infiniband_verbs/uverbs0");
    if (v == RLIM_INFINITY || v >= 4ull << 30)
        dr_say(d, DR_PASS, NULL, "%s", now);
    else
        dr_say(d, rdma && v < 64u << 20 ? DR_FAIL : DR_WARN, NULL, "%s (hard limit %s)%s", now, top,
               rdma ? ", and this machine has RDMA devices, for which programs register memory" : "");
    if (d->r && d->r[d->n - 1].outcome != DR_PASS)
        dr_mend(
            d,
            d->m->memlock.rlim_max == RLIM_INFINITY
                ? "ulimit -l unlimited"
                : "printf 'root - memlock unlimited\\n* - memlock unlimited\\n' > /etc/security/limits.d/hawser.conf; "
                  "then log in again   # '*' does not include root: limits.conf(5)");
}

void dr_limits_nofile(struct dr_report *d)
{
    rlim_t v = d->m->nofile.rlim_cur, most = d->m->nofile.rlim_max;
    char now[32], top[32];
    limit_text(v, now, sizeof now, false);
    limit_text(most, top, sizeof top, false);
    if (v == RLIM_INFINITY || v >= 4096)
        dr_say(d, DR_PASS, NULL, "%s", now);
    else if (v >= 512)
        dr_say(d, DR_WARN, NULL, "%s (hard limit %s): enough for one peer, but not for many", now, top);
    else
        dr_say(d, DR_FAIL, NULL, "%s (hard limit %s): probably too few, because one peer may use 256 connections", now,
               top);
    if (d->r && d->r[d->n - 1].outcome != DR_PASS) {
        if (most == RLIM_INFINITY || most >= 4096)
            dr_mend(d, "ulimit -n %s", most == RLIM_INFINITY ? "1048576" : top);
        else
            dr_mend(d,
                    "printf 'root - nofile 1048576\\n* - nofile 1048576\\n' > /etc/security/limits.d/hawser.conf; then "
                    "log in again   # '*' does not include root: limits.conf(5); for a container: docker run --ulimit "
                    "nofile=1048576");
    }
}
