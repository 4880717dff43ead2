/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests the NIXL backend through its ABI alone: the test calls the backend like NIXL, but does not load NIXL. A second
 * engine runs in a child process, which the test stops and kills.
 * Usage: test_nixl_engine LIBPLUGIN_HAWSER.SO
 */
#include "base/sanitizers.h"
#include "nixl/abi.h"
#include "nixl/blob.h"
#include "tests/tap.h"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <csignal>
#include <dlfcn.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <pthread.h>
#include <regex.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace
{

constexpr size_t size = 16 << 20;
constexpr int wait_ms = 10000;
constexpr bool sanitized = HW_ASAN || HW_TSAN;
constexpr uint64_t check_ns = sanitized ? 20000 : 1000;

std::atomic<int> threads_left{-1}; /* number of threads that can be started, or -1 for no limit */

struct List : nixl_meta_dlist_t {
    void add(uintptr_t addr, size_t len, nixlBackendMD *md)
    {
        nixlMetaDesc d = {};
        d.addr = addr;
        d.len = len;
        d.metadataP = md;
        descs.push_back(d);
    }
};

struct Card { /* data that one engine sends to the other, like NIXL's metadata */
    char info[HX_INFO];
    char key[64];
    uintptr_t base;
};

uint64_t now_us()
{
    using namespace std::chrono;
    return static_cast<uint64_t>(duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count());
}

nixlBackendEngine *make_engine(nixlBackendPlugin *plugin, const char *name, nixl_b_params_t params)
{
    nixlBackendInitParams p = {};
    p.localAgent = name;
    p.type = "HAWSER";
    p.customParams = &params;
    return plugin->create_engine(&p);
}

nixl_status_t register_memory(nixlBackendEngine *e, void *ptr, size_t len, nixl_mem_t type, nixlBackendMD *&md)
{
    nixlBlobDesc d = {};
    d.addr = reinterpret_cast<uintptr_t>(ptr);
    d.len = len;
    return e->registerMem(d, type, md);
}

nixl_status_t finish(nixlBackendEngine *e, nixlBackendReqH *r)
{
    nixl_status_t rc = NIXL_IN_PROG;
    for (uint64_t end = now_us() + wait_ms * 1000; rc == NIXL_IN_PROG && now_us() < end;)
        rc = e->checkXfer(r);
    return rc;
}

/* Runs the engine in the child process: registers memory, sends a Card, and then only the engine's threads work. */
[[noreturn]] void run_child(nixlBackendPlugin *plugin, int out)
{
    static char memory[size];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    nixlBackendEngine *e = make_engine(plugin, "b", {});
    nixlBackendMD *md = nullptr;
    std::string info, key;
    Card card = {};
    if (e && register_memory(e, memory, size, DRAM_SEG, md) == NIXL_SUCCESS && e->getConnInfo(info) == NIXL_SUCCESS &&
        e->getPublicData(md, key) == NIXL_SUCCESS && info.size() == sizeof(card.info) &&
        key.size() == sizeof(card.key)) {
        memcpy(card.info, info.data(), info.size());
        memcpy(card.key, key.data(), key.size());
        card.base = reinterpret_cast<uintptr_t>(memory);
        (void)!write(out, &card, sizeof(card));
    }
    for (;;)
        pause();
}

void check_refusals(nixlBackendPlugin *plugin, nixlBackendPlugin *(*init)())
{
    nixl_b_params_t none;
    ok(make_engine(plugin, "a", none) == nullptr, "a caller that is no wheel of NIXL's gets no engine");
    std::string why = plugin->get_backend_options()["error"];
    ok(why.find("version is unknown") != std::string::npos, "and the reason: %s", why.c_str());
    setenv("HAWSER_NIXL_ANY_VERSION", "1", 1);
    ok(init() == plugin, "the plugin is told to go on all the same");
    ok(make_engine(plugin, "a", {{"nisc", "eth0"}}) == nullptr, "an unknown parameter is refused");
    ok(make_engine(plugin, std::string(5000, 'n').c_str(), none) == nullptr,
       "an agent's name of 5000 bytes is refused");
}

#if !HW_ASAN && !HW_TSAN /* a sanitizer has its own pthread_create() */
/* Tests that an engine whose n-th thread cannot be started reports the reason, for each n. */
void check_threads(nixlBackendPlugin *plugin)
{
    int failed = 0, silent = 0, n = 0;
    nixlBackendEngine *e = nullptr;
    for (; n < 100 && !e; n++) {
        threads_left = n;
        e = make_engine(plugin, "no threads", {{"nisc", "eth0"}}); /* replaces the error of the last round */
        e = make_engine(plugin, "a", {});
        std::string why = plugin->get_backend_options()["error"];
        failed += !e;
        silent += !e && (why.empty() || why.find("nisc") != std::string::npos);
    }
    threads_left = -1;
    ok(e && failed >= 2 && silent == 0, "an engine without its threads gives the reason, %d of %d times",
       failed - silent, failed);
    if (e)
        plugin->destroy_engine(e);
}
#endif

/* Tests that a line of the log begins with the time and the process. */
void check_log(nixlBackendPlugin *plugin)
{
    char path[] = "/tmp/hawser-nixl-log-XXXXXX";
    int fd = mkstemp(path);
    if (!ok(fd >= 0, "a file for the log"))
        return;
    close(fd);
    setenv("HAWSER_NIXL_LOG", path, 1);
    (void)make_engine(plugin, "a", {{"nisc", "eth0"}});
    unsetenv("HAWSER_NIXL_LOG");
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const std::string form = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{3}Z " +
                             std::to_string(getpid()) + " NIXL/hawser: .*nisc";
    regex_t re;
    const bool good = regcomp(&re, form.c_str(), REG_EXTENDED | REG_NOSUB) == 0;
    ok(good && regexec(&re, line.c_str(), 0, nullptr, 0) == 0, "the log has the time and the process: %s",
       line.c_str());
    if (good)
        regfree(&re);
    unlink(path);
}

void check_memory(nixlBackendEngine *e)
{
    nixlBackendMD *md = nullptr;
    char some[64];
    is_int(register_memory(e, some, sizeof(some), FILE_SEG, md), NIXL_ERR_NOT_SUPPORTED, "files are not supported");
    nixl_status_t rc = register_memory(e, some, sizeof(some), VRAM_SEG, md);
    ok(rc < 0 && !md, "host memory is no GPU memory: %d", rc);
    is_int(register_memory(e, nullptr, 8, DRAM_SEG, md), NIXL_ERR_INVALID_PARAM, "NULL is no memory");
    ok(!md, "and nothing was registered");
}

struct Pair {
    nixlBackendEngine *e;
    nixlBackendMD *local, *remote;
    uintptr_t base, far;
};

nixl_status_t prepare(const Pair &p, size_t at, size_t len, size_t far_len, nixlBackendReqH *&r)
{
    List local, remote;
    local.add(p.base + at, len, p.local);
    remote.add(p.far + at, far_len, p.remote);
    return p.e->prepXfer(NIXL_WRITE, local, remote, "b", r, nullptr);
}

nixl_status_t post(const Pair &p, nixlBackendReqH *&r, const std::string *note = nullptr, const char *to = "b")
{
    List none;
    nixl_opt_b_args_t args = {};
    args.hasNotif = note;
    args.notifMsg = note ? *note : "";
    return p.e->postXfer(NIXL_WRITE, none, none, to, r, &args);
}

void check_requests(const Pair &p)
{
    nixlBackendReqH *r = nullptr;
    is_int(prepare(p, 0, 8, 16, r), NIXL_ERR_MISMATCH, "descriptors of two lengths");
    is_int(prepare(p, size - 4, 8, 8, r), NIXL_ERR_INVALID_PARAM, "a descriptor beyond the registration");
    is_int(prepare(p, static_cast<size_t>(-4), 8, 8, r), NIXL_ERR_INVALID_PARAM, "one in front of the registration");
    is_int(prepare(p, 0, 8, 8, r), NIXL_SUCCESS, "a request is prepared");
    is_int(p.e->checkXfer(r), NIXL_ERR_NOT_POSTED, "and not posted yet");
    is_int(post(p, r, nullptr, "c"), NIXL_ERR_NOT_FOUND, "an agent that nobody has told of");
    nixl_status_t rc = post(p, r);
    ok(rc >= 0 && (rc == NIXL_SUCCESS || finish(p.e, r) == NIXL_SUCCESS),
       "the request ends well, by the second address");
    rc = post(p, r);
    ok(rc >= 0 && (rc == NIXL_SUCCESS || finish(p.e, r) == NIXL_SUCCESS), "and again");
    p.e->releaseReqH(r);
}

/* Tests a child of fork(), which has the engine's memory but not its threads. */
void check_fork(nixlBackendPlugin *plugin, const Pair &p)
{
    nixlBackendReqH *r = nullptr;
    ok(prepare(p, 0, 8, 8, r) == NIXL_SUCCESS, "a request for a child of fork()");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(10);
        notif_list_t notes;
        int bad = post(p, r) != NIXL_ERR_NOT_ALLOWED;
        bad |= (p.e->checkXfer(r) != NIXL_ERR_NOT_ALLOWED) << 1;
        bad |= (p.e->genNotif("b", "x") != NIXL_ERR_NOT_ALLOWED) << 2;
        bad |= (p.e->getNotifs(notes) != NIXL_ERR_NOT_ALLOWED) << 3;
        bad |= (p.e->releaseReqH(r) != NIXL_SUCCESS) << 4;
        bad |= (p.e->disconnect("b") != NIXL_SUCCESS) << 5;
        bad |= (p.e->deregisterMem(p.local) != NIXL_SUCCESS) << 6;
        plugin->destroy_engine(p.e);
#ifndef __SANITIZE_THREAD__ /* TSan ends a child that starts threads ("dup thread with used id") */
        nixlBackendEngine *own = make_engine(plugin, "own", {});
        bad |= !own << 7;
        if (own)
            plugin->destroy_engine(own);
#endif
        _exit(bad);
    }
    int status = -1;
    waitpid(child, &status, 0);
    is_int(status, 0, "a child of fork() cannot use the engine, but can destroy it and make its own");
    nixl_status_t rc = post(p, r);
    ok(rc >= 0 && (rc == NIXL_SUCCESS || finish(p.e, r) == NIXL_SUCCESS), "and the parent's engine still works");
    p.e->releaseReqH(r);
}

