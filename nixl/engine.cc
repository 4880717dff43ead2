/* SPDX-License-Identifier: Apache-2.0 */
#include "nixl/engine.h"
#include "nixl/xfer.h"

#include <cerrno>
#include <cstring>

namespace hx
{

constexpr int dereg_ms = 5000; /* longest wait for canceled transfers to release memory that is being deregistered */

/* Runs f, and turns an exception into NIXL_ERR_BACKEND. An exception means that memory ran out or that a thread could
 * not be started. In a child of fork(), returns in_child instead of running f. */
template <class F> nixl_status_t Engine::guard(F f, nixl_status_t in_child) const
{
    try {
        if (!agent_->is_forked())
            return f();
        if (in_child != NIXL_SUCCESS)
            agent_->log(
                "the agent belongs to the process that this one was forked from; create an agent after the fork");
        return in_child;
    } catch (...) {
        return NIXL_ERR_BACKEND;
    }
}

nixl_mem_list_t supported_mems()
{
    return {DRAM_SEG, VRAM_SEG};
}

Engine::Engine(const nixlBackendInitParams *params, const Options &options)
    : nixlBackendEngine(params), agent_(std::make_unique<Agent>(params->localAgent, options))
{
}

Engine::~Engine()
{
    if (agent_->is_forked())
        (void)agent_.release(); /* its threads, for which the destructor would wait, do not exist in this process */
}

std::string Engine::open()
{
    return agent_->open();
}

bool Engine::supportsRemote() const
{
    return true;
}

bool Engine::supportsLocal() const
{
    return true;
}

bool Engine::supportsNotif() const
{
    return true;
}

nixl_mem_list_t Engine::getSupportedMems() const
{
    return supported_mems();
}

/* ---- memory ------------------------------------------------------------------------------------------------ */

nixl_status_t Engine::registerMem(const nixlBlobDesc &mem, const nixl_mem_t &type, nixlBackendMD *&out)
{
    return guard([&] {
        if (type != DRAM_SEG && type != VRAM_SEG)
            return NIXL_ERR_NOT_SUPPORTED;
        auto md = std::make_unique<LocalMD>();
        md->base = mem.addr;
        md->len = mem.len;
        md->kind = type == VRAM_SEG ? HAWSER_MEM_CUDA : HAWSER_MEM_HOST;
        int rc = agent_->register_memory(*md);
        if (rc) {
            agent_->log(std::string("registering memory: ") + hawser_error());
            return status_of(rc);
        }
        out = md.release();
        return NIXL_SUCCESS;
    });
}

nixl_status_t Engine::deregisterMem(nixlBackendMD *meta)
{
    return guard(
        [&] {
            auto *md = static_cast<LocalMD *>(meta);
            int rc = agent_->deregister(*md, dereg_ms);
            if (rc) {
                agent_->log(std::string("deregistering memory: ") + hawser_error());
                return rc == -EBUSY ? NIXL_ERR_REPOST_ACTIVE : status_of(rc);
            }
            delete md;
            return NIXL_SUCCESS;
        },
        NIXL_SUCCESS);
}

nixl_status_t Engine::getPublicData(const nixlBackendMD *meta, std::string &out) const
{
    return guard([&] {
        const auto *md = static_cast<const LocalMD *>(meta);
        out.assign(reinterpret_cast<const char *>(md->key), sizeof(md->key));
        return NIXL_SUCCESS;
    });
}

static nixl_status_t load_region(const uint8_t *key, uintptr_t base, nixlBackendMD *&out)
{
    auto md = std::make_unique<RemoteMD>();
    int rc = hawser_import(key, md->region.get());
    if (rc)
        return status_of(rc);
    md->base = base;
    out = md.release();
    return NIXL_SUCCESS;
}

nixl_status_t Engine::loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &, const std::string &,
                                   nixlBackendMD *&out)
{
    return guard([&] {
        if (input.metaInfo.size() != HAWSER_KEY_SIZE)
            return NIXL_ERR_INVALID_PARAM;
        return load_region(reinterpret_cast<const uint8_t *>(input.metaInfo.data()), input.addr, out);
    });
}

