/* SPDX-License-Identifier: Apache-2.0 */
/* libnccl-net-rude.so is rude in every way that rude_help() prints, and works where it is asked for none. */
#include "tcpxlike_try.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>

#define LEN      1000
#define MESSAGES 8
#define UNSET    (-77)

#define NOTE(...) dprintf(STDOUT_FILENO, __VA_ARGS__)

/* ---- the probe: a connection of a process with itself; it notes all that is not as it should be -------------- */

static atomic_long lines, longest;

__attribute__((format(printf, 5, 6))) static void count(ncclDebugLogLevel level, unsigned long flags, const char *file,
                                                        int line, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    (void)flags, (void)file, (void)line;
    if (level == NCCL_LOG_WARN && atomic_fetch_add(&lines, 1) == 0)
        NOTE("log: %s\n", text);
    if (n > longest)
        longest = n;
}

static const ncclNet_v9_t *net;
static void *lc, *sc, *rc;
static unsigned char from[LEN], to[LEN + 128];

/* False where there is no going on. */
static bool stop(const char *what, ncclResult_t code)
{
    if (code)
        NOTE("%s: %d\n", what, (int)code);
    return code != ncclSuccess;
}

static bool probe_table(void)
{
    void *lib = dlopen(RUDE, RTLD_NOW | RTLD_LOCAL);
    net = lib ? dlsym(lib, "ncclNetPlugin_v9") : NULL;
    CHECK(net);
    if (!net->name)
        NOTE("name: NULL\n");
    if (!net->isend)
        NOTE("isend: not there\n");
    return net->isend && !stop("init", net->init(count));
}

static bool probe_device(void)
{
    int n = UNSET;
    ncclNetProperties_v9_t p;
    memset(&p, 0x5a, sizeof(p));
    if (stop("devices", net->devices(&n)))
        return false;
    if (n == UNSET)
        NOTE("devices: not written\n");
    else if (n != 1)
        NOTE("devices: %d of them\n", n);
    if (stop("getProperties", net->getProperties(0, &p)))
        return false;
    if (p.speed == 0x5a5a5a5a) {
        NOTE("properties: not written\n");
        return false;
    }
    if (!p.name)
        NOTE("properties: no name\n");
    else if (strlen(p.name) > 200)
        NOTE("properties: a name of %zu bytes\n", strlen(p.name));
    if (p.speed < 0 && p.maxRecvs > 1000 && p.latency != p.latency)
        NOTE("properties: absurd\n");
    return true;
}

static bool probe_connect(void)
{
    char handle[NCCL_NET_HANDLE_MAXSIZE + 256];
    memset(handle, 0xee, sizeof(handle));
    if (stop("listen", net->listen(0, handle, &lc)))
        return false;
    if (!lc)
        NOTE("listen: NULL\n");
    if (handle[NCCL_NET_HANDLE_MAXSIZE] != (char)0xee)
        NOTE("listen: past its 128 bytes\n");
    for (int i = 0; lc && i < 300 && (!sc || !rc); i++, usleep(1000)) {
        uint64_t since = hw_now();
        if (!sc && stop("connect", net->connect(0, handle, &sc, NULL)))
            return false;
        if (i == 0 && hw_now() - since > 250 * HW_MS)
            NOTE("connect: slow\n");
        if (!rc && stop("accept", net->accept(lc, &rc, NULL)))
            return false;
    }
    if (lc && !sc)
        NOTE("connect: never\n");
    if (lc && !rc)
        NOTE("accept: never\n");
    return sc && rc;
}

/* Tests it once; true once it is over, one way or the other. */
static bool over(const char *whose, void *request, int want, bool *failed)
{
    int done = UNSET, size = UNSET;
    uint64_t since = hw_now();
    if ((*failed = stop("test", net->test(request, &done, &size))))
        return true;
    if (hw_now() - since > 40 * HW_MS)
        NOTE("test: slow\n");
    if (done == UNSET || done == 0) {
        if (done)
            NOTE("test: done is not written\n");
        return false;
    }
    if (done != 1)
        NOTE("test: done is 0x%x\n", done);
    if (size == UNSET)
        NOTE("test: the size is not written\n");
    else if (size != want)
        NOTE("test: %s of %d is %d\n", whose, want, size);
    return true;
}