/* Tests requests whose metadata NIXL freed before it posted the requests. */
void check_stale(const Pair &p, const nixlBlobDesc &far, const std::string &slow, int listener)
{
    Pair q = p;
    nixlBackendReqH *r = nullptr;
    char *memory = reinterpret_cast<char *>(p.base);
    ok(p.e->loadRemoteMD(far, DRAM_SEG, "b", q.remote) == NIXL_SUCCESS && prepare(q, 0, 8, 8, r) == NIXL_SUCCESS,
       "a request with metadata of its own");
    is_int(p.e->unloadMD(q.remote), NIXL_SUCCESS, "the remote metadata is unloaded");
    std::vector<std::vector<char>> reuse(100, std::vector<char>(64, '\xff')); /* takes the freed memory */
    nixl_status_t rc = post(q, r);
    ok(rc >= 0 && (rc == NIXL_SUCCESS || finish(p.e, r) == NIXL_SUCCESS), "the request still has its region: %d", rc);
    p.e->releaseReqH(r);

    q.remote = p.remote;
    ok(register_memory(p.e, memory, size, DRAM_SEG, q.local) == NIXL_SUCCESS &&
           prepare(q, 0, 8, 8, r) == NIXL_SUCCESS && post(q, r) >= 0 && finish(p.e, r) == NIXL_SUCCESS,
       "a request with a registration of its own");
    is_int(p.e->deregisterMem(q.local), NIXL_SUCCESS, "which ends");
    is_int(post(q, r), NIXL_ERR_NOT_FOUND, "the request is not posted again");
    p.e->releaseReqH(r);

    is_int(p.e->loadRemoteConnInfo("slow", slow), NIXL_SUCCESS, "an agent that does not answer yet");
    ok(register_memory(p.e, memory, size, DRAM_SEG, q.local) == NIXL_SUCCESS && prepare(q, 0, 8, 8, r) == NIXL_SUCCESS,
       "another registration and request");
    is_int(post(q, r, nullptr, "slow"), NIXL_IN_PROG, "the request waits for the connection");
    is_int(p.e->deregisterMem(q.local), NIXL_SUCCESS, "the registration ends meanwhile");
    close(listener); /* the agent's second address is that of the child process */
    is_int(finish(p.e, r), NIXL_ERR_NOT_FOUND, "the request fails when the connection is up");
    p.e->releaseReqH(r);
    is_int(p.e->disconnect("slow"), NIXL_SUCCESS, "the connection is closed");
}

