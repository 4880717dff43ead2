/* SPDX-License-Identifier: Apache-2.0 */
/* How to make last what a remedy's command does. */
#include "tool/doctor.h"

#include <stdio.h>
#include <string.h>

#define RULES "/etc/udev/rules.d/90-hawser.rules"

/* The command without the remark behind it, and without blanks at its end. */
static void command_of(const char *mend, char *out, size_t cap)
{
    const char *remark = strstr(mend, "   #");
    size_t n = remark ? (size_t)(remark - mend) : strlen(mend);
    n = HW_MIN(n, cap - 1);
    memcpy(out, mend, n);
    out[n] = 0;
}

/* The name behind a word of the command. */
static bool word_behind(const char *cmd, const char *before, char *out, size_t cap)
{
    const char *at = strstr(cmd, before);
    if (!at)
        return false;
    at += strlen(before);
    size_t n = strcspn(at, " ;");
    if (n == 0 || n >= cap)
        return false;
    memcpy(out, at, n);
    out[n] = 0;
    return true;
}

/* By a rule of udev's: when the NIC appears, or has got its name. udev runs programs by their path, and no shell. */
static void keep_by_udev(const char *nic, char *cmd, char *out, size_t cap)
{
    size_t n =
        (size_t)snprintf(out, cap, "echo 'ACTION==\"add|move\", SUBSYSTEM==\"net\", ENV{INTERFACE}==\"%s\"", nic);
    char *save = NULL;
    for (char *one = strtok_r(cmd, ";", &save); one && n < cap; one = strtok_r(NULL, ";", &save))
        n += (size_t)snprintf(out + n, cap - n, ", RUN+=\"/sbin/%s\"", one + strspn(one, " "));
    if (n < cap)
        snprintf(out + n, cap - n, "' >> " RULES);
}

static bool begins(const char *cmd, const char *with)
{
    return strncmp(cmd, with, strlen(with)) == 0;
}

void dr_keep_of(const char *mend, char *out, size_t cap)
{
    char cmd[DR_TEXT], nic[HAWSER_NIC_NAME], rest[DR_TEXT];
    command_of(mend, cmd, sizeof cmd);
    out[0] = 0;
    if (begins(cmd, "sysctl -w ")) {
        /* several: "sysctl -w a=b c=d" */
        char *quote = NULL;
        snprintf(rest, sizeof rest, "%s", cmd + strlen("sysctl -w "));
        while ((quote = strchr(rest, '\'')) != NULL)
            memmove(quote, quote + 1, strlen(quote));
        snprintf(out, cap, "echo '%s' >> /etc/sysctl.d/90-hawser.conf", rest);
    } else if (begins(cmd, "ip link set ") && strstr(cmd, " mtu ") && word_behind(cmd, "ip link set ", nic, sizeof nic))
        keep_by_udev(nic, cmd, out, cap);
    else if ((begins(cmd, "ethtool -G ") && word_behind(cmd, "ethtool -G ", nic, sizeof nic)) ||
             (begins(cmd, "ethtool -K ") && word_behind(cmd, "ethtool -K ", nic, sizeof nic)) ||
             (begins(cmd, "ethtool -L ") && word_behind(cmd, "ethtool -L ", nic, sizeof nic)) ||
             (begins(cmd, "ethtool -X ") && word_behind(cmd, "ethtool -X ", nic, sizeof nic)))
        keep_by_udev(nic, cmd, out, cap);
    else if (begins(cmd, "ip route add ") || begins(cmd, "ip addr add "))
        snprintf(out, cap, "the same in the network's configuration (netplan, systemd-networkd, NetworkManager)");
    else if (begins(cmd, "modprobe ") && word_behind(cmd, "modprobe ", rest, sizeof rest))
        snprintf(out, cap, "echo %s > /etc/modules-load.d/hawser-%s.conf", rest, rest);
    else if (begins(cmd, "ulimit -n"))
        snprintf(
            out, cap,
            "printf 'root - nofile 1048576\\n* - nofile 1048576\\n' > /etc/security/limits.d/hawser.conf (logins), "
            "LimitNOFILE=1048576 (a unit), --ulimit nofile=1048576 (docker run)");
    else if (begins(cmd, "ulimit -l"))
        snprintf(out, cap,
                 "printf 'root - memlock unlimited\\n* - memlock unlimited\\n' > /etc/security/limits.d/hawser.conf "
                 "(logins), "
                 "LimitMEMLOCK=infinity (a unit), --ulimit memlock=-1 (docker run)");
    else if (begins(cmd, "echo ") && (strstr(cmd, "> /proc/") || strstr(cmd, "> /sys/")))
        snprintf(out, cap, "the same in a unit that runs at boot");
    else if (begins(cmd, "export ") || begins(cmd, "unset "))
        snprintf(out, cap, "the same in the job's script: it counts for this shell");
}
