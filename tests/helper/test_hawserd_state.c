/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests hawserd's state, and that hawserd undoes its changes. The kernel is fake. Calls fail before or after they take
 * effect, and the process is killed at each call, including the journal's rename(). Afterwards, the NICs must have
 * their previous settings.
 */
#include "helper/child/discard.h"
#include "helper/state/state.h"
#include "tests/fakes/kernel/fake.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <linux/ethtool_netlink.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct fake *F;
static struct hd_kernel K;
static struct hd_rights any = {
    .who = "user 0", .nics = "*", .max_queues = 16, .max_bindings = 16, .max_rules = 64, .max_bytes = UINT64_MAX};
static struct hw_logger quiet;
static char dir[64], path[96];
static bool journal_counts; /* count rename() as a call, too */

/* Makes the journal's rename() fail like the fake kernel's calls (linked with --wrap). */
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    if (journal_counts && fake_strikes(F, true)) {
        errno = EIO;
        return -1;
    }
    int rc = __real_rename(from, to);
    if (journal_counts && fake_strikes(F, false)) {
        errno = EIO;
        return -1;
    }
    return rc;
}

/* ---- helpers ------------------------------------------------------------------------------------ */

/* Makes a request like a client, but inspects the request's file descriptor in this process. */
static int bind_fd(struct hd_state *s, const void *owner, uid_t uid, int fd, const struct hw_helper_request *q,
                   struct hw_helper_reply *a)
{
    struct hd_facts f;
    *a = (struct hw_helper_reply){0};
    hd_inspect(&K, q->type, fd, &f);
    int rc = hd_bind(s, owner, uid, &any, &f, fd, q, a);
    close(fd);
    return rc;
}

static int bind_rx(struct hd_state *s, const void *owner, uid_t uid, const char *nic, unsigned n,
                   struct hw_helper_reply *a)
{
    struct hw_helper_request q = {.type = HW_H_BIND_RX, .count = n};
    snprintf(q.nic, sizeof(q.nic), "%s", nic);
    return bind_fd(s, owner, uid, fake_dmabuf(1 << 20), &q, a);
}

static int steer(struct hd_state *s, const void *owner, uint32_t binding, uint32_t port, struct hw_helper_reply *a)
{
    int fd = fake_sock(port);
    struct hd_facts f;
    *a = (struct hw_helper_reply){0};
    hd_inspect(&K, HW_H_STEER, fd, &f);
    close(fd);
    return hd_steer(s, owner, &any, &f, binding, a);
}

static struct hw_helper_reply A1, A2;
static int owner_a, owner_b;

/* Binds queues, steers connections and releases both. Continues after failures. Returns the number of successful
 * requests. */
static unsigned work(struct hd_state *s)
{
    struct hw_helper_reply rule = {0}, tx, gone;
    unsigned good = 0;
    good += bind_rx(s, &owner_a, 0, "eth1", 2, &A1) == 0;
    for (uint32_t p = 1; p <= 3; p++)
        good += A1.id && steer(s, &owner_a, A1.id, 6000 + p, &rule) == 0;
    struct hw_helper_request q = {.type = HW_H_BIND_TX, .nic = "eth1"};
    good += bind_fd(s, &owner_a, 0, fake_dmabuf(4096), &q, &tx) == 0;
    good += bind_rx(s, &owner_b, 7, "eth1", 1, &A2) == 0;
    good += A2.id && steer(s, &owner_b, A2.id, 7001u | 1u << 16, &gone) == 0;
    good += rule.id && hd_release(s, &owner_a, rule.id) == 0;
    good += bind_rx(s, &owner_b, 7, "eth2", 1, &gone) == 0;
    good += A1.id && hd_release(s, &owner_a, A1.id) == 0;
    good += bind_rx(s, &owner_a, 0, "eth1", 1, &A1) == 0;
    good += A1.id && steer(s, &owner_a, A1.id, 6009, &rule) == 0;
    hd_drop(s, &owner_b);
    hd_drop(s, &owner_a);
    return good;
}
#define WORK 12 /* number of requests in work() */

