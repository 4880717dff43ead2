/* SPDX-License-Identifier: Apache-2.0 */
/* Tests moving NICs to a container and back: attributes that move with a NIC, attributes that are restored, and moves
 * that are refused. */
#include "sandbox_move.h"

#include <fcntl.h>
#include <linux/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sm_ns box;

/* a complete cycle */

/* Creates NICs and a macvlan device with addresses, routes, rules, neighbours and other settings. */
static void furnish(void)
{
    static const uint8_t mac[6] = {0x02, 0xaa, 0xbb, 0xcc, 0xdd, 0x01};
    sm_nic("n0");
    sm_nic("n1");
    sm_nic("n2");
    sm_nic("low");
    sm_set(&sm_host, "n0", "up", 0); /* the link-local address is then derived from the secret */
    sm_sysctl(&sm_host, "ipv6/conf/n0/stable_secret", "2001:db8::1234");
    sm_set(&sm_host, "n0", "up", 1);
    sm_macvlan("mv0", "low");
    sm_mac(&sm_host, "n0", mac);
    sm_set(&sm_host, "n0", "mtu", 1400);
    sm_set(&sm_host, "n0", "txqlen", 77);
    sm_set(&sm_host, "n0", "group", 5);
    sm_set(&sm_host, "n0", "promisc", 1);
    sm_alias(&sm_host, "n0", "rail zero");
    sm_addr(&sm_host, "n0", "10.9.0.1/16");
    sm_addr(&sm_host, "n0", "10.9.0.21/16"); /* a secondary address */
    sm_addr(&sm_host, "n0", "10.9.0.11/16");
    sm_addr_like(&sm_host, "n0", "192.0.2.7/24", "n0:1", 0);
    sm_addr_like(&sm_host, "n0", "198.51.100.7/24", NULL, 5000);
    sm_addr(&sm_host, "n0", "2001:db8::1/64");
    sm_addr(&sm_host, "n0", "2001:db8::3/64");
    sm_addr(&sm_host, "n0", "2001:db8::2/64");
    sm_addr_like(&sm_host, "n0", "2001:db8:1::2/64", NULL, 6000);
    sm_addr(&sm_host, "n0", "fe80::77/64"); /* set manually */
    sm_addr(&sm_host, "n1", "10.9.0.2/16");
    sm_addr(&sm_host, "mv0", "10.9.0.3/16");
    sm_addr(&sm_host, "n2", "10.9.0.4/16");
    sm_set(&sm_host, "n2", "up", 0); /* an admin-down NIC stays down */
    sm_route(&sm_host, "10.20.0.0/24", "10.9.0.100", "n0", 0, 0);
    sm_route(&sm_host, "10.25.0.0/24", NULL, "n0", 0, 0);
    sm_route(&sm_host, "10.20.1.0/24", "10.25.0.9", "n0", 0, 0); /* the route to the gateway is listed later */
    sm_route(&sm_host, "10.21.0.0/24", NULL, "n0", 0, 50);
    sm_route(&sm_host, "10.21.0.0/24", NULL, "n1", 0, 50);
    sm_route(&sm_host, "10.22.0.0/24", "10.9.0.100", "n1", 77, 0);
    sm_route(&sm_host, "default", "10.9.0.100", "n1", 77, 0); /* in a table that is rarely used */
    sm_route2(&sm_host, "10.23.0.0/24", "10.9.0.100", "n0", "10.9.0.101", "n1");
    sm_route2(&sm_host, "10.24.0.0/24", "10.9.0.100", "n0", "10.30.0.9", "stays");
    sm_route(&sm_host, "2001:db8:2::/48", "2001:db8::99", "n0", 0, 0);
    sm_route(&sm_host, "2001:db8:3::/48", "fe80::99", "n0", 0, 10);
    sm_rule(&sm_host, "10.9.0.2", NULL, 77, 1000);
    sm_rule(&sm_host, NULL, "n0", 78, 1001);
    sm_rule(&sm_host, "10.99.0.0/16", NULL, 79, 1002); /* unrelated to these NICs */
    sm_neigh(&sm_host, "n0", "10.9.9.9", false);
    sm_neigh(&sm_host, "n0", "2001:db8::99", false);
    sm_neigh(&sm_host, "n1", "10.9.9.10", true);
    sm_sysctl(&sm_host, "ipv4/conf/n0/rp_filter", "2");
    sm_sysctl(&sm_host, "ipv4/conf/n1/forwarding", "1");
    sm_sysctl(&sm_host, "ipv4/neigh/n1/gc_stale_time", "77");
    sm_sysctl(&sm_host, "ipv6/conf/n0/accept_ra", "0");
    sm_sysctl(&sm_host, "ipv6/conf/n1/disable_ipv6", "1");
}

