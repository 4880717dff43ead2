/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal records the changes that hawserd has made and the previous settings, as lines of text that an operator
 * can also read. For each update, the complete journal is written to a new file, which is fsynced and renamed over the
 * old journal. The journal is therefore always complete, which its last line, "end", confirms.
 */
#include "helper/state/state.h"
#include "sys/files.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL_MAX (4u << 20)
#define HEAD        "hawserd-state 1"

/* ---- writing ------------------------------------------------------------------------------------ */

static void put_set(FILE *f, const char *what, const struct hd_set *s)
{
    bool any = false;
    for (uint32_t q = 0; q < HD_QUEUES_MAX; q++) {
        if (!hd_has(s, q))
            continue;
        fprintf(f, "%s %u", any ? "" : what, q);
        any = true;
    }
    if (any)
        fputc('\n', f);
}

static void put_nic(FILE *f, const struct hd_nic *n)
{
    fprintf(f, "nic %d %s\n", n->ifindex, n->name);
    if (n->split_set) {
        fprintf(f, "split %u %d %u", n->split_was.split, n->split_was.has_thresh, n->split_was.thresh);
        if (n->split_was.buf_len)
            fprintf(f, " %u", n->split_was.buf_len);
        fputc('\n', f);
    }
    if (n->split_set && n->split_auto)
        fprintf(f, "split-auto\n");
    if (n->gro_set)
        fprintf(f, "gro-hw\n");
    if (n->ntuple_set)
        fprintf(f, "ntuple\n");
    if (n->n_was) {
        fprintf(f, "rss");
        for (uint32_t i = 0; i < n->n_was; i++)
            fprintf(f, " %u", n->was[i]);
        fputc('\n', f);
        put_set(f, "taken", &n->taken);
    }
}

static void put_rule(FILE *f, const struct hd_held_rule *r)
{
    char local[INET6_ADDRSTRLEN] = "", remote[INET6_ADDRSTRLEN] = "", loc[16] = "-";
    const union hw_addr *l = &r->rule.local, *p = &r->rule.remote;
    bool v4 = l->sa.sa_family == AF_INET;
    inet_ntop(l->sa.sa_family, v4 ? (const void *)&l->in.sin_addr : &l->in6.sin6_addr, local, sizeof(local));
    inet_ntop(p->sa.sa_family, v4 ? (const void *)&p->in.sin_addr : &p->in6.sin6_addr, remote, sizeof(remote));
    if (r->placed)
        snprintf(loc, sizeof(loc), "%u", r->rule.loc);
    fprintf(f, "rule %d %u %s %s %u %s %u\n", r->nic->ifindex, r->rule.queue, loc, local, hw_addr_port(l), remote,
            hw_addr_port(p));
}

char *hd_journal_text(const struct hd_state *s, size_t *len)
{
    char *text = NULL;
    FILE *f = open_memstream(&text, len);
    if (!f)
        return NULL;
    fprintf(f, HEAD "\nboot %s\nnetns %" PRIu64 "\n", s->boot, s->netns);
    hw_list_each(it, tmp, &s->nics) if (!hw_container_of(it, struct hd_nic, node)->gone)
        put_nic(f, hw_container_of(it, struct hd_nic, node));
    hw_list_each(it, tmp, &s->rules) if (!hw_container_of(it, struct hd_held_rule, node)->nic->gone)
        put_rule(f, hw_container_of(it, struct hd_held_rule, node));
    fprintf(f, "end\n");
    bool bad = ferror(f);
    if (fclose(f) != 0 || bad) {
        free(text);
        return NULL;
    }
    return text;
}