/* Sets up one of the FOUND initial states of the NICs. */
#define FOUND 5
static void found(struct fake *f, int how)
{
    static const enum fake_like like[FOUND][2] = {[3] = {LIKE_MLX5, LIKE_GVE}, [4] = {LIKE_BNXT, LIKE_FBNIC}};
    for (int i = 0; i < 2 && how > 0; i++) {
        struct fake_nic *n = &f->nic[i];
        if (how > 2) {
            driver_init(&n->driver, like[how][i]);
            n->mtu = 4148;
            if (like[how][i] == LIKE_MLX5) /* an operator ran: ethtool -G eth1 tcp-data-split off */
                n->driver.config = ETHTOOL_TCP_DATA_SPLIT_DISABLED;
            continue;
        }
        if (how == 1) {
            driver_init(&n->driver, LIKE_BNXT);
            n->driver.thresh = 256;
            n->driver.gro = n->driver.gro_wanted = true;
            continue;
        }
        n->driver.config = ETHTOOL_TCP_DATA_SPLIT_ENABLED;
        n->ntuple = true;
        for (uint32_t k = 0; k < FAKE_TABLE; k++)
            n->table[k] = k % 3 ? k % 5 : 6; /* an irregular RSS table */
        n->foreign[7] = HD_DMABUF;
        n->rule[3] = (struct fake_rule){.used = true, .foreign = true, .rule = {.queue = 5, .loc = 3}};
    }
}

static void journal_is(const char *what, bool there)
{
    struct hd_state s;
    hd_state_init(&s, &K, &quiet, path);
    int rc = hd_journal_read(&s);
    is_int(rc, 0, "the journal can be read");
    ok(hw_list_empty(&s.nics) != there, "%s", what);
    hd_state_free(&s);
}

/* ---- tests -------------------------------------------------------------------------------------- */

static void plain(int how)
{
    struct fake was;
    struct hd_state s;
    memset(F, 0, sizeof(*F));
    struct fake *fresh = fake_new();
    *F = *fresh;
    fake_free(fresh);
    found(F, how);
    was = *F;
    hd_state_init(&s, &K, &quiet, path);
    is_int(hd_recover(&s, 0), 0, "nothing to recover");
    is_int(work(&s), WORK, "all steps succeed");
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "and nothing was wrong on the way");
    ok(hw_list_empty(&s.nics) && hw_list_empty(&s.bindings) && hw_list_empty(&s.rules), "hawserd holds nothing");
    journal_is("the journal is empty", false);
    hd_state_free(&s);
}

static void begin(struct fake *was, int how)
{
    struct fake *fresh = fake_new();
    *F = *fresh;
    fake_free(fresh);
    found(F, how);
    *was = *F;
    unlink(path);
}

/* Returns the number of calls that recovery and work() make if no call fails. */
static unsigned count(int how, bool journal)
{
    struct fake was;
    struct hd_state s;
    begin(&was, how);
    hd_state_init(&s, &K, &quiet, path);
    journal_counts = journal;
    (void)hd_recover(&s, 0);
    (void)work(&s);
    journal_counts = false;
    hd_state_free(&s);
    return F->calls;
}

/* Runs work() once per call, and makes that call fail. */
static void failing(int how, enum fake_how kind, bool journal)
{
    struct fake was;
    unsigned calls = count(how, journal), bad = 0, struck = 0;
    for (unsigned at = 1; at <= calls; at++) {
        struct hd_state s;
        begin(&was, how);
        hd_state_init(&s, &K, &quiet, path);
        (void)hd_recover(&s, 0);
        F->calls = 0;
        F->at = at;
        F->how = kind;
        journal_counts = journal;
        unsigned good = work(&s);
        journal_counts = false;
        struck += F->struck;
        F->at = 0;
        unsigned left = hd_settle_all(&s);
        const char *differs = fake_differs(&was, F);
        if (left || *differs || F->wrong[0] || good + 8 < WORK) {
            if (bad++ < 5)
                diag("call %u: %u left, %u steps, differs: %s; wrong: %s", at, left, good, differs, F->wrong);
        }
        hd_state_free(&s);
    }
    ok(bad == 0, "found %d: each of %u calls failed %s its effect%s, and all was undone", how, struck,
       kind == FAKE_BEFORE ? "before" : "behind", journal ? ", the journal's too" : "");
    ok(struck > (kind == FAKE_BEFORE ? 60u : 20u), "there are calls to fail: %u", struck);
}

