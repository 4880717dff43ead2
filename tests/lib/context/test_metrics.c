/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a context's metrics socket: access rights, contents, and the cost of clients that do not read. Also tests that
 * a context works if its socket cannot be created. */
#include "base/metric.h"
#include "base/rundir.h"
#include "context/metrics.h"
#include "pairhelp.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

static char dir[64], knob[96];
static const char *const knobs[] = {knob, "metrics_kind=test", NULL};

/* ---- refused sends -------------------------------------------------------------------------------------- */

static atomic_bool starve;  /* true if local sockets accept no data */
static atomic_uint refused; /* number of refused sends */

ssize_t __real_send(int fd, const void *buf, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags)
{
    int domain = 0;
    socklen_t len = sizeof domain;
    if (atomic_load(&starve) && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX) {
        atomic_fetch_add(&refused, 1);
        return errno = EAGAIN, -1;
    }
    return __real_send(fd, buf, n, flags);
}

/* ---- readers -------------------------------------------------------------------------------------------- */

/* Connects to the metrics socket `name`. Returns a file descriptor or -errno. */
static int dial(const char *name)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%.60s/%.30s", dir, name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        bail("no socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0)
        return fd;
    int rc = -errno;
    close(fd);
    return rc;
}

/* Reads a connection until its end, and closes it. Returns the data. */
static char *read_all(int fd, size_t *len)
{
    size_t room = 1 << 20;
    char *text = calloc(1, room);
    *len = 0;
    for (ssize_t n; text && (n = read(fd, text + *len, room - 1 - *len)) > 0;)
        *len += (size_t)n;
    close(fd);
    return text ? text : (bail("no memory"), NULL);
}

static char name_of[HW_RUNDIR_NAME];
static int n_names;

static void note_name(void *arg, const char *name, pid_t pid, unsigned number)
{
    (void)arg, (void)pid, (void)number;
    snprintf(name_of, sizeof name_of, "%s", name);
    n_names++;
}

/* Returns the number of metrics sockets, and stores the name of the last socket in name_of. */
static int count_names(void)
{
    int fd = hw_rundir_open(dir, false, geteuid());
    n_names = 0;
    if (fd >= 0)
        hw_rundir_each(fd, note_name, NULL);
    if (fd >= 0)
        close(fd);
    return n_names;
}

static char *read_name(const char *name)
{
    size_t len;
    int fd = dial(name);
    if (fd < 0)
        bail("connecting to %s: %s", name, strerror(-fd));
    return read_all(fd, &len);
}

static bool is_whole(const char *text)
{
    size_t len = strlen(text), end = strlen(HW_METRICS_END);
    return len > end && strcmp(text + len - end, HW_METRICS_END) == 0;
}

/* Returns the sum of all samples in a metric family whose labels contain `label`. */
static double sum_of(const char *text, const char *family, const char *label)
{
    double sum = 0;
    size_t n = strlen(family);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        const char *end = strchr(line, '\n'), *at = strstr(line, label);
        if (strncmp(line, family, n) != 0 || (line[n] != '{' && line[n] != ' ') || !at || at > end)
            continue;
        const char *space = end;
        while (*space != ' ')
            space--;
        sum += strtod(space, NULL);
    }
    return sum;
}

/* ---- tests ------------------------------------------------------------------------------------------------ */

static void test_socket(void)
{
    struct stat st;
    char path[128];
    step("a socket");
    int before = ph_fds();
    hawser *h = ph_open(0, knobs);
    is_int(count_names(), 1, "a context has a socket");
    snprintf(path, sizeof path, "%s/%s", dir, name_of);
    is_int(lstat(path, &st), 0, "it has a name");
    is_int(st.st_mode & 07777, 0600, "it is closed to others");
    is_int(atoi(name_of), getpid(), "its name begins with the process");
    char *text = read_name(name_of);
    ok(is_whole(text), "a reader gets the whole text");
    ok(strstr(text, "kind=\"test\"") && strstr(text, "process=\"test_metrics\""), "it says whose it is");
    for (int i = 0; i < HW_METRICS; i++)
        ok(strstr(text, hw_metrics[i].name), "it has %s", hw_metrics[i].name);
    free(text);
    hawser *more = ph_open(0, knobs);
    is_int(count_names(), 2, "two contexts, two sockets");
    hawser_close(more);
    is_int(count_names(), 1, "one is closed");
    hawser_close(h);
    is_int(count_names(), 0, "nothing is left");
    is_int(ph_fds(), before, "no descriptor either");
}

