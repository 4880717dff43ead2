/* SPDX-License-Identifier: Apache-2.0 */
#include "net/host.h"

#include "base/base.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t hw_host_id(void)
{
    char boot[64];
    struct stat st;
    uint64_t id = HW_HASH_START;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof(boot));
    if (fd >= 0)
        close(fd);
    if (n <= 0 || stat("/proc/self/ns/net", &st) < 0) {
        (void)!getrandom(&id, sizeof(id), 0);
        return id;
    }
    return hw_hash(hw_hash(id, boot, (size_t)n), &st.st_ino, sizeof(st.st_ino));
}
