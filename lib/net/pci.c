/* SPDX-License-Identifier: Apache-2.0 */
#include "net/pci.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses min to max hexadecimal digits. Returns the end, or NULL on error. */
static const char *parse_hex(const char *p, int min, int max, uint32_t *out)
{
    uint32_t v = 0;
    int n = 0;
    for (; n < max && isxdigit((unsigned char)*p); n++, p++)
        v = v << 4 | (uint32_t)(isdigit((unsigned char)*p) ? *p - '0' : (*p | 0x20) - 'a' + 10);
    *out = v;
    return n < min ? NULL : p;
}

/* Parses the PCI address at p. Returns the end of the address, or NULL on error. */
static const char *bdf_at(const char *p, struct hw_bdf *out)
{
    uint32_t domain, bus, slot, fn;
    if (!(p = parse_hex(p, 4, 8, &domain)) || *p++ != ':' || !(p = parse_hex(p, 2, 2, &bus)) || *p++ != ':' ||
        !(p = parse_hex(p, 2, 2, &slot)) || *p++ != '.' || !(p = parse_hex(p, 1, 1, &fn)) || slot > 31 || fn > 7)
        return NULL;
    *out = (struct hw_bdf){domain, (uint8_t)bus, (uint8_t)slot, (uint8_t)fn};
    return p;
}

int hw_bdf_parse(const char *text, struct hw_bdf *out)
{
    struct hw_bdf b;
    const char *end = bdf_at(text, &b);
    if (!end || *end)
        return hw_fail(-EINVAL, "'%.40s' is not a PCI address such as 0000:19:00.0", text);
    *out = b;
    return 0;
}

char *hw_bdf_text(struct hw_bdf b, char *buf)
{
    snprintf(buf, HW_BDF_TEXT, "%04x:%02x:%02x.%x", b.domain, b.bus, b.slot, b.fn);
    return buf;
}

int hw_bdf_cmp(struct hw_bdf a, struct hw_bdf b)
{
    if (a.domain != b.domain)
        return a.domain < b.domain ? -1 : 1;
    unsigned x = (unsigned)a.bus << 16 | (unsigned)a.slot << 8 | a.fn,
             y = (unsigned)b.bus << 16 | (unsigned)b.slot << 8 | b.fn;
    return x < y ? -1 : x > y;
}

/* Skips a root such as "pci0000:00" at p. Returns the end of the root, or NULL if there is no root at p. */
static const char *root_at(const char *p)
{
    uint32_t x;
    if (strncmp(p, "pci", 3) != 0 || !(p = parse_hex(p + 3, 4, 8, &x)) || *p++ != ':' || !(p = parse_hex(p, 2, 2, &x)))
        return NULL;
    return *p == '/' || !*p ? p : NULL;
}

int hw_pci_path_parse(const char *link, struct hw_pci_path *out)
{
    struct hw_pci_path way = {0};
    for (const char *p = link; *p; p += strcspn(p, "/"), p += strspn(p, "/")) {
        struct hw_bdf b;
        const char *end = root_at(p);
        if (end) {
            /* the first root is used; another root below a device is a separate domain (Intel VMD) */
            if (!way.root[0])
                memcpy(way.root, p, (size_t)(end - p));
            continue;
        }
        if (!way.root[0])
            continue; /* "..", "devices", and directories that virtual machines have above their roots */
        end = bdf_at(p, &b);
        if (!end || (*end && *end != '/'))
            break; /* a part that is not a PCI device is attached to the last device */
        if (way.depth == HW_PCI_DEPTH)
            return hw_fail(-E2BIG, "'%.80s' contains more than %d PCI devices", link, HW_PCI_DEPTH);
        way.at[way.depth++] = b;
    }
    if (way.depth == 0)
        return hw_fail(-ENOENT, "'%.120s' contains no PCI device", link);
    *out = way;
    return 0;
}

int hw_pci_speed_parse(const char *text, unsigned *out)
{
    if (strncmp(text, "Unknown", 7) == 0) {
        *out = 0;
        return 0;
    }
    unsigned v = 0, tenths = 0;
    const char *p = text;
    for (; isdigit((unsigned char)*p) && v < 10000; p++)
        v = 10 * v + (unsigned)(*p - '0');
    if (p > text && *p == '.' && isdigit((unsigned char)p[1])) {
        tenths = (unsigned)(p[1] - '0');
        p += 2;
    }
    if (p == text || strncmp(p, " GT/s", 5) != 0 || (p[5] && p[5] != ' ') || v >= 10000)
        return hw_fail(-EINVAL, "'%.40s' is not a link speed such as '16.0 GT/s PCIe'", text);
    *out = 1000 * v + 100 * tenths;
    return 0;
}

unsigned hw_pci_MBps(unsigned mts, unsigned lanes)
{
    if (lanes > 64)
        return 0;
    double coding = mts <= 5000 ? 0.8 : mts <= 32000 ? 128.0 / 130 : 242.0 / 256;
    return (unsigned)((double)mts * lanes * coding / 8);
}

enum hw_dist hw_pci_distance(const struct hw_pci_path *a, int numa_a, const struct hw_pci_path *b, int numa_b)
{
    if (strcmp(a->root, b->root) != 0)
        return numa_a == numa_b ? HW_DIST_NODE : HW_DIST_SYS;
    unsigned c = 0;
    while (c < a->depth && c < b->depth && hw_bdf_cmp(a->at[c], b->at[c]) == 0)
        c++;
    if (c == a->depth && c == b->depth)
        return HW_DIST_X;
    if (c == 0)
        return HW_DIST_PHB;
    /* one device may be a bridge above the other; the bridge's path is then the common part */
    unsigned below_a = a->depth > c ? a->depth - c - 1 : 0, below_b = b->depth > c ? b->depth - c - 1 : 0;
    return HW_MAX(below_a, below_b) <= 1 ? HW_DIST_PIX : HW_DIST_PXB;
}

const char *hw_dist_name(enum hw_dist d)
{
    static const char *const name[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
    return (unsigned)d < HW_ARRAY_LEN(name) ? name[d] : "?";
}
