/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HX_VERSION_H
#define HX_VERSION_H

#include <string>

namespace hx
{

/* Determines the version of the NIXL library that contains the code at `caller`. Returns "" if the backend was tested
 * with that version or HAWSER_NIXL_ANY_VERSION is 1, else the reason for refusing it. */
std::string check_nixl_version(const void *caller);

} // namespace hx

#endif
