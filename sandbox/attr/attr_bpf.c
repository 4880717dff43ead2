/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BPF programs on a device. A program that a container left behind is removed, even if a BPF link holds it. Only the
 * owner of such a link, or root with BPF_LINK_DETACH, can remove the program. A program of the host that the container
 * has removed is restored if something else still refers to it.
 */
#include "sandbox/attr/attr.h"

#include <libmnl/libmnl.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PROGRAMS_MAX 64 /* equals BPF_MPROG_MAX in include/linux/bpf_mprog.h */

/* The parts of union bpf_attr that Debian 12's headers lack: BPF_PROG_QUERY for a device, with links, and
 * BPF_PROG_ATTACH and BPF_PROG_DETACH. */
struct query {
    uint32_t ifindex, attach_type, query_flags, attach_flags;
    uint64_t prog_ids;
    uint32_t count, pad;
    uint64_t prog_attach_flags, link_ids, link_attach_flags, revision;
};
struct attach {
    uint32_t ifindex, prog, attach_type, flags, replace, relative;
    uint64_t revision;
};

static int call_bpf(int cmd, void *a, size_t n)
{
    long rc = syscall(SYS_bpf, cmd, a, n);
    return rc < 0 ? -errno : (int)rc;
}

/* Opens the program or link with this ID. Returns a file descriptor or -errno. */
static int open_by_id(int cmd, uint32_t id)
{
    union bpf_attr a;
    memset(&a, 0, sizeof(a));
    a.prog_id = id; /* link_id is at the same offset */
    return call_bpf(cmd, &a, sizeof(a));
}

static int detach_link(const struct sb_dev *d, uint32_t id)
{
    int fd = open_by_id(BPF_LINK_GET_FD_BY_ID, id);
    union bpf_attr a;
    memset(&a, 0, sizeof(a));
    a.link_detach.link_fd = (uint32_t)fd;
    int rc = fd < 0 ? fd : call_bpf(BPF_LINK_DETACH, &a, sizeof(a));
    hw_close(&fd);
    return rc < 0 ? hw_fail(rc, "%s: detaching BPF link %u: %s", d->name, id, strerror(-rc)) : 0;
}

/* ---- XDP --------------------------------------------------------------------------------------------- */

struct program {
    uint32_t flags, id; /* flags is one of the XDP_FLAGS_*_MODE */
};

static void add_program(struct program p[3], size_t *n, uint32_t flags, const struct nlattr *id)
{
    for (size_t i = 0; i < *n; i++)
        if (p[i].flags == flags)
            return;
    if (*n < 3 && mnl_attr_get_payload_len(id) == 4)
        p[(*n)++] = (struct program){flags, mnl_attr_get_u32(id)};
}

/* The value contains a `struct program` for each mode with a program. */
static int take_xdp(const struct nlmsghdr *h, void *arg)
{
    const struct nlattr *a, *b;
    struct program p[3];
    size_t n = 0;
    mnl_attr_for_each(a, h, sizeof(struct ifinfomsg))
    {
        if (mnl_attr_get_type(a) != IFLA_XDP)
            continue;
        mnl_attr_for_each_nested(b, a)
        {
            int type = mnl_attr_get_type(b);
            if (type == IFLA_XDP_SKB_PROG_ID)
                add_program(p, &n, XDP_FLAGS_SKB_MODE, b);
            if (type == IFLA_XDP_DRV_PROG_ID)
                add_program(p, &n, XDP_FLAGS_DRV_MODE, b);
            if (type == IFLA_XDP_HW_PROG_ID)
                add_program(p, &n, XDP_FLAGS_HW_MODE, b);
        }
    }
    return sb_blob_put(arg, p, n * sizeof(*p));
}

int sb_read_xdp(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    (void)a;
    return sb_netdev_message(d->k->rt, d->index, 0, take_xdp, out);
}

static int set_xdp(const struct sb_attr *a, struct sb_dev *d, int fd, uint32_t flags)
{
    char buf[256] __attribute__((aligned(8))), what[128];
    struct nlmsghdr *h = hw_netlink_request(buf, sizeof(buf), RTM_SETLINK, 0);
    struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
    i->ifi_index = d->index;
    struct nlattr *nest = mnl_attr_nest_start(h, IFLA_XDP | NLA_F_NESTED);
    mnl_attr_put_u32(h, IFLA_XDP_FD, (uint32_t)fd);
    mnl_attr_put_u32(h, IFLA_XDP_FLAGS, flags);
    mnl_attr_nest_end(h, nest);
    snprintf(what, sizeof(what), "%s: %s its %s", d->name, fd < 0 ? "removing" : "setting", a->what);
    return hw_netlink_talk(d->k->rt, h, NULL, NULL, what);
}

/* Detaches the links that hold a program on a device. The kernel reports the index of a link's device but not its
 * namespace, so the program's ID identifies the link. */
