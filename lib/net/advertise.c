/* SPDX-License-Identifier: Apache-2.0 */
#include "net/advertise.h"
#include "base/size.h"

#include <arpa/inet.h>
#include <string.h>

/* Parses "203.0.113.5", "203.0.113.5:7000", "2001:db8::1" or "[2001:db8::1]:7000". If the text contains no port, the
 * port is 0. */
static bool parse_address(const char *text, union hw_addr *out)
{
    char buf[HAWSER_ADDR_TEXT + 8], *port = NULL, *host = buf;
    uint64_t number = 0;
    size_t n = strlen(text);
    memset(out, 0, sizeof(*out));
    if (n >= sizeof(buf))
        return false;
    memcpy(buf, text, n + 1);
    if (*buf == '[') {
        char *end = strchr(buf, ']');
        if (!end || (end[1] && end[1] != ':'))
            return false;
        port = end[1] ? end + 2 : NULL;
        *end = 0;
        host++;
    } else if (strchr(buf, ':') && strchr(buf, ':') == strrchr(buf, ':')) {
        port = strchr(buf, ':') + 1;
        port[-1] = 0;
    }
    if (port && hw_parse_u64(port, 1, 65535, &number) < 0)
        return false;
    if (inet_pton(AF_INET, host, &out->in.sin_addr) == 1)
        out->sa.sa_family = AF_INET;
    else if (inet_pton(AF_INET6, host, &out->in6.sin6_addr) == 1)
        out->sa.sa_family = AF_INET6;
    else
        return false;
    hw_addr_set_port(out, (uint16_t)number);
    return true;
}

/* Parses one part. nic becomes "" if the part has no NIC name. */
static bool read_part(const char *part, char nic[HAWSER_NIC_NAME], union hw_addr *a)
{
    const char *eq = strchr(part, '=');
    size_t n = eq ? (size_t)(eq - part) : 0;
    if ((eq && n == 0) || n >= HAWSER_NIC_NAME || !parse_address(eq ? eq + 1 : part, a))
        return false;
    memcpy(nic, part, n);
    nic[n] = 0;
    return true;
}

/* Reads the part at *p and moves *p past the part. nic becomes "" if the part has no NIC name. Returns 1, 0 at the end,
 * or -EINVAL. */
static int next_part(const char **p, char nic[HAWSER_NIC_NAME], union hw_addr *a)
{
    char part[HAWSER_NIC_NAME + HAWSER_ADDR_TEXT + 16];
    size_t len = strcspn(*p, ",");
    if (!**p)
        return 0;
    const char *text = *p;
    *p += len + ((*p)[len] == ',');
    if (len < sizeof(part)) {
        memcpy(part, text, len);
        part[len] = 0;
        if (read_part(part, nic, a))
            return 1;
    }
    return hw_fail(-EINVAL, "knob advertise: \"%.*s\" is not [NIC=]ADDRESS[:PORT], as in eth1=203.0.113.5",
                   (int)HW_MIN(len, (size_t)80), text);
}

bool hw_advertise_read(const char *part, union hw_addr *out)
{
    char nic[HAWSER_NIC_NAME];
    return read_part(part, nic, out);
}

int hw_advertise_check(const char *text)
{
    char nic[HAWSER_NIC_NAME];
    union hw_addr a;
    int rc;
    while ((rc = next_part(&text, nic, &a)) == 1)
        continue;
    return rc;
}

bool hw_advertise_find(const char *text, const char *nic, bool first, uint16_t port, union hw_addr *out)
{
    char name[HAWSER_NIC_NAME];
    union hw_addr a;
    while (next_part(&text, name, &a) == 1)
        if (*name ? strcmp(name, nic) == 0 : first) {
            *out = a;
            if (!hw_addr_port(out))
                hw_addr_set_port(out, port);
            return true;
        }
    return false;
}