nixl_status_t Engine::loadLocalMD(nixlBackendMD *input, nixlBackendMD *&out)
{
    return guard([&] {
        const auto *md = static_cast<const LocalMD *>(input);
        return load_region(md->key, md->base, out);
    });
}

nixl_status_t Engine::unloadMD(nixlBackendMD *input)
{
    delete input;
    return NIXL_SUCCESS;
}

/* ---- remote agents -------------------------------------------------------------------------------------------- */

nixl_status_t Engine::getConnInfo(std::string &out) const
{
    return guard([&] {
        out.resize(HX_INFO);
        hx_info_encode(reinterpret_cast<uint8_t *>(&out[0]), &agent_->info());
        return NIXL_SUCCESS;
    });
}

nixl_status_t Engine::loadRemoteConnInfo(const std::string &remote, const std::string &info)
{
    return guard([&] { return agent_->add_remote(remote, info); });
}

/* Starts to connect, and returns without waiting. Transfers that are posted before the connection is up are queued. */
nixl_status_t Engine::connect(const std::string &remote)
{
    return guard([&] {
        if (remote == localAgent)
            return NIXL_SUCCESS; /* the first transfer or notification within the agent creates this link */
        std::shared_ptr<Link> link;
        return agent_->find_link(remote, link);
    });
}

nixl_status_t Engine::disconnect(const std::string &remote)
{
    return guard(
        [&] {
            agent_->remove_remote(remote);
            return NIXL_SUCCESS;
        },
        NIXL_SUCCESS);
}

/* ---- transfers -------------------------------------------------------------------------------------------------- */

nixl_status_t Engine::prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
                               const nixl_meta_dlist_t &remote, const std::string &, nixlBackendReqH *&handle,
                               const nixl_opt_b_args_t *) const
{
    return guard([&] {
        auto r = std::make_unique<Request>(*agent_, op);
        nixl_status_t rc = r->resolve(local, remote);
        if (rc == NIXL_SUCCESS)
            handle = r.release();
        return rc;
    });
}

nixl_status_t Engine::postXfer(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
                               const std::string &remote, nixlBackendReqH *&handle, const nixl_opt_b_args_t *args) const
{
    return guard([&] {
        std::vector<std::string> pieces;
        if (args && args->hasNotif) {
            if (args->notifMsg.size() > HX_NOTE_MAX)
                return NIXL_ERR_INVALID_PARAM;
            pieces = agent_->make_pieces(args->notifMsg);
        }
        std::shared_ptr<Link> link;
        nixl_status_t rc = agent_->find_link(remote, link);
        return rc == NIXL_SUCCESS ? static_cast<Request *>(handle)->post(std::move(link), std::move(pieces)) : rc;
    });
}

nixl_status_t Engine::checkXfer(nixlBackendReqH *handle) const
{
    return guard([&] { return static_cast<Request *>(handle)->check(); });
}

nixl_status_t Engine::releaseReqH(nixlBackendReqH *handle) const
{
    return guard(
        [&] {
            delete handle;
            return NIXL_SUCCESS;
        },
        NIXL_SUCCESS);
}

/* ---- notifications ----------------------------------------------------------------------------------------- */

nixl_status_t Engine::getNotifs(notif_list_t &out)
{
    return guard([&] { return agent_->take_notes(out); });
}

nixl_status_t Engine::genNotif(const std::string &remote, const std::string &message) const
{
    return guard([&] {
        if (message.size() > HX_NOTE_MAX)
            return NIXL_ERR_INVALID_PARAM;
        std::shared_ptr<Link> link;
        nixl_status_t rc = agent_->find_link(remote, link);
        return rc == NIXL_SUCCESS ? link->send_pieces(agent_->make_pieces(message)) : rc;
    });
}

} // namespace hx