/* A request, after NULL ones; NULL if there will be none. */
static void *post(bool sends, void *mr)
{
    void *data = to, *request = (void *)1;
    size_t len = LEN;
    int tag = 0;
    const char *what = sends ? "isend" : "irecv";
    for (int i = 0; i < 100; i++) {
        ncclResult_t code =
            sends ? net->isend(sc, from, LEN, 0, mr, &request) : net->irecv(rc, 1, &data, &len, &tag, &mr, &request);
        if (stop(what, code))
            return NULL;
        if (request) {
            if (i)
                NOTE("%s: NULL %d times\n", what, i);
            return request;
        }
    }
    NOTE("%s: NULL for ever\n", what);
    return NULL;
}

static bool probe_message(unsigned seed, void *from_mr, void *to_mr)
{
    bool failed = false, r_over, s_over;
    fill(from, seed, LEN);
    memset(to, 0, sizeof(to));
    void *r = post(false, to_mr);
    if (!r)
        return false;
    r_over = over("a receive", r, LEN, &failed); /* long before it is sent */
    bool right = !r_over || filled(to, seed, LEN);
    void *s = failed ? NULL : post(true, from_mr);
    if (!s)
        return false;
    s_over = false;
    for (int i = 0; !failed && i < 200 && !(r_over && s_over); i++, usleep(500)) {
        s_over = s_over || over("a send", s, LEN, &failed);
        if (!failed && !r_over && over("a receive", r, LEN, &failed)) {
            r_over = true;
            right = failed || filled(to, seed, LEN);
        }
    }
    if (!failed && !(r_over && s_over))
        NOTE("test: never\n");
    if (!right)
        NOTE("data: wrong\n");
    if (to[LEN])
        NOTE("data: past its end\n");
    return !failed && r_over && s_over;
}

