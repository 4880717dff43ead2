/* SPDX-License-Identifier: Apache-2.0 */
/* Tests hawserd's two files: the policy, which administrators write, and the journal, which hawserd writes. */
#include "helper/state/policy.h"
#include "helper/state/state.h"
#include "tests/tap.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static struct hd_policy P;

static void refused(const char *text, const char *why)
{
    int rc = hd_policy_parse(&P, text, "p.conf");
    ok(rc < 0 && strstr(hw_error(), why), "refused: %s", hw_error());
}

static void policy_text(void)
{
    static const char text[] = "; who may have what\n"
                               "[user root]\n"
                               "nics = *\n"
                               "[user 1234]\n"
                               "nics = eth1, eth2 ib?\n"
                               "queues = 4-7, 9,1000-1023\n"
                               "max-queues = 3\n"
                               "max-bindings = 2\n"
                               "max-rules = 10\n"
                               "max-bytes = 8GiB\n"
                               "\n"
                               "[group 77]\n"
                               "nics = eth3\n"
                               "[group 78]\n"
                               "nics = eth4\n";
    is_int(hd_policy_parse(&P, text, "p.conf"), 0, "a policy");
    is_int(P.n, 4, "of four sections");
    const struct hd_rights *r = hd_policy_find(&P, 1234, (gid_t[]){77}, 1);
    ok(r && r == &P.section[1], "a user's own section comes before his group's");
    is_int(r->max_queues, 3, "max-queues");
    is_int(r->max_bindings, 2, "max-bindings");
    is_int(r->max_rules, 10, "max-rules");
    ok(r->max_bytes == 8ull << 30, "max-bytes");
    ok(hd_policy_nic(r, "eth1") && hd_policy_nic(r, "eth2") && hd_policy_nic(r, "ib0"), "its NICs");
    ok(!hd_policy_nic(r, "eth3") && !hd_policy_nic(r, "eth10") && !hd_policy_nic(r, "ib10"), "and no others");
    bool queues = r->queues_set;
    for (uint32_t q = 0; q < HD_QUEUES_MAX; q++)
        queues &= hd_has(&r->queues, q) == ((q >= 4 && q <= 7) || q == 9 || q >= 1000);
    ok(queues, "its queues");
    r = hd_policy_find(&P, 50, (gid_t[]){5, 78, 77}, 3);
    ok(r && hd_policy_nic(r, "eth3"), "of several groups the file's first");
    ok(r && r->max_queues == 16 && r->max_rules == 256 && !r->queues_set && r->max_bytes == UINT64_MAX, "defaults");
    ok(!hd_policy_find(&P, 50, (gid_t[]){5}, 1), "nothing for anybody else");
    ok(!hd_policy_find(&P, 77, NULL, 0), "a group's number is not a user's");
    ok(hd_policy_find(&P, 0, NULL, 0) == &P.section[0], "root by name");

    is_int(hd_policy_parse(&P, "", "p.conf"), 0, "an empty file");
    ok(!hd_policy_find(&P, 0, NULL, 0), "grants nothing, not even to root");
    refused("nics = eth1\n", "precedes the first section");
    refused("[eth1]\nnics = *\n", "expected [user NAME]");
    refused("[user nobody-of-this-name]\nnics = *\n", "unknown user");
    refused("[group nobody-of-this-name]\nnics = *\n", "unknown group");
    refused("[user -1]\nnics = *\n", "unknown user");
    refused("[user 1]\nnics = *\n[user 2]\nnics = *\n[user 1]\nnics = *\n",
            "duplicate section for the same user or group");
    refused("[user 1]\nnics = *\nnics = *\n", "occurs twice");
    refused("[user 1]\nnics = eth1,\n  eth2\n", "occurs twice");
    refused("[user 1]\nnic = *\n", "unknown key 'nic'");
    refused("[user 1]\nnics = ,\n", "empty");
    refused("[user 1]\nmax-queues = 3\n", "has no NICs");
    refused("[user 1]\nnics = *\nqueues = 7-4\n", "queues");
    refused("[user 1]\nnics = *\nqueues = 1024\n", "queues");
    refused("[user 1]\nnics = *\nqueues = 1-\n", "queues");
    refused("[user 1]\nnics = *\nqueues = all\n", "queues");
    refused("[user 1]\nnics = *\nmax-queues = -1\n", "max-queues");
    refused("[user 1]\nnics = *\nmax-bytes = lots\n", "max-bytes");
    refused("[user 1]\nnics = *\nnonsense\n", "line 3");
    refused("[user 1\nnics = *\n", "line 1");
    char line[600];
    snprintf(line, sizeof(line), "[user 1]\nnics = %0400d\n", 1);
    refused(line, "line 2: the line is longer than");

    hd_policy_default(&P, 1000);
    ok(hd_policy_find(&P, 0, NULL, 0) && hd_policy_find(&P, 1000, NULL, 0) && !hd_policy_find(&P, 1001, NULL, 0),
       "without a file: root and hawserd's user");
    hd_policy_default(&P, 0);
    is_int(P.n, 1, "who may be the same");
}

