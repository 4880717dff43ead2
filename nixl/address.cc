/* SPDX-License-Identifier: Apache-2.0 */
/* By which addresses others reach this node. */
#include "nixl/agent.h"

#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hx
{

namespace
{

std::vector<std::string> split_list(const std::string &text)
{
    std::vector<std::string> all;
    for (size_t at = 0, end; at <= text.size(); at = end + 1) {
        end = std::min(text.find(',', at), text.size());
        if (end > at)
            all.push_back(text.substr(at, end - at));
    }
    return all;
}

bool read_ip(const std::string &text, hx_addr &out)
{
    if (inet_pton(AF_INET, text.c_str(), out.ip) == 1)
        out.family = 4;
    else if (inet_pton(AF_INET6, text.c_str(), out.ip) == 1)
        out.family = 6;
    return out.family != 0;
}

/* Reads "[NIC=]ADDRESS[:PORT]", an IPv6 address with a port in brackets. */
bool read_advertised(std::string text, hx_addr &out)
{
    out = {};
    if (size_t at = text.find('='); at != std::string::npos)
        text.erase(0, at + 1);
    if (read_ip(text, out))
        return true;
    size_t colon = text.rfind(':');
    std::string host = text.substr(0, colon);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']')
        host = host.substr(1, host.size() - 2);
    if (!read_ip(host, out))
        return false;
    if (colon == std::string::npos)
        return true;
    char *end = nullptr;
    unsigned long port = strtoul(text.c_str() + colon + 1, &end, 10);
    out.port = static_cast<uint16_t>(port);
    return *end == 0 && port > 0 && port < 65536;
}

bool is_listed(const std::vector<std::string> &nics, const char *name)
{
    for (const std::string &n : nics)
        if (n == name)
            return true;
    return nics.empty();
}

/* Returns whether the address can be one by which others reach this node. */
bool read_interface(const ifaddrs *i, hx_addr &out)
{
    out = {};
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    if (i->ifa_addr->sa_family == AF_INET) {
        out.family = 4;
        memcpy(out.ip, &reinterpret_cast<const sockaddr_in *>(i->ifa_addr)->sin_addr, 4);
    } else if (i->ifa_addr->sa_family == AF_INET6) {
        const in6_addr *a = &reinterpret_cast<const sockaddr_in6 *>(i->ifa_addr)->sin6_addr;
        out.family = IN6_IS_ADDR_LINKLOCAL(a) ? 0 : 6;
        memcpy(out.ip, a, 16);
    }
    return out.family != 0;
}

/* Bridges of docker have the same address on every node: they come last. */
bool is_docker(const ifaddrs *i)
{
    return strncmp(i->ifa_name, "docker", 6) == 0;
}

} // namespace

std::string list_addresses(const std::string &advertise, const std::string &nics, hx_addr out[HX_ADDRS])
{
    size_t n = 0;
    for (const std::string &text : split_list(advertise)) {
        if (n == HX_ADDRS)
            return "advertise: more than " + std::to_string(HX_ADDRS) + " addresses";
        if (!read_advertised(text, out[n++]))
            return "advertise: '" + text + "' is not [NIC=]ADDRESS[:PORT]";
    }
    ifaddrs *all = nullptr;
    if (n || getifaddrs(&all))
        return "";
    std::vector<std::string> listed = split_list(nics);
    for (bool docker : {false, true})
        for (const ifaddrs *i = all; i && n < HX_ADDRS; i = i->ifa_next)
            if (is_docker(i) == docker && is_listed(listed, i->ifa_name) && read_interface(i, out[n]))
                n++;
    freeifaddrs(all);
    if (n < HX_ADDRS)
        out[n] = {};
    return "";
}

uint64_t host_id()
{
    char boot[64];
    struct stat st = {};
    uint64_t id = 1469598103934665603ull; /* FNV-1a */
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, boot, sizeof(boot));
    if (fd >= 0)
        close(fd);
    /* Without both the number is like no other: addresses are used then. */
    if (n <= 0 || stat("/proc/self/ns/net", &st))
        (void)!getrandom(&id, sizeof(id), 0);
    for (ssize_t i = 0; i < n; i++)
        id = (id ^ static_cast<uint8_t>(boot[i])) * 1099511628211ull;
    return (id ^ st.st_ino) * 1099511628211ull;
}

} // namespace hx
