/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request is a transfer that NIXL has prepared. Its descriptors are resolved once, and NIXL may post it any number of
 * times. A list that exceeds libhawser's limit becomes several operations. A notification is sent with the data of a
 * write if both fit into one operation, otherwise after the end of all operations.
 */
#ifndef HX_XFER_H
#define HX_XFER_H

#include "nixl/link.h"

namespace hx
{

/* A registration. NIXL may free the metadata of memory before the requests that were prepared from it, so requests
 * share the ownership of registrations and of remote regions. Agent::mem_mu guards `mem`, which is nullptr after the
 * deregistration. */
struct Registration {
    hawser_mem *mem = nullptr;
};

/* Registered memory, with the remote key that NIXL's metadata carries to other agents. */
struct LocalMD : nixlBackendMD {
    LocalMD() : nixlBackendMD(true), reg(std::make_shared<Registration>())
    {
    }
    const std::shared_ptr<Registration> reg;
    hawser_mem_kind kind = HAWSER_MEM_HOST;
    uintptr_t base = 0;
    size_t len = 0;
    uint8_t key[HAWSER_KEY_SIZE] = {};
};

/* Memory of a remote agent, or of this agent in transfers within the agent. */
struct RemoteMD : nixlBackendMD {
    RemoteMD() : nixlBackendMD(false), region(std::make_shared<hawser_region>())
    {
    }
    const std::shared_ptr<hawser_region> region;
    uintptr_t base = 0;
};

class Request : public nixlBackendReqH
{
  public:
    Request(Agent &agent, nixl_xfer_op_t op) : agent_(agent), write_(op == NIXL_WRITE)
    {
    }
    ~Request() override;

    /* Resolves the descriptors. */
    nixl_status_t resolve(const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote);
    /* Starts the transfer on the link, or queues it until the link is up. `pieces` is the notification; it is empty if
     * there is none. */
    nixl_status_t post(std::shared_ptr<Link> link, std::vector<std::string> pieces);
    nixl_status_t check();
    /* Cancels a queued or running transfer without waiting for its end. */
    void abandon();

    /* Called by the link, with Link::mu held. */
    void begin();
    void give_up(nixl_status_t status);
    void end_removed();
    void end_stale();

  private:
    enum class State { idle, waiting, moving, done };

    nixl_status_t add_pair(const nixlMetaDesc &local, const nixlMetaDesc &remote);
    bool may_skip(uint64_t now);
    void leave_link();
    void advance();
    bool is_stale() const;
    void post_vecs();
    void post_pieces();
    void reap();
    void fail(nixl_status_t status, const char *reason);
    bool fits_one_operation() const;

    Agent &agent_;
    const bool write_;
    std::vector<hawser_vec> vecs_;
    /* The registrations and regions of vecs_, without those that equal the one before. */
    std::vector<std::shared_ptr<Registration>> regs_;
    std::vector<std::shared_ptr<hawser_region>> regions_;
    std::shared_ptr<Link> link_;
    std::mutex mu_; /* guards changes of the following members; never held while Link::mu is locked */
    std::atomic<State> state_{State::idle};
    nixl_status_t result_ = NIXL_SUCCESS;
    uint64_t looked_ns_ = 0;
    size_t next_vec_ = 0, next_piece_ = 0;
    std::vector<hawser_op *> ops_; /* operations in flight, oldest first */
    std::vector<std::string> pieces_;
};

} // namespace hx

#endif
