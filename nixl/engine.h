/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that NIXL calls. No function that returns a status lets an exception escape: NIXL gets a status instead.
 */
#ifndef HX_ENGINE_H
#define HX_ENGINE_H

#include "nixl/agent.h"

namespace hx
{

class Engine : public nixlBackendEngine
{
  public:
    Engine(const nixlBackendInitParams *params, const Options &options);
    ~Engine() override;

    /* Returns "" or the reason why the engine cannot be used. */
    std::string open();

    bool supportsRemote() const override;
    bool supportsLocal() const override;
    bool supportsNotif() const override;
    nixl_mem_list_t getSupportedMems() const override;
    nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &type, nixlBackendMD *&out) override;
    nixl_status_t deregisterMem(nixlBackendMD *meta) override;
    nixl_status_t connect(const std::string &remote) override;
    nixl_status_t disconnect(const std::string &remote) override;
    nixl_status_t unloadMD(nixlBackendMD *input) override;
    nixl_status_t prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
                           const std::string &agent, nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *args) const override;
    nixl_status_t postXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local, const nixl_meta_dlist_t &remote,
                           const std::string &agent, nixlBackendReqH *&handle,
                           const nixl_opt_b_args_t *args) const override;
    nixl_status_t checkXfer(nixlBackendReqH *handle) const override;
    nixl_status_t releaseReqH(nixlBackendReqH *handle) const override;
    nixl_status_t getPublicData(const nixlBackendMD *meta, std::string &out) const override;
    nixl_status_t getConnInfo(std::string &out) const override;
    nixl_status_t loadRemoteConnInfo(const std::string &remote, const std::string &info) override;
    nixl_status_t loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &type, const std::string &remote,
                               nixlBackendMD *&out) override;
    nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&out) override;
    nixl_status_t getNotifs(notif_list_t &out) override;
    nixl_status_t genNotif(const std::string &remote, const std::string &message) const override;

  private:
    template <class F> nixl_status_t guard(F f, nixl_status_t in_child = NIXL_ERR_NOT_ALLOWED) const;

    std::unique_ptr<Agent> agent_;
};

nixl_mem_list_t supported_mems();

} // namespace hx

#endif
