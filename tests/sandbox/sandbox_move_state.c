/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the contents of a namespace, attribute by attribute. */
#include "sandbox_move.h"
#include "sandbox_move_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/fib_rules.h>
#include <linux/if_addr.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <unistd.h>

struct state {
    char **line;
    size_t n, cap;
};

static void add_line(struct state *s, char *line)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 256;
        s->line = realloc(s->line, s->cap * sizeof(*s->line));
    }
    s->line[s->n++] = line;
}

/* Returns whether an attribute is omitted: counters, times, and attributes that depend on other attributes. */
static bool skipped(uint16_t kind, int type)
{
    switch (kind) {
    case RTM_NEWLINK:
        return type == IFLA_STATS || type == IFLA_STATS64 || type == IFLA_AF_SPEC || type == IFLA_CARRIER_CHANGES ||
               type == IFLA_CARRIER_UP_COUNT || type == IFLA_CARRIER_DOWN_COUNT ||
               type == IFLA_QDISC /* the name of the root qdisc: see below */ ||
               type == IFLA_OPERSTATE; /* for a macvlan device, reported up to a second late */
    case RTM_NEWQDISC:
        return type == TCA_STATS || type == TCA_STATS2 || type == TCA_XSTATS || type == TCA_HW_OFFLOAD;
    case RTM_NEWADDR:
        return type == IFA_CACHEINFO;
    case RTM_NEWROUTE:
        return type == RTA_CACHEINFO;
    case RTM_NEWNEIGH:
        return type == NDA_CACHEINFO || type == NDA_PROBES;
    default:
        return false;
    }
}

static int take(const struct nlmsghdr *h, void *arg)
{
    static const struct {
        uint16_t type;
        const char *name;
        size_t head;
    } kinds[] = {{RTM_NEWLINK, "link", sizeof(struct ifinfomsg)},    {RTM_NEWADDR, "addr", sizeof(struct ifaddrmsg)},
                 {RTM_NEWROUTE, "route", sizeof(struct rtmsg)},      {RTM_NEWNEIGH, "neigh", sizeof(struct ndmsg)},
                 {RTM_NEWRULE, "rule", sizeof(struct fib_rule_hdr)}, {RTM_NEWQDISC, "qdisc", sizeof(struct tcmsg)}};
    size_t k = 0;
    while (k < HW_ARRAY_LEN(kinds) && kinds[k].type != h->nlmsg_type)
        k++;
    if (k == HW_ARRAY_LEN(kinds))
        return 0;
    uint8_t head[32] = {0};
    memcpy(head, mnl_nlmsg_get_payload(h), kinds[k].head);
    if (h->nlmsg_type == RTM_NEWADDR)
        ((struct ifaddrmsg *)(void *)head)->ifa_flags &= (uint8_t) ~(IFA_F_TENTATIVE | IFA_F_DEPRECATED);
    struct tcmsg *tc = (void *)head;
    if (h->nlmsg_type == RTM_NEWQDISC && tc->tcm_handle == 0)
        return 0; /* the kernel's default qdisc, which the kernel creates when a device is first brought up */
    if (h->nlmsg_type == RTM_NEWQDISC)
        tc->tcm_info = 0; /* number of references */
    if (h->nlmsg_type == RTM_NEWROUTE && ((struct rtmsg *)(void *)head)->rtm_flags & RTM_F_CLONED)
        return 0;
    const struct ndmsg *neigh = (void *)head;
    if (h->nlmsg_type == RTM_NEWNEIGH && !(neigh->ndm_state & NUD_PERMANENT) && !(neigh->ndm_flags & NTF_PROXY))
        return 0;
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    fprintf(f, "%s ", kinds[k].name);
    for (size_t i = 0; i < kinds[k].head; i++)
        fprintf(f, "%02x", head[i]);
    const struct nlattr *a;
    mnl_attr_for_each(a, h, kinds[k].head)
    {
        uint8_t value[512];
        size_t n = HW_MIN(mnl_attr_get_payload_len(a), sizeof(value));
        if (skipped(h->nlmsg_type, mnl_attr_get_type(a)))
            continue;
        memcpy(value, mnl_attr_get_payload(a), n);
        if (h->nlmsg_type == RTM_NEWADDR && mnl_attr_get_type(a) == IFA_FLAGS)
            value[0] &= (uint8_t) ~(IFA_F_TENTATIVE | IFA_F_DEPRECATED);
        fprintf(f, " %d=", mnl_attr_get_type(a));
        for (size_t i = 0; i < n; i++)
            fprintf(f, "%02x", value[i]);
    }
    fclose(f);
    add_line(arg, text);
    return 0;
}

