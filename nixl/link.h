/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link is this engine's way to one remote agent: a peer of libhawser, made without anybody waiting for it. What is
 * posted while the link connects waits in the link. What a remote agent sends comes by its own link, see agent.h.
 *
 * Order of locks: Agent::mu_, Link::mu, Request's own.
 */
#ifndef HX_LINK_H
#define HX_LINK_H

#include "hawser.h"
#include "nixl/abi.h"
#include "nixl/blob.h"

#include <atomic>
#include <deque>
#include <memory>
#include <shared_mutex>

namespace hx
{

class Agent;
class Request;

/* Returns NIXL's code for libhawser's -errno. */
nixl_status_t status_of(int rc);

class Link
{
  public:
    enum class State { connecting, up, dead };

    Link(Agent &agent, uint64_t id, const hx_info &to);
    ~Link();

    /* Starts with the first address. */
    void start();
    /* Takes the end of an attempt: goes on with what waits, or with the next address. */
    void finish_attempt(int rc);
    /* Ends the link: what waits or is under way fails with NIXL_ERR_REMOTE_DISCONNECT. */
    void close();
    /* Queues the pieces of a notification behind those that wait, and sends what can be sent. */
    nixl_status_t send_pieces(std::vector<std::string> pieces);
    /* Sends queued pieces. Returns whether some are left. */
    bool flush();
    /* Returns whether the link is over; from the second call on after its end, so that one caller is told first. */
    bool is_over();

    std::shared_mutex mu;
    /* mu guards the rest. */
    State state = State::connecting;
    nixl_status_t why = NIXL_SUCCESS; /* once dead */
    hawser_peer *peer = nullptr;      /* NULL: no attempt under way, or closed */
    std::vector<Request *> waiting;
    Agent &agent;
    const uint64_t id;
    std::atomic<uint64_t> driven_ns{0}; /* when a check last looked at the connection; not guarded */

  private:
    void try_next_address();
    bool next_host(std::string &host, uint16_t &port);
    void fail(nixl_status_t status);
    bool flush_locked();

    const hx_info to_;
    const bool here_; /* the same kernel and network namespace */
    unsigned turn_ = 0;
    uint64_t deadline_ = 0;
    bool told_ = false;
    std::deque<std::string> pieces_;
};

} // namespace hx

#endif
