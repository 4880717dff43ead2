/* SPDX-License-Identifier: Apache-2.0 */
/* The versions of NIXL that the backend accepts. Test nixl_versions loads the backend into each version. This is the
 * only list: the backend (version.cc), `hawser nixl check`, the wheel and the tests read it. */
#ifndef HX_TRIED_H
#define HX_TRIED_H

#define HX_TRIED_VERSIONS \
    "1.0.0", "1.0.1", "1.1.0", "1.2.0", "1.3.0", "1.3.1", "1.3.2", "1.4.0", "1.4.1", "1.5.0", "1.5.1"

#endif
