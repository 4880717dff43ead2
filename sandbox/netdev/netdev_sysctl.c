/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and sets a device's sysctls. Whenever a device enters a namespace, the kernel resets the sysctls to the
 * namespace's `default` values. */
#include "sandbox/netdev/netdev.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOT      "/proc/sys/net/"
#define VALUE_MAX 256

/* Reads a value without the trailing newline. Returns 0, or -errno if the value cannot be read, such as -EIO for a
 * stable_secret that is not set. */
static int read_value(int dir, const char *name, char *out)
{
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t n = read(fd, out, VALUE_MAX - 1);
    int rc = n < 0 ? -errno : 0;
    hw_close(&fd);
    if (rc < 0)
        return rc;
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return 0;
}

static int write_value(int dir, const char *name, const char *value)
{
    int fd = openat(dir, name, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    size_t n = strlen(value);
    ssize_t k = write(fd, value, n);
    int rc = k < 0 ? -errno : (size_t)k < n ? -EIO : 0;
    hw_close(&fd);
    return rc;
}

static int open_dir(const char *of, const char *name)
{
    char path[128];
    snprintf(path, sizeof(path), ROOT "%s/%s", of, name);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int read_dir(struct sb_journal *j, int nic, const char *of, const char *name)
{
    int fd = open_dir(of, name);
    if (fd == -ENOENT) /* no IPv6 or MPLS in this kernel or on this device */
        return 0;
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int err = fd < 0 ? -fd : errno;
        hw_close(&fd);
        return hw_fail(-err, "opening " ROOT "%s/%s: %s", of, name, strerror(err));
    }
    const struct dirent *e;
    int rc = 0;
    while (rc == 0 && (e = readdir(d)) != NULL) {
        char value[VALUE_MAX];
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) < 0 || !S_ISREG(st.st_mode) ||
            !(st.st_mode & S_IWUSR) || read_value(dirfd(d), e->d_name, value) < 0)
            continue;
        rc = sb_journal_addf(j, SB_SYSCTL, nic, "%s %s %s", of, e->d_name, value);
    }
    closedir(d);
    return rc;
}

static const char *const groups[] = {"ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh", "mpls/conf"};

int sb_sysctl_read(struct sb_journal *j, int nic, const char *name)
{
    int rc = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(groups) && rc == 0; i++)
        rc = read_dir(j, nic, groups[i], name);
    return rc;
}

int sb_sysctl_apply(const struct sb_journal *j, int nic, const char *name, struct sb_faults *f)
{
    int dir[HW_ARRAY_LEN(groups)], rc = 0;
    for (size_t g = 0; g < HW_ARRAY_LEN(groups); g++)
        dir[g] = open_dir(groups[g], name);
    /* Two passes are needed, because some sysctls require others: addr_gen_mode 2 is refused before stable_secret is
     * set, and the record of stable_secret may follow the record of addr_gen_mode. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < j->n && rc == 0; i++) {
            if (j->rec[i].kind != SB_SYSCTL || j->rec[i].nic != nic)
                continue;
            char key[64], now[VALUE_MAX];
            const char *text = j->rec[i].data, *at = strchr(text, ' ') + 1, *value = strchr(at, ' ') + 1;
            size_t g = 0, len = (size_t)(value - 1 - at);
            while (g < HW_ARRAY_LEN(groups) - 1 && strncmp(text, groups[g], strlen(groups[g])) != 0)
                g++;
            if (len >= sizeof(key))
                continue;
            memcpy(key, at, len);
            key[len] = 0;
            int err = dir[g] < 0 ? dir[g] : read_value(dir[g], key, now);
            if (err == 0 && strcmp(now, value) == 0)
                continue;
            err = dir[g] < 0 ? dir[g] : write_value(dir[g], key, value);
            if (err < 0 && pass > 0)
                rc = sb_fault(f, hw_fail(err, "setting " ROOT "%s/%s/%s to '%s': %s", groups[g], name, key, value,
                                         strerror(-err)));
        }
    }
    for (size_t g = 0; g < HW_ARRAY_LEN(groups); g++) {
        if (dir[g] >= 0)
            hw_close(&dir[g]);
    }
    return rc;
}

bool sb_sysctl_no_ipv6(const char *name)
{
    char value[VALUE_MAX];
    int dir = open_dir("ipv6/conf", name);
    bool off = dir < 0 || (read_value(dir, "disable_ipv6", value) == 0 && strcmp(value, "0") != 0);
    if (dir >= 0)
        hw_close(&dir);
    return off;
}

int sb_sysctl_arp(const char *name, const struct hw_logger *log)
{
    /* arp_announce 2 sends requests with the sending NIC's address. arp_ignore 1 answers only for this NIC's addresses.
     * arp_filter 1 and rp_filter 1 additionally require that the route back uses this NIC. The kernel uses the larger
     * of `all` and the device's value; arp_filter is on if either of them is set (include/linux/inetdevice.h). The
     * device's own value is therefore enough, but a larger value of `all`, which the container controls, overrides it.
     */
    static const struct {
        const char *key;
        long value;
    } t[] = {{"arp_announce", 2}, {"arp_ignore", 1}, {"arp_filter", 1}, {"rp_filter", 1}};
    int dir = open_dir("ipv4/conf", name), all = open_dir("ipv4/conf", "all"), rc = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(t) && rc == 0; i++) {
        char value[VALUE_MAX];
        snprintf(value, sizeof(value), "%ld", t[i].value);
        rc = dir < 0 ? dir : write_value(dir, t[i].key, value);
        if (rc < 0)
            rc = hw_fail(rc, "setting " ROOT "ipv4/conf/%s/%s to %s: %s", name, t[i].key, value, strerror(-rc));
        else if (all >= 0 && read_value(all, t[i].key, value) == 0 && strtol(value, NULL, 10) > t[i].value)
            sb_log(log, HAWSER_LOG_WARN,
                   "%s: the container's net.ipv4.conf.all.%s is %s, which overrides the NIC's value %ld", name,
                   t[i].key, value, t[i].value);
    }
    if (dir >= 0)
        hw_close(&dir);
    if (all >= 0)
        hw_close(&all);
    return rc;
}