/* Kills a process at each of its calls, and then tests recovery. */
static void killed(int how, enum fake_how kind)
{
    struct fake was;
    unsigned calls = count(how, true), bad = 0, deaths = 0, with_journal = 0;
    for (unsigned at = 1; at <= calls; at++) {
        struct hd_state s;
        begin(&was, how);
        F->at = at;
        F->how = kind;
        pid_t pid = fork();
        if (pid == 0) {
            hd_state_init(&s, &K, &quiet, path);
            journal_counts = true;
            (void)hd_recover(&s, 0);
            (void)work(&s);
            _exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        fake_reap(F, pid);
        F->at = 0;
        bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        deaths += died;
        with_journal += *fake_differs(&was, F) != 0;
        hd_state_init(&s, &K, &quiet, path);
        int left = hd_recover(&s, 0);
        const char *differs = fake_differs(&was, F);
        if (left != 0 || *differs || F->wrong[0]) {
            if (bad++ < 5)
                diag("call %u: recovery says %d (%s), differs: %s; wrong: %s", at, left, hw_error(), differs, F->wrong);
        }
        hd_state_free(&s);
    }
    ok(bad == 0, "found %d: killed %s each of %u calls, and the next hawserd undid it all", how,
       kind == FAKE_DIE_BEFORE ? "before" : "behind", deaths);
    ok(deaths > 20 && with_journal > 15, "after %u of %u deaths there was something to undo", with_journal, deaths);
}

static void start(struct hd_state *s, struct fake *was, int how)
{
    begin(was, how);
    hd_state_init(s, &K, &quiet, path);
    is_int(hd_recover(s, 0), 0, "nothing to recover");
}

static void queues(void)
{
    struct fake was;
    struct hd_state s;
    struct hw_helper_reply a, b, r;
    start(&s, &was, 2);
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 1, &a), 0, "one queue");
    is_int(a.queues[0], 6, "not 7, which is bound, nor 5, which a rule leads to; the highest one of RSS");
    hd_drop(&s, &owner_a);
    F->nic[0].rule[3].used = false;
    was.nic[0].rule[3].used = false;
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 1, &a), 0, "one queue");
    is_int(a.queues[0], 5, "that which is not in RSS");
    is_str(fake_differs(&was, F), "a binding is left", "RSS need not be touched for it");
    is_int(bind_rx(&s, &owner_b, 1, "eth1", 16, &b), -EBUSY, "16 queues are not there");
    ok(strstr(hw_error(), "16 queues requested, 5 available") != NULL, "and it says so: %s", hw_error());
    is_int(bind_rx(&s, &owner_b, 1, "eth1", 5, &b), 0, "five of the six others: one stays for ordinary traffic");
    is_int(bind_rx(&s, &owner_b, 1, "eth1", 1, &r), -EBUSY, "the last one is not given away");
    hd_drop(&s, &owner_a);
    hd_drop(&s, &owner_b);
    is_str(fake_differs(&was, F), "", "all is as it was");

    /* a policy with a set of queues, and RSS contexts */
    any.queues_set = true;
    hd_put(&any.queues, 1);
    hd_put(&any.queues, 2);
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 1, &a), 0, "one of the queues that the policy allows");
    is_int(a.queues[0], 2, "the higher one");
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 2, &b), -EBUSY, "two more are not to be had");
    hd_drop(&s, &owner_a);
    hd_put(&F->nic[0].contexts, 2);
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 1, &a), 0, "one of them is another RSS context's");
    is_int(a.queues[0], 1, "then the other one");
    hd_drop(&s, &owner_a);
    any.queues_set = false;
    memset(&any.queues, 0, sizeof(any.queues));
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "nothing was wrong");
    hd_state_free(&s);
}

static void look_at_all(struct hd_state *s)
{
    hw_list_each(it, tmp, &s->rules) hw_container_of(it, struct hd_held_rule, node)->due = 0;
    (void)hd_look(s);
}

