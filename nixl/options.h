/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of the backend, from create_backend() and NIXL's configuration. */
#ifndef HX_OPTIONS_H
#define HX_OPTIONS_H

#include "nixl/abi.h"

namespace hx
{

struct Options {
    std::string nics, rails, advertise; /* the knobs with these names */
    int device = -1;                    /* GPU of the connections' memory, or -1 if not specified */
    bool trusted = false;               /* open the context with HAWSER_TRUSTED */
    int timeout_ms = 0;                 /* deadline of each operation; 0 means knob op_timeout_ms */
    int connect_ms = 10000;             /* time after which the backend gives up on a peer that does not answer */
};

/* Reads the parameters. Returns "" or the reason why they are refused. */
std::string read_options(const nixl_b_params_t &params, Options &out);

/* Returns every parameter with its default, for get_plugin_params(). */
nixl_b_params_t default_options();

} // namespace hx

#endif