static void test_whole(char *was)
{
    char buf[64];
    struct hw_rtnl_link l;
    sm_logged[0] = 0;
    int rc = sm_move(&box, "n0,n1=rdma1,n2,mv0", false);
    is_int(rc, 0, "three veth devices and a macvlan one are moved");
    if (rc < 0)
        diag("%s", hw_error());
    is_int(sm_index(&sm_host, "n0") + sm_index(&sm_host, "n1") + sm_index(&sm_host, "n2") + sm_index(&sm_host, "mv0"),
           0, "none of them is in the host any more");
    ok(hw_rtnl_link_get(&box.rt, "n0", &l) == 0 && l.up && l.mtu == 1400 && l.mac[5] == 1,
       "one is in the container, up, with its MTU and MAC");
    ok(hw_rtnl_link_get(&box.rt, "rdma1", &l) == 0 && l.up, "another one under its new name");
    ok(hw_rtnl_link_get(&box.rt, "n2", &l) == 0 && !l.up, "one that was down is down");
    char *there = sm_state(&box);
    /* In hexadecimal: RTA_DST=1 10.20.1.0, 10.21.0.0, 10.22.0.0, 10.23.0.0 */
    ok(strstr(there, " 1=0a140100") && strstr(there, " 1=0a150000") && strstr(there, " 1=0a160000") &&
           strstr(there, " 1=0a170000"),
       "the routes came along, into their tables, one with two nexthops too");
    ok(!strstr(there, " 1=0a180000") && strstr(sm_logged, "left out"),
       "one through a NIC that stays did not, and it is said");
    ok(strstr(there, " 2=0a090001") && strstr(there, " 2=0a090015") && strstr(there, " 2=c0000207"),
       "so did the IPv4 addresses");
    ok(strstr(there, " 1=20010db8000000000000000000000001"), "and the IPv6 ones");
    ok(strstr(there, " 3=6e3000"), "and the rule on n0");
    ok(!strstr(there, "neigh "), "the neighbours did not");
    is_str(sm_sysctl_get(&box, "ipv4/conf/rdma1/arp_ignore", buf), "1", "arp_ignore");
    is_str(sm_sysctl_get(&box, "ipv4/conf/rdma1/arp_announce", buf), "2", "arp_announce");
    is_str(sm_sysctl_get(&box, "ipv4/conf/rdma1/arp_filter", buf), "1", "arp_filter");
    is_str(sm_sysctl_get(&box, "ipv4/conf/rdma1/rp_filter", buf), "1", "rp_filter");
    free(there);

    unsigned lost = 9;
    rc = sm_restore(&lost);
    ok(rc == 0 && lost == 0, "restored");
    if (rc < 0)
        diag("%s", sm_logged);
    ok(sm_same(&sm_host, was), "the host has everything back, attribute by attribute");
    ok(sm_clean(), "no journal and no pin is left");
    is_int(sm_restore(&lost), 0, "restoring again is no error");
    there = sm_state(&box);
    ok(!strstr(there, " 3=6e3000"), "the container has none of the rules any more");
    free(there);
}

/* ---- changes that a container may make ----------------------------------------------------------- */

static void test_changed(char *was)
{
    static const uint8_t mac[6] = {0x02, 1, 2, 3, 4, 5};
    ok(sm_move(&box, "n0,n1,mv0", false) == 0, "moved");
    int i = sm_index(&box, "n0");
    sm_set(&box, "n0", "up", 0);
    ok(hw_rtnl_link_rename(&box.rt, i, "mine") == 0, "the container renames a NIC,");
    sm_mac(&box, "mine", mac);
    sm_set(&box, "mine", "mtu", 900);
    sm_set(&box, "mine", "txqlen", 3);
    sm_set(&box, "mine", "promisc", 0);
    sm_alias(&box, "mine", "mine");
    sm_addr(&box, "mine", "10.77.0.1/24");
    sm_set(&box, "n1", "up", 0);
    ok(hw_rtnl_link_rename(&box.rt, sm_index(&box, "n1"), "n0") == 0, "gives its name to another");
    sm_mac(&box, "mv0", mac);
    unsigned lost;
    ok(sm_restore(&lost) == 0 && lost == 0, "restored");
    ok(sm_same(&sm_host, was), "names, MACs, MTUs, addresses are what they were");
}