static unsigned threads(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* What has become of the process, other than by the calls. */
static void probe_process(int witness, unsigned had)
{
    char cwd[512] = "";
    struct sigaction sa;
    sigset_t set;
    if (fcntl(witness, F_GETFD) < 0)
        NOTE("process: descriptors are closed\n");
    (void)sigaction(SIGTERM, NULL, &sa);
    (void)pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (sa.sa_handler != SIG_DFL && sigismember(&set, SIGTERM))
        NOTE("process: signals are changed\n");
    if (getenv("LD_PRELOAD") && !getenv("RUDE"))
        NOTE("process: the environment is changed\n");
    if (getcwd(cwd, sizeof(cwd)) && strcmp(cwd, "/") == 0)
        NOTE("process: the directory is changed\n");
    if (threads() > had + 1)
        NOTE("process: threads spin\n");
    if (lines > 5000)
        NOTE("log: thousands of lines\n");
    if (longest >= 65536)
        NOTE("log: a line of %ld bytes\n", (long)longest);
}

static void probe(void)
{
    /* high up, where no descriptor comes in its place */
    int witness = fcntl(open("/dev/null", O_RDONLY | O_CLOEXEC), F_DUPFD_CLOEXEC, 200);
    const char *way = getenv("RUDE");
    bool wait = way && (strstr(way, "late") || strstr(way, "log"));
    unsigned had = threads();
    bool good = probe_table() && probe_device() && probe_connect();
    void *mr[4] = {(void *)1, (void *)1, (void *)1, (void *)1};
    if (good) {
        for (int i = 0; i < 4; i++)
            if (!stop("regMr", net->regMr(i % 2 ? rc : sc, i % 2 ? to : from, LEN, NCCL_PTR_HOST, &mr[i])) && !mr[i])
                NOTE("regMr: NULL\n");
        for (unsigned i = 0; good && i < MESSAGES; i++)
            good = probe_message(i, mr[0], mr[1]);
    }
    if (wait)
        usleep(500000);
    probe_process(witness, had);
    if (sc && rc) {
        (void)stop("close", net->closeSend(sc));
        (void)stop("close", net->closeRecv(rc));
        (void)stop("close", net->closeListen(lc));
    }
    NOTE("over\n");
    (void)signal(SIGALRM, SIG_IGN);
    _exit(0);
}

/* ---- what it must note, for each way --------------------------------------------------------------------------- */

enum { EXITS = 1000 }; /* + a status; below it: a signal */

static const struct {
    const char *rude;
    int end; /* 0: the probe came to its end */
    const char *note;
} rows[] = {
    {"load-crash", SIGSEGV, ""},
    {"load-hang", SIGALRM, ""},
    {"load-exit=7", EXITS + 7, ""},
    {"table-null", 0, "isend: not there\n"},
    {"table-name", 0, "name: NULL\n"},
    {"init-fail", 0, "init: 2\n"},
    {"init-fail=-5", 0, "init: -5\n"},
    {"init-crash", SIGSEGV, ""},
    {"init-hang", SIGALRM, ""},
    {"init-exit=9", EXITS + 9, "log: NET/rude : leaving in init\n"},
    {"init-slow=10", 0, "over\n"},
    {"devices=0", 0, "devices: 0 of them\n"},
    {"devices=-1", 0, "devices: -1 of them\n"},
    {"devices=1000", 0, "devices: 1000 of them\n"},
    {"devices-fail", 0, "devices: 2\n"},
    {"devices-unwritten", 0, "devices: not written\n"},
    {"props-fail", 0, "getProperties: 2\n"},
    {"props-unwritten", 0, "properties: not written\n"},
    {"props-no-name", 0, "properties: no name\n"},
    {"props-long-name", 0, "properties: a name of 65536 bytes\n"},
    {"props-garbage", 0, "properties: absurd\n"},
    {"props-wild", SIGSEGV, ""},
    {"listen-fail", 0, "listen: 2\n"},
    {"listen-null", 0, "listen: NULL\n"},
    {"listen-overrun", 0, "listen: past its 128 bytes\n"},
    {"connect-never", 0, "connect: never\n"},
    {"connect-fail=6", 0, "connect: 6\n"},
    {"connect-fail=99", 0, "connect: 99\n"},
    {"connect-codes", 0, "connect: 1\n"},
    {"connect-slow", 0, "connect: slow\n"},
    {"accept-never", 0, "accept: never\n"},
    {"accept-fail", 0, "accept: 3\n"},
    {"regmr-every=3", 0, "regMr: 3\n"},
    {"regmr-null", 0, "regMr: NULL\n"},
    {"isend-null", 0, "isend: NULL 5 times\n"},
    {"irecv-null=2", 0, "irecv: NULL 2 times\n"},
    {"isend-never", 0, "isend: NULL for ever\n"},
    {"irecv-never", 0, "irecv: NULL for ever\n"},
    {"isend-fail", 0, "isend: 2\n"},
    {"irecv-fail", 0, "irecv: 2\n"},
    {"test-larger", 0, "a receive of 1000 is 1001\n"},
    {"test-negative", 0, "a receive of 1000 is -1\n"},
    {"test-no-size", 0, "test: the size is not written\n"},
    {"test-garbage", 0, "test: done is 0x5a5a5a5a\n"},
    {"test-unwritten", 0, "test: done is not written\n"},
    {"test-early", 0, "data: wrong\n"},
    {"test-never", 0, "test: never\n"},
    {"test-crash", SIGSEGV, ""},
    {"test-exit", EXITS + 1, ""},
    {"test-hang", SIGALRM, ""},
    {"test-slow", 0, "test: slow\n"},
    {"errors=4", 0, "irecv: 1\n"},
    {"recv-overrun", 0, "data: past its end\n"},
    {"recv-corrupt", 0, "data: wrong\n"},
    {"close-fail", 0, "close: 3\n"},
    {"close-crash", SIGSEGV, ""},
    {"close-hang", SIGALRM, ""},
    {"flood=1", 0, "xxxxxxxxxxxx\n"},
    {"log-flood", 0, "log: thousands of lines\n"},
    {"log-wild", 0, "log: a line of 65536 bytes\n"},
    {"spin", 0, "process: threads spin\n"},
    {"close-fds", 0, "process: descriptors are closed\n"},
    {"signals", 0, "process: signals are changed\n"},
    {"environ", 0, "process: the environment is changed\n"},
    {"chdir", 0, "process: the directory is changed\n"},
    {"fork=2", 0, "over\n"},
    {"late-exit", EXITS + 1, ""},
    {"late-crash", SIGSEGV, ""},
};

static bool ended(const struct outcome *o, int end)
{
    if (end == 0)
        return WIFEXITED(o->status) && WEXITSTATUS(o->status) == 0 && strstr(o->log, "over\n");
    if (end >= EXITS)
        return WIFEXITED(o->status) && WEXITSTATUS(o->status) == end - EXITS;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (end == SIGSEGV && WIFEXITED(o->status) && strstr(o->log, "SEGV"))
        return true;
#endif
    return WIFSIGNALED(o->status) && WTERMSIG(o->status) == end;
}

static void each_way(void)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++) {
        char env[64];
        bool fork_ = strncmp(rows[i].rude, "fork", 4) == 0;
        snprintf(env, sizeof(env), "RUDE=%s", rows[i].rude);
        uint64_t since = hw_now();
        struct outcome o = in_child(probe, (const char *[]){env, NULL}, rows[i].end == SIGALRM ? 1 : 30);
        /* the child of the child has our pipe, and we wait for its end as a careless host would */
        bool late = hw_now() - since > 1900 * HW_MS;
        if (!ok(ended(&o, rows[i].end) && strstr(o.log, rows[i].note) && (!fork_ || late), "%s", rows[i].rude))
            show(&o);
    }
}

