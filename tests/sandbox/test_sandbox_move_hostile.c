/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests attempts by a container with CAP_NET_ADMIN in its network namespace to prevent or abuse restore: copies of
 * NICs, NICs that change their index, NICs that hide, and NICs that take names of the host. After restore, the host
 * must have its own NICs or a report of the missing ones, and a copy must not get anything that belongs to the host.
 */
#include "sandbox_move.h"
#include "sandbox_move_int.h"

#include <libmnl/libmnl.h>
#include <limits.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sm_ns box;
static const uint8_t mac0[6] = {0x02, 0xaa, 0, 0, 0, 1}, mac1[6] = {0x02, 0xaa, 0, 0, 0, 2};

/* ---- what a tenant can do ------------------------------------------------------------------------ */

static struct nlmsghdr *link_message(char buf[1024], uint16_t type, uint16_t flags, int index)
{
    struct ifinfomsg *i;
    struct nlmsghdr *h = sm_request(buf, type, flags, sizeof(*i), &i);
    i->ifi_index = index;
    return h;
}

static int talk(const struct sm_ns *n, struct nlmsghdr *h)
{
    return hw_netlink_talk((struct hw_netlink *)&n->rt, h, NULL, NULL, "a tenant's request");
}

/* Creates a veth pair in n, whose first end imitates a NIC of the host. */
static void copy_veth(const struct sm_ns *n, const char *name, int index, const uint8_t mac[6])
{
    struct hw_rtnl_end a = {name, index, -1}, b = {"copy-p", 5000, -1};
    MUST(hw_rtnl_veth_add((struct hw_netlink *)&n->rt, &a, &b, 0));
    sm_mac(n, name, mac);
}

static void copy_macvlan(const struct sm_ns *n, const char *name, int index, const uint8_t mac[6], const char *lower)
{
    char buf[1024];
    struct nlmsghdr *h = link_message(buf, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL, index);
    mnl_attr_put_strz(h, IFLA_IFNAME, name);
    mnl_attr_put_u32(h, IFLA_LINK, (uint32_t)sm_index(n, lower));
    mnl_attr_put(h, IFLA_ADDRESS, 6, mac);
    struct nlattr *info = mnl_attr_nest_start(h, IFLA_LINKINFO);
    mnl_attr_put_str(h, IFLA_INFO_KIND, "macvlan");
    struct nlattr *data = mnl_attr_nest_start(h, IFLA_INFO_DATA);
    mnl_attr_put_u32(h, IFLA_MACVLAN_MODE, MACVLAN_MODE_BRIDGE);
    mnl_attr_nest_end(h, data);
    mnl_attr_nest_end(h, info);
    MUST(talk(n, h));
}

static int carry(const struct sm_ns *from, const char *name, const struct sm_ns *to, const char *as, int index)
{
    char buf[1024];
    struct nlmsghdr *h = link_message(buf, RTM_NEWLINK, 0, sm_index(from, name));
    mnl_attr_put_u32(h, IFLA_NET_NS_FD, (uint32_t)to->fd);
    mnl_attr_put_strz(h, IFLA_IFNAME, as);
    if (index)
        mnl_attr_put_u32(h, IFLA_NEW_IFINDEX, (uint32_t)index);
    return talk(from, h);
}

static int altname(const struct sm_ns *n, const char *dev, const char *alt)
{
    char buf[1024];
    struct nlmsghdr *h = link_message(buf, RTM_NEWLINKPROP, NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND, sm_index(n, dev));
    struct nlattr *list = mnl_attr_nest_start(h, IFLA_PROP_LIST | NLA_F_NESTED);
    mnl_attr_put_strz(h, IFLA_ALT_IFNAME, alt);
    mnl_attr_nest_end(h, list);
    return talk(n, h);
}

/* Returns whether the state of a namespace contains a text, such as an address that only one NIC has. */
static bool has_line(const struct sm_ns *n, const char *text)
{
    char *s = sm_state(n);
    bool there = strstr(s, text) != NULL;
    free(s);
    return there;
}

#define ADDR0 " 2=0a090001" /* 10.9.0.1 of n0 */
#define ADDR1 " 2=0a090002" /* 10.9.0.2 of n1 */

