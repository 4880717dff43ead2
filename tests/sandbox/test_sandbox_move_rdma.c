/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests RDMA devices that move with their NICs, with a simulated RDMA netlink interface, because test machines have no
 * such device. The simulation answers like drivers/infiniband/core/nldev.c, but only checks that requests conform to
 * include/uapi/rdma/rdma_netlink.h.
 */
#include "sandbox_move.h"

#include <libmnl/libmnl.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define WRAP(ret, name, ...)        \
    ret __real_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__); \
    ret __wrap_##name(__VA_ARGS__)

static struct {
    bool absent; /* no ib_core */
    int mode;    /* 0: exclusive */
    int refuse;  /* result of a move: 0 or -errno */
    int strange; /* requests that the kernel would not understand */
    int n;
    struct {
        uint32_t index;
        const char *name;
        ino_t ns;
        int netdev[2]; /* one for each port; 0 if there is no such port */
    } dev[3];
} rdma;

/* Only one socket at a time: requests that are sent on `ours` are answered through `theirs`. */
static int ours = -1, theirs = -1;
static ino_t of_ns;

static ino_t ns_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

WRAP(int, socket, int domain, int type, int protocol)
{
    int pair[2];
    if (domain != AF_NETLINK || protocol != NETLINK_RDMA)
        return __real_socket(domain, type, protocol);
    if (rdma.absent)
        return errno = EPROTONOSUPPORT, -1;
    hw_close(&theirs);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    ours = pair[0];
    theirs = pair[1];
    of_ns = ns_of("/proc/thread-self/ns/net");
    return ours;
}

static struct nlmsghdr *answer(char buf[512], const struct nlmsghdr *to, uint16_t type, uint16_t flags)
{
    memset(buf, 0, 512);
    struct nlmsghdr *h = mnl_nlmsg_put_header(buf);
    h->nlmsg_type = type;
    h->nlmsg_flags = flags;
    h->nlmsg_seq = to->nlmsg_seq;
    return h;
}

static void give(const struct nlmsghdr *h)
{
    if (send(theirs, h, h->nlmsg_len, 0) < 0)
        abort();
}

static void end(const struct nlmsghdr *to, int error)
{
    char buf[512];
    bool dump = (to->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    struct nlmsghdr *h = answer(buf, to, dump && !error ? NLMSG_DONE : NLMSG_ERROR, dump ? NLM_F_MULTI : 0);
    if (h->nlmsg_type == NLMSG_ERROR) {
        struct nlmsgerr *e = mnl_nlmsg_put_extra_header(h, sizeof(*e));
        e->error = error;
        e->msg = *to;
    } else {
        *(int *)mnl_nlmsg_put_extra_header(h, sizeof(int)) = 0;
    }
    give(h);
}

static uint32_t asked(const struct nlmsghdr *h, int type)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, 0)
    {
        if (mnl_attr_get_type(a) == type && mnl_attr_get_payload_len(a) == 4)
            return mnl_attr_get_u32(a);
    }
    return UINT32_MAX;
}

/* Returns the text of an attribute of the request, or NULL. */
static const char *asked_text(const struct nlmsghdr *h, int type)
{
    const struct nlattr *a;
    mnl_attr_for_each(a, h, 0)
    {
        if (mnl_attr_get_type(a) == type && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) == 0)
            return mnl_attr_get_str(a);
    }
    return NULL;
}