static void policy_file(const char *dir)
{
    char path[96];
    snprintf(path, sizeof(path), "%s/p.conf", dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (write(fd, "[user 0]\nnics=*\n", 16) != 16)
        return;
    is_int(hd_policy_load(&P, path), 0, "a file");
    fchmod(fd, 0664);
    is_int(hd_policy_load(&P, path), -EACCES, "that a group may write");
    fchmod(fd, 0646);
    is_int(hd_policy_load(&P, path), -EACCES, "that anybody may write");
    fchmod(fd, 0644);
    if (write(fd, "\0", 1) != 1)
        return;
    is_int(hd_policy_load(&P, path), -EINVAL, "with a NUL in it");
    if (ftruncate(fd, HD_POLICY_FILE_MAX + 1) < 0)
        return;
    is_int(hd_policy_load(&P, path), -E2BIG, "that is too large");
    close(fd);
    if (geteuid() == 0 && chown(path, 65534, 0) == 0)
        is_int(hd_policy_load(&P, path), -EACCES, "that is somebody else's");
    else
        tap_skip("a policy that is somebody else's", "only root can give files away");
    unlink(path);
    is_int(hd_policy_load(&P, path), -ENOENT, "that is not there");
    is_int(hd_policy_load(&P, dir), -EINVAL, "a folder");
}

/* ---- the journal -------------------------------------------------------------------------------- */

static struct hd_state S;
static struct hw_logger quiet;

static int parse(const char *body)
{
    char text[4096];
    int n = snprintf(text, sizeof(text), "%s%s%s%llu\n%s", "hawserd-state 1\nboot ", S.boot, "\nnetns ",
                     (unsigned long long)S.netns, body);
    hd_state_forget(&S);
    return hd_journal_parse(&S, text, (size_t)n);
}

static void bad(const char *body)
{
    char line[256]; /* a TAP description must be a single line */
    snprintf(line, sizeof(line), "refused: %s", body);
    for (char *c = line; *c; c++)
        if (*c == '\n')
            *c = '|';
    is_int(parse(body), -EPROTO, line);
}

static void journal(const char *dir)
{
    static const char body[] = "nic 4 eth1\n"
                               "split 1 1 256\n"
                               "ntuple\n"
                               "rss 0 1 2 3 0 1 2 3\n"
                               "taken 2 3\n"
                               "nic 5 eth2\n"
                               "split 0 0 0 2048\n"
                               "split-auto\n"
                               "gro-hw\n"
                               "rule 4 3 1023 10.0.0.1 5000 10.0.0.2 6000\n"
                               "rule 4 2 - fd00::1 5000 fd00::2 6000\n"
                               "end\n";
    size_t len;
    is_int(parse(body), 0, "a journal");
    char *text = hd_journal_text(&S, &len);
    const char *third = text; /* after the header */
    for (int i = 0; i < 3; i++)
        third = strchr(third, '\n') + 1;
    is_str(third, body, "is written as it was read");
    free(text);

    bad("");
    bad("nic 4 eth1\n");
    bad("nic 4 eth1\nend\nnic 5 eth2\n");
    bad("end");
    bad("nic 0 eth1\nend\n");
    bad("nic 4\nend\n");
    bad("nic 4 eth1 x\nend\n");
    bad("nic 4 eth1\nnic 4 eth1\nend\n");
    bad("nic 4 a-name-that-is-too-long\nend\n");
    bad("nic 99999999999999999999999 eth1\nend\n");
    bad("split 1 0 0\nend\n");
    bad("nic 4 eth1\nsplit 3 0 0\nend\n");
    bad("nic 4 eth1\nsplit 1 0 0\nsplit 1 0 0\nend\n");
    bad("ntuple\nend\n");
    bad("nic 4 eth1\nsplit 1 0 0 0\nend\n");
    bad("nic 4 eth1\nsplit 1 0 0 x\nend\n");
    bad("nic 4 eth1\nsplit 1 0 0 2048 1\nend\n");
    bad("nic 4 eth1\nsplit-auto\nend\n");
    bad("nic 4 eth1\nsplit 1 0 0\nsplit-auto 1\nend\n");
    bad("gro-hw\nend\n");
    bad("nic 4 eth1\ngro-hw on\nend\n");
    bad("nic 4 eth1\nrss\nend\n");
    bad("nic 4 eth1\nrss x\nend\n");
    bad("nic 4 eth1\nrss 1\nrss 1\nend\n");
    bad("nic 4 eth1\ntaken 1\nend\n");
    bad("nic 4 eth1\nrss 1\ntaken 5000\nend\n");
    bad("rule 4 1 1 10.0.0.1 1 10.0.0.2 2\nend\n");
    bad("nic 4 eth1\nrule 4 1 1 10.0.0.1 1 10.0.0.2\nend\n");
    bad("nic 4 eth1\nrule 4 1 1 10.0.0.1 1 fd00::1 2\nend\n");
    bad("nic 4 eth1\nrule 4 1 1 10.0.0.1 70000 10.0.0.2 2\nend\n");
    bad("nic 4 eth1\nrule 4 1 -\nend\n");
    bad("gibberish\nend\n");
    bad("\nend\n");

    S.boot[0] = S.boot[0] == '0' ? '1' : '0';
    is_int(parse(body), 0, "this boot's");
    char other[sizeof(S.boot)];
    memcpy(other, S.boot, sizeof(other));
    text = hd_journal_text(&S, &len);
    S.boot[0] = S.boot[0] == '2' ? '3' : '2';
    hd_state_forget(&S);
    is_int(hd_journal_parse(&S, text, len), -ESTALE, "another boot's is void");
    memcpy(S.boot, other, sizeof(other));
    S.netns++;
    hd_state_forget(&S);
    is_int(hd_journal_parse(&S, text, len), -EXDEV, "another network namespace's is not ours to undo");
    free(text);
    is_int(parse("end\n"), 0, "an empty one");
    text = hd_journal_text(&S, &len);
    S.netns++;
    hd_state_forget(&S);
    is_int(hd_journal_parse(&S, text, len), 0, "is anybody's");
    free(text);
    is_int(hd_journal_parse(&S, "hawserd-state 2\n", 16), -EPROTO, "another version's");

    char path[96];
    snprintf(path, sizeof(path), "%s/state", dir);
    S.path = path;
    is_int(hd_journal_read(&S), -ENOENT, "no journal");
    is_int(parse(body), 0, "something to write");
    is_int(hd_journal_write(&S), 0, "written");
    hd_state_forget(&S);
    is_int(hd_journal_read(&S), 0, "and read");
    is_int(S.n_nics, 2, "two NICs");
    struct stat st;
    ok(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600, "nobody else reads it");
    int one = hd_journal_lock(path);
    ok(one >= 0, "the lock");
    is_int(hd_journal_lock(path), -EBUSY, "is had once");
    char pid[60];
    snprintf(pid, sizeof(pid), "(process ID in the file: %d)", (int)getpid());
    ok(strstr(hw_error(), pid) != NULL, "%s", hw_error());
    is_int(hd_journal_alive(path), getpid(), "who holds it can be asked");
    close(one);
    is_int(hd_journal_alive(path), 0, "and that nobody does");
    one = hd_journal_lock(path);
    ok(one >= 0, "and again when it is free");
    close(one);
    S.path = "/nowhere/at/all";
    is_int(hd_journal_write(&S), -ENOENT, "a folder that is not there");
    hd_state_free(&S);
    unlink(path);
    strcat(path, ".lock");
    unlink(path);
}

int main(void)
{
    char dir[] = "/tmp/hawserd-policy-XXXXXX";
    if (!mkdtemp(dir))
        return 1;
    hd_state_init(&S, NULL, &quiet, NULL);
    policy_text();
    policy_file(dir);
    journal(dir);
    rmdir(dir);
    return tap_done();
}