/* Creates a NIC with the given MAC, from which the kernel derives the NIC's link-local address. */
static void make_nic(const char *name, const uint8_t mac[6])
{
    sm_nic(name);
    sm_set(&sm_host, name, "up", 0);
    sm_mac(&sm_host, name, mac);
    sm_set(&sm_host, name, "up", 1);
}

static void furnish(void)
{
    make_nic("n0", mac0);
    make_nic("n1", mac1);
    sm_nic("low");
    sm_macvlan("mv0", "low");
    sm_addr(&sm_host, "n0", "10.9.0.1/24");
    sm_addr(&sm_host, "n1", "10.9.0.2/24");
    sm_addr(&sm_host, "mv0", "10.9.0.3/24");
    sm_route(&sm_host, "10.20.0.0/24", "10.9.0.100", "n0", 0, 0);
}

/* Recreates n0, mv0 or both after a tenant has deleted them. */
static void refurnish(bool n0, bool mv0)
{
    if (n0) {
        make_nic("n0", mac0);
        sm_addr(&sm_host, "n0", "10.9.0.1/24");
        sm_route(&sm_host, "10.20.0.0/24", "10.9.0.100", "n0", 0, 0);
    }
    if (mv0) {
        sm_macvlan("mv0", "low");
        sm_addr(&sm_host, "mv0", "10.9.0.3/24");
    }
}

/* ---- copies -------------------------------------------------------------------------------------- */

static void test_copies(void)
{
    unsigned lost = 9;
    uint8_t mac[6];
    struct hw_rtnl_link l;
    int n0 = sm_index(&sm_host, "n0"), mv0 = sm_index(&sm_host, "mv0");
    MUST(hw_rtnl_link_get(&sm_host.rt, "mv0", &l));
    memcpy(mac, l.mac, 6);
    MUST(sm_move(&box, "n0,mv0", false));
    sm_link_del(&box, "n0");
    sm_link_del(&box, "mv0");
    copy_veth(&box, "n0", n0, mac0);
    copy_macvlan(&box, "mv0", mv0, mac, "n0");
    ok(sm_index(&box, "n0") == n0 && sm_index(&box, "mv0") == mv0,
       "a tenant deletes a veth and a macvlan device, and makes others of the same index, name and MAC");
    sm_logged[0] = 0;
    int rc = sm_restore(&lost);
    ok(rc == 0 && lost == 2, "both are lost (%d, %u): exit status 1", rc, lost);
    ok(!sm_index(&sm_host, "n0") && !sm_index(&sm_host, "mv0"), "neither copy has come to the host");
    ok(!has_line(&sm_host, ADDR0), "nor has the host's address gone to one");
    ok(strstr(sm_logged, "n0") && strstr(sm_logged, "replaced"), "what happened is said: %s", sm_logged);
    ok(sm_index(&box, "n0") == n0, "the copy is where it was");
    ok(sm_clean(), "no journal is left");
    if (sm_index(&box, "n0"))
        sm_link_del(&box, "n0");
    for (const char *const *p = (const char *const[]){"n0", "mv0", NULL}; *p; p++)
        if (sm_index(&sm_host, *p))
            sm_link_del(&sm_host, *p);
    refurnish(true, true);
}

/* Tests that a host device with the type and MAC of a lost NIC is not mistaken for the NIC. */
static void test_copy_here(void)
{
    unsigned lost = 9;
    MUST(sm_move(&box, "mv0", false));
    struct hw_rtnl_link l;
    MUST(hw_rtnl_link_get(&box.rt, "mv0", &l));
    sm_link_del(&box, "mv0");
    copy_macvlan(&sm_host, "other", 0, l.mac, "low");
    int other = sm_index(&sm_host, "other");
    int rc = sm_restore(&lost);
    ok(rc == 0 && lost == 1, "a device of the host with the lost one's kind and MAC is not taken for it (%d, %u)", rc,
       lost);
    ok(sm_index(&sm_host, "other") == other, "it keeps its name");
    if (sm_index(&sm_host, "other"))
        sm_link_del(&sm_host, "other");
    if (sm_index(&sm_host, "mv0"))
        sm_link_del(&sm_host, "mv0");
    refurnish(false, true);
}

