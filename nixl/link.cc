/* SPDX-License-Identifier: Apache-2.0 */
#include "nixl/link.h"
#include "nixl/agent.h"
#include "nixl/xfer.h"

#include <arpa/inet.h>
#include <cerrno>
#include <mutex>
#include <thread>

namespace hx
{

constexpr int linger_ms = 1000; /* longest wait for notifications before a link closes */

nixl_status_t status_of(int rc)
{
    switch (rc) {
    case 0:
        return NIXL_SUCCESS;
    case -EAGAIN:
        return NIXL_IN_PROG;
    case -ECONNRESET:
    case -ESHUTDOWN:
    case -ECONNREFUSED:
    case -EHOSTUNREACH:
        return NIXL_ERR_REMOTE_DISCONNECT;
    case -ECANCELED:
        return NIXL_ERR_CANCELED;
    case -EINVAL:
    case -EFAULT:
    case -E2BIG:
        return NIXL_ERR_INVALID_PARAM;
    case -EACCES:
    case -EPERM:
        return NIXL_ERR_NOT_ALLOWED;
    case -ESTALE:
        return NIXL_ERR_NOT_FOUND;
    case -EOPNOTSUPP:
    case -ENODEV:
        return NIXL_ERR_NOT_SUPPORTED;
    default:
        return NIXL_ERR_BACKEND;
    }
}

Link::Link(Agent &a, uint64_t number, const hx_info &to)
    : agent(a), id(number), to_(to), here_(to.host == a.info().host)
{
}

Link::~Link()
{
    close();
}

void Link::start()
{
    std::unique_lock lock(mu);
    started_ = true;
    if (state != State::connecting) /* closed before its turn came */
        return;
    deadline_ = now_ms() + static_cast<uint64_t>(agent.options().connect_ms);
    agent.count_connecting(1);
    try_next_address();
}

/* Sets host and port to the next address to try. Returns false if there is none. A process in the same kernel and
 * network namespace is reached over loopback only. */
bool Link::next_host(std::string &host, uint16_t &port)
{
    if (here_) {
        host = "127.0.0.1";
        port = to_.port;
        return turn_++ == 0;
    }
    while (turn_ < HX_ADDRS) {
        const hx_addr &a = to_.addr[turn_++];
        char text[INET6_ADDRSTRLEN];
        if (a.family == 0 || !inet_ntop(a.family == 6 ? AF_INET6 : AF_INET, a.ip, text, sizeof(text)))
            continue;
        host = text;
        port = a.port ? a.port : to_.port;
        return true;
    }
    return false;
}

/* Returns the number of addresses that have not been tried, but at least 1. Each untried address gets an equal share of
 * the remaining time. */
static unsigned addresses_left(const hx_info &to, unsigned turn)
{
    unsigned n = 0;
    for (; turn < HX_ADDRS; turn++)
        n += to.addr[turn].family != 0;
    return n ? n : 1;
}

void Link::try_next_address()
{
    std::string host;
    uint16_t port = 0;
    nixl_status_t last = why != NIXL_SUCCESS ? why : NIXL_ERR_REMOTE_DISCONNECT;
    hawser_connect_options o = {};
    o.size = sizeof(o);
    o.key = to_.key;
    o.key_len = HX_KEY;
    o.gpu = agent.options().device < 0 ? 0 : HAWSER_GPU(agent.options().device);
    for (unsigned left = addresses_left(to_, turn_); next_host(host, port); left = addresses_left(to_, turn_)) {
        uint64_t now = now_ms();
        if (now >= deadline_)
            break;
        uint64_t ms = (deadline_ - now) / (here_ ? 1 : left) + 1;
        int rc = hawser_connect_start(agent.context(), host.c_str(), port, &o, static_cast<int>(ms), id, &peer);
        if (rc == 0)
            return;
        peer = nullptr;
        last = status_of(rc);
    }
    fail(last);
}

void Link::finish_attempt(int rc)
{
    std::unique_lock lock(mu);
    if (state != State::connecting || !peer)
        return;
    if (rc) {
        (void)hawser_peer_state(peer); /* sets hawser_error() */
        agent.log(std::string("connecting: ") + hawser_error());
        hawser_peer_close(peer);
        peer = nullptr;
        /* A peer that does not answer in time counts as disconnected too. */
        why = rc == -ETIMEDOUT ? NIXL_ERR_REMOTE_DISCONNECT : status_of(rc);
        try_next_address();
        return;
    }
    state = State::up;
    why = NIXL_SUCCESS;
    agent.count_connecting(-1);
    for (Request *r : waiting)
        r->begin();
    waiting.clear();
    flush_locked();
}

void Link::fail(nixl_status_t status)
{
    if (state == State::connecting && started_)
        agent.count_connecting(-1);
    state = State::dead;
    why = removed ? NIXL_ERR_NOT_FOUND : status;
    for (Request *r : waiting)
        r->give_up(why);
    waiting.clear();
    pieces_.clear();
}

void Link::end_stale()
{
    std::unique_lock lock(mu);
    for (Request *r : posted)
        r->end_stale();
}

bool Link::remove()
{
    std::unique_lock lock(mu);
    removed = true;
    for (Request *r : waiting)
        r->give_up(NIXL_ERR_NOT_FOUND);
    waiting.clear();
    for (Request *r : posted)
        r->end_removed();
    switch (state) {
    case State::connecting: /* a link that has not started waits for an earlier link to the same agent */
        return peer || !pieces_.empty();
    case State::up:
        return hawser_peer_state(peer) == 0;
    default:
        return false;
    }
}

/* Returns whether no notification is left to send or to confirm. */
bool Link::is_finished()
{
    std::unique_lock lock(mu);
    reap_sent();
    (void)flush_locked();
    return state == State::dead || (pieces_.empty() && sent_.empty());
}

void Link::finish()
{
    for (uint64_t end = now_ms() + linger_ms; !is_finished() && now_ms() < end;)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    close();
}

void Link::close()
{
    hawser_peer *p = nullptr;
    {
        std::unique_lock lock(mu);
        fail(NIXL_ERR_REMOTE_DISCONNECT);
        std::swap(p, peer);
    }
    hawser_peer_close(p); /* ends all operations */
    std::unique_lock lock(mu);
    reap_sent();
}

bool Link::is_over()
{
    std::unique_lock lock(mu);
    if (state == State::up && hawser_peer_state(peer) < 0)
        fail(NIXL_ERR_REMOTE_DISCONNECT);
    if (state != State::dead)
        return false;
    bool before = told_;
    told_ = true;
    return before;
}

nixl_status_t Link::send_pieces(std::vector<std::string> pieces)
{
    std::unique_lock lock(mu);
    if (state == State::dead || removed)
        return removed ? NIXL_ERR_NOT_FOUND : why;
    for (std::string &p : pieces)
        pieces_.push_back(std::move(p));
    if (flush_locked())
        agent.wake();
    return state == State::dead ? why : NIXL_SUCCESS;
}

bool Link::flush()
{
    std::unique_lock lock(mu);
    reap_sent();
    return flush_locked();
}

void Link::reap_sent()
{
    while (!sent_.empty() && hawser_test(sent_.front()) != -EAGAIN) {
        hawser_op_free(sent_.front());
        sent_.pop_front();
    }
}

bool Link::flush_locked()
{
    while (state == State::up && !pieces_.empty()) {
        const std::string &p = pieces_.front();
        hawser_op *op = nullptr;
        int rc = hawser_notify(peer, p.data(), p.size(), nullptr, &op);
        if (rc == -EAGAIN)
            return true;
        if (rc) {
            agent.log(std::string("sending a notification: ") + hawser_error());
            if (status_of(rc) == NIXL_ERR_REMOTE_DISCONNECT)
                fail(NIXL_ERR_REMOTE_DISCONNECT);
            else
                pieces_.pop_front();
            continue;
        }
        sent_.push_back(op);
        pieces_.pop_front();
    }
    return false;
}

} // namespace hx