/* Returns the average duration of a check, in nanoseconds, in the fastest of ten rounds, because the machine may be
 * busy. */
uint64_t time_checks(nixlBackendEngine *e, nixlBackendReqH *r, int &odd)
{
    constexpr int n = 20000;
    uint64_t best = UINT64_MAX;
    for (int round = 0; round < 10; round++) {
        uint64_t start = now_us();
        for (int i = 0; i < n; i++)
            odd += e->checkXfer(r) != NIXL_IN_PROG;
        best = std::min(best, (now_us() - start) * 1000 / n);
    }
    return best;
}

/* Removes an agent that does not answer, while transfers are in flight and notifications are queued, and adds the agent
 * again. */
void check_removed(const Pair &p, pid_t child, const std::string &info)
{
    constexpr int n = 4;
    nixlBackendReqH *old[n] = {}, *r = nullptr;
    kill(child, SIGSTOP);
    waitpid(child, nullptr, WUNTRACED);
    int odd = 0;
    for (auto &o : old)
        odd += prepare(p, 0, size, size, o) != NIXL_SUCCESS || post(p, o) != NIXL_IN_PROG;
    is_int(odd, 0, "transfers to an agent that does not answer");
    is_int(p.e->genNotif("b", std::string(1 << 20, 'x')), NIXL_SUCCESS, "and a notification");
    uint64_t start = now_us();
    is_int(p.e->disconnect("b"), NIXL_SUCCESS, "the agent is removed");
    ok(now_us() - start < 100000, "the removal does not wait for the agent: %llu us",
       static_cast<unsigned long long>(now_us() - start));
    is_int(finish(p.e, old[0]), NIXL_ERR_NOT_FOUND, "a transfer in flight fails");
    is_int(post(p, old[0]), NIXL_ERR_NOT_FOUND, "and cannot be posted");
    is_int(p.e->releaseReqH(old[1]), NIXL_SUCCESS, "a transfer in flight is released");
    is_int(p.e->loadRemoteConnInfo("b", info), NIXL_SUCCESS, "the agent is added again");
    is_int(finish(p.e, old[2]), NIXL_ERR_NOT_FOUND, "an old transfer fails after that too");
    ok(prepare(p, 0, size, size, r) == NIXL_SUCCESS && post(p, r) == NIXL_IN_PROG, "a new transfer waits");
    kill(child, SIGCONT);
    is_int(finish(p.e, r), NIXL_SUCCESS, "and succeeds when the agent answers");
    is_int(finish(p.e, old[3]), NIXL_ERR_NOT_FOUND, "an old transfer does not");
    for (auto *o : {old[0], old[2], old[3], r})
        p.e->releaseReqH(o);
}