/* indexes and names */

static void test_swapped(char *was)
{
    struct sm_ns nest;
    unsigned lost = 9;
    sm_ns_make(&nest);
    MUST(sm_move(&box, "n0,n1", false));
    int i0 = sm_index(&box, "n0"), i1 = sm_index(&box, "n1");
    MUST(carry(&box, "n0", &nest, "a", 0));
    MUST(carry(&box, "n1", &nest, "b", 0));
    MUST(carry(&nest, "a", &box, "n1", i1));
    MUST(carry(&nest, "b", &box, "n0", i0));
    sm_mac(&box, "n0", mac0);
    sm_mac(&box, "n1", mac1);
    ok(sm_index(&box, "n0") == i0 && sm_index(&box, "n1") == i1,
       "a tenant makes two NICs change places, names and MACs");
    int rc = sm_restore(&lost);
    ok(rc == 0 && lost == 0 && sm_same(&sm_host, was), "each comes back as itself: %s", rc < 0 ? hw_error() : "yes");
    sm_ns_drop(&nest);
}

/* Starts a process in n that calls fn(other) until it is killed. */
static pid_t start_tenant(const struct sm_ns *n, void (*fn)(const struct sm_ns *other), const struct sm_ns *other)
{
    struct stat a, b;
    char path[64];
    pid_t pid = fork();
    if (pid == 0) {
        if (setns(n->fd, CLONE_NEWNET) < 0)
            _exit(1);
        for (;;)
            fn(other);
    }
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    while (fstat(n->fd, &a) == 0 && (stat(path, &b) < 0 || a.st_ino != b.st_ino))
        (void)poll(NULL, 0, 5);
    return pid;
}

