/* SPDX-License-Identifier: Apache-2.0 */
#include "verbs_slow.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

char *slow;
int slow_fd = -1;
static int sock[2];
static bool give;

static int make_userfaultfd(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || ioctl(fd, UFFDIO_API, &api) == 0)
        return fd;
    int err = errno;
    close(fd);
    errno = err;
    return -1;
}

bool slow_possible(void)
{
    int fd = make_userfaultfd();
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/* Called in the program before the filter is installed. */
static int make_pages(void)
{
    char *p = mmap(NULL, (SLOW_PAGES + 1ul) * SLOW_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    slow_fd = make_userfaultfd();
    if (p == MAP_FAILED || slow_fd < 0)
        return -1;
    slow = p + SLOW_PAGE;
    fake->number[SLOW_NUMBER] = (long)(uintptr_t)slow;
    struct uffdio_register r = {.range = {(uintptr_t)slow, (uint64_t)SLOW_PAGES * SLOW_PAGE},
                                .mode = UFFDIO_REGISTER_MODE_MISSING};
    if (ioctl(slow_fd, UFFDIO_REGISTER, &r) || (give && fd_send(sock[1], slow_fd)))
        return -1;
    if (give)
        hw_close(&slow_fd);
    return 0;
}

void slow_start(struct world *w, const char *policy, int (*fn)(void *), void *arg, bool given)
{
    fake_reset();
    give = given;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sock))
        abort();
    world_before = make_pages;
    world_start(w, policy, true, fn, arg);
    world_before = NULL;
    if (given)
        slow_fd = fd_take(sock[0]);
    close(sock[0]);
    close(sock[1]);
}

bool slow_wanted(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct uffd_msg m;
    return poll(&p, 1, SLOW_WAIT) == 1 && read(fd, &m, sizeof m) == sizeof m && m.event == UFFD_EVENT_PAGEFAULT;
}

int slow_let_go(unsigned page)
{
    struct uffdio_zeropage z = {.range = {(uint64_t)fake->number[SLOW_NUMBER] + (uint64_t)page * SLOW_PAGE, SLOW_PAGE}};
    return ioctl(slow_fd, UFFDIO_ZEROPAGE, &z) ? -errno : 0;
}