/* Removes and adds the agent while other threads make, check and release transfers, and send notifications. */
void check_removed_in_use(const Pair &p, const std::string &info)
{
    std::atomic<bool> stop{false};
    std::atomic<int> odd{0}, moved{0};
    auto is_expected = [](nixl_status_t rc) { return rc >= 0 || rc == NIXL_ERR_NOT_FOUND; };
    auto run = [&](unsigned number) {
        for (unsigned i = number; !stop; i++) {
            nixlBackendReqH *r = nullptr;
            odd += prepare(p, number << 20, 1 << 20, 1 << 20, r) != NIXL_SUCCESS;
            nixl_status_t rc = post(p, r);
            for (unsigned n = i % 4 ? 1 << 20 : i % 50; rc == NIXL_IN_PROG && n > 0 && !stop; n--)
                rc = p.e->checkXfer(r);
            odd += !is_expected(rc) || !is_expected(p.e->genNotif("b", "note"));
            moved += rc == NIXL_SUCCESS;
            p.e->releaseReqH(r);
        }
    };
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++)
        threads.emplace_back(run, i);
    for (uint64_t end = now_us() + 500000; now_us() < end;) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        odd += p.e->disconnect("b") != NIXL_SUCCESS || p.e->loadRemoteConnInfo("b", info) != NIXL_SUCCESS;
    }
    stop = true;
    for (auto &t : threads)
        t.join();
    ok(odd == 0, "threads use an agent that is removed and added again: %d transfers, %d odd results", moved.load(),
       odd.load());
    nixlBackendReqH *r = nullptr;
    ok(prepare(p, 0, size, size, r) == NIXL_SUCCESS && post(p, r) >= 0 && finish(p.e, r) == NIXL_SUCCESS,
       "and a transfer succeeds after that");
    p.e->releaseReqH(r);
}

