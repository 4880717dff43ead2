/* SPDX-License-Identifier: Apache-2.0 */
/* A program that is loaded at the address of the stub's walled window, or directly after it. Makes a request on the
 * file descriptor argv[1], and exits with the resulting errno. */
#include <errno.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>

int main(int argc, char **argv)
{
    uint64_t request = 0;
    if (argc != 2)
        return 99;
    return ioctl(atoi(argv[1]), RDMA_VERBS_IOCTL, &request) ? errno : 0;
}
