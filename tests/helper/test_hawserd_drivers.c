/* SPDX-License-Identifier: Apache-2.0 */
/* Tests hawserd with simulated NICs that behave like gve, mlx5, bnxt and fbnic (tests/fakes/kernel/drivers.h). Flow
 * rules must be listed completely, and queues must be bound. After everything is undone, XDP programs and other
 * programs' bindings must work as before. */
#include "helper/kernel/ethtool.h"
#include "helper/state/state.h"
#include "tests/fakes/kernel/fake.h"
#include "tests/tap.h"

#include <linux/ethtool_netlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* Formats a test description. */
static const char *say(const char *fmt, ...) HW_PRINTF(1, 2);
static const char *say(const char *fmt, ...)
{
    static char text[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return text;
}

/* ---- flow rules, through ethtool's ioctl (linked with --wrap) ------------------------------------------ */

#define LOCS 1024u

static struct {
    bool on;
    enum fake_like like;
    bool used[LOCS];
    int between; /* number of rules added (or removed, if negative) between the count request and the list request */
    int times;   /* number of repetitions; -1: on each request, with alternating sign */
    unsigned asked;
} R;

static uint32_t rules_used(uint32_t *loc)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LOCS; i++)
        if (R.used[i])
            loc[n++] = i;
    return n;
}

static void meddle(void)
{
    if (R.times == 0)
        return;
    int n = R.between;
    for (uint32_t i = 0; i < LOCS && n; i++)
        if (R.used[i] != (n > 0)) {
            R.used[i] = n > 0;
            n += n > 0 ? -1 : 1;
        }
    if (R.times > 0)
        R.times--;
    else
        R.between = -R.between;
}

static int rules_ioctl(struct ethtool_rxnfc *r)
{
    uint32_t loc[LOCS], n = rules_used(loc);
    switch (r->cmd) {
    case ETHTOOL_GRXCLSRLCNT:
        driver_count(R.like, n, r);
        return 0;
    case ETHTOOL_GRXCLSRLALL:
        R.asked++;
        meddle();
        n = rules_used(loc);
        return driver_list(R.like, loc, n, r);
    case ETHTOOL_GRXCLSRULE:
        if (r->fs.location >= LOCS || !R.used[r->fs.location])
            return -EINVAL;
        r->fs.flow_type = TCP_V4_FLOW;
        r->fs.ring_cookie = 5;
        return 0;
    case ETHTOOL_SRXCLSRLINS:
        if (r->fs.location == RX_CLS_LOC_ANY)
            r->fs.location = 77;
        R.used[r->fs.location] = true;
        return 0;
    default:
        return -EOPNOTSUPP;
    }
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
    va_list ap;
    va_start(ap, request);
    void *arg = va_arg(ap, void *);
    va_end(ap);
    if (!R.on || (request != SIOCETHTOOL && request != SIOCGIFNAME))
        return __real_ioctl(fd, request, arg);
    struct ifreq *f = arg;
    if (request == SIOCGIFNAME) {
        snprintf(f->ifr_name, sizeof(f->ifr_name), "eth1");
        return 0;
    }
    int rc = rules_ioctl((struct ethtool_rxnfc *)f->ifr_data);
    errno = -rc;
    return rc ? -1 : 0;
}

static void rules_are(enum fake_like like, uint32_t n)
{
    memset(&R, 0, sizeof(R));
    R.on = true;
    R.like = like;
    for (uint32_t i = 0; i < n; i++)
        R.used[LOCS - 1 - i * (LOCS / n)] = true;
}

/* Checks that each rule is listed exactly once. */
static void listed(const char *what, int want)
{
    struct hd_rule *r = NULL;
    unsigned n = 0;
    uint32_t loc[LOCS];
    int rc = hd_eth_rules(3, 11, &r, &n);
    uint32_t there = rules_used(loc);
    bool same = rc == 0 && n == there;
    for (unsigned i = 0; same && i < n; i++)
        same = r[i].loc == loc[i] && r[i].queue == 5;
    ok(want ? rc == want : same, "%s, %s: %u of %u rules are listed (%s)", like_names[R.like], what, n, there,
       rc ? hw_error() : "as they are");
    free(r);
}

static void lists(void)
{
    for (enum fake_like l = LIKE_GVE; l < LIKES; l++) {
        static const uint32_t many[] = {0, 1, 5, 16, 64, LOCS};
        for (size_t i = 0; i < HW_ARRAY_LEN(many); i++) {
            char what[32];
            snprintf(what, sizeof(what), "%u rules", many[i]);
            rules_are(l, many[i]);
            listed(what, 0);
        }
        rules_are(l, 9);
        R.between = 3;
        R.times = 1;
        listed("three come in between", 0);
        rules_are(l, 9);
        R.between = -3;
        R.times = 2;
        listed("three go in between, twice", 0);
        rules_are(l, 9);
        R.between = 2;
        R.times = -1;
        struct hd_rule *r = NULL;
        unsigned n;
        int rc = hd_eth_rules(3, 11, &r, &n);
        free(r);
        ok((rc == 0 || rc == -EAGAIN) && R.asked < 20,
           "%s: rules that come and go at each look end somewhere: %u looks", like_names[l], R.asked);

        struct hd_rule add = {.queue = 3};
        add.local.sa.sa_family = add.remote.sa.sa_family = AF_INET;
        rules_are(l, 4);
        is_int(hd_eth_rule_add(3, 11, &add), 0, say("%s: a rule is added", like_names[l]));
        bool any = l == LIKE_BNXT || l == LIKE_FBNIC;
        is_int(add.loc, any ? 77 : LOCS - 2, any ? "where the driver likes" : "at the highest free place");
    }
    R.on = false;
}