static int detach_xdp_links(struct sb_dev *d, uint32_t prog)
{
    union bpf_attr a;
    for (uint32_t id = 0;;) {
        struct bpf_link_info info;
        memset(&a, 0, sizeof(a));
        a.start_id = id;
        if (call_bpf(BPF_LINK_GET_NEXT_ID, &a, sizeof(a)) < 0)
            return 0;
        id = a.next_id;
        int fd = open_by_id(BPF_LINK_GET_FD_BY_ID, id);
        memset(&a, 0, sizeof(a));
        memset(&info, 0, sizeof(info));
        a.info.bpf_fd = (uint32_t)fd;
        a.info.info_len = sizeof(info);
        a.info.info = (uint64_t)(uintptr_t)&info;
        bool ours = fd >= 0 && call_bpf(BPF_OBJ_GET_INFO_BY_FD, &a, sizeof(a)) == 0 && info.type == BPF_LINK_TYPE_XDP &&
                    info.prog_id == prog && info.xdp.ifindex == (uint32_t)d->index;
        hw_close(&fd);
        int rc = ours ? detach_link(d, id) : 0;
        if (rc < 0)
            return rc;
    }
}

static bool has_program(const struct sb_blob *b, const struct program *p)
{
    for (size_t i = 0; i + sizeof(*p) <= b->n; i += sizeof(*p))
        if (memcmp(b->p + i, p, sizeof(*p)) == 0)
            return true;
    return false;
}

int sb_write_xdp(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    struct program p;
    int rc = 0;
    for (size_t i = 0; i + sizeof(p) <= now->n; i += sizeof(p)) {
        memcpy(&p, now->p + i, sizeof(p));
        if (has_program(was, &p))
            continue;
        int err = set_xdp(a, d, -1, p.flags);
        if (err == -EBUSY)
            err = detach_xdp_links(d, p.id);
        rc = rc < 0 ? rc : err;
    }
    for (size_t i = 0; i + sizeof(p) <= was->n; i += sizeof(p)) {
        memcpy(&p, was->p + i, sizeof(p));
        if (has_program(now, &p))
            continue;
        int fd = open_by_id(BPF_PROG_GET_FD_BY_ID, p.id);
        int err = fd == -ENOENT ? hw_fail(fd,
                                          "%s: BPF program %u of the host was removed, and nothing else refers to it, "
                                          "so it cannot be restored",
                                          d->name, p.id)
                  : fd < 0 ? hw_fail(fd, "%s: opening BPF program %u of the host: %s", d->name, p.id, strerror(-fd))
                           : set_xdp(a, d, fd, p.flags);
        hw_close(&fd);
        rc = rc < 0 ? rc : err;
    }
    return rc;
}

/* ---- tcx --------------------------------------------------------------------------------------------- */

/* Fills ids and links (which may be NULL), each with space for PROGRAMS_MAX. Returns the number of programs, or
 * -errno. */
static int query_tcx(const struct sb_attr *a, const struct sb_dev *d, uint32_t *ids, uint32_t *links)
{
    struct query q = {.ifindex = (uint32_t)d->index,
                      .attach_type = a->type,
                      .prog_ids = (uint64_t)(uintptr_t)ids,
                      .count = PROGRAMS_MAX,
                      .link_ids = (uint64_t)(uintptr_t)links};
    int rc = call_bpf(BPF_PROG_QUERY, &q, sizeof(q));
    return rc < 0 ? rc == -EINVAL ? -EOPNOTSUPP /* a kernel without tcx rejects the attach type */
                                  : hw_fail(rc, "%s: reading its %s: %s", d->name, a->what, strerror(-rc))
                  : (int)HW_MIN(q.count, (uint32_t)PROGRAMS_MAX);
}

/* The value is the list of the programs' IDs, in order. */
int sb_read_tcx(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out)
{
    uint32_t ids[PROGRAMS_MAX] = {0};
    int n = query_tcx(a, d, ids, NULL);
    if (n == -ENOENT) /* nothing is attached */
        n = 0;
    return n < 0 ? n : sb_blob_put(out, ids, 4 * (size_t)n);
}

static bool has_id(const struct sb_blob *b, uint32_t id)
{
    for (size_t i = 0; i + 4 <= b->n; i += 4)
        if (memcmp(b->p + i, &id, 4) == 0)
            return true;
    return false;
}

static int change_tcx(const struct sb_attr *a, const struct sb_dev *d, int cmd, uint32_t id)
{
    int fd = open_by_id(BPF_PROG_GET_FD_BY_ID, id);
    struct attach x = {.ifindex = (uint32_t)d->index, .prog = (uint32_t)fd, .attach_type = a->type};
    int rc = fd < 0 ? fd : call_bpf(cmd, &x, sizeof(x));
    hw_close(&fd);
    return rc < 0 ? hw_fail(rc, "%s: changing BPF program %u, its %s: %s", d->name, id, a->what, strerror(-rc)) : 0;
}

int sb_write_tcx(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now)
{
    uint32_t ids[PROGRAMS_MAX] = {0}, links[PROGRAMS_MAX] = {0};
    int n = query_tcx(a, d, ids, links), rc = HW_MIN(n, 0);
    for (int i = 0; i < n; i++) {
        int err = has_id(was, ids[i]) ? 0
                  : links[i]          ? detach_link(d, links[i])
                                      : change_tcx(a, d, BPF_PROG_DETACH, ids[i]);
        rc = rc < 0 ? rc : err;
    }
    for (size_t i = 0; i + 4 <= was->n; i += 4) {
        uint32_t id;
        memcpy(&id, was->p + i, 4);
        int err = has_id(now, id) ? 0 : change_tcx(a, d, BPF_PROG_ATTACH, id);
        rc = rc < 0 ? rc : err;
    }
    return rc;
}