static void test_deleted(char *was)
{
    unsigned lost = 0;
    ok(sm_move(&box, "n0,mv0", false) == 0, "moved");
    sm_link_del(&box, "mv0");
    sm_logged[0] = 0;
    ok(sm_restore(&lost) == 0 && lost == 1, "one that the container deleted is lost, the other is back");
    ok(strstr(sm_logged, "mv0 is lost"), "and that is said");
    ok(sm_clean(), "nothing is left of the journal");
    sm_macvlan("mv0", "low");
    sm_addr(&sm_host, "mv0", "10.9.0.3/16");
    (void)was;
}

static void test_name_taken(char *was)
{
    char journal[128];
    snprintf(journal, sizeof(journal), "%s/box.journal", sm_dir);
    ok(sm_move(&box, "n1", false) == 0, "moved");
    sm_macvlan("n1", "low"); /* an unrelated device */
    ok(sm_restore(NULL) == -EIO && strstr(hw_error(), "now has the NIC's name"), "a name that is taken is an error: %s",
       hw_error());
    ok(sm_index(&sm_host, "n1") > 0 && access(journal, F_OK) == 0,
       "the NIC is back under another name, the journal stays");
    sm_link_del(&sm_host, "n1");
    ok(sm_restore(NULL) == 0, "the next call ends it");
    ok(sm_same(&sm_host, was), "with everything as it was");
    ok(sm_move(&box, "n1=mine", false) == 0, "moved under another name");
    sm_macvlan("n1", "low");
    is_int(sm_restore(NULL), -EIO, "that name is taken again, the one in the container is not");
    sm_link_del(&sm_host, "n1");
    ok(sm_restore(NULL) == 0 && sm_same(&sm_host, was) && sm_clean(), "the next call ends it");
}

/* ---- ends ---------------------------------------------------------------------------------------- */

static pid_t holder(const struct sm_ns *n)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (setns(n->fd, CLONE_NEWNET) < 0)
            _exit(1);
        for (;;)
            pause();
    }
    struct stat a, b;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    while (fstat(n->fd, &a) == 0 && (stat(path, &b) < 0 || a.st_ino != b.st_ino))
        (void)poll(NULL, 0, 5);
    return pid;
}

static void test_end(char *was)
{
    struct sm_ns own;
    unsigned lost = 0;
    sm_ns_make(&own);
    pid_t pid = holder(&own);
    char netns[16];
    snprintf(netns, sizeof(netns), "%d", (int)pid);
    struct sb_nic nic[] = {{"n0", NULL}, {"mv0", NULL}};
    struct sb_move_options o = {.id = "box", .netns = netns, .nic = nic, .n = 2, .journal_dir = sm_dir, .log = &sm_log};
    ok(sb_move(&o) == 0, "moved to a process's namespace");
    sm_ns_drop(&own);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ok(sm_restore(&lost) == 0 && lost == 0, "after its end nothing is lost, a macvlan and a veth device neither");
    ok(sm_same(&sm_host, was), "everything is as it was");

    sm_ns_make(&own);
    ok(sm_move(&own, "n0,mv0", false) == 0, "moved once more");
    char pin[128];
    snprintf(pin, sizeof(pin), "%s/box.netns", sm_dir);
    ok(umount2(pin, MNT_DETACH) == 0, "somebody takes the pin away,");
    int back = sm_index(&own, "n0");
    ok(hw_rtnl_link_move(&own.rt, back, sm_host.fd, "dev7") == 0,
       "n0 goes where the kernel puts hardware, bare and under another name,");
    sm_ns_drop(&own);
    sm_logged[0] = 0;
    ok(sm_restore(&lost) == 0 && lost == 1, "and the namespace ends: one NIC is lost");
    ok(strstr(sm_logged, "mv0 is lost") && strstr(sm_logged, "macvlan"), "which one, and why, is said");
    sm_macvlan("mv0", "low");
    sm_addr(&sm_host, "mv0", "10.9.0.3/16");
    ok(sm_index(&sm_host, "n0") > 0 && sm_index(&sm_host, "dev7") == 0 && sm_clean(),
       "the other is found, and is itself");
}