static int serve(const struct nlmsghdr *h)
{
    char buf[512], path[32];
    struct nlmsghdr *out;
    uint32_t index = asked(h, RDMA_NLDEV_ATTR_DEV_INDEX), fd = asked(h, RDMA_NLDEV_NET_NS_FD);
    bool dump = (h->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
    if (h->nlmsg_type == RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET) && !dump) {
        out = answer(buf, h, h->nlmsg_type, 0);
        mnl_attr_put_u8(out, RDMA_NLDEV_SYS_ATTR_NETNS_MODE, (uint8_t)rdma.mode);
        give(out);
        return 0;
    }
    if (h->nlmsg_type == RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET) && dump) {
        for (int i = 0; i < rdma.n; i++) {
            if (rdma.mode == 0 && rdma.dev[i].ns != of_ns)
                continue;
            out = answer(buf, h, h->nlmsg_type, NLM_F_MULTI);
            mnl_attr_put_u32(out, RDMA_NLDEV_ATTR_DEV_INDEX, rdma.dev[i].index);
            mnl_attr_put_strz(out, RDMA_NLDEV_ATTR_DEV_NAME, rdma.dev[i].name);
            give(out);
        }
        return 0;
    }
    int d = 0;
    while (d < rdma.n && (rdma.dev[d].index != index || rdma.dev[d].ns != of_ns))
        d++;
    if (d == rdma.n)
        return -EINVAL;
    if (h->nlmsg_type == RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_PORT_GET) && dump) {
        for (uint32_t p = 0; p < 2 && rdma.dev[d].netdev[p]; p++) {
            out = answer(buf, h, h->nlmsg_type, NLM_F_MULTI);
            mnl_attr_put_u32(out, RDMA_NLDEV_ATTR_DEV_INDEX, index);
            mnl_attr_put_u32(out, RDMA_NLDEV_ATTR_PORT_INDEX, p + 1);
            mnl_attr_put_u32(out, RDMA_NLDEV_ATTR_NDEV_INDEX, (uint32_t)rdma.dev[d].netdev[p]);
            give(out);
        }
        return 0;
    }
    const char *name = asked_text(h, RDMA_NLDEV_ATTR_DEV_NAME);
    if (h->nlmsg_type == RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SET) && !dump && name) {
        static char given[64];
        snprintf(given, sizeof(given), "%s", name);
        rdma.dev[d].name = given;
        return 0;
    }
    if (h->nlmsg_type == RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SET) && !dump && fd != UINT32_MAX) {
        snprintf(path, sizeof(path), "/proc/self/fd/%u", fd);
        if (!rdma.refuse)
            rdma.dev[d].ns = ns_of(path);
        return rdma.refuse;
    }
    rdma.strange++;
    return -EINVAL;
}

WRAP(ssize_t, sendto, int fd, const void *buf, size_t n, int flags, const struct sockaddr *to, socklen_t len)
{
    int domain = 0; /* another socket may have reused the descriptor number */
    socklen_t size = sizeof(domain);
    if (fd < 0 || fd != ours || getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) < 0 || domain != AF_UNIX)
        return __real_sendto(fd, buf, n, flags, to, len);
    const struct nlmsghdr *h = buf;
    if (n < sizeof(*h) || h->nlmsg_len != n || !(h->nlmsg_flags & NLM_F_REQUEST))
        rdma.strange++;
    end(h, serve(h));
    return (ssize_t)n;
}

/* ---- the tests ----------------------------------------------------------------------------------- */

static struct sm_ns box;

static int move(enum sb_rdma how, const char *a, const char *b)
{
    struct sb_nic nic[] = {{a, NULL}, {b, NULL}};
    struct sb_move_options o = {
        .id = "box", .netns = box.path, .nic = nic, .n = b ? 2 : 1, .journal_dir = sm_dir, .rdma = how, .log = &sm_log};
    return sb_move(&o);
}

