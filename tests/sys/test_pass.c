/* SPDX-License-Identifier: Apache-2.0 */
/* Tests file descriptors passed over a socket (sys/pass.c). The receiver must report excess descriptors, and must not
 * leave any of them open. */
#include "sys/pass.h"

#include "tests/tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int count_open(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Sends n file descriptors and receives up to cap. Returns the number that arrived, and sets *cut if others were cut
 * off. Closes the descriptors that arrived. */
static int pass(int pair[2], unsigned n, unsigned cap, bool *cut)
{
    int out[HW_PASS_MAX], in[HW_PASS_MAX], got = 0;
    char text[8];
    for (unsigned i = 0; i < n; i++)
        out[i] = pair[0];
    ok(hw_pass_send(pair[0], NULL, "words", 5, out, n, 0) == 0, "%u descriptors are sent", n);
    ssize_t len = hw_pass_receive(pair[1], text, sizeof(text), in, cap, MSG_DONTWAIT, cut);
    ok(len == 5 && memcmp(text, "words", 5) == 0, "the words arrive");
    for (unsigned i = 0; i < cap; i++) {
        got += in[i] >= 0;
        ok(in[i] < 0 || fcntl(in[i], F_GETFD) == FD_CLOEXEC, "descriptor %u is closed by exec", i);
        hw_close(&in[i]);
    }
    return got;
}

int main(void)
{
    static const unsigned caps[] = {1, 2, 3, HW_PASS_MAX};
    static const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    int pair[2], fd;
    char byte;
    bool cut;
    for (size_t t = 0; t < HW_ARRAY_LEN(types); t++) {
        if (socketpair(AF_UNIX, types[t] | SOCK_CLOEXEC, 0, pair) < 0)
            return 1;
        int before = count_open();
        for (size_t i = 0; i < HW_ARRAY_LEN(caps); i++)
            for (unsigned n = 0; n <= HW_MIN(caps[i] + 2, (unsigned)HW_PASS_MAX); n += n < 5 ? 1 : 29) {
                int got = pass(pair, n, caps[i], &cut);
                ok(got == (int)HW_MIN(n, caps[i]), "of %u, %d arrive where there is room for %u", n, got, caps[i]);
                is_int(cut, n > caps[i], "and it is told whether there were more");
            }
        is_int(count_open(), before, "none is left open");
        is_int(hw_pass_receive(pair[1], &byte, 1, &fd, 1, MSG_DONTWAIT, NULL), -EAGAIN, "nothing there: EAGAIN");
        is_int(fd, -1, "and no descriptor");
        is_int(hw_pass_send(pair[0], NULL, "x", 1, &fd, HW_PASS_MAX + 1, 0), -E2BIG, "too many");
        close(pair[1]);
        int rc = hw_pass_send(pair[0], NULL, "x", 1, NULL, 0, 0);
        ok(rc == -EPIPE || rc == -ECONNREFUSED || rc == -ECONNRESET, "nobody is there: %s, and no signal",
           strerror(-rc));
        close(pair[0]);
    }
    return tap_done();
}
