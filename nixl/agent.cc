/* SPDX-License-Identifier: Apache-2.0 */
#include "nixl/agent.h"
#include "base/fork.h"
#include "net/host.h"
#include "nixl/xfer.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <set>
#include <sys/random.h>
#include <unistd.h>

namespace hx
{

constexpr int attend_ms = 200; /* time between two checks for peers that have connected or died */
/* time between two checks while notifications are incomplete or unsent, and longest wait while connections are made */
constexpr int busy_ms = 10;
/* once this many bytes of notifications wait for getNotifs(), the thread reads no more */
constexpr size_t ready_max = 64 << 20;
constexpr size_t note_cost = 128;  /* bytes added per notification when ready_max is checked */
constexpr size_t partial_max = 64; /* limit for the incomplete notifications of one peer */

uint64_t now_ms()
{
    using namespace std::chrono;
    return static_cast<uint64_t>(duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count());
}

/* While an object of this class exists, threads that the calling thread creates start with all signals blocked, because
 * signals belong to the application. */
class SignalsBlocked
{
  public:
    SignalsBlocked()
    {
        sigset_t all;
        sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked()
    {
        (void)pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    SignalsBlocked(const SignalsBlocked &) = delete;
    SignalsBlocked &operator=(const SignalsBlocked &) = delete;

  private:
    sigset_t before_;
};

/* Returns the time in UTC. */
static std::string format_now()
{
    timespec t = {};
    tm utc = {};
    char date[32], text[48];
    (void)clock_gettime(CLOCK_REALTIME, &t);
    (void)gmtime_r(&t.tv_sec, &utc);
    (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    (void)snprintf(text, sizeof(text), "%s.%03ldZ", date, t.tv_nsec / 1000000);
    return text;
}

void append_log(const std::string &line)
{
    const char *path = getenv("HAWSER_NIXL_LOG");
    int fd = path && *path ? ::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (fd < 0)
        return;
    std::string text = format_now() + " " + std::to_string(getpid()) + " NIXL/hawser: " + line + "\n";
    (void)!write(fd, text.data(), text.size());
    ::close(fd);
}

static void on_log(void *, int, const char *line)
{
    append_log(line);
}

void Agent::log(const std::string &line)
{
    append_log(name_ + ": " + line);
}

/* ---- opening and closing ---------------------------------------------------------------------------------- */

Agent::Agent(const std::string &name, const Options &options)
    : name_(name), options_(options), forks_(hw_fork_count()), buffer_(HAWSER_NOTIFY_MAX)
{
}

bool Agent::is_forked() const
{
    return hw_fork_count() != forks_;
}

static std::string setting(const std::string &option, const char *variable)
{
    const char *env = getenv(variable);
    return !option.empty() ? option : env ? env : "";
}

std::string Agent::open()
{
    if (name_.size() > HX_NAME_MAX)
        return "the agent's name has more than " + std::to_string(HX_NAME_MAX) + " bytes";
    if (hx_list_addresses(setting(options_.advertise, "HAWSER_ADVERTISE").c_str(),
                          setting(options_.nics, "HAWSER_NICS").c_str(), info_.addr))
        return hawser_error();
    if (getrandom(info_.key, sizeof(info_.key), 0) != sizeof(info_.key) ||
        getrandom(&info_.process, sizeof(info_.process), 0) != sizeof(info_.process))
        return "the kernel returned no random bytes for a key";
    info_.host = hw_host_id();

    std::vector<std::string> knobs = {"metrics_kind=nixl"};
    if (!options_.nics.empty())
        knobs.push_back("nics=" + options_.nics);
    if (!options_.rails.empty())
        knobs.push_back("rails=" + options_.rails);
    if (!options_.advertise.empty())
        knobs.push_back("advertise=" + options_.advertise);
    std::vector<const char *> list;
    for (const std::string &k : knobs)
        list.push_back(k.c_str());
    list.push_back(nullptr);
    hawser_options o = {};
    o.size = sizeof(o);
    o.flags = options_.trusted ? HAWSER_TRUSTED : 0;
    o.log = on_log;
    o.key = info_.key;
    o.key_len = sizeof(info_.key);
    o.knobs = list.data();
    if (hawser_open(&o, &h_) || hawser_listen(h_, nullptr, 0, &info_.port))
        return hawser_error();
    remotes_[name_] = info_; /* for transfers within the agent */
    const SignalsBlocked blocked;
    thread_ = std::thread(&Agent::run, this);
    return "";
}

Agent::~Agent()
{
    wait_for_closing();
    if (thread_.joinable()) {
        {
            std::unique_lock lock(wake_mu_);
            stop_ = true;
        }
        wake_.notify_all();
        thread_.join();
    }
    links_.clear();
    hawser_close(h_);
    for (hawser_op *op : kept_)
        hawser_op_free(op);
}

/* ---- the thread ----------------------------------------------------------------------------------------------- */

void Agent::wake()
{
    {
        std::unique_lock lock(wake_mu_);
        woken_ = true;
    }
    wake_.notify_all();
}

void Agent::count_connecting(int more)
{
    connecting_ += more;
    if (more > 0)
        wake();
}

/* Sleeps until wake() is called or the next check is due. Does not sleep while connections are being made. Returns
 * false if the thread must exit. */
bool Agent::wait_for_work(bool busy)
{
    std::unique_lock lock(wake_mu_);
    if (connecting_ == 0)
        wake_.wait_for(lock, std::chrono::milliseconds(busy ? busy_ms : attend_ms), [this] { return stop_ || woken_; });
    woken_ = false;
    return !stop_;
}

/* Returns whether more work is expected soon. */
bool Agent::do_work()
{
    take_connected();
    reap_closing();
    bool busy = flush_links();
    take_in();
    busy |= take_ahead();
    reap_kept();
    return busy;
}

void Agent::run()
{
    bool busy = false;
    while (wait_for_work(busy)) {
        try {
            busy = do_work();
        } catch (...) { /* out of memory: try again later */
            busy = true;
        }
    }
}

std::shared_ptr<Link> Agent::link_of(uint64_t id)
{
    std::unique_lock lock(mu_);
    for (auto &[name, link] : links_)
        if (link->id == id)
            return link;
    for (Closing &c : closing_)
        if (c.link->id == id)
            return c.link;
    return nullptr;
}

void Agent::take_connected()
{
    hawser_completion c[16];
    int n = hawser_poll_wait(h_, c, 16, connecting_ ? busy_ms : 0);
    for (int i = 0; i < n; i++) {
        hawser_data_free(c[i].data);
        std::shared_ptr<Link> link = c[i].event == HAWSER_CONNECTED ? link_of(c[i].user) : nullptr;
        if (link)
            link->finish_attempt(c[i].result);
    }
}

/* Sends queued notifications. Returns whether any remain queued on links that are up. */
bool Agent::flush_links()
{
    std::vector<std::shared_ptr<Link>> all;
    {
        std::unique_lock lock(mu_);
        for (auto &[name, link] : links_)
            all.push_back(link);
    }
    bool left = false;
    for (auto &link : all)
        left |= link->flush();
    return left;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

int Agent::register_memory(LocalMD &md)
{
    std::unique_lock lock(memory_mu_);
    const Place place(md.kind, md.base, md.len);
    Memory &m = memory_[place];
    if (m.users == 0) {
        int rc = hawser_mem_register(h_, md.kind, reinterpret_cast<void *>(md.base), md.len, &m.mem);
        if (rc == 0 &&
            (rc = hawser_export(m.mem, 0, md.len, HAWSER_REMOTE_READ | HAWSER_REMOTE_WRITE, nullptr, m.key)) != 0)
            (void)hawser_mem_deregister(m.mem);
        if (rc) {
            memory_.erase(place);
            return rc;
        }
    }
    m.users++;
    md.reg->mem = m.mem;
    std::copy_n(m.key, sizeof(m.key), md.key);
    return 0;
}

/* Ends a registration, unless operations use the memory and no other registration keeps the memory. */
int Agent::deregister_once(LocalMD &md)
{
    std::unique_lock memory_lock(memory_mu_);
    auto at = memory_.find(Place(md.kind, md.base, md.len));
    std::unique_lock lock(mem_mu);
    if (at->second.users == 1) {
        int rc = hawser_mem_deregister(at->second.mem);
        if (rc)
            return rc;
        memory_.erase(at);
    } else {
        at->second.users--;
    }
    md.reg->mem = nullptr;
    return 0;
}

/* Ends the transfers that use memory of which the deregistration has begun. */
void Agent::end_stale()
{
    std::vector<std::shared_ptr<Link>> all;
    {
        std::unique_lock lock(mu_);
        for (auto &[name, link] : links_)
            all.push_back(link);
        for (Closing &c : closing_)
            all.push_back(c.link);
    }
    for (auto &link : all)
        link->end_stale();
}

int Agent::deregister(LocalMD &md, int ms)
{
    int rc = deregister_once(md);
    if (rc != -EBUSY)
        return rc;
    {
        std::unique_lock lock(mem_mu);
        md.reg->mem = nullptr; /* the transfers that use the memory are now stale */
    }
    end_stale();
    for (uint64_t end = now_ms() + static_cast<uint64_t>(ms); rc == -EBUSY && now_ms() < end;) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        reap_kept();
        rc = deregister_once(md);
    }
    return rc;
}

/* ---- links ------------------------------------------------------------------------------------------------------ */

nixl_status_t Agent::add_remote(const std::string &remote, const std::string &blob)
{
    hx_info info;
    if (hx_info_decode(reinterpret_cast<const uint8_t *>(blob.data()), blob.size(), &info)) {
        log(remote + ": " + hawser_error());
        return NIXL_ERR_INVALID_PARAM;
    }
    std::shared_ptr<Link> old;
    std::unique_lock lock(mu_);
    auto known = remotes_.find(remote);
    if (known != remotes_.end() && known->second.process != info.process)
        old = retire(remote); /* the agent now runs in a new process */
    remotes_[remote] = info;
    lock.unlock();
    if (old)
        old->close();
    return NIXL_SUCCESS;
}

/* Removes the link to the remote agent from links_. If closing the link may wait for the peer, starts a thread that
 * closes the link. Otherwise returns the link, which the caller closes without mu_. The caller holds mu_. */
std::shared_ptr<Link> Agent::retire(const std::string &remote)
{
    auto it = links_.find(remote);
    if (it == links_.end())
        return nullptr;
    std::shared_ptr<Link> link = it->second;
    if (link->remove()) {
        const SignalsBlocked blocked;
        try {
            Closing &c = closing_.emplace_back();
            c.remote = remote;
            c.link = link;
            c.thread = std::thread([this, &c] {
                c.link->finish();
                c.done = true;
                wake();
            });
            link = nullptr;
        } catch (const std::exception &) { /* without a thread, the caller waits */
            if (!closing_.empty() && !closing_.back().thread.joinable())
                closing_.pop_back();
        }
    }
    links_.erase(it);
    return link;
}

/* Forgets the links that are closed, and starts the links that waited for them. */
void Agent::reap_closing()
{
    std::unique_lock lock(mu_);
    std::set<std::string> earlier;
    for (auto c = closing_.begin(); c != closing_.end();) {
        if (c->done) {
            c->thread.join();
            c = closing_.erase(c);
            continue;
        }
        if (earlier.insert(c->remote).second && !c->link->is_started())
            c->link->start();
        ++c;
    }
    for (auto &[name, link] : links_)
        if (!link->is_started() && !earlier.count(name))
            link->start();
}

/* Closes all links, and waits until they are closed. */
void Agent::wait_for_closing()
{
    std::vector<std::shared_ptr<Link>> rest;
    try {
        std::unique_lock lock(mu_);
        while (!links_.empty())
            rest.push_back(retire(links_.begin()->first));
    } catch (...) { /* out of memory: the destructor of the remaining links closes them */
    }
    for (auto &link : rest)
        if (link)
            link->close();
    for (bool left = thread_.joinable(); left;) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        std::unique_lock lock(mu_);
        left = !closing_.empty();
    }
}

void Agent::remove_remote(const std::string &remote)
{
    std::shared_ptr<Link> old;
    {
        std::unique_lock lock(mu_);
        old = retire(remote);
        if (remote != name_)
            remotes_.erase(remote);
    }
    if (old)
        old->close();
}

nixl_status_t Agent::find_link(const std::string &remote, std::shared_ptr<Link> &out)
{
    std::shared_ptr<Link> old;
    std::unique_lock lock(mu_);
    auto info = remotes_.find(remote);
    if (info == remotes_.end()) {
        log(remote + ": no metadata of this agent is loaded");
        return NIXL_ERR_NOT_FOUND;
    }
    std::shared_ptr<Link> &link = links_[remote];
    if (link && !link->is_over()) {
        out = link;
        return NIXL_SUCCESS;
    }
    old = link; /* closed after mu_ is released, unless another thread holds a reference */
    link = std::make_shared<Link>(*this, ++next_link_, info->second);
    /* While an earlier link to this agent closes, the new link waits, so that no data of the earlier link arrives after
     * data of the new one. reap_closing() starts the new link. */
    if (std::none_of(closing_.begin(), closing_.end(), [&](const Closing &c) { return c.remote == remote; }))
        link->start();
    out = link;
    lock.unlock();
    return NIXL_SUCCESS;
}

/* ---- operations without a waiting caller ------------------------------------------------------------------ */

void Agent::keep_op(hawser_op *op)
{
    std::unique_lock lock(kept_mu_);
    kept_.push_back(op);
}

void Agent::reap_kept()
{
    std::unique_lock lock(kept_mu_);
    auto over = [](hawser_op *op) {
        if (hawser_test(op) == -EAGAIN)
            return false;
        hawser_op_free(op);
        return true;
    };
    kept_.erase(std::remove_if(kept_.begin(), kept_.end(), over), kept_.end());
}

/* ---- notifications ------------------------------------------------------------------------------------ */

std::vector<std::string> Agent::make_pieces(const std::string &message)
{
    std::vector<std::string> all;
    size_t head = HX_NOTE + name_.size(), room = HAWSER_NOTIFY_MAX - head, at = 0;
    hx_note note = {};
    note.id = ++next_note_;
    note.total = static_cast<uint32_t>(message.size());
    note.name = name_.data();
    note.name_len = static_cast<uint32_t>(name_.size());
    do {
        size_t n = std::min(room, message.size() - at);
        std::string piece(head, '\0');
        note.offset = static_cast<uint32_t>(at);
        hx_note_encode(reinterpret_cast<uint8_t *>(&piece[0]), &note);
        piece.append(message, at, n);
        all.push_back(std::move(piece));
        at += n;
    } while (at < message.size());
    return all;
}

/* Accepts the peers that have connected. */
void Agent::take_in()
{
    std::unique_lock lock(in_mu_);
    hawser_peer *p = nullptr;
    while (hawser_accept(h_, 0, &p) == 0)
        incoming_.push_back(Incoming{p, {}, 0});
}

/* Drops the oldest incomplete notification: the sender has canceled it, or sends too many notifications or bytes. */
void Agent::forget_oldest(Incoming &in)
{
    in.partial_bytes -= in.partial.begin()->second.size();
    in.partial.erase(in.partial.begin());
    log(std::string(hawser_peer_name(in.peer)) + ": dropped an incomplete notification");
}

/* Adds a piece to its notification. Returns false if the piece is malformed. */
bool Agent::take_piece(Incoming &in, const uint8_t *data, size_t len)
{
    hx_note note;
    if (hx_note_decode(data, len, &note)) {
        log(std::string(hawser_peer_name(in.peer)) + ": " + hawser_error());
        return false;
    }
    auto at = in.partial.find(note.id);
    if (note.offset != (at == in.partial.end() ? 0 : at->second.size()))
        return true; /* the rest of a notification that was dropped */
    std::string &text = in.partial[note.id];
    text.append(reinterpret_cast<const char *>(note.data), note.len);
    in.partial_bytes += note.len;
    if (text.size() == note.total) {
        in.partial_bytes -= text.size();
        ready_bytes_ += text.size() + note.name_len + note_cost;
        ready_.emplace_back(std::string(note.name, note.name_len), std::move(text));
        in.partial.erase(note.id);
    }
    while (in.partial.size() > partial_max || in.partial_bytes > HX_NOTE_MAX)
        forget_oldest(in);
    return true;
}

/* Reads all notifications that the peer has delivered. Returns whether to keep the peer. */
bool Agent::drain(Incoming &in)
{
    /* read the state first, so that notifications delivered before the peer died are still read */
    bool alive = hawser_peer_state(in.peer) == 0;
    size_t len = 0;
    while (hawser_notification(in.peer, buffer_.data(), buffer_.size(), &len) == 0)
        if (!take_piece(in, buffer_.data(), len))
            return false;
    return alive;
}

/* Reads the notifications of all peers. Closes the peers that are dead or have sent a malformed piece. */
void Agent::drain_all()
{
    auto gone = [this](Incoming &in) {
        if (drain(in))
            return false;
        hawser_peer_close(in.peer);
        return true;
    };
    incoming_.erase(std::remove_if(incoming_.begin(), incoming_.end(), gone), incoming_.end());
}

/* Reads notifications before take_notes() is called, so that a long notification makes progress without calls by the
 * application. Reads nothing and returns false while at least ready_max bytes are ready; libhawser then makes the
 * senders wait. Otherwise returns whether a notification is incomplete. */
bool Agent::take_ahead()
{
    std::unique_lock lock(in_mu_);
    if (ready_bytes_ >= ready_max)
        return false;
    drain_all();
    for (const Incoming &in : incoming_)
        if (!in.partial.empty())
            return true;
    return false;
}

nixl_status_t Agent::take_notes(notif_list_t &out)
{
    take_in();
    std::unique_lock lock(in_mu_);
    drain_all();
    for (auto &note : ready_)
        out.push_back(std::move(note));
    ready_.clear();
    ready_bytes_ = 0;
    return NIXL_SUCCESS;
}

} // namespace hx
