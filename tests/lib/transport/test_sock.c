/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how a connection's TCP_INFO and the errors of sends are judged. The linker redirects the library's getsockopt()
 * to this test. */
#include "tests/tap.h"
#include "transport/tcp/sock.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <linux/tcp.h>

#define STALL_MS   10000
#define TIMEOUT_MS 10000

static struct tcp_info info;

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
    if (level != IPPROTO_TCP || name != TCP_INFO)
        return __real_getsockopt(fd, level, name, value, len);
    memcpy(value, &info, HW_MIN((size_t)*len, sizeof(info)));
    return 0;
}

/* Judges a connection whose window is closed, with this number of probes since the last answer. */
static int judge(int fd, unsigned probes, unsigned silent_ms, uint64_t alone_ms)
{
    struct hw_sock_watch w = {0};
    info = (struct tcp_info){.tcpi_notsent_bytes = 1000,
                             .tcpi_probes = (uint8_t)probes,
                             .tcpi_last_ack_recv = silent_ms,
                             .tcpi_last_data_sent = silent_ms,
                             .tcpi_rtt = 100};
    return hw_sock_health(fd, &w, alone_ms, STALL_MS, TIMEOUT_MS);
}

int main(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (!ok(fd >= 0, "a socket"))
        return tap_done();
    is_int(judge(fd, 0, 500, 500), 0, "a closed window is no reason for suspicion");
    is_int(judge(fd, 1, 500, 500), 0, "nor is its first probe, which was just sent");
    is_int(judge(fd, 2, 100, 500), 1, "a second probe without an answer is one");
    is_int(judge(fd, 2, 500, 500), -ETIMEDOUT, "and ends the connection after a while: -ETIMEDOUT");
    ok(strstr(hw_error(), "2 probes of a closed window"), "%s", hw_error());
    is_int(judge(fd, 2, 500, 0), 0, "but not if no other rail hears from the peer");
    is_int(judge(fd, 3, STALL_MS + 1, 0), -ETIMEDOUT, "unless nothing is answered for stall_ms: -ETIMEDOUT");
    hw_close(&fd);

    static const struct {
        int error, want;
    } moved[] = {{EAGAIN, -EAGAIN}, {ENOBUFS, -EBUSY}, {ENOMEM, -EBUSY}, {EPIPE, -EPIPE}};
    for (size_t i = 0; i < HW_ARRAY_LEN(moved); i++) {
        errno = moved[i].error;
        is_int(hw_sock_explain("sending"), moved[i].want, "the error of a send");
    }
    is_str(hw_error(), "sending: Broken pipe", "its text");
    return tap_done();
}
