/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a device's attributes that rtnetlink and sysctls do not show: some ethtool settings, and the device's files in
 * sysfs. */
#include "sandbox_move.h"
#include "sandbox_move_int.h"

#include <dirent.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/ethtool.h>
#include <linux/pkt_sched.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int ethtool(int fd, const char *dev, void *data)
{
    struct ifreq r = {.ifr_data = data};
    memcpy(r.ifr_name, dev, strnlen(dev, IFNAMSIZ - 1));
    return ioctl(fd, SIOCETHTOOL, &r) < 0 ? -errno : 0;
}

static void add_features(int fd, const char *dev, sm_line add, void *arg)
{
    struct { /* struct ethtool_gfeatures, which ends with a flexible array */
        uint32_t cmd, size;
        struct ethtool_get_features_block b[4];
    } f = {.cmd = ETHTOOL_GFEATURES, .size = 4};
    char text[256];
    if (ethtool(fd, dev, &f) < 0)
        return;
    for (unsigned i = 0; i < f.size && i < 4; i++) {
        snprintf(text, sizeof(text), "features %s %u wanted %08x active %08x", dev, i, f.b[i].requested, f.b[i].active);
        add(text, arg);
    }
}

static void add_ethtool(int fd, const char *dev, sm_line add, void *arg)
{
    struct ethtool_channels c = {.cmd = ETHTOOL_GCHANNELS};
    struct ethtool_ringparam r = {.cmd = ETHTOOL_GRINGPARAM};
    char text[256];
    add_features(fd, dev, add, arg);
    if (ethtool(fd, dev, &c) == 0) {
        snprintf(text, sizeof(text), "channels %s rx %u tx %u other %u combined %u", dev, c.rx_count, c.tx_count,
                 c.other_count, c.combined_count);
        add(text, arg);
    }
    if (ethtool(fd, dev, &r) == 0) {
        snprintf(text, sizeof(text), "rings %s rx %u tx %u", dev, r.rx_pending, r.tx_pending);
        add(text, arg);
    }
}

/* Returns whether a file is skipped because its contents change without a request or are read elsewhere. */
static bool boring(const char *name)
{
    static const char *const t[] = {"uevent",   "carrier_changes", "carrier_up_count", "carrier_down_count",
                                    "limit",    "inflight",        "stall_cnt",        "stall_max",
                                    "ifindex",  "iflink",          "name_assign_type", "addr_assign_type",
                                    "operstate"};
    for (size_t i = 0; i < HW_ARRAY_LEN(t); i++)
        if (strcmp(name, t[i]) == 0)
            return true;
    return false;
}

static void add_files(int dir, const char *dev, const char *path, sm_line add, void *arg)
{
    DIR *d = fdopendir(dir);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        char at[512], value[256], text[1024];
        snprintf(at, sizeof(at), "%s%s%.100s", path, *path ? "/" : "", e->d_name);
        if (*e->d_name == '.' || boring(e->d_name))
            continue;
        if (e->d_type == DT_DIR && (strcmp(e->d_name, "queues") == 0 || *path)) {
            add_files(openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), dev, at, add, arg);
            continue;
        }
        int fd = e->d_type == DT_REG ? openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC) : -1;
        ssize_t n = fd < 0 ? -1 : read(fd, value, sizeof(value) - 1);
        hw_close(&fd);
        if (n <= 0)
            continue;
        value[n] = 0;
        value[strcspn(value, "\n")] = 0;
        snprintf(text, sizeof(text), "sysfs %s %s=%s", dev, at, value);
        add(text, arg);
    }
    if (d)
        closedir(d);
}

int sm_sysfs(void)
{
    int fs = fsopen("sysfs", FSOPEN_CLOEXEC), fd = -1;
    if (fs >= 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        fd = fsmount(fs, FSMOUNT_CLOEXEC, 0);
    hw_close(&fs);
    return fd;
}

void sm_extra(sm_line add, void *arg)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), sys = sm_sysfs();
    int all = sys < 0 ? -1 : openat(sys, "class/net", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = all < 0 ? NULL : fdopendir(all);
    const struct dirent *e;
    while (d && (e = readdir(d)) != NULL) {
        if (e->d_type != DT_LNK)
            continue;
        add_ethtool(fd, e->d_name, add, arg);
        add_files(openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), e->d_name, "", add, arg);
    }
    if (d)
        closedir(d);
    hw_close(&sys);
    hw_close(&fd);
}
