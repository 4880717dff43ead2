/* SPDX-License-Identifier: Apache-2.0 */
/* The parameters of the backend, as create_backend() and NIXL's configuration carry them. */
#ifndef HX_OPTIONS_H
#define HX_OPTIONS_H

#include "nixl/abi.h"

namespace hx
{

struct Options {
    std::string nics, rails, advertise; /* as the knobs of these names */
    int device = -1;                    /* GPU that the connections carry memory of; -1: not said */
    bool trusted = false;               /* HAWSER_TRUSTED */
    int timeout_ms = 0;                 /* of a transfer; 0: knob op_timeout_ms */
    int connect_ms = 10000;             /* until a peer that does not answer is given up */
};

/* Reads the parameters. Returns "" or why they are refused. */
std::string read_options(const nixl_b_params_t &params, Options &out);

/* Returns every parameter with its default, for get_plugin_params(). */
nixl_b_params_t default_options();

} // namespace hx

#endif