static void test_counts(void)
{
    enum { LEN = 4 << 20 };
    struct pair p;
    step("counts");
    p = ph_pair(0, knobs, 0, (const char *const[]){"metrics=no", NULL});
    is_int(count_names(), 1, "knob metrics: no socket");
    struct ph_buf to = ph_buf(p.b, LEN, 0, HAWSER_REMOTE_WRITE, p.ba), from = ph_buf(p.a, LEN, 0, 0, NULL);
    for (int i = 0; i < 3; i++)
        is_rc(ph_one(hawser_write, p.ab, &from, 0, LEN, &to.region, 0), 0, "a write");
    is_rc(ph_one(hawser_write, p.ab, &from, 0, 100, &to.region, 0), 0, "a small one");
    hawser_op *op;
    must(hawser_recv(p.ab, &(struct hawser_vec){.mem = from.mem, .length = 10}, 1, NULL, &op));
    char *text = read_name(name_of);
    is_int(sum_of(text, "hawser_sent_bytes_total", "nic=\"lo\""), 3 * LEN + 100, "confirmed bytes by NIC");
    is_int(sum_of(text, "hawser_operations_total", "write"), 4, "operations that ended");
    is_int(sum_of(text, "hawser_operation_bytes_total", "write"), 3 * LEN + 100, "their bytes");
    is_int(sum_of(text, "hawser_operations_in_flight", ""), 1, "one is under way");
    is_int(sum_of(text, "hawser_operation_failures_total", ""), 0, "none has failed");
    is_int(sum_of(text, "hawser_registered_bytes", "host"), LEN, "registered memory");
    is_int(sum_of(text, "hawser_peers", ""), 1, "a peer");
    ok(sum_of(text, "hawser_rails", "") >= 1 && sum_of(text, "hawser_rails_up", "") == sum_of(text, "hawser_rails", ""),
       "its rails are up");
    ok(sum_of(text, "hawser_tcp_rtt_seconds", "") > 0 && sum_of(text, "hawser_tcp_rtt_seconds", "") < 60,
       "a round trip of sense");
    ok(sum_of(text, "hawser_cpu_seconds_total", "") > 0, "threads took time");
    free(text);
    hawser_cancel(op);
    (void)ph_finish(op);
    ph_drop(&to);
    hawser_close(p.b);
    while (hawser_peer_state(p.ab) == 0)
        usleep(1000);
    text = read_name(name_of);
    ok(sum_of(text, "hawser_rails", "") >= 1, "a dead peer is there until it is closed");
    is_int(sum_of(text, "hawser_rails_up", ""), 0, "without a rail");
    is_int(sum_of(text, "hawser_failovers_total", ""), 0, "rails that end because a peer closes are no failovers");
    free(text);
    hawser_peer_close(p.ab);
    ph_drop(&from);
    text = read_name(name_of);
    is_int(sum_of(text, "hawser_operations_total", "write"), 4, "what a peer did outlives it");
    is_int(sum_of(text, "hawser_operation_failures_total", "recv"), 1, "a failure too");
    is_int(sum_of(text, "hawser_operations_in_flight", ""), 0, "nothing is under way");
    is_int(sum_of(text, "hawser_peers_lost_total", ""), 0, "a peer that was closed is not lost");
    is_int(sum_of(text, "hawser_registered_bytes", "host"), 0, "no memory");
    ok(!strstr(text, "peer="), "its series end");
    free(text);
    hawser_close(p.a);
}