static int see(const struct sb_status *s, void *arg)
{
    *(struct sb_status *)arg = *s;
    return 0;
}

static void test_watch(char *was)
{
    struct sm_ns own;
    struct sb_status s;
    int stop[2];
    sm_ns_make(&own);
    pid_t pid = holder(&own);
    char netns[16];
    snprintf(netns, sizeof(netns), "%d", (int)pid);
    struct sb_nic nic[] = {{"n0", "x"}, {"n1", NULL}};
    struct sb_move_options o = {.id = "box", .netns = netns, .nic = nic, .n = 2, .journal_dir = sm_dir, .log = &sm_log};
    struct sb_restore_options r = {.id = "box", .journal_dir = sm_dir, .log = &sm_log};
    is_int(sb_watch(&r, -1, NULL), -ENOENT, "nothing to watch");
    ok(sb_move(&o) == 0, "moved");
    sm_ns_drop(&own);
    ok(sb_status(sm_dir, NULL, see, &s) == 0 && s.state == SB_STATE_RUNNING && s.holder == pid && s.n == 2 &&
           strcmp(s.nic[0].as, "x") == 0 && s.nic[0].there && !s.nic[0].here,
       "its status says so");
    ok(pipe2(stop, O_CLOEXEC) == 0 && write(stop[1], "", 1) == 1, "told to stop,");
    is_int(sb_watch(&r, stop[0], NULL), -ECANCELED, "watch stops");
    close(stop[0]);
    close(stop[1]);
    pid_t watcher = fork();
    if (watcher == 0)
        _exit(sb_watch(&r, -1, NULL) == 0 ? 0 : 1);
    (void)poll(NULL, 0, 100);
    int st = 0;
    ok(waitpid(watcher, &st, WNOHANG) == 0, "it waits while the container lives");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ok(waitpid(watcher, &st, 0) == watcher && WIFEXITED(st) && WEXITSTATUS(st) == 0, "and restores at its end");
    ok(sm_same(&sm_host, was) && sm_clean(), "everything is as it was");
    is_int(sb_status(sm_dir, "box", see, &s), -ENOENT, "there is no status any more");

    /* The namespace is given by a path, and no process runs in it. */
    sm_ns_make(&own);
    ok(sm_move(&own, "n0", false) == 0, "moved to a namespace by its path");
    ok(sb_status(sm_dir, "box", see, &s) == 0 && s.state == SB_STATE_RUNNING && s.holder == 0, "it runs");
    sm_ns_drop(&own);
    ok(sb_status(sm_dir, "box", see, &s) == 0 && s.state == SB_STATE_ENDED && s.nic[0].there, "it has ended");
    ok(sb_watch(&r, -1, NULL) == 0 && sm_same(&sm_host, was) && sm_clean(), "watch sees that, and restores");
}

/* ---- moves that are refused ----------------------------------------------------------------------- */

static void refuses(int rc, int want, const char *text, const char *was, const char *what)
{
    ok(rc == want && strstr(hw_error(), text), "%s: %s", what, hw_error());
    if (rc != want)
        diag("got %d", rc);
    char *is = sm_state(&sm_host);
    ok(strcmp(is, was) == 0 && sm_clean(), "and nothing was touched");
    free(is);
    if (rc == 0)
        (void)sm_restore(NULL);
}

