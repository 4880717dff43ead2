/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of NIXL's plugin ABI that a backend needs: the names, the order of the virtual functions, and the order and
 * types of the members that NIXL's inline functions read. The plugins in the wheels 1.0.0 to 1.5.1 have the same
 * virtual tables, and test nixl_versions loads the backend into each version.
 *
 * NIXL_PLUGIN_API_VERSION did not change when virtual functions were removed before 1.0.0. version.cc therefore refuses
 * versions of NIXL that were not tested, unless HAWSER_NIXL_ANY_VERSION is 1.
 */
#ifndef HX_ABI_H
#define HX_ABI_H

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#define NIXL_PLUGIN_API_VERSION 1

enum nixl_mem_t { DRAM_SEG, VRAM_SEG, BLK_SEG, OBJ_SEG, FILE_SEG };
enum nixl_xfer_op_t { NIXL_READ, NIXL_WRITE };
enum nixl_status_t {
    NIXL_IN_PROG = 1,
    NIXL_SUCCESS = 0,
    NIXL_ERR_NOT_POSTED = -1,
    NIXL_ERR_INVALID_PARAM = -2,
    NIXL_ERR_BACKEND = -3,
    NIXL_ERR_NOT_FOUND = -4,
    NIXL_ERR_MISMATCH = -5,
    NIXL_ERR_NOT_ALLOWED = -6,
    NIXL_ERR_REPOST_ACTIVE = -7,
    NIXL_ERR_UNKNOWN = -8,
    NIXL_ERR_NOT_SUPPORTED = -9,
    NIXL_ERR_REMOTE_DISCONNECT = -10,
    NIXL_ERR_CANCELED = -11,
};
enum class nixl_thread_sync_t { none, strict, rw };
enum class nixl_cost_t { analytical };

using nixl_mem_list_t = std::vector<nixl_mem_t>;
using nixl_b_params_t = std::unordered_map<std::string, std::string>;
using notif_list_t = std::vector<std::pair<std::string, std::string>>; /* pairs of agent and message */

/* ---- descriptors ---------------------------------------------------------------------------------------- */

struct nixlBasicDesc {
    uintptr_t addr;
    size_t len;
    uint64_t devId;
};

struct nixlBlobDesc : nixlBasicDesc {
    std::string metaInfo;
};

class nixlBackendMD
{
  protected:
    bool isPrivateMD;

  public:
    explicit nixlBackendMD(bool is_private) : isPrivateMD(is_private)
    {
    }
    virtual ~nixlBackendMD() = default;
};

struct nixlMetaDesc : nixlBasicDesc {
    nixlBackendMD *metadataP;
};

/* NIXL builds the lists, and a backend only reads them. The backend calls no virtual function of a list, so only the
 * destructor is declared. The virtual destructor gives the object its virtual table pointer. */
template <class T> class nixlDescList
{
  protected:
    nixl_mem_t type = DRAM_SEG;
    std::vector<T> descs;

  public:
    virtual ~nixlDescList() = default;
    size_t size() const
    {
        return descs.size();
    }
    const T &operator[](size_t i) const
    {
        return descs[i];
    }
};

using nixl_meta_dlist_t = nixlDescList<nixlMetaDesc>;

/* ---- requests --------------------------------------------------------------------------------------------- */

class nixlBackendReqH
{
  public:
    virtual ~nixlBackendReqH() = default;
};

struct nixlBackendOptionalArgs {
    std::string notifMsg;
    bool hasNotif;
    std::string customParam;
};
using nixl_opt_b_args_t = nixlBackendOptionalArgs;

/* Only passed by reference or pointer, in functions that this backend does not implement. */
struct nixlRemoteMetaList;
struct nixlRegList;
struct nixlQueryResponses;
struct nixlAgentArgs;

/* ---- the engine --------------------------------------------------------------------------------------------- */

struct nixlBackendInitParams {
    std::string localAgent;
    std::string type;
    nixl_b_params_t *customParams;
    bool enableProgTh;
    uint64_t pthrDelay;
    nixl_thread_sync_t syncMode;
    bool enableTelemetry;
};

class nixlBackendEngine
{
    /* Read by functions that are inlined into libnixl. */
    std::string backendType;
    nixl_b_params_t customParams;
    std::vector<uint64_t> telemetryEvents; /* always empty: its element type differs between versions */
    std::mutex telemetryEventsMutex;