void check_stopped(const Pair &p, pid_t child)
{
    nixlBackendReqH *r = nullptr;
    kill(child, SIGSTOP);
    waitpid(child, nullptr, WUNTRACED);
    ok(prepare(p, 0, size, size, r) == NIXL_SUCCESS && post(p, r) == NIXL_IN_PROG,
       "a transfer to a peer that stands still");
    is_int(post(p, r), NIXL_ERR_REPOST_ACTIVE, "is not posted twice");
    int odd = 0;
    uint64_t ns = time_checks(p.e, r, odd);
    ok(odd == 0 && ns < check_ns, "a check where nothing happens takes nanoseconds: %llu",
       static_cast<unsigned long long>(ns));
    uint64_t start = now_us();
    nixlBackendReqH *other = nullptr;
    ok(prepare(p, 0, size, size, other) == NIXL_SUCCESS && post(p, other) == NIXL_IN_PROG, "a second one");
    is_int(p.e->releaseReqH(other), NIXL_SUCCESS, "is released while in progress");
    ok(now_us() - start < 100000, "post and release do not wait: %llu us",
       static_cast<unsigned long long>(now_us() - start));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    start = now_us();
    is_int(finish(p.e, r), NIXL_ERR_REMOTE_DISCONNECT, "the peer is killed");
    ok(now_us() - start < 200000, "which is known within 100 ms: %llu us",
       static_cast<unsigned long long>(now_us() - start));
    p.e->releaseReqH(r);
    std::string text(1000, 'x');
    is_int(p.e->genNotif("b", text), NIXL_ERR_REMOTE_DISCONNECT, "a notification to a dead peer");
}

/* Returns `info`, changed to look like the connection information of another host. It has two addresses: the first has
 * the port `first`, and the second leads to the child process. */
std::string move_away(std::string info, uint16_t first)
{
    const unsigned char low = first & 255, high = first >> 8;
    const unsigned char addresses[] = {4, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, low, high,
                                       4, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,   0};
    info[8] = static_cast<char>(info[8] ^ 1);
    return info.replace(64, sizeof(addresses), reinterpret_cast<const char *>(addresses), sizeof(addresses));
}

/* Returns the number of threads, besides the main thread, that do not block SIGTERM. */
int count_open_threads()
{
    int n = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream status(task.path() / "status");
        for (std::string line; std::getline(status, line);)
            if (line.rfind("SigBlk:", 0) == 0 && task.path().filename() != std::to_string(getpid()))
                n += !(std::stoull(line.substr(7), nullptr, 16) >> (SIGTERM - 1) & 1);
    }
    return n;
}

/* Returns a socket that listens on a port of 127.0.0.1, but whose connections nobody accepts. */
int listen_only(uint16_t &port)
{
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, reinterpret_cast<sockaddr *>(&at), len) || listen(fd, 5) ||
        getsockname(fd, reinterpret_cast<sockaddr *>(&at), &len))
        return -1;
    port = ntohs(at.sin_port);
    return fd;
}

