/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that lists of network devices and addresses are read again if they changed while the kernel listed them
 * (NLM_F_DUMP_INTR, which __wrap_recv() adds). */
#include "sys/rtnl.h"
#include "sys/rtnl_neigh.h"
#include "tests/tap.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

static unsigned interrupt_dumps; /* dumps that are reported as interrupted from now on */
static unsigned dumps;           /* ends of dumps seen */

ssize_t __real_recv(int fd, void *buf, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
    ssize_t n = __real_recv(fd, buf, len, flags);
    struct nlmsghdr *h = buf;
    for (int left = (int)n; n > 0 && NLMSG_OK(h, (unsigned)left); h = NLMSG_NEXT(h, left)) {
        if (interrupt_dumps)
            h->nlmsg_flags |= NLM_F_DUMP_INTR;
        if (h->nlmsg_type != NLMSG_DONE)
            continue;
        dumps++;
        interrupt_dumps -= interrupt_dumps > 0;
    }
    return n;
}

int main(void)
{
    struct hw_netlink r;
    struct hw_rtnl_link link[64];
    struct hw_rtnl_neigh neigh[64];
    struct in_addr addr;
    const int lo = (int)if_nametoindex("lo");
    uint64_t rate;
    if (hw_netlink_open(&r, NETLINK_ROUTE) < 0)
        return !ok(false, "%s", hw_error());
    const int n = hw_rtnl_link_list(&r, link, HW_ARRAY_LEN(link));
    ok(n > 0 && dumps == 1, "%d network devices are listed at once", n);
    interrupt_dumps = 2;
    is_int(hw_rtnl_link_list(&r, link, HW_ARRAY_LEN(link)), n, "two interrupted dumps: each device is listed once");
    is_int(dumps, 4, "by the third dump");
    const int plain = hw_rtnl_addr_get(&r, lo, &addr, NULL);
    dumps = 0;
    interrupt_dumps = 1;
    ok(hw_rtnl_addr_get(&r, lo, &addr, NULL) == plain && dumps == 2, "addresses are listed again");
    dumps = 0;
    interrupt_dumps = 1;
    ok(hw_rtnl_tbf_get(&r, lo, &rate) == 0 && dumps == 2, "queueing disciplines are listed again");
    dumps = 0;
    interrupt_dumps = 1;
    ok(hw_rtnl_neigh_list(&r, lo, neigh, HW_ARRAY_LEN(neigh)) >= 0 && dumps == 2, "neighbours are listed again");
    interrupt_dumps = 1000;
    ok(hw_rtnl_link_list(&r, link, HW_ARRAY_LEN(link)) == -EAGAIN && strstr(hw_error(), "the list changed during each"),
       "always interrupted: an error, and not a wrong list: %s", hw_error());
    hw_netlink_close(&r);
    return tap_done();
}