static int write_whole(int fd, const char *text, size_t len)
{
    while (len) {
        ssize_t n = write(fd, text, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        text += n;
        len -= (size_t)n;
    }
    return fsync(fd) < 0 ? -errno : 0;
}

static void folder_of(const char *path, char *out, size_t cap)
{
    snprintf(out, cap, "%s", path);
    char *slash = strrchr(out, '/');
    if (slash)
        slash[slash == out] = 0;
    else
        snprintf(out, cap, ".");
}

/* Flushes a file's folder to disk, which makes a rename durable. */
static int sync_folder(const char *path)
{
    char dir[256];
    folder_of(path, dir, sizeof(dir));
    HW_AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

static int replace_journal(const char *path, const char *text, size_t len)
{
    char next[256];
    snprintf(next, sizeof(next), "%s.new", path);
    HW_AUTO_CLOSE int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return -errno;
    int rc = write_whole(fd, text, len);
    if (rc)
        return rc;
    return rename(next, path) < 0 ? -errno : sync_folder(path);
}

int hd_journal_write(struct hd_state *s)
{
    size_t len = 0;
    if (!s->path)
        return 0;
    HW_AUTO_FREE char *text = hd_journal_text(s, &len);
    if (!text)
        return hw_no_memory("the journal");
    if (len > JOURNAL_MAX) /* the next hawserd could not read such a journal */
        return hw_fail(-EFBIG, "journal %s: the changes to undo exceed %u bytes", s->path, JOURNAL_MAX);
    int rc = replace_journal(s->path, text, len);
    return rc ? hw_fail(rc, "journal %s: %s; hawserd changes no NIC without recording the change", s->path,
                        hw_errno_text(rc))
              : 0;
}

/* ---- reading ------------------------------------------------------------------------------------ */

struct reader {
    struct hd_state *s;
    struct hd_nic *nic;
    unsigned line;
};

static int reject_journal_line(const struct reader *r, const char *what)
{
    return hw_fail(-EPROTO, "journal, line %u: %s", r->line, what);
}

/* Parses the next word of the line as a number of at most max. */
static bool parse_journal_number(char **save, uint64_t max, uint64_t *out)
{
    const char *w = strtok_r(NULL, " ", save);
    *out = 0;
    for (const char *c = w; w && *c; c++) {
        if (*c < '0' || *c > '9' || *out > (UINT64_MAX - 9) / 10)
            return false;
        *out = *out * 10 + (uint64_t)(*c - '0');
    }
    return w && *w && *out <= max;
}

static int take_nic(struct reader *r, char **save)
{
    uint64_t index;
    bool good = parse_journal_number(save, INT32_MAX, &index) && index > 0;
    const char *name = strtok_r(NULL, " ", save);
    if (!good || !name || strlen(name) >= HAWSER_NIC_NAME || hd_nic_find(r->s, (int)index))
        return reject_journal_line(r, "expected 'nic INDEX NAME' with a new INDEX");
    r->nic = hd_nic_add(r->s, (int)index, name);
    return r->nic ? 0 : -ENOMEM;
}

static int take_split(struct reader *r, char **save)
{
    uint64_t split, has, thresh, buf = 0;
    if (!r->nic || r->nic->split_set || !parse_journal_number(save, 2, &split) ||
        !parse_journal_number(save, 1, &has) || !parse_journal_number(save, UINT32_MAX, &thresh) ||
        (*save && **save && (!parse_journal_number(save, UINT32_MAX, &buf) || buf == 0)))
        return reject_journal_line(r, "expected 'split WAS HAS THRESH [BUFLEN]', once after a 'nic' line");
    r->nic->split_set = true;
    r->nic->split_was = (struct hd_split){
        .split = (uint8_t)split, .has_thresh = has, .thresh = (uint32_t)thresh, .buf_len = (uint32_t)buf};
    return 0;
}

/* Handles a line that consists of a single word and records a change to the NIC. Returns false for any other word. */
static bool take_flag(struct reader *r, const char *w)
{
    if (r->nic && strcmp(w, "ntuple") == 0)
        return r->nic->ntuple_set = true;
    if (r->nic && strcmp(w, "gro-hw") == 0)
        return r->nic->gro_set = true;
    if (r->nic && r->nic->split_set && strcmp(w, "split-auto") == 0)
        return r->nic->split_auto = true;
    return false;
}

static int take_rss(struct reader *r, char **save)
{
    uint64_t q;
    if (!r->nic || r->nic->was || !(r->nic->was = calloc(HD_TABLE_MAX, sizeof(uint32_t))))
        return reject_journal_line(r, "unexpected RSS table, or out of memory");
    while (**save) {
        if (r->nic->n_was == HD_TABLE_MAX || !parse_journal_number(save, UINT32_MAX, &q))
            return reject_journal_line(r, "expected 'rss QUEUE ...'");
        r->nic->was[r->nic->n_was++] = (uint32_t)q;
    }
    return r->nic->n_was ? 0 : reject_journal_line(r, "the RSS table is empty");
}

static int take_taken(struct reader *r, char **save)
{
    uint64_t q;
    if (!r->nic || !r->nic->n_was)
        return reject_journal_line(r, "queues were taken, but there is no RSS table");
    while (**save) {
        if (!parse_journal_number(save, HD_QUEUES_MAX - 1, &q))
            return reject_journal_line(r, "expected 'taken QUEUE ...'");
        hd_put(&r->nic->taken, (uint32_t)q);
    }
    return 0;
}

static bool end_of(union hw_addr *a, char **save)
{
    const char *text = strtok_r(NULL, " ", save);
    uint64_t port;
    memset(a, 0, sizeof(*a));
    if (!text || !parse_journal_number(save, UINT16_MAX, &port))
        return false;
    a->sa.sa_family = strchr(text, ':') ? AF_INET6 : AF_INET;
    hw_addr_set_port(a, (uint16_t)port);
    return inet_pton(a->sa.sa_family, text, a->sa.sa_family == AF_INET ? (void *)&a->in.sin_addr : &a->in6.sin6_addr) ==
           1;
}

static int take_rule(struct reader *r, char **save)
{
    uint64_t index, queue, loc = 0;
    if (!parse_journal_number(save, INT32_MAX, &index) || !parse_journal_number(save, HD_QUEUES_MAX - 1, &queue))
        return reject_journal_line(
            r, "expected 'rule INDEX QUEUE LOC LOCAL PORT REMOTE PORT', after the 'nic' line with this INDEX");
    char *dash = *save; /* "-" stands for a location that was not yet known */
    bool placed = !(dash && strncmp(dash, "- ", 2) == 0);
    if (!placed)
        *save = dash + 2;
    struct hd_held_rule *h = calloc(1, sizeof(*h));
    if (!h)
        return hw_no_memory("the journal's rules");
    h->port = -1;
    h->uid = (uid_t)-1; /* no user */
    h->nic = hd_nic_find(r->s, (int)index);
    h->placed = placed;
    h->rule.exact = true;
    h->rule.queue = (uint32_t)queue;
    bool good = h->nic && (!placed || parse_journal_number(save, UINT32_MAX, &loc)) && end_of(&h->rule.local, save) &&
                end_of(&h->rule.remote, save) && h->rule.local.sa.sa_family == h->rule.remote.sa.sa_family;
    h->rule.loc = (uint32_t)loc;
    if (!good) {
        free(h);
        return reject_journal_line(
            r, "expected 'rule INDEX QUEUE LOC LOCAL PORT REMOTE PORT', after the 'nic' line with this INDEX");
    }
    hw_list_append(&r->s->rules, &h->node);
    return 0;
}

static int parse_journal_line(struct reader *r, char *line, bool *end)
{
    char *save = NULL, *w = strtok_r(line, " ", &save);
    int rc;
    if (!w || *end)
        return reject_journal_line(r, w ? "unexpected text after the 'end' line" : "the line is empty");
    if (strcmp(w, "nic") == 0)
        rc = take_nic(r, &save);
    else if (strcmp(w, "split") == 0)
        rc = take_split(r, &save);
    else if (strcmp(w, "rss") == 0)
        rc = take_rss(r, &save);
    else if (strcmp(w, "taken") == 0)
        rc = take_taken(r, &save);
    else if (strcmp(w, "rule") == 0)
        rc = take_rule(r, &save);
    else if (strcmp(w, "end") == 0)
        rc = (*end = true, 0);
    else if (take_flag(r, w))
        rc = 0;
    else
        rc = reject_journal_line(r, "unknown or misplaced line");
    if (rc == 0 && save && *save)
        rc = reject_journal_line(r, "the line has too many words");
    return rc;
}

/* Parses one of the first three lines. */
static int parse_journal_head(struct reader *r, char *line, bool *other_boot, bool *other_net)
{
    char netns[32];
    snprintf(netns, sizeof(netns), "netns %" PRIu64, r->s->netns);
    if (r->line == 1 && strcmp(line, HEAD) != 0)
        return reject_journal_line(r, "this is not a journal of this version of hawserd");
    if (r->line == 2) {
        if (strncmp(line, "boot ", 5) != 0 || strlen(line + 5) >= sizeof(r->s->boot))
            return reject_journal_line(r, "expected 'boot ID'");
        *other_boot = strcmp(line + 5, r->s->boot) != 0;
    }
    if (r->line == 3) {
        if (strncmp(line, "netns ", 6) != 0)
            return reject_journal_line(r, "expected 'netns INODE'");
        *other_net = strcmp(line, netns) != 0;
    }
    return 0;
}

int hd_journal_parse(struct hd_state *s, const char *text, size_t len)
{
    struct reader r = {.s = s};
    bool end = false, other_boot = false, other_net = false;
    HW_AUTO_FREE char *copy = len <= JOURNAL_MAX && strnlen(text, len) == len ? strndup(text, len) : NULL;
    if (!copy)
        return hw_fail(-EPROTO, "the journal is not a text file or is larger than %u bytes", JOURNAL_MAX);
    for (char *at = copy, *nl; *at; at = nl + 1) {
        nl = strchr(at, '\n');
        r.line++;
        if (!nl)
            return reject_journal_line(&r, "the journal ends in the middle of this line");
        *nl = 0;
        int rc = r.line <= 3 ? parse_journal_head(&r, at, &other_boot, &other_net) : parse_journal_line(&r, at, &end);
        if (rc)
            return rc;
    }
    if (!end)
        return hw_fail(-EPROTO, "journal: the last line, 'end', is missing");
    if (other_boot)
        return hw_fail(-ESTALE, "ignoring the journal, because it is from an earlier boot");
    if (other_net && !hw_list_empty(&s->nics))
        return hw_fail(-EXDEV, "the journal is from another network namespace: start hawserd in that namespace, or use "
                               "another --state FILE");
    return 0;
}

/* Checks that no other user could have written the journal, because a privileged process acts on the journal. The user
 * of `hawserd --user` owns both the journal and its folder. */
static int check_owner(const char *path, const struct stat *file)
{
    char folder[256];
    struct stat st;
    if (file->st_mode & 022)
        return hw_fail(-EACCES, "journal %s: users other than the owner can write to the file", path);
    if (file->st_uid == 0 || file->st_uid == geteuid())
        return 0;
    folder_of(path, folder, sizeof(folder));
    if (stat(folder, &st) == 0 && st.st_uid == file->st_uid)
        return st.st_mode & 022
                   ? hw_fail(-EACCES, "journal %s: users other than the owner can write to its folder", path)
                   : 0;
    return hw_fail(-EACCES, "journal %s: the file belongs to user %u, but its folder does not", path,
                   (unsigned)file->st_uid);
}

int hd_journal_read(struct hd_state *s)
{
    struct stat st;
    size_t have = 0;
    if (!s->path)
        return hw_fail(-ENOENT, "there is no journal");
    HW_AUTO_CLOSE int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return hw_fail(-errno, "journal %s: %s", s->path, hw_errno_text(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return hw_fail(-EINVAL, "journal %s: not a regular file", s->path);
    int rc = check_owner(s->path, &st);
    if (rc)
        return rc;
    HW_AUTO_FREE char *text = NULL;
    rc = hw_file_read(fd, JOURNAL_MAX, s->path, &text, &have);
    return rc ? rc : hd_journal_parse(s, text, have);
}

/* ---- the lock, and recovery after a crash ------------------------------------------------------- */

/* Returns the description of an open-file-description lock on a whole file. Such a lock can be queried without being
 * acquired. */
static struct flock whole_file(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

int hd_journal_chown(const char *path)
{
    static const char *const ends[] = {"", ".lock"};
    char folder[256], file[256];
    struct stat st;
    folder_of(path, folder, sizeof(folder));
    if (stat(folder, &st) < 0)
        return hw_fail(-errno, "%s: %s", folder, hw_errno_text(errno));
    for (size_t i = 0; i < HW_ARRAY_LEN(ends); i++) {
        snprintf(file, sizeof(file), "%s%s", path, ends[i]);
        if (lchown(file, st.st_uid, st.st_gid) < 0)
            return hw_fail(-errno, "cannot change the owner of %s to the owner of its folder: %s", file,
                           hw_errno_text(errno));
    }
    return 0;
}

/* Returns the PID in the lock file, or 0 if there is none. */
static int read_lock_pid(int fd)
{
    char pid[24] = "";
    ssize_t n = pread(fd, pid, sizeof(pid) - 1, 0);
    pid[n < 0 ? 0 : n] = 0;
    return (int)strtol(pid, NULL, 10);
}

int hd_journal_alive(const char *path)
{
    char lock[256];
    struct flock f = whole_file();
    snprintf(lock, sizeof(lock), "%s.lock", path);
    HW_AUTO_CLOSE int fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return errno == ENOENT ? 0 : hw_fail(-errno, "%s: %s", lock, hw_errno_text(errno));
    if (fcntl(fd, F_OFD_GETLK, &f) < 0)
        return hw_fail(-errno, "%s: %s", lock, hw_errno_text(errno));
    return f.l_type == F_UNLCK ? 0 : HW_MAX(read_lock_pid(fd), 1);
}

int hd_journal_lock(const char *path)
{
    char lock[256];
    struct flock f = whole_file();
    snprintf(lock, sizeof(lock), "%s.lock", path);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return hw_fail(-errno, "%s: %s", lock, hw_errno_text(errno));
    int rc = 0;
    if (fcntl(fd, F_OFD_SETLK, &f) < 0)
        rc =
            errno == EAGAIN || errno == EACCES
                ? hw_fail(-EBUSY,
                          "%s is locked, because hawserd or `hawser devmem undo` is already running (process ID in the "
                          "file: %d)",
                          lock, read_lock_pid(fd))
                : hw_fail(-errno, "%s: %s", lock, hw_errno_text(errno));
    if (rc == 0 && (ftruncate(fd, 0) < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0))
        rc = hw_fail(-EIO, "cannot write %s: %s", lock, hw_errno_text(errno));
    if (rc)
        hw_close(&fd);
    return rc ? rc : fd;
}

/* Returns true if a queue that the previous hawserd kept out of RSS is still bound. */
static bool still_bound(struct hd_state *s)
{
    struct hd_queue *q = calloc(HD_QUEUES_MAX, sizeof(*q));
    bool bound = false;
    hw_list_each(it, tmp, &s->nics)
    {
        const struct hd_nic *nic = hw_container_of(it, struct hd_nic, node);
        unsigned n = 0;
        if (!q || s->k->queues(s->k->arg, nic->ifindex, q, HD_QUEUES_MAX, &n) < 0)
            continue;
        for (unsigned i = 0; i < n; i++)
            bound |= q[i].user != HD_FREE && hd_has(&nic->taken, i);
    }
    free(q);
    return bound;
}

int hd_recover(struct hd_state *s, int wait_ms)
{
    int rc = hd_journal_read(s);
    if (rc == -ENOENT || rc == -ESTALE) {
        hd_state_forget(s);
        return hd_journal_write(s);
    }
    if (rc < 0) {
        hd_state_forget(s);
        return rc;
    }
    hw_list_each(it, tmp, &s->nics) hw_log(s->log, HAWSER_LOG_WARN, "%s: undoing the changes of the previous hawserd",
                                           hw_container_of(it, struct hd_nic, node)->name);
    /* The ports of the rules are no longer reserved, because the previous hawserd has exited. */
    hw_list_each(it, tmp, &s->rules)
    {
        struct hd_held_rule *r = hw_container_of(it, struct hd_held_rule, node);
        if (s->k->port_hold(s->k->arg, &r->rule.local, &r->port) < 0)
            hw_log(s->log, HAWSER_LOG_WARN, "%s", hw_error());
    }
    /* The previous hawserd's lock may be released before its netlink sockets are closed. The descriptors of a killed
     * process are closed one after the other, and the kernel releases the files even later (fput() in
     * fs/file_table.c). */
    uint64_t until = hw_deadline(wait_ms);
    while (still_bound(s) && hw_now() < until) {
        struct timespec t = {.tv_nsec = 20000000};
        nanosleep(&t, NULL);
    }
    return (int)hd_settle_all(s);
}
