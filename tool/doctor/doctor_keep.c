/* SPDX-License-Identifier: Apache-2.0 */
/* Derives the permanent form of a command that fixes a problem. */
#include "tool/doctor/doctor.h"

#include <stdio.h>
#include <string.h>

#define RULES "/etc/udev/rules.d/90-hawser.rules"

/* Copies the command without its trailing remark ("   # ..."). */
static void command_of(const char *mend, char *out, size_t cap)
{
    const char *remark = strstr(mend, "   #");
    size_t n = remark ? (size_t)(remark - mend) : strlen(mend);
    n = HW_MIN(n, cap - 1);
    memcpy(out, mend, n);
    out[n] = 0;
}

/* Copies the word of cmd that follows the text `before`. Returns false if there is no such word or if the word does
 * not fit. */
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

/* Writes a command that adds a udev rule, which runs cmd when the NIC appears or is renamed. udev runs programs by
 * path, without a shell. */
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

static bool has_command_prefix(const char *cmd, const char *with)
{
    return strncmp(cmd, with, strlen(with)) == 0;
}

#define LIMITS(what, value, unit, docker)                                                                    \
    "printf 'root - " what " " value "\\n* - " what " " value                                                \
    "\\n' > /etc/security/limits.d/hawser.conf (for logins), " unit " (in a systemd unit), --ulimit " docker \
    " (for docker run)"
static const struct {
    const char *begins, *has; /* text at the start of the command, and text anywhere in the command */
    const char *keep;         /* permanent form, or NULL for a udev rule for the NIC that the command names */
} ways[] = {
    {"ip link set ", " mtu ", NULL},
    {"ethtool -G ", "", NULL},
    {"ethtool -K ", "", NULL},
    {"ethtool -L ", "", NULL},
    {"ethtool -X ", "", NULL},
    {"ip route add ", "", "add the route to the network configuration (netplan, systemd-networkd, NetworkManager)"},
    {"ip addr add ", "", "add the address to the network configuration (netplan, systemd-networkd, NetworkManager)"},
    {"ulimit -n", "", LIMITS("nofile", "1048576", "LimitNOFILE=1048576", "nofile=1048576")},
    {"ulimit -l", "", LIMITS("memlock", "unlimited", "LimitMEMLOCK=infinity", "memlock=-1")},
    {"echo ", "> /proc/", "run the same command in a systemd unit at boot"},
    {"echo ", "> /sys/", "run the same command in a systemd unit at boot"},
    {"export ", "", "add the same line to the job's script, because the command affects only the current shell"},
    {"unset ", "", "add the same line to the job's script, because the command affects only the current shell"},
};

void dr_keep_of(const char *mend, char *out, size_t cap)
{
    char cmd[DR_TEXT], word[HAWSER_NIC_NAME + 64];
    command_of(mend, cmd, sizeof cmd);
    out[0] = 0;
    if (has_command_prefix(cmd, "sysctl -w ")) { /* strip the quotes of a command such as "sysctl -w a='1 2 3'" */
        for (char *quote = strchr(cmd, '\''); quote; quote = strchr(quote, '\''))
            memmove(quote, quote + 1, strlen(quote));
        snprintf(out, cap, "echo '%s' >> /etc/sysctl.d/90-hawser.conf", cmd + strlen("sysctl -w "));
    }
    if (has_command_prefix(cmd, "modprobe ") && word_behind(cmd, "modprobe ", word, sizeof word))
        snprintf(out, cap, "echo %s > /etc/modules-load.d/hawser-%s.conf", word, word);
    for (size_t i = 0; i < HW_ARRAY_LEN(ways); i++) {
        if (!has_command_prefix(cmd, ways[i].begins) || !strstr(cmd, ways[i].has))
            continue;
        if (ways[i].keep)
            snprintf(out, cap, "%s", ways[i].keep);
        else if (word_behind(cmd, ways[i].begins, word, sizeof word))
            keep_by_udev(word, cmd, out, cap);
        return;
    }
}