static void steering(void)
{
    struct fake was;
    struct hd_state s;
    struct hw_helper_reply a, r, t;
    unsigned of[FAKE_QUEUES] = {0};
    start(&s, &was, 0);
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 3, &a), 0, "three queues");
    for (uint32_t p = 1; p <= 6; p++)
        if (steer(&s, &owner_a, a.id, p, &r) == 0)
            of[r.queues[0]]++;
    ok(of[a.queues[0]] == 2 && of[a.queues[1]] == 2 && of[a.queues[2]] == 2, "six rules, two for each queue");
    is_int(steer(&s, &owner_a, a.id, 6, &t), -EEXIST, "one connection, one rule");
    is_int(steer(&s, &owner_b, a.id, 7, &t), -ENOENT, "nobody steers to another's binding");
    is_int(steer(&s, &owner_a, a.id, 0, &t), -EINVAL, "nor a connection within this machine");
    is_int(hd_release(&s, &owner_b, r.id), -ENOENT, "nobody releases another's rule");
    is_int(hd_release(&s, &owner_b, a.id), -ENOENT, "nor his binding");
    is_int(hd_release(&s, &owner_a, r.id), 0, "its owner does");
    is_int(hd_release(&s, &owner_a, r.id), -ENOENT, "once");
    is_int(steer(&s, &owner_a, a.id, 6, &t), 0, "and the connection can be steered again");
    look_at_all(&s);
    is_int(hd_release(&s, &owner_a, t.id), 0, "a connection that lives keeps its rule");
    F->blind = true;
    is_int(steer(&s, &owner_a, a.id, 6, &t), -ENOTCONN, "one that the kernel does not show gets none");
    F->blind = false;
    is_int(steer(&s, &owner_a, a.id, 6, &t), 0, "once more");
    ok(F->watched, "its end will be reported");
    F->ended = 6;
    look_at_all(&s);
    is_int(hd_release(&s, &owner_a, t.id), -ENOENT, "the rule of a connection that has ended is gone");
    F->ended = 0;
    is_int(steer(&s, &owner_a, a.id, 6, &t), 0, "another one of these ends");
    F->report = 6;
    hd_take_reports(&s);
    is_int(hd_release(&s, &owner_a, t.id), -ENOENT, "the rule of a socket that is reported destroyed is gone");
    is_int(steer(&s, &owner_a, a.id, 6, &t), 0, "and another one");
    F->report = 7 | 1u << 16; /* a different cookie */
    hd_take_reports(&s);
    is_int(hd_release(&s, &owner_a, t.id), 0, "the end of another socket ends no rule");
    is_int(steer(&s, &owner_a, a.id, 6, &t), 0, "one more");
    F->ended = F->report = 6;
    F->lose = true;
    hd_take_reports(&s);
    (void)hd_look(&s);
    is_int(hd_release(&s, &owner_a, t.id), -ENOENT, "where reports are lost, all are looked at");
    F->ended = 0;
    is_int(steer(&s, &owner_a, a.id, 6, &t), 0, "and so on");
    unsigned n = 0;
    for (uint32_t p = 10; steer(&s, &owner_a, a.id, p, &t) == 0; p++)
        n++;
    is_int(n, FAKE_RULES - 6, "as many rules as the NIC has room for");
    ok(strstr(hw_error(), "full") != NULL, "then: %s", hw_error());
    /* a rule that another program has replaced stays unchanged */
    uint32_t loc = FAKE_RULES - 1;
    F->nic[0].rule[loc].foreign = true;
    F->nic[0].rule[loc].rule.queue = 1;
    hd_drop(&s, &owner_a);
    ok(F->nic[0].rule[loc].used && F->nic[0].ntuple,
       "somebody else's rule in a place of ours stays, and so does ntuple");
    is_int(hd_left(&s), 1, "ntuple is still to be undone");
    F->nic[0].rule[loc].used = false;
    is_int(hd_settle_all(&s), 0, "once the rule is gone, it is");
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "nothing was wrong");
    hd_state_free(&s);
}