static void end_tenant(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void carry_about(const struct sm_ns *other)
{
    struct sm_ns own = {.fd = box.fd, .rt.fd = -1}, nest = {.fd = other->fd, .rt.fd = -1};
    if (hw_netns_rtnl(own.fd, &own.rt) < 0 || hw_netns_rtnl(nest.fd, &nest.rt) < 0)
        _exit(1);
    for (;;) {
        (void)carry(&own, "n0", &nest, "x", 0);
        (void)carry(&nest, "x", &own, "n0", 0);
    }
}

static void sit(const struct sm_ns *other)
{
    (void)other;
    pause();
}

static void test_moved_on(char *was)
{
    struct sm_ns nest;
    unsigned lost = 9;
    sm_ns_make(&nest);
    int rc = 0;
    for (int i = 0; i < 2; i++) {
        MUST(sm_move(&box, "n0", false));
        MUST(carry(&box, "n0", &nest, "x", 0));
        if (i) { /* another device takes n0's former index and name */
            copy_veth(&box, "n0", sm_index(&sm_host, "n0") + 77, mac0);
            ok(true, "once more, with a copy in its place");
        }
        pid_t pid = start_tenant(&nest, sit, NULL);
        rc = sm_restore(&lost);
        ok(rc == 0 && lost == 0, "a NIC that was moved on, to a namespace in which some process is, is found: %s",
           rc < 0 ? hw_error() : sm_logged);
        ok(sm_same(&sm_host, was), "and is as it was");
        end_tenant(pid);
        if (!sm_index(&sm_host, "n0"))
            MUST(carry(&nest, "x", &sm_host, "n0", 0));
    }
    sm_link_del(&box, "n0");
    sm_ns_drop(&nest);
}

/* Tests that a NIC that cannot be found is not reported as lost while a container is running. */
static void test_restless(char *was)
{
    struct sm_ns nest;
    unsigned lost = 9;
    int rc = -EIO, tries = 0;
    sm_ns_make(&nest);
    MUST(sm_move(&box, "n0", false));
    pid_t pid = start_tenant(&box, carry_about, &nest);
    while (rc == -EIO && tries++ < 20) {
        lost = 9;
        rc = sm_restore(&lost);
    }
    ok((rc == 0 && lost == 0) || rc == -EIO,
       "a NIC that a container carries from namespace to namespace is found, or looked for "
       "again (%d tries): %s",
       tries,
       rc < 0 ? hw_error()
       : lost ? "lost"
              : "found");
    end_tenant(pid);
    ok(sm_restore(&lost) == 0 && sm_same(&sm_host, was) && sm_clean(), "and is here when the container has ended");
    if (!sm_index(&sm_host, "n0"))
        MUST(sm_index(&nest, "x") ? carry(&nest, "x", &sm_host, "n0", 0) : carry(&box, "n0", &sm_host, "n0", 0));
    sm_ns_drop(&nest);

    MUST(sm_move(&box, "mv0", false));
    pid = start_tenant(&box, sit, NULL);
    sm_link_del(&box, "mv0");
    rc = sm_restore(&lost);
    ok(rc == -EIO && strstr(hw_error(), "is running"),
       "one that it has deleted may be somewhere, for as long as it runs: %s", hw_error());
    end_tenant(pid);
    ok(sm_restore(&lost) == 0 && lost == 1 && sm_clean(), "then it is lost");
    refurnish(false, true);
}

static void test_names(char *was)
{
    static const char odd[] = "\x1b[31m\xff,=x";
    unsigned lost = 9;
    MUST(sm_move(&box, "n0", false));
    ok(altname(&box, "n0", "n1") == 0 && altname(&box, "n0", "lo-and-behold") == 0 && altname(&box, "n0", "low") == 0,
       "a tenant gives a NIC other names, which devices of the host have");
    sm_set(&box, "n0", "up", 0); /* before Linux 6.2, a device that is up could not be renamed */
    MUST(hw_rtnl_link_rename(&box.rt, sm_index(&box, "n0"), odd));
    sm_logged[0] = 0;
    int rc = sm_restore(&lost);
    ok(rc == 0 && lost == 0 && sm_same(&sm_host, was), "it comes back without these: %s", rc < 0 ? hw_error() : "yes");
    ok(!strchr(sm_logged, 0x1b), "no control character of its name is in the log");
    /* The NIC's former index is in use in the host, and the NIC has the highest index in the container. */
    struct sm_ns nest;
    sm_ns_make(&nest);
    int index = sm_index(&sm_host, "n0");
    MUST(sm_move(&box, "n0", false));
    MUST(carry(&box, "n0", &nest, "x", 0));
    MUST(carry(&nest, "x", &box, "n0", INT_MAX));
    struct hw_rtnl_end a = {"squat", index, -1}, b = {"squat-p", 0, -1};
    MUST(hw_rtnl_veth_add(&sm_host.rt, &a, &b, 0));
    rc = sm_restore(&lost);
    int now = sm_index(&sm_host, "n0");
    ok(rc == 0 && lost == 0 && now > 0 && now < 100000 && has_line(&sm_host, ADDR0),
       "a NIC of the highest number comes back under a number that is free: %s", rc < 0 ? hw_error() : "yes");
    sm_link_del(&sm_host, "squat");
    sm_ns_drop(&nest);
}

/* Tests the maximum number of alternative names, which makes the device's description longer than usual. */
static void test_many_names(char *was)
{
    unsigned lost = 9;
    int n = 0;
    char name[128];
    MUST(sm_move(&box, "n0,n1", false));
    memset(name, 'x', sizeof(name));
    do
        snprintf(name + 110, sizeof(name) - 110, "%06d", n);
    while (n < 2000 && altname(&box, "n0", name) == 0 && n++ >= 0);
    ok(n > 200, "a tenant gives a NIC %d alternative names", n);
    int rc = sm_restore(&lost);
    ok(rc == 0 && lost == 0 && sm_same(&sm_host, was), "it comes back with none of them: %s",
       rc < 0 ? hw_error() : "yes");
}

/* Tests that devices which the container creates on top of a NIC do not prevent restore. */
static void test_built_on(char *was)
{
    unsigned lost = 9;
    MUST(sm_move(&box, "n0,n1", false));
    MUST(hw_rtnl_bridge_add(&box.rt, "br", 0));
    MUST(hw_rtnl_link_master(&box.rt, sm_index(&box, "n0"), sm_index(&box, "br")));
    static const uint8_t mac[6] = {2, 0, 0, 0, 0, 5};
    copy_macvlan(&box, "mvx", 0, mac, "n1");
    int rc = sm_restore(&lost);
    ok(rc == 0 && lost == 0 && sm_same(&sm_host, was), "NICs that are a bridge's port, and under a macvlan device: %s",
       rc < 0 ? hw_error() : "back");
    sm_link_del(&box, "br");
}

/* Tests a container in which the NIC's index and the highest index are in use. */
static void test_high(char *was)
{
    unsigned lost = 9;
    struct sm_ns full;
    sm_ns_make(&full);
    struct hw_rtnl_end a = {"a", INT_MAX, -1}, b = {"b", sm_index(&sm_host, "n0"), -1};
    MUST(hw_rtnl_veth_add(&full.rt, &a, &b, 0));
    int rc = sm_move(&full, "n0", false);
    ok(rc == 0, "a container has the NIC's index, and the highest one: moved: %s", rc < 0 ? hw_error() : "yes");
    ok(sm_restore(&lost) == 0 && lost == 0 && sm_same(&sm_host, was), "and back");
    sm_ns_drop(&full);
}

/* ---- during a restore ---------------------------------------------------------------------------- */

/* The tenant acts during restore: just before the request that moves the NIC, another device takes the NIC's index. */
static struct {
    bool armed;
    int index;
} race;

ssize_t __real_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len);
ssize_t __wrap_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len);
ssize_t __wrap_sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
    const struct nlmsghdr *h = buf;
    const struct ifinfomsg *i = mnl_nlmsg_get_payload(h);
    const struct nlattr *a;
    if (race.armed && h->nlmsg_type == RTM_NEWLINK && i->ifi_index == race.index) {
        bool moves = false;
        mnl_attr_for_each(a, h, sizeof(*i)) moves |= mnl_attr_get_type(a) == IFLA_NET_NS_FD;
        if (moves) {
            race.armed = false;
            sm_link_del(&box, "n0");
            copy_veth(&box, "n0", race.index, mac0);
        }
    }
    return __real_sendto(fd, buf, n, flags, to, len);
}