/* ---- binding, and undoing bindings --------------------------------------------------------------------- */

static struct fake *F;
static struct hd_kernel K;
static struct hd_rights any = {
    .who = "user 0", .nics = "*", .max_queues = 16, .max_bindings = 16, .max_rules = 64, .max_bytes = UINT64_MAX};
static struct hw_logger quiet;
static int me;

static int bind_rx(struct hd_state *s, unsigned n, uint32_t page, struct hw_helper_reply *a)
{
    struct hw_helper_request q = {.type = HW_H_BIND_RX, .count = n, .page = page, .nic = "eth1"};
    struct hd_facts f;
    int fd = fake_dmabuf(1 << 20);
    *a = (struct hw_helper_reply){0};
    hd_inspect(&K, q.type, fd, &f);
    int rc = hd_bind(s, &me, 0, &any, &f, fd, &q, a);
    close(fd);
    return rc;
}

/* Resets the fake kernel. Returns the driver of eth1 in its initial state. */
static struct fake_driver *fresh(enum fake_like like, unsigned mtu)
{
    struct fake *new = fake_new();
    *F = *new;
    fake_free(new);
    driver_init(&F->nic[0].driver, like);
    F->nic[0].mtu = mtu;
    return &F->nic[0].driver;
}

static void there_and_back(const char *how)
{
    struct fake was = *F;
    struct hd_state s;
    struct hw_helper_reply a, b;
    const struct fake_driver *d = &F->nic[0].driver;
    const char *name = like_names[d->like];
    hd_state_init(&s, &K, &quiet, NULL);
    is_int(bind_rx(&s, 1, 0, &a), 0, say("%s, %s: a queue is bound", name, how));
    is_int(bind_rx(&s, 1, 0, &b), 0, say("%s, %s: another one", name, how));
    ok(d->config == ETHTOOL_TCP_DATA_SPLIT_ENABLED && d->thresh == 0, "%s, %s: header split is configured", name, how);
    hd_drop(&s, &me);
    is_str(fake_differs(&was, F), "", say("%s, %s: all is as it was", name, how));
    bool on = was.nic[0].driver.config == ETHTOOL_TCP_DATA_SPLIT_ENABLED;
    ok((d->config == ETHTOOL_TCP_DATA_SPLIT_ENABLED) == on, "%s, %s: header split is configured on as before, or not",
       name, how);
    ok(driver_takes_xdp(d) == driver_takes_xdp(&was.nic[0].driver), "%s, %s: XDP programs may come as before", name,
       how);
    is_int(hd_left(&s), 0, say("%s, %s: nothing is left to be undone", name, how));
    ok(hw_list_empty(&s.nics), "%s, %s: hawserd holds nothing", name, how);
    hd_state_free(&s);
}

static void bindings(void)
{
    for (enum fake_like l = LIKE_PLAIN; l < LIKES; l++) {
        struct fake_driver *d = fresh(l, 1500);
        there_and_back("as it comes");
        fresh(l, 4148);
        there_and_back("large packets");
        /* an operator has enabled header split and its prerequisites for other programs */
        d->gro = d->gro_wanted = l == LIKE_MLX5;
        d->config = ETHTOOL_TCP_DATA_SPLIT_ENABLED;
        d->thresh = 0;
        d->hds = true;
        there_and_back("configured before");
    }
    struct fake_driver *d = fresh(LIKE_BNXT, 1500);
    d->gro = d->gro_wanted = true;
    there_and_back("rx-gro-hw on");
    d->thresh = 0; /* the driver reports the expected values */
    there_and_back("rx-gro-hw on, hds-thresh 0");
    d = fresh(LIKE_GVE, 4148);
    d->fixed_buf = true;
    there_and_back("rx-buf-len that cannot be set");
    d = fresh(LIKE_FBNIC, 1500);
    d->thresh = 0;
    there_and_back("hds-thresh 0");
    d = fresh(LIKE_MLX5, 1500);
    d->config = ETHTOOL_TCP_DATA_SPLIT_DISABLED;
    there_and_back("explicitly off");
    d = fresh(LIKE_MLX5, 1500);
    d->gro = d->gro_wanted = true;
    there_and_back("rx-gro-hw on");
}