static void others(void)
{
    struct fake was;
    struct hd_state s;
    struct hw_helper_reply a, b;
    start(&s, &was, 0);
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 2, &a), 0, "two queues");
    /* the operator runs: ethtool -X eth1 equal 4 */
    for (uint32_t k = 0; k < FAKE_TABLE; k++)
        F->nic[0].table[k] = was.nic[0].table[k] = k % 4;
    is_int(bind_rx(&s, &owner_b, 0, "eth1", 1, &b), 0, "the next binding");
    hd_drop(&s, &owner_a);
    hd_drop(&s, &owner_b);
    is_str(fake_differs(&was, F), "", "an RSS table that the operator set meanwhile is what it goes back to");

    is_int(bind_rx(&s, &owner_a, 0, "eth2", 1, &a), 0, "a queue");
    uint32_t q = a.queues[0];
    /* another program, which also needs header split, takes the queue while hawserd releases it */
    F->nic[1].foreign[q] = HD_DMABUF;
    hd_drop(&s, &owner_a);
    ok(F->nic[1].driver.config == ETHTOOL_TCP_DATA_SPLIT_ENABLED, "header split stays on for another's binding");
    bool in = false;
    for (int k = 0; k < FAKE_TABLE; k++)
        in |= F->nic[1].table[k] == q;
    ok(!in, "his queue is not put into RSS");
    ok(hd_left(&s) > 0, "that is still to be undone");
    journal_is("and the journal knows", true);
    F->nic[1].foreign[q] = HD_FREE;
    is_int(hd_settle_all(&s), 0, "when he is gone, it is");
    is_str(fake_differs(&was, F), "", "all is as it was");

    /* a NIC that is removed */
    is_int(bind_rx(&s, &owner_a, 0, "eth2", 1, &a), 0, "a binding");
    struct hw_helper_reply r;
    is_int(steer(&s, &owner_a, a.id, 77, &r), 0, "a rule");
    F->nic[1].gone = true;
    is_int(steer(&s, &owner_a, a.id, 78, &r), -ENODEV, "the NIC is gone");
    hd_drop(&s, &owner_a);
    ok(hw_list_empty(&s.nics) && hw_list_empty(&s.rules), "then there is nothing to be undone");
    journal_is("nor in the journal", false);

    F->nic[1] = was.nic[1];

    /* a NIC reappears with the same index while an old client still has a binding to it */
    struct hw_helper_reply again;
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 1, &a), 0, "a binding");
    is_int(bind_rx(&s, &owner_a, 0, "eth1", 1, &b), 0, "another one");
    F->nic[0].gone = true;
    is_int(hd_release(&s, &owner_a, b.id), 0, "which is released when the NIC is gone");
    F->nic[0] = was.nic[0];
    for (int i = 0; i < FAKE_BINDS; i++) /* like the kernel when a device is removed */
        if (F->bind[i].ifindex == F->nic[0].ifindex)
            F->bind[i].n = 0;
    is_int(bind_rx(&s, &owner_b, 1, "eth1", 1, &again), 0, "the NIC is there again, and can be bound to");
    is_int(steer(&s, &owner_b, again.id, 99, &r), 0, "and steered to");
    journal_is("the journal knows", true);
    hd_drop(&s, &owner_b);
    hd_drop(&s, &owner_a);
    is_str(fake_differs(&was, F), "", "all is undone");
    ok(hw_list_empty(&s.nics) && hw_list_empty(&s.rules), "nothing is held");
    is_str(F->wrong, "", "nothing was wrong");
    hd_state_free(&s);
}