static void test_race(void)
{
    unsigned lost = 9;
    MUST(sm_move(&box, "n0", false));
    race.index = sm_index(&box, "n0");
    race.armed = true;
    sm_logged[0] = 0;
    int rc = sm_restore(&lost);
    ok(!race.armed, "a tenant replaces a NIC between the look at it and its move");
    ok(rc == 0 && lost == 1, "it is lost (%d, %u)", rc, lost);
    ok(!has_line(&sm_host, ADDR0) && !sm_index(&sm_host, "n0"),
       "the copy has no address of the host's, and is not here");
    ok(sm_index(&box, "copy-p") > 0 && strstr(sm_logged, "replaced"), "it is in the container again: %s", sm_logged);
    if (sm_index(&sm_host, "n0"))
        sm_link_del(&sm_host, "n0");
    if (sm_index(&box, "copy-p"))
        sm_link_del(&box, "copy-p");
    refurnish(true, false);
}

/* ---- alternative names set by the operator -------------------------------------------------------- */

static void test_alternatives(void)
{
    char *was;
    MUST(altname(&sm_host, "n0", "rail0"));
    was = sm_settled();
    int rc = sm_move(&box, "rail0", false);
    ok(rc == -ENODEV && strstr(hw_error(), "n0"), "a NIC is moved by its name, not by an alternative one: %s",
       rc < 0 ? hw_error() : "it was");
    if (rc == 0)
        (void)sm_restore(NULL);
    rc = sm_move(&box, "n0,rail0", false);
    ok(rc < 0 && sm_same(&sm_host, was), "nor twice by both");
    if (rc == 0)
        (void)sm_restore(NULL);
    free(was);
}

int main(void)
{
    sm_start();
    sm_ns_make(&box);
    furnish();
    test_copies();
    test_copy_here();
    test_race();
    char *was = sm_settled();
    test_swapped(was);
    test_moved_on(was);
    test_built_on(was);
    test_many_names(was);
    test_high(was);
    test_names(was);
    free(was);
    was = sm_settled(); /* n0's index has changed, because another device had taken the old one */
    test_restless(was);
    free(was);
    test_alternatives();
    sm_ns_drop(&box);
    sm_end();
    return tap_done();
}