/* ---- the others ------------------------------------------------------------------------------------------------- */

static void help(void)
{
    void *lib = dlopen(RUDE, RTLD_NOW | RTLD_LOCAL);
    void (*rude_help)(void) = NULL;
    CHECK(lib);
    *(void **)&rude_help = dlsym(lib, "rude_help");
    CHECK(rude_help);
    rude_help();
    _exit(0);
}

/* Every way that it has is in the table above, and has four columns. */
static void help_is_whole(void)
{
    struct outcome o = in_child(help, (const char *[]){NULL}, 30);
    unsigned n = 0, bad = 0;
    for (char *line = strtok(o.log, "\n"); line; line = strtok(NULL, "\n"), n++) {
        size_t len = strcspn(line, "\t");
        bool tried = false;
        for (size_t i = 0; i < HW_ARRAY_LEN(rows); i++)
            tried = tried || (strncmp(rows[i].rude, line, len) == 0 && strchr("=", rows[i].rude[len]));
        unsigned tabs = 0;
        for (const char *c = line; *c; c++)
            tabs += *c == '\t';
        if (!tried || tabs != 3) {
            bad++;
            diag("not tried, or not four columns: %s", line);
        }
    }
    ok(n > 50 && bad == 0, "rude_help() prints %u ways, and each is tried", n);
}

int main(void)
{
    const char *const plain[] = {NULL};
    struct outcome o = in_child(probe, plain, 30);
    if (!ok(WIFEXITED(o.status) && strcmp(o.log, "over\n") == 0, "none asked for: it works"))
        show(&o);
    help_is_whole();
    each_way();
    dies("a way that it has not", probe, (const char *[]){"RUDE=init-fails", NULL}, 30, SIGABRT, "RUDE=init-fails?");
    return tap_done();
}