void check_pair(nixlBackendPlugin *plugin, pid_t child, const Card &card)
{
    auto memory = std::make_unique<char[]>(size);
    Pair p = {};
    p.e = make_engine(plugin, "a", {});
    if (!ok(p.e != nullptr, "an engine is made"))
        return;
    check_memory(p.e);
    p.base = reinterpret_cast<uintptr_t>(memory.get());
    p.far = card.base;
    is_int(register_memory(p.e, memory.get(), size, DRAM_SEG, p.local), NIXL_SUCCESS, "memory is registered");
    std::string info(card.info, sizeof(card.info)), shorter(card.info, sizeof(card.info) - 1);
    is_int(p.e->loadRemoteConnInfo("b", shorter), NIXL_ERR_INVALID_PARAM, "connection information that is cut");
    is_int(p.e->loadRemoteConnInfo("b", move_away(info, 1)), NIXL_SUCCESS, "whole connection information");
    nixlBlobDesc d = {};
    d.addr = card.base;
    d.len = size;
    d.metaInfo = "short";
    is_int(p.e->loadRemoteMD(d, DRAM_SEG, "b", p.remote), NIXL_ERR_INVALID_PARAM, "a region's key that is none");
    d.metaInfo.assign(card.key, sizeof(card.key));
    is_int(p.e->loadRemoteMD(d, DRAM_SEG, "b", p.remote), NIXL_SUCCESS, "a region's key");
    check_requests(p);
    /* Before any link is removed: a thread that closes a link may hold the lock of ASan's allocator during fork(). */
    check_fork(plugin, p);
    uint16_t port = 0;
    int listener = listen_only(port);
    if (ok(listener >= 0, "a listener"))
        check_stale(p, d, move_away(info, port), listener);
    if (!sanitized) // sanitizers start threads of their own
        is_int(count_open_threads(), 0, "no thread of the backend takes the program's signals");
    check_removed(p, child, info);
    check_removed_in_use(p, info);
    check_stopped(p, child);
    is_int(p.e->disconnect("b"), NIXL_SUCCESS, "the agent is forgotten");
    is_int(p.e->unloadMD(p.remote), NIXL_SUCCESS, "and its memory");
    is_int(p.e->deregisterMem(p.local), NIXL_SUCCESS, "memory is deregistered");
    plugin->destroy_engine(p.e);
}

} // namespace

#if !HW_ASAN && !HW_TSAN
/* The dynamic linker prefers this function to libc's. */
extern "C" __attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attr,
                                                                     void *(*run)(void *), void *arg)
{
    using Create = int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    static const auto real = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    int left = threads_left;
    if (left == 0)
        return EAGAIN;
    threads_left = left < 0 ? left : left - 1;
    return real(thread, attr, run, arg);
}
#endif

int main(int argc, char **argv)
{
    void *lib = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : nullptr;
    auto init = lib ? reinterpret_cast<nixlBackendPlugin *(*)()>(dlsym(lib, "nixl_plugin_init")) : nullptr;
    if (!ok(init != nullptr, "the plugin is loaded"))
        return tap_done();
    unsetenv("HAWSER_NIXL_ANY_VERSION");
    nixlBackendPlugin *plugin = init();
    is_str(plugin->get_plugin_name(), "HAWSER", "its name");
    is_int(plugin->api_version, NIXL_PLUGIN_API_VERSION, "its version of the API");
    is_int(plugin->get_backend_mems().size(), 2, "its kinds of memory");
    check_refusals(plugin, init);
    check_log(plugin);
#if !HW_ASAN && !HW_TSAN
    check_threads(plugin);
#endif

    int fds[2];
    Card card = {};
    if (!ok(pipe(fds) == 0, "a pipe"))
        return tap_done();
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        run_child(plugin, fds[1]);
    close(fds[1]);
    if (ok(read(fds[0], &card, sizeof(card)) == sizeof(card), "an engine in another process"))
        check_pair(plugin, child, card);
    kill(child, SIGKILL);
    return tap_done();
}