  protected:
    bool initErr = false;
    const std::string localAgent;
    const bool enableTelemetry;

  public:
    explicit nixlBackendEngine(const nixlBackendInitParams *p)
        : backendType(p->type), customParams(*p->customParams), localAgent(p->localAgent),
          enableTelemetry(p->enableTelemetry)
    {
    }
    nixlBackendEngine(const nixlBackendEngine &) = delete;
    void operator=(const nixlBackendEngine &) = delete;

    /* The order of the following functions is part of the ABI. */
    virtual ~nixlBackendEngine() = default;
    virtual bool supportsRemote() const = 0;
    virtual bool supportsLocal() const = 0;
    virtual bool supportsNotif() const = 0;
    virtual nixl_mem_list_t getSupportedMems() const = 0;
    virtual nixl_status_t registerMem(const nixlBlobDesc &mem, const nixl_mem_t &type, nixlBackendMD *&out) = 0;
    virtual nixl_status_t deregisterMem(nixlBackendMD *meta) = 0;
    virtual nixl_status_t connect(const std::string &remote) = 0;
    virtual nixl_status_t disconnect(const std::string &remote) = 0;
    virtual nixl_status_t unloadMD(nixlBackendMD *input) = 0;
    virtual nixl_status_t prepXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
                                   const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&handle,
                                   const nixl_opt_b_args_t *args) const = 0;
    virtual nixl_status_t postXfer(const nixl_xfer_op_t &op, const nixl_meta_dlist_t &local,
                                   const nixl_meta_dlist_t &remote, const std::string &agent, nixlBackendReqH *&handle,
                                   const nixl_opt_b_args_t *args) const = 0;
    virtual nixl_status_t checkXfer(nixlBackendReqH *handle) const = 0;
    virtual nixl_status_t releaseReqH(nixlBackendReqH *handle) const = 0;
    virtual nixl_status_t prepMemView(const nixlRemoteMetaList &, void *&, const nixl_opt_b_args_t *) const
    {
        return NIXL_ERR_NOT_SUPPORTED;
    }
    virtual nixl_status_t prepMemView(const nixl_meta_dlist_t &, void *&, const nixl_opt_b_args_t *) const
    {
        return NIXL_ERR_NOT_SUPPORTED;
    }
    virtual void releaseMemView(void *) const
    {
    }
    virtual nixl_status_t getPublicData(const nixlBackendMD *meta, std::string &out) const = 0;
    virtual nixl_status_t getConnInfo(std::string &out) const = 0;
    virtual nixl_status_t loadRemoteConnInfo(const std::string &remote, const std::string &info) = 0;
    virtual nixl_status_t loadRemoteMD(const nixlBlobDesc &input, const nixl_mem_t &type, const std::string &remote,
                                       nixlBackendMD *&out) = 0;
    virtual nixl_status_t loadLocalMD(nixlBackendMD *input, nixlBackendMD *&out) = 0;
    virtual nixl_status_t getNotifs(notif_list_t &out) = 0;
    virtual nixl_status_t genNotif(const std::string &remote, const std::string &message) const = 0;
    virtual nixl_status_t queryMem(const nixlRegList &, nixlQueryResponses &) const
    {
        return NIXL_ERR_NOT_SUPPORTED;
    }
    virtual nixl_status_t estimateXferCost(const nixl_xfer_op_t &, const nixl_meta_dlist_t &, const nixl_meta_dlist_t &,
                                           const std::string &, nixlBackendReqH *const &, std::chrono::microseconds &,
                                           std::chrono::microseconds &, nixl_cost_t &, const nixlAgentArgs *) const
    {
        return NIXL_ERR_NOT_SUPPORTED;
    }
};

/* ---- the plugin ------------------------------------------------------------------------------------------------ */

struct nixlBackendPlugin {
    int api_version;
    nixlBackendEngine *(*create_engine)(const nixlBackendInitParams *params);
    void (*destroy_engine)(nixlBackendEngine *engine);
    const char *(*get_plugin_name)();
    const char *(*get_plugin_version)();
    nixl_b_params_t (*get_backend_options)();
    nixl_mem_list_t (*get_backend_mems)();
};

/* The two functions that NIXL looks up in libplugin_HAWSER.so. */
extern "C" {
__attribute__((visibility("default"))) nixlBackendPlugin *nixl_plugin_init();
__attribute__((visibility("default"))) void nixl_plugin_fini();
}

#endif