/* Tests more peers than the metrics list individually. */
static void test_many(void)
{
    enum { PEERS = HW_METRICS_PEERS + 6, LEN = 64 << 10 };
    static hawser_peer *ab[PEERS], *ba[PEERS];
    uint16_t port;
    step("many peers");
    const char *const few[] = {knob, "channels=1", NULL};
    hawser *a = ph_open(0, few), *b = ph_open(0, (const char *const[]){"metrics=no", "channels=1", NULL});
    must(hawser_listen(b, "127.0.0.1", 0, &port));
    struct ph_buf to = ph_buf(b, LEN, 0, HAWSER_REMOTE_WRITE, NULL), from = ph_buf(a, LEN, 0, 0, NULL);
    for (int i = 0; i < PEERS; i++)
        ph_connect(a, b, port, &ab[i], &ba[i]);
    must(count_names() == 1 ? 0 : -ENOENT);
    free(read_name(name_of)); /* reading the metrics selects the peers that are listed */
    for (int i = 0; i < PEERS; i++)
        must(ph_one(hawser_write, ab[i], &from, 0, LEN, &to.region, 0));
    char *text = read_name(name_of), id[32];
    is_int(sum_of(text, "hawser_sent_bytes_total", "peer=\"127"), HW_METRICS_PEERS * LEN, "so many peers are listed");
    is_int(sum_of(text, "hawser_sent_bytes_total", "peer=\"other\""), 6 * LEN, "the others are one");
    snprintf(id, sizeof id, "id=\"%d\"", HW_METRICS_PEERS - 1);
    is_int(sum_of(text, "hawser_sent_bytes_total", id), LEN, "each has a number");
    free(text);
    for (int i = 0; i < PEERS; i += 2)
        hawser_peer_close(ab[i]);
    text = read_name(name_of);
    is_int(sum_of(text, "hawser_sent_bytes_total", "peer=\"127"), HW_METRICS_PEERS / 2 * LEN,
           "half of them are closed");
    is_int(sum_of(text, "hawser_sent_bytes_total", "peer=\"other\""), 6 * LEN, "the others' counter did not go back");
    is_int(sum_of(text, "hawser_operations_total", "write"), PEERS, "nor did the context's");
    free(text);
    hawser_close(a);
    hawser_close(b);
    free(to.raw);
    free(from.raw);
}

static void test_readers(void)
{
    enum { READERS = 100 };
    int fd[READERS], whole = 0;
    size_t len;
    step("readers");
    hawser *h = ph_open(0, knobs);
    must(count_names() == 1 ? 0 : -ENOENT);
    int before = ph_fds();
    for (int i = 0; i < READERS; i++)
        if ((fd[i] = dial(name_of)) < 0)
            bail("connecting: %s", strerror(-fd[i]));
    for (int i = 0; i < READERS; i++) {
        char *text = read_all(fd[i], &len);
        whole += is_whole(text);
        free(text);
    }
    is_int(whole, READERS, "100 readers at once get the text");
    step("a reader that does not read");
    atomic_store(&starve, true);
    int slow = dial(name_of);
    for (int i = 0; i < 3000 && !atomic_load(&refused); i++)
        usleep(1000);
    ok(atomic_load(&refused) > 0, "one does not read");
    int second = dial(name_of);
    char *text = read_all(slow, &len);
    is_int(len, 0, "it is dropped");
    free(text);
    atomic_store(&starve, false);
    text = read_all(second, &len);
    ok(is_whole(text), "the next one is served");
    free(text);
    int hasty = dial(name_of);
    close(hasty);
    text = read_name(name_of);
    ok(is_whole(text), "one that leaves at once costs nothing");
    free(text);
    is_int(ph_fds(), before, "no descriptor is left");
    atomic_store(&starve, true);
    atomic_store(&refused, 0);
    slow = dial(name_of);
    for (int i = 0; i < 3000 && !atomic_load(&refused); i++)
        usleep(1000);
    hawser_close(h);
    atomic_store(&starve, false);
    free(read_all(slow, &len));
    ok(len == 0 && count_names() == 0, "a context is closed while somebody reads");
}

/* Connects from a child process of another user. Stores the connect result in *rc and the text's length in *got. */
static void try_as_nobody(int *rc, int *got)
{
    int pipe_fd[2], said[2] = {-1, -1};
    size_t len = 0;
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        bail("no pipe");
    pid_t child = fork();
    if (child == 0) {
        if (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0)
            _exit(1);
        said[0] = dial(name_of);
        if (said[0] >= 0) {
            char *text = read_all(said[0], &len);
            said[0] = 0;
            said[1] = (int)len;
            free(text);
        }
        _exit(write(pipe_fd[1], said, sizeof said) != sizeof said);
    }
    close(pipe_fd[1]);
    if (read(pipe_fd[0], said, sizeof said) != sizeof said)
        bail("the child said nothing");
    close(pipe_fd[0]);
    waitpid(child, NULL, 0);
    *rc = said[0];
    *got = said[1];
}

static void test_strangers(void)
{
    char path[128];
    int rc, got;
    step("another user");
    if (geteuid() != 0) {
        ok(true, "another user is refused # SKIP only root can be one");
        return;
    }
    hawser *h = ph_open(0, knobs);
    must(count_names() == 1 ? 0 : -ENOENT);
    if (chmod(dir, 01777) < 0)
        bail("chmod");
    try_as_nobody(&rc, &got);
    is_int(rc, -EACCES, "another user cannot connect");
    snprintf(path, sizeof path, "%s/%s", dir, name_of);
    if (chmod(path, 0666) < 0)
        bail("chmod");
    try_as_nobody(&rc, &got);
    is_int(rc, 0, "where the mode lets another user connect");
    is_int(got, 0, "there is nothing to read");
    chmod(dir, 0700);
    hawser_close(h);
}

