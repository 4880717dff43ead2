/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link is this engine's connection to one remote agent: a libhawser peer that connects asynchronously. Transfers that
 * are posted while the link connects wait in the link. Notifications from a remote agent arrive on that agent's own
 * link (see agent.h).
 *
 * Lock order: Agent::mu_, Link::mu, Request::mu_.
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
#include <unordered_set>

namespace hx
{

class Agent;
class Request;

/* Returns NIXL's status for libhawser's -errno. */
nixl_status_t status_of(int rc);

class Link
{
  public:
    enum class State { connecting, up, dead };

    Link(Agent &agent, uint64_t id, const hx_info &to);
    ~Link();

    /* Starts to connect to the first address. Agent::mu_ guards the start. */
    void start();
    bool is_started() const
    {
        return started_;
    }
    /* Handles the end of an attempt: starts the waiting transfers, or tries the next address. */
    void finish_attempt(int rc);
    /* Marks the link as removed by the application. Waiting and running transfers fail with NIXL_ERR_NOT_FOUND. Returns
     * whether finish() must follow; if not, close() does not wait. */
    bool remove();
    /* Ends the running transfers whose memory the application deregisters. */
    void end_stale();
    /* Waits up to linger_ms until the peer has confirmed all notifications, then closes the link. */
    void finish();
    /* Ends the link. Waiting and running transfers fail with NIXL_ERR_REMOTE_DISCONNECT, or NIXL_ERR_NOT_FOUND after
     * remove(). May wait for the peer, but does not hold mu while it waits. */
    void close();
    /* Queues the pieces of a notification, and sends as many queued pieces as possible. */
    nixl_status_t send_pieces(std::vector<std::string> pieces);
    /* Frees the notifications that the peer has confirmed. If the link is up, sends queued pieces. Returns whether the
     * link is up and some pieces must be sent later. */
    bool flush();
    /* Returns whether the link has ended. The first call after the end still returns false, so that one caller gets the
     * link and its error. */
    bool is_over();

    std::shared_mutex mu;
    /* mu guards the following six members. */
    bool removed = false; /* the application has removed the agent */
    State state = State::connecting;
    nixl_status_t why = NIXL_SUCCESS; /* reason for the end, or for the failure of the last attempt */
    hawser_peer *peer = nullptr;      /* peer of the connection or of the attempt in progress, or nullptr */
    std::vector<Request *> waiting;
    std::unordered_set<Request *> posted; /* all requests that were posted last on this link */
    Agent &agent;
    const uint64_t id;
    std::atomic<uint64_t> driven_ns{0}; /* time of the last check that drove the connection; not guarded */

  private:
    void try_next_address();
    bool next_host(std::string &host, uint16_t &port);
    void fail(nixl_status_t status);
    bool flush_locked();
    void reap_sent();
    bool is_finished();

    const hx_info to_;
    const bool here_; /* the remote agent is in the same kernel and network namespace */
    unsigned turn_ = 0;
    uint64_t deadline_ = 0;
    bool started_ = false, told_ = false;
    std::deque<std::string> pieces_;
    std::deque<hawser_op *> sent_; /* notifications in flight, oldest first */
};

} // namespace hx

#endif
