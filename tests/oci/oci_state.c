/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the contents of its network namespace line by line (sm_state()) when they no longer change. oci_run.py and
 * oci_hostile.py compare the output. */
#include "tests/sandbox/sandbox_move.h"

int main(void)
{
    sm_host.fd = hw_netns_own();
    if (sm_host.fd < 0 || hw_netlink_open(&sm_host.rt, NETLINK_ROUTE) < 0) {
        fprintf(stderr, "oci_state: %s\n", hw_error());
        return 1;
    }
    char *text = sm_settled();
    fputs(text, stdout);
    free(text);
    sm_ns_drop(&sm_host);
    return 0;
}