int main(void)
{
    sm_start();
    sm_ns_make(&box);
    int n0 = sm_nic("n0"), n1 = sm_nic("n1"), n2 = sm_nic("n2");
    sm_addr(&sm_host, "n0", "10.9.0.1/16");
    char *was = sm_settled();
    ino_t here = ns_of(sm_host.path), there = ns_of(box.path);
    rdma.n = 2;
    rdma.dev[0].index = 4;
    rdma.dev[0].name = "mlx5_0";
    rdma.dev[0].netdev[0] = n0;
    rdma.dev[1].index = 7;
    rdma.dev[1].name = "mlx5_1";
    rdma.dev[1].netdev[0] = n1;
    rdma.dev[1].netdev[1] = n2;
    rdma.dev[0].ns = rdma.dev[1].ns = here;

    ok(move(SB_RDMA_AUTO, "n0", NULL) == 0 && rdma.dev[0].ns == there && rdma.dev[1].ns == here,
       "in exclusive mode a NIC's RDMA device goes along, and no other");
    ok(sm_restore(NULL) == 0 && rdma.dev[0].ns == here && sm_same(&sm_host, was) && sm_clean(), "and comes back");
    ok(move(SB_RDMA_AUTO, "n0", NULL) == 0, "moved");
    rdma.dev[0].name = "tenants_0";
    ok(sm_restore(NULL) == 0 && rdma.dev[0].ns == here && strcmp(rdma.dev[0].name, "mlx5_0") == 0,
       "one that got another name in the container has its own again: %s", rdma.dev[0].name);
    ok(move(SB_RDMA_LEAVE, "n0", NULL) == 0 && rdma.dev[0].ns == here, "unless it is to stay");
    ok(sm_restore(NULL) == 0, "restored");
    ok(move(SB_RDMA_AUTO, "n1", NULL) == -EBUSY && strstr(hw_error(), "mlx5_1 belongs to n1"),
       "a device of two NICs, one of which stays, is refused: %s", hw_error());
    ok(sm_same(&sm_host, was) && sm_clean(), "and nothing was touched");
    ok(move(SB_RDMA_REQUIRE, "n1", "n2") == 0 && rdma.dev[1].ns == there, "with both it goes");
    ok(sm_restore(NULL) == 0 && rdma.dev[1].ns == here, "and is here again");
    rdma.refuse = -EOPNOTSUPP;
    ok(move(SB_RDMA_AUTO, "n0", NULL) == -EOPNOTSUPP && strstr(hw_error(), "mlx5_0"),
       "a device that cannot be moved (rxe) fails the move: %s", hw_error());
    ok(rdma.dev[0].ns == here && sm_same(&sm_host, was) && sm_clean(), "and all is put back");
    rdma.refuse = 0;
    ok(move(SB_RDMA_AUTO, "n0", NULL) == 0, "moved");
    rdma.refuse = -EBUSY;
    is_int(sm_restore(NULL), -EIO, "one that cannot come back now is an error");
    rdma.refuse = 0;
    ok(sm_restore(NULL) == 0 && rdma.dev[0].ns == here && sm_same(&sm_host, was) && sm_clean(),
       "the next call ends it");

    rdma.mode = 1;
    is_int(move(SB_RDMA_REQUIRE, "n0", NULL), -EOPNOTSUPP, "in shared mode it is refused");
    ok(strstr(hw_error(), "shared mode") && strstr(hw_error(), "rdma system set netns exclusive"),
       "with the reason: %s", hw_error());
    ok(move(SB_RDMA_AUTO, "n0", NULL) == 0 && rdma.dev[0].ns == here, "where it was not asked for, the NIC goes alone");
    ok(sm_restore(NULL) == 0 && sm_same(&sm_host, was) && sm_clean(), "and comes back");
    rdma.mode = 0;
    is_int(move(SB_RDMA_REQUIRE, "n2", NULL), -EBUSY, "asked for and shared with one that stays");
    rdma.n = 1;
    is_int(move(SB_RDMA_REQUIRE, "n2", NULL), -ENODEV, "asked for and there is none");
    rdma.absent = true;
    is_int(move(SB_RDMA_REQUIRE, "n0", NULL), -EOPNOTSUPP, "a kernel without RDMA");
    ok(move(SB_RDMA_AUTO, "n0", NULL) == 0 && sm_restore(NULL) == 0 && sm_same(&sm_host, was),
       "which is no matter else");
    is_int(rdma.strange, 0, "all requests were what the kernel knows");
    free(was);
    hw_close(&theirs);
    sm_ns_drop(&box);
    sm_end();
    return tap_done();
}