static void dump(const struct sm_ns *n, struct state *s, uint16_t type, int family, uint8_t nflags)
{
    for (;;) {
        char buf[1024];
        struct ndmsg *m; /* each of these headers starts with the family */
        size_t before = s->n;
        struct hw_netlink *rt = (struct hw_netlink *)&n->rt;
        struct nlmsghdr *h = sm_request(buf, type, NLM_F_DUMP,
                                        type == RTM_GETLINK    ? sizeof(struct ifinfomsg)
                                        : type == RTM_GETQDISC ? sizeof(struct tcmsg)
                                                               : sizeof(*m),
                                        &m);
        m->ndm_family = (uint8_t)family;
        if (type == RTM_GETNEIGH)
            m->ndm_flags = nflags;
        MUST(hw_netlink_talk(rt, h, take, s, "a dump"));
        if (!rt->torn)
            return;
        while (s->n > before)
            free(s->line[--s->n]);
    }
}

static void add_copy(const char *line, void *arg)
{
    add_line(arg, strdup(line));
}

static void extra(void *arg)
{
    sm_extra(add_copy, arg);
}

static void sysctls(void *arg)
{
    static const char *const groups[] = {"ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh"};
    for (size_t g = 0; g < HW_ARRAY_LEN(groups); g++) {
        char path[1024], value[256], *line;
        snprintf(path, sizeof(path), "/proc/sys/net/%s", groups[g]);
        DIR *all = opendir(path);
        const struct dirent *dev, *e;
        while (all && (dev = readdir(all)) != NULL) {
            snprintf(path, sizeof(path), "/proc/sys/net/%s/%.64s", groups[g], dev->d_name);
            DIR *d = *dev->d_name == '.' ? NULL : opendir(path);
            while (d && (e = readdir(d)) != NULL) {
                int fd = *e->d_name == '.' ? -1 : openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC);
                ssize_t n = fd < 0 ? -1 : read(fd, value, sizeof(value) - 1);
                hw_close(&fd);
                if (n <= 0)
                    continue;
                value[n - 1] = 0;
                if (asprintf(&line, "sysctl %s/%s/%s=%s", groups[g], dev->d_name, e->d_name, value) > 0)
                    add_line(arg, line);
            }
            if (d)
                closedir(d);
        }
        if (all)
            closedir(all);
    }
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *sm_state(const struct sm_ns *n)
{
    struct state s = {0};
    dump(n, &s, RTM_GETLINK, AF_UNSPEC, 0);
    for (int i = 0; i < 2; i++) {
        int family = i ? AF_INET6 : AF_INET;
        dump(n, &s, RTM_GETADDR, family, 0);
        dump(n, &s, RTM_GETROUTE, family, 0);
        dump(n, &s, RTM_GETRULE, family, 0);
        dump(n, &s, RTM_GETNEIGH, family, 0);
        dump(n, &s, RTM_GETNEIGH, family, NTF_PROXY);
    }
    dump(n, &s, RTM_GETQDISC, AF_UNSPEC, 0);
    sm_in(n, sysctls, &s);
    sm_in(n, extra, &s);
    qsort(s.line, s.n, sizeof(*s.line), by_text);
    char *text = NULL;
    size_t len;
    FILE *f = open_memstream(&text, &len);
    for (size_t i = 0; i < s.n; i++) {
        fprintf(f, "%s\n", s.line[i]);
        free(s.line[i]);
    }
    fclose(f);
    free(s.line);
    return text;
}

char *sm_settled(void)
{
    char *a = sm_state(&sm_host);
    for (int same = 0; same < 5;) {
        (void)poll(NULL, 0, 60);
        char *b = sm_state(&sm_host);
        same = strcmp(a, b) == 0 ? same + 1 : 0;
        free(a);
        a = b;
    }
    return a;
}

/* Prints the lines of a that are missing from b. Both lists are sorted. */
static void missing(const char *what, const char *a, const char *b)
{
    int told = 0;
    while (*a && told < 12) {
        size_t n = strcspn(a, "\n");
        const char *at = b;
        bool there = false;
        while (*at && !there) {
            size_t m = strcspn(at, "\n");
            there = m == n && memcmp(a, at, n) == 0;
            at += m + (at[m] == '\n');
        }
        if (!there) {
            diag("%s: %.*s", what, (int)HW_MIN(n, (size_t)2000), a);
            told++;
        }
        a += n + (a[n] == '\n');
    }
}

bool sm_same(const struct sm_ns *n, const char *was)
{
    uint64_t deadline = hw_deadline(10000);
    for (;;) {
        char *is = sm_state(n);
        bool same = strcmp(is, was) == 0;
        if (!same && hw_now() >= deadline) {
            missing("gone", was, is);
            missing("new", is, was);
        }
        free(is);
        if (same || hw_now() >= deadline)
            return same;
        (void)poll(NULL, 0, 5);
    }
}

bool sm_clean(void)
{
    char line[1024];
    int n = 0;
    DIR *d = opendir(sm_dir);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        if (*e->d_name != '.') {
            diag("left: %s", e->d_name);
            n++;
        }
    }
    if (d)
        closedir(d);
    FILE *f = fopen("/proc/self/mountinfo", "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (strstr(line, sm_dir) && strstr(line, ".netns")) {
            diag("left: %s", line);
            n++;
        }
    }
    if (f)
        fclose(f);
    return n == 0;
}