static void drivers(void)
{
    struct hd_state s;
    struct hw_helper_reply a;
    hd_state_init(&s, &K, &quiet, NULL);

    const struct fake_driver *d = fresh(LIKE_GVE, 1500);
    is_int(bind_rx(&s, 1, 0, &a), 0, "gve");
    is_int(d->buf_len, 2048, "packets of 1500 bytes: two of them share a page");
    hd_drop(&s, &me);
    d = fresh(LIKE_GVE, 8244);
    is_int(bind_rx(&s, 1, 0, &a), 0, "gve, large packets");
    is_int(d->buf_len, 4096, "receive buffers are pages");
    hd_drop(&s, &me);
    is_int(d->buf_len, 2048, "and are what they were");

    d = fresh(LIKE_MLX5, 1500);
    is_int(bind_rx(&s, 1, 0, &a), 0, "mlx5");
    ok(d->gro, "rx-gro-hw is on");
    size_t len;
    char *text = hd_journal_text(&s, &len);
    ok(text && strstr(text, "\ngro-hw\n"), "and the journal has it");
    free(text);
    hd_drop(&s, &me);
    ok(!d->gro && !d->gro_wanted, "then off again");

    /* Before, bnxt reported "off". Since then, rx-gro-hw was enabled, so bnxt reports "on", and refuses "off". */
    struct fake_driver *b = fresh(LIKE_BNXT, 1500);
    is_int(bind_rx(&s, 1, 0, &a), 0, "bnxt");
    driver_gro_set(b, true);
    hd_drop(&s, &me);
    ok(driver_takes_xdp(b), "somebody turns rx-gro-hw on meanwhile: header split is not left configured");
    is_int(hd_left(&s), 0, "and what the driver refuses is not asked for again and again");
    hd_settle_all(&s);

    for (enum fake_like l = LIKE_PLAIN; l < LIKES; l++) {
        fresh(l, 4148);
        bool takes = l == LIKE_MLX5 || l == LIKE_BNXT;
        is_int(bind_rx(&s, 1, 16384, &a), 0, say("%s: pieces of 16 KiB are asked for", like_names[l]));
        is_int(a.page, takes ? 16384 : 0, takes ? "and granted" : "and pages are given");
        is_int(F->bind[0].page, a.page, "as the answer says");
        hd_drop(&s, &me);
        is_int(bind_rx(&s, 1, 1 << 20, &a), 0, say("%s: 1 MiB is too large", like_names[l]));
        is_int(a.page, 0, "so it is pages");
        hd_drop(&s, &me);
    }

    struct fake_driver *x = fresh(LIKE_MLX5, 1500);
    struct fake was = *F;
    x->xdp = was.nic[0].driver.xdp = true;
    ok(bind_rx(&s, 1, 0, &a) < 0, "an XDP program is attached: %s", hw_error());
    is_str(fake_differs(&was, F), "", "and nothing has changed, rx-gro-hw neither");
    ok(hw_list_empty(&s.nics), "hawserd holds nothing");
    hd_state_free(&s);
}

static char logged[400];

static void log_line(void *arg, int level, const char *line)
{
    (void)arg;
    (void)level;
    size_t at = strlen(logged);
    snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

/* Tests the log lines about changes of header split. No line may claim that hawserd enabled header split if it was
 * already enabled. */
static void lines(void)
{
    static const struct {
        enum fake_like like;
        unsigned mtu;
        uint8_t config;
        uint32_t thresh;
        const char *want;
    } t[] = {
        {LIKE_PLAIN, 1500, ETHTOOL_TCP_DATA_SPLIT_DISABLED, 0, "eth1: header split turned on\n"},
        {LIKE_PLAIN, 1500, ETHTOOL_TCP_DATA_SPLIT_DISABLED, 100, "eth1: header split turned on\n"},
        {LIKE_GVE, 8244, ETHTOOL_TCP_DATA_SPLIT_UNKNOWN, 0,
         "eth1: header split turned on, with receive buffers of a page"},
        {LIKE_PLAIN, 1500, ETHTOOL_TCP_DATA_SPLIT_ENABLED, 100,
         "eth1: header split configured to stay on, for packets of any"},
        {LIKE_FBNIC, 1500, ETHTOOL_TCP_DATA_SPLIT_UNKNOWN, 0, "eth1: header split configured to stay on\n"},
        {LIKE_PLAIN, 1500, ETHTOOL_TCP_DATA_SPLIT_ENABLED, 0, ""},
    };
    struct hw_logger log = {.fn = log_line, .level = HAWSER_LOG_INFO};
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++) {
        struct hd_state s;
        struct hw_helper_reply a;
        struct fake_driver *d = fresh(t[i].like, t[i].mtu);
        d->config = t[i].config;
        d->thresh = t[i].thresh;
        hd_state_init(&s, &K, &log, NULL);
        *logged = 0;
        is_int(bind_rx(&s, 1, 0, &a), 0, say("%s: a queue is bound", like_names[t[i].like]));
        ok(*t[i].want ? strstr(logged, t[i].want) != NULL : !strstr(logged, "header split"), "%s: logged: %.*s",
           like_names[t[i].like], (int)strcspn(logged, "\n"), logged);
        hd_drop(&s, &me);
        hd_state_free(&s);
    }
}

int main(void)
{
    F = fake_new();
    fake_kernel(F, &K);
    lists();
    bindings();
    drivers();
    lines();
    return tap_done();
}