/* Tests that unsafe folders are refused and that the context can then be opened without a socket. */
static void test_folders(void)
{
    char other[128], text[160];
    step("folders");
    snprintf(other, sizeof other, "%s.x", dir);
    snprintf(text, sizeof text, "metrics_dir=%s", other);
    const char *const there[] = {text, NULL};
    if (symlink(dir, other) < 0)
        bail("symlink");
    hawser *h = ph_open(0, there);
    is_int(count_names(), 0, "a symbolic link is not followed");
    hawser_close(h);
    unlink(other);
    if (mkdir(other, 0700) < 0 || chmod(other, 0777) < 0)
        bail("mkdir");
    h = ph_open(0, there);
    is_int(proc_entries(other), 0, "a folder in which others may replace files is not used");
    hawser_close(h);
    if (chmod(other, 01777) < 0)
        bail("chmod");
    h = ph_open(0, there);
    is_int(proc_entries(other), 1, "a sticky one is");
    hawser_close(h);
    is_int(rmdir(other), 0, "and is empty again");
    h = ph_open(0, (const char *const[]){"metrics_dir=relative", NULL});
    hawser_close(h);
    h = ph_open(0, (const char *const[]){"metrics_dir=/proc/no/such/folder", NULL});
    hawser_close(h);
    ok(true, "a folder that cannot be is no failure");
    int fd = open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(fd);
    h = ph_open(0, there);
    ok(unlink(other) == 0, "a file is left alone");
    hawser_close(h);
}

/* Tests that a new context removes the old socket of a killed process, and that a forked child removes no socket. */
static void test_leftovers(void)
{
    char stale[HW_RUNDIR_NAME], path[128];
    int at;
    step("leftovers");
    pid_t child = fork();
    if (child == 0) {
        (void)ph_open(0, knobs);
        raise(SIGKILL);
    }
    waitpid(child, NULL, 0);
    is_int(count_names(), 1, "a killed process leaves its socket");
    memcpy(stale, name_of, sizeof stale);
    is_int(dial(stale), -ECONNREFUSED, "which refuses");
    hawser *h = ph_open(0, knobs);
    is_int(count_names(), 2, "one that is young stays: it may be about to listen");
    hawser_close(h);
    at = hw_rundir_open(dir, false, geteuid());
    must(utimensat(at, stale, (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}, 0));
    close(at);
    h = ph_open(0, knobs);
    is_int(count_names(), 1, "an old one is removed");
    ok(strcmp(name_of, stale) != 0, "and no other");
    at = hw_rundir_open(dir, false, geteuid());
    must(utimensat(at, name_of, (struct timespec[2]){{.tv_sec = 1}, {.tv_sec = 1}}, 0));
    hw_rundir_sweep(at);
    is_int(count_names(), 1, "one that is answered on is not");
    close(at);
    child = fork();
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    char *text = read_name(name_of);
    ok(is_whole(text), "a child that ends changes nothing");
    free(text);
    /* another file that has the name of the context's socket */
    snprintf(path, sizeof path, "%s/%s", dir, name_of);
    unlink(path);
    at = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    close(at);
    hawser_close(h);
    is_int(unlink(path), 0, "what has taken its name is not removed");
}

/* Tests that with caller progress, the socket is served while the caller drives the loop. */
static void test_caller(void)
{
    size_t len = 0;
    step("the caller drives");
    hawser *h = ph_open(HAWSER_CALLER_PROGRESS, knobs);
    must(count_names() == 1 ? 0 : -ENOENT);
    int fd = dial(name_of);
    for (int i = 0; i < 100; i++)
        (void)hawser_progress(h, 1);
    char *text = read_all(fd, &len);
    ok(is_whole(text) && strstr(text, "hawser_threads 0\n"), "a context without threads answers");
    free(text);
    hawser_close(h);
}

int main(void)
{
    watchdog(60);
    snprintf(dir, sizeof dir, "/tmp/hawser-test-metrics.XXXXXX");
    if (!mkdtemp(dir))
        bail("no folder");
    snprintf(knob, sizeof knob, "metrics_dir=%s", dir);
    test_leftovers(); /* first, because it opens a context in a forked child, so no thread may exist yet */
    test_socket();
    test_counts();
    test_many();
    test_readers();
    test_strangers();
    test_folders();
    test_caller();
    is_int(rmdir(dir), 0, "nothing is left in the folder");
    return tap_done();
}
