/* SPDX-License-Identifier: Apache-2.0 */
/* NIXL's two entry points and the plugin's table. */
#include "nixl/engine.h"
#include "nixl/version.h"

namespace hx
{

namespace
{

std::mutex mu;
std::string refusal;    /* why this NIXL is refused, or "" if it is accepted */
std::string last_error; /* why create_engine() last failed, or "" */

nixlBackendEngine *fail(const std::string &why)
{
    append_log(why);
    std::unique_lock lock(mu);
    last_error = why;
    return nullptr;
}

/* Like fail(), but does not throw if memory is short. */
nixlBackendEngine *fail_caught(const char *why)
{
    try {
        return fail(std::string("creating the backend: ") + why);
    } catch (...) {
        return nullptr;
    }
}

nixlBackendEngine *create_engine(const nixlBackendInitParams *params)
{
    try {
        Options options;
        if (!refusal.empty())
            return fail(refusal);
        std::string why = read_options(*params->customParams, options);
        if (!why.empty())
            return fail(why);
        auto engine = std::make_unique<Engine>(params, options);
        why = engine->open();
        if (!why.empty())
            return fail(why);
        return engine.release();
    } catch (const std::exception &e) { /* for example, no thread could be started */
        return fail_caught(e.what());
    } catch (...) {
        return fail_caught("an unknown exception");
    }
}

void destroy_engine(nixlBackendEngine *engine)
{
    delete engine;
}

const char *plugin_name()
{
    return "HAWSER";
}

const char *plugin_version()
{
    return hawser_version();
}

/* Returns the parameters with their defaults. If this NIXL is refused or create_backend() has failed, adds the reason
 * as parameter "error", because NIXL gives its user only a status. */
nixl_b_params_t backend_options()
{
    nixl_b_params_t all = default_options();
    std::unique_lock lock(mu);
    std::string error = !refusal.empty() ? refusal : last_error;
    if (!error.empty())
        all["error"] = error;
    return all;
}

nixlBackendPlugin table = {NIXL_PLUGIN_API_VERSION, create_engine,   destroy_engine, plugin_name,
                           plugin_version,          backend_options, supported_mems};

} // namespace

} // namespace hx

nixlBackendPlugin *nixl_plugin_init()
{
    try {
        hx::refusal = hx::check_nixl_version(__builtin_return_address(0));
        return &hx::table;
    } catch (...) {
        return nullptr;
    }
}

void nixl_plugin_fini()
{
}