static void limits(void)
{
    struct fake was;
    struct hd_state s;
    struct hw_helper_reply a, b, r;
    start(&s, &was, 0);
    any.max_queues = 3;
    is_int(bind_rx(&s, &owner_a, 5, "eth1", 2, &a), 0, "two queues of three");
    is_int(bind_rx(&s, &owner_b, 5, "eth2", 2, &b), -EDQUOT, "two more, of another client of the same user");
    ok(strstr(hw_error(), "max-queues") != NULL, "%s", hw_error());
    is_int(bind_rx(&s, &owner_b, 6, "eth2", 2, &b), 0, "of another user");
    hd_drop(&s, &owner_b);
    any.max_queues = 16;
    any.max_bytes = (1 << 20) + 4096;
    is_int(bind_rx(&s, &owner_b, 5, "eth2", 1, &b), -EDQUOT, "more bytes than allowed");
    any.max_bytes = UINT64_MAX;
    any.max_bindings = 1;
    is_int(bind_rx(&s, &owner_b, 5, "eth2", 1, &b), -EDQUOT, "more bindings than allowed");
    any.max_bindings = 16;
    any.max_rules = 1;
    is_int(steer(&s, &owner_a, a.id, 1, &r), 0, "one rule");
    is_int(steer(&s, &owner_a, a.id, 2, &r), -EDQUOT, "and no other");
    any.max_rules = 64;
    is_int(bind_rx(&s, &owner_b, 5, "eth9", 1, &b), -ENODEV, "no such NIC");
    snprintf(any.nics, sizeof(any.nics), "eth1");
    is_int(bind_rx(&s, &owner_b, 5, "eth2", 1, &b), -EACCES, "a NIC of others");
    any.nics[0] = '*';
    any.nics[1] = 0;
    struct hw_helper_request q = {.type = HW_H_BIND_RX, .count = 2, .nic = "eth2"};
    is_int(bind_fd(&s, &owner_b, 5, fake_dmabuf(4096), &q, &b), -EINVAL, "a dma-buf of one page for two queues");
    is_int(bind_fd(&s, &owner_b, 5, fake_dmabuf(8192 + 100), &q, &b), -EINVAL, "a dma-buf of no whole pages");
    is_int(bind_fd(&s, &owner_b, 5, fake_dmabuf(0), &q, &b), -EINVAL, "an empty dma-buf");
    is_int(bind_fd(&s, &owner_b, 5, open("/dev/null", O_RDONLY | O_CLOEXEC), &q, &b), -EBADF, "what is no dma-buf");
    F->nic[1].down = true;
    is_int(bind_rx(&s, &owner_b, 5, "eth2", 1, &b), -ENETDOWN, "a NIC that is down");
    F->nic[1].down = false;
    F->nic[1].no_rss = true;
    is_int(bind_rx(&s, &owner_b, 5, "eth2", 1, &b), -EOPNOTSUPP, "a NIC without RSS");
    q = (struct hw_helper_request){.type = HW_H_BIND_TX, .nic = "eth2"};
    is_int(bind_fd(&s, &owner_b, 5, fake_dmabuf(4096), &q, &b), 0, "for sending that does not matter");
    is_int(b.count, 0, "and takes no queue");
    is_int(steer(&s, &owner_b, b.id, 3, &r), -EINVAL, "nothing is steered to it");
    F->nic[1].no_tx = true;
    is_int(bind_fd(&s, &owner_b, 5, fake_dmabuf(4096), &q, &r), -EOPNOTSUPP, "a NIC that cannot send so");
    hd_drop(&s, &owner_a);
    hd_drop(&s, &owner_b);
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "nothing was wrong");
    hd_state_free(&s);
}

/* Tests that recovery waits for the sockets of a dead hawserd, which close some time after its lock is released. */
static void lingering(void)
{
    struct fake was;
    struct hd_state s;
    struct hw_helper_reply a;
    begin(&was, 0);
    pid_t pid = fork();
    if (pid == 0) {
        hd_state_init(&s, &K, &quiet, path);
        (void)hd_recover(&s, 0);
        (void)bind_rx(&s, &owner_a, 0, "eth1", 2, &a);
        raise(SIGKILL);
    }
    waitpid(pid, NULL, 0);
    pid_t late = fork();
    if (late == 0) {
        usleep(300 * 1000);
        fake_reap(F, pid);
        _exit(0);
    }
    hd_state_init(&s, &K, &quiet, path);
    is_int(hd_recover(&s, 30000), 0, "recovery waits for them");
    waitpid(late, NULL, 0);
    is_str(fake_differs(&was, F), "", "all is as it was");
    is_str(F->wrong, "", "and no bound queue was put into RSS");
    hd_state_free(&s);
}