static void test_refused(void)
{
    char *was;
    sm_nic("def");
    sm_addr(&sm_host, "def", "10.40.0.1/24");
    sm_route(&sm_host, "default", "10.40.0.254", "def", 0, 0);
    sm_nic("ra");
    sm_route_ra(&sm_host, "fe80::1", "ra");
    sm_nic("port");
    (void)hw_rtnl_bridge_add(&sm_host.rt, "br1", 0);
    (void)hw_rtnl_link_master(&sm_host.rt, sm_index(&sm_host, "port"), sm_index(&sm_host, "br1"));
    was = sm_settled();
    refuses(sm_move(&box, "nosuch", false), -ENODEV, "nosuch", was, "a NIC that there is not");
    refuses(sm_move(&box, "n0,nosuch", false), -ENODEV, "nosuch", was, "one among others");
    refuses(sm_move(&box, "lo", false), -EINVAL, "loopback", was, "the loopback device");
    refuses(sm_move(&box, "n0,def", false), -EBUSY, "default route", was, "a NIC with the default route");
    refuses(sm_move(&box, "ra", false), -EBUSY, "default route", was, "one with a router's advertised one");
    refuses(sm_move(&box, "port", false), -EBUSY, "port of", was, "a bridge's port");
    refuses(sm_move(&box, "low", false), -EBUSY, "mv0 is stacked on low", was, "a NIC under a macvlan device");
    refuses(sm_move(&box, "n0,n0", false), -EINVAL, "twice", was, "a NIC twice");
    refuses(sm_move(&box, "n0=x,n1=x", false), -EINVAL, "two NICs", was, "two NICs of one name");
    refuses(sm_move(&box, "n0=a/b", false), -EINVAL, "not a valid name", was, "no name");
    refuses(sm_move(&box, "n0=lo", false), -EEXIST, "already has a network device lo", was,
            "a name that the container has");
    refuses(sm_move(&sm_host, "n0", false), -EINVAL, "already", was, "the host's own namespace");
    struct sm_ns bad = {.path = "/proc/self/exe"};
    refuses(sm_move(&bad, "n0", false), -EINVAL, "not a network namespace", was, "a path of something else");
    struct sm_ns gone = {.path = "nosuchnamespace"};
    refuses(sm_move(&gone, "n0", false), -ENOENT, "nosuchnamespace", was, "a name that is not");
    struct sm_ns none = {.path = "2147483646"};
    refuses(sm_move(&none, "n0", false), -ESRCH, "no process", was, "a process that is not");
    struct sb_move_options o = {.id = "../box", .netns = box.path, .n = 1, .nic = &(struct sb_nic){"n0", NULL}};
    refuses(sb_move(&o), -EINVAL, "not a valid container ID", was, "an id that leads elsewhere");
    o.id = "other";
    o.journal_dir = sm_dir;
    o.rdma = SB_RDMA_REQUIRE;
    int rc = sb_move(&o);
    ok(rc == -EOPNOTSUPP || rc == -ENODEV, "RDMA devices where there are none: %s", hw_error());
    o.rdma = SB_RDMA_AUTO;
    ok(sm_move(&box, "def", true) == 0, "with force the default route goes along");
    ok(sm_restore(NULL) == 0 && sm_same(&sm_host, was), "and comes back");

    ok(sm_move(&box, "n0", false) == 0, "moved");
    is_int(sm_move(&box, "n1", false), -EEXIST, "a container has one journal");
    is_int(sb_move(&o), -EBUSY, "a NIC that another container has");
    ok(strstr(hw_error(), "n0 belongs to the container box"), "is said to be so: %s", hw_error());
    ok(sm_restore(NULL) == 0 && sm_same(&sm_host, was), "and comes back");

    /* The journal was modified. */
    ok(sm_move(&box, "n0", false) == 0, "moved");
    char path[128], c = 'x';
    snprintf(path, sizeof(path), "%s/box.journal", sm_dir);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    char before;
    ok(fd >= 0 && pread(fd, &before, 1, 100) == 1 && pwrite(fd, &c, 1, 100) == 1, "a byte of the journal is changed:");
    ok(sm_restore(NULL) == -EBADMSG && strstr(hw_error(), "checksum"), "it is refused, %s,", hw_error());
    struct sb_status s;
    ok(sb_status(sm_dir, NULL, see, &s) == 0 && s.state == SB_STATE_UNREADABLE && strstr(s.error, "checksum"),
       "its status says so,");
    ok(pwrite(fd, &before, 1, 100) == 1 && sm_restore(NULL) == 0 && sm_same(&sm_host, was), "and is not lost");
    close(fd);
    ok(mkfifo(path, 0600) == 0, "a FIFO in the journal's place:");
    ok(sm_restore(NULL) < 0 && sb_status(sm_dir, NULL, see, &s) == 0 && s.state == SB_STATE_UNREADABLE,
       "is refused without waiting for a writer: %s", s.error);
    unlink(path);
    free(was);
}

int main(void)
{
    sm_start();
    sm_ns_make(&box);
    sm_nic("stays");
    sm_addr(&sm_host, "stays", "10.30.0.1/24");
    furnish();
    char *was = sm_settled();
    test_whole(was);
    test_changed(was);
    test_deleted(was);
    free(was);
    was = sm_settled(); /* includes a new macvlan device */
    test_name_taken(was);
    test_end(was);
    free(was);
    was = sm_settled();
    test_watch(was);
    free(was);
    test_refused();
    sm_ns_drop(&box);
    sm_end();
    return tap_done();
}
