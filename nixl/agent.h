/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of one NIXL engine: a libhawser context with its own random key, the links to remote agents, and the
 * connected peers, which send notifications. Each engine has one thread, which makes connections and accepts peers.
 * NIXL's calls and libhawser's threads drive the transfers.
 */
#ifndef HX_AGENT_H
#define HX_AGENT_H

#include "nixl/link.h"
#include "nixl/options.h"

#include <condition_variable>
#include <list>
#include <map>
#include <thread>
#include <tuple>

namespace hx
{

uint64_t now_ms();

struct LocalMD;

/* Memory that is registered with libhawser. NIXL may register the same memory several times. All of these registrations
 * share one Memory, because NIXL refuses the metadata of an agent if equal descriptors have different keys. */
struct Memory {
    hawser_mem *mem = nullptr;
    uint8_t key[HAWSER_KEY_SIZE] = {};
    unsigned users = 0;
};

class Agent
{
  public:
    Agent(const std::string &name, const Options &options);
    ~Agent();

    /* Opens the context and listens. Returns "" or the reason for the failure. */
    std::string open();

    hawser *context() const
    {
        return h_;
    }
    /* Returns whether this process is a child that was forked after the agent was created. The child has the agent's
     * memory, but neither its threads nor its connections, and a thread of the parent may have held any lock. */
    bool is_forked() const;
    const Options &options() const
    {
        return options_;
    }
    const hx_info &info() const
    {
        return info_;
    }

    /* Registers the memory that md describes, and sets md's key. Returns 0 or -errno. */
    int register_memory(LocalMD &md);
    /* Ends a registration. Cancels the transfers that use the memory, and waits up to `ms` for their end: NIXL ignores
     * the status, and the application may free the memory. Returns 0 or -errno; -EBUSY means that transfers still use
     * the memory. */
    int deregister(LocalMD &md, int ms);

    nixl_status_t add_remote(const std::string &remote, const std::string &blob);
    void remove_remote(const std::string &remote);
    /* Stores the link to a remote agent in out. Starts a new link if there is none, or if the link has ended and a
     * caller has already received its error. Fails with NIXL_ERR_NOT_FOUND if the agent is unknown. */
    nixl_status_t find_link(const std::string &remote, std::shared_ptr<Link> &out);

    /* Splits a notification into pieces that libhawser can carry. */
    std::vector<std::string> make_pieces(const std::string &message);
    nixl_status_t take_notes(notif_list_t &out);

    /* Takes ownership of a canceled operation that no caller waits for. */
    void keep_op(hawser_op *op);

    void count_connecting(int more);
    void wake();
    /* Appends a line to the file named in HAWSER_NIXL_LOG, if the variable is set. */
    void log(const std::string &line);

    /* A transfer holds mem_mu while it starts operations, so that a deregistration either finds these operations or is
     * seen by the transfer. Locked after Link::mu and Request::mu_. */
    std::shared_mutex mem_mu;

  private:
    struct Incoming {
        hawser_peer *peer;
        std::map<uint64_t, std::string> partial; /* incomplete notifications by ID */
        size_t partial_bytes = 0;
    };

    /* A link that a thread of its own closes, because the close may wait for the peer. */
    struct Closing {
        std::string remote;
        std::shared_ptr<Link> link;
        std::atomic<bool> done{false};
        std::thread thread;
    };

    using Place = std::tuple<hawser_mem_kind, uintptr_t, size_t>;

    void run();
    bool wait_for_work(bool busy);
    bool do_work();
    void take_connected();
    bool flush_links();
    std::shared_ptr<Link> link_of(uint64_t id);
    void reap_kept();
    std::shared_ptr<Link> retire(const std::string &remote);
    int deregister_once(LocalMD &md);
    void reap_closing();
    void wait_for_closing();
    void end_stale();
    void take_in();
    bool take_ahead();
    void drain_all();
    void forget_oldest(Incoming &in);
    bool drain(Incoming &in);
    bool take_piece(Incoming &in, const uint8_t *data, size_t len);

    const std::string name_;
    const Options options_;
    const unsigned forks_;
    hawser *h_ = nullptr;
    hx_info info_ = {};
    std::thread thread_;

    std::mutex wake_mu_;
    std::condition_variable wake_;
    bool stop_ = false, woken_ = false;

    std::mutex mu_; /* guards the following four members */
    std::map<std::string, hx_info> remotes_;
    std::map<std::string, std::shared_ptr<Link>> links_;
    std::list<Closing> closing_; /* oldest first */
    uint64_t next_link_ = 0;
    std::atomic<int> connecting_{0};

    std::mutex memory_mu_; /* guards memory_; locked before mem_mu */
    std::map<Place, Memory> memory_;

    std::mutex kept_mu_;
    std::vector<hawser_op *> kept_;

    std::mutex in_mu_; /* guards incoming peers and their notifications */
    std::vector<Incoming> incoming_;
    notif_list_t ready_;
    size_t ready_bytes_ = 0;
    std::vector<uint8_t> buffer_;

    std::atomic<uint64_t> next_note_{0};
};

void append_log(const std::string &line);

} // namespace hx

#endif
