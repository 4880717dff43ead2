/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_VERSION_H
#define HX_VERSION_H

#include <string>

namespace hx
{

/* Finds the version of the NIXL whose code is at `caller`. Returns "" where the backend was tried with that version,
 * else the reason for refusing it. */
std::string check_nixl_version(const void *caller);

} // namespace hx

#endif