/* Tests that hawserd refuses a journal that an untrusted user may have written, because hawserd acts on the journal
 * with its privileges. */
static void foreign_journals(void)
{
    struct hd_state s;
    char folder[96], file[112];
    snprintf(folder, sizeof(folder), "%s/of-another", dir);
    snprintf(file, sizeof(file), "%s/state", folder);
    if (mkdir(folder, 0755) < 0)
        abort();
    hd_state_init(&s, &K, &quiet, file);
    is_int(hd_journal_write(&s), 0, "a journal");
    is_int(hd_journal_read(&s), 0, "is read by who wrote it");
    if (chmod(file, 0666) < 0)
        abort();
    is_int(hd_journal_read(&s), -EACCES, "not where others may write it");
    if (chmod(file, 0600) < 0)
        abort();
    if (chown(file, 65534, 65534) < 0) {
        tap_skip("a journal of another user", "giving a file away takes root");
    } else {
        is_int(hd_journal_read(&s), -EACCES, "nor where another user has put it");
        if (chown(folder, 65534, 65534) < 0)
            abort();
        is_int(hd_journal_read(&s), 0, "but where the folder is that user's, who runs a hawserd there");
        if (chmod(folder, 0777) < 0)
            abort();
        is_int(hd_journal_read(&s), -EACCES, "unless others may write the folder");
        struct stat st;
        if (chmod(folder, 0755) < 0)
            abort();
        int lock = hd_journal_lock(file);
        is_int(hd_journal_write(&s), 0, "root writes it");
        ok(stat(file, &st) == 0 && st.st_uid == 0, "which makes it root's");
        is_int(hd_journal_chown(file), 0, "and gives it back");
        ok(stat(file, &st) == 0 && st.st_uid == 65534, "to the user whose folder it is");
        close(lock);
        snprintf(file, sizeof(file), "%s/state.lock", folder);
        ok(stat(file, &st) == 0 && st.st_uid == 65534, "with its lock");
    }
    hd_state_free(&s);
    static const char *const ends[] = {"", ".lock", ".new"};
    for (size_t i = 0; i < HW_ARRAY_LEN(ends); i++) {
        snprintf(file, sizeof(file), "%s/state%s", folder, ends[i]);
        unlink(file);
    }
    rmdir(folder);
}

/* Tests that all clients can disconnect at the same time, while the maximum number of refused connections waits to be
 * closed. */
static void ended_connections(void)
{
    static struct {
        struct hd_discard d;
        uint8_t after[4096]; /* stays 0 unless d overflows */
    } s;
    hd_discard_init(&s.d);
    for (int fd = -1; hd_discard_room(&s.d); fd = -1)
        hd_discard_add(&s.d, &fd);
    for (int i = 0, fd = -1; i < HD_CLIENTS_MAX; i++)
        hd_discard_add(&s.d, &fd);
    ok(s.d.n <= HD_DISCARD_MAX && s.d.n > HD_CLIENTS_MAX && s.d.n_children == 0 && s.after[0] == 0,
       "the ends of all clients, behind refused connections, have room: %u of %d", s.d.n, HD_DISCARD_MAX);
}

int main(void)
{
    F = fake_new();
    fake_kernel(F, &K);
    snprintf(dir, sizeof(dir), "%s/hawserd-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(dir))
        return 1;
    snprintf(path, sizeof(path), "%s/state", dir);
    for (int how = 0; how < FOUND; how++) {
        unlink(path);
        plain(how);
        if (how < 3) /* a later call of failing() also covers these calls */
            failing(how, FAKE_BEFORE, false);
        failing(how, FAKE_BEHIND, false);
        failing(how, FAKE_BEFORE, true);
        killed(how, FAKE_DIE_BEFORE);
        killed(how, FAKE_DIE_BEHIND);
    }
    queues();
    steering();
    others();
    limits();
    lingering();
    foreign_journals();
    ended_connections();
    unlink(path);
    char other[112];
    snprintf(other, sizeof(other), "%s.new", path);
    unlink(other);
    rmdir(dir);
    return tap_done();
}
