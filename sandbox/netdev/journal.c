/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/netdev/journal.h"
#include "base/size.h"
#include "sandbox/netdev/netdev.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION "1"

enum payload { NOTHING, TEXT, MESSAGE };

/* The rows are in the order of enum sb_kind. of_nic is true if the field NIC is a number and not '-'. step is true if
 * the record follows `begin`; all other records precede `begin`. */
static const struct {
    const char *name;
    enum payload payload;
    bool of_nic, step;
} kinds[SB_KINDS] = {
    [SB_HEAD] = {"hawser-sandbox", TEXT, false, false},
    [SB_BOOT] = {"boot", TEXT, false, false},
    [SB_HOST] = {"host", TEXT, false, false},
    [SB_NETNS] = {"netns", TEXT, false, false},
    [SB_HOLDER] = {"holder", TEXT, false, false},
    [SB_TAKEN] = {"taken", TEXT, false, false},
    [SB_LINK] = {"link", MESSAGE, true, false},
    [SB_IDENT] = {"ident", TEXT, true, false},
    [SB_ATTR] = {"attr", TEXT, true, false},
    [SB_AS] = {"as", TEXT, true, false},
    [SB_SYSCTL] = {"sysctl", TEXT, true, false},
    [SB_ADDR] = {"addr", MESSAGE, true, false},
    [SB_NEIGH] = {"neigh", MESSAGE, true, false},
    [SB_RDMA] = {"rdma", TEXT, false, false},
    [SB_ROUTE] = {"route", MESSAGE, false, false},
    [SB_RULE] = {"rule", MESSAGE, false, false},
    [SB_BEGIN] = {"begin", NOTHING, false, false},
    [SB_PIN] = {"pin", NOTHING, false, true},
    [SB_MOVE] = {"move", TEXT, true, true},
    [SB_RDMAMOVE] = {"rdma-move", TEXT, false, true},
    [SB_MADE] = {"made", MESSAGE, false, true},
    [SB_READY] = {"ready", NOTHING, false, true},
    [SB_BACK] = {"back", TEXT, true, true},
};

void sb_journal_init(struct sb_journal *j)
{
    memset(j, 0, sizeof(*j));
    j->fd = -1;
}

void sb_journal_free(struct sb_journal *j)
{
    for (size_t i = 0; i < j->n; i++)
        free(j->rec[i].data);
    free(j->rec);
    hw_close(&j->fd);
    sb_journal_init(j);
}

/* ---- contents of a record ----------------------------------------------------------------------- */

/* Parses n numbers, separated by single spaces, at *text, and moves *text past the last number. */
static bool parse_record_numbers(const char **text, uint64_t *out, int n)
{
    for (int i = 0; i < n; i++) {
        if (i > 0 && *(*text)++ != ' ')
            return false;
        if (**text < '0' || **text > '9') /* strtoull() would accept spaces and signs */
            return false;
        char *end;
        errno = 0;
        out[i] = strtoull(*text, &end, 10);
        if (errno)
            return false;
        *text = end;
    }
    return true;
}

static bool copy_record_text(char *out, size_t cap, const char *text)
{
    size_t n = strlen(text);
    if (n == 0 || n >= cap)
        return false;
    memcpy(out, text, n + 1);
    return true;
}

static bool ns_id(const char **text, struct sb_ns_id *id)
{
    uint64_t v[3];
    if (!parse_record_numbers(text, v, 3))
        return false;
    *id = (struct sb_ns_id){v[0], v[1], v[2]};
    return true;
}

static bool is_name(const char *s)
{
    return *s && strlen(s) < IFNAMSIZ && !strchr(s, '/') && strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Checks the form "FOLDER NAME VALUE", as in "ipv4/conf rp_filter 1". NAME becomes part of a path. */
static bool is_sysctl(const char *s)
{
    static const char *const dirs[] = {"ipv4/conf ", "ipv4/neigh ", "ipv6/conf ", "ipv6/neigh ", "mpls/conf "};
    for (size_t i = 0; i < HW_ARRAY_LEN(dirs); i++) {
        size_t n = strlen(dirs[i]), name;
        if (strncmp(s, dirs[i], n) != 0)
            continue;
        name = strspn(s + n, "abcdefghijklmnopqrstuvwxyz0123456789_");
        return name > 0 && s[n + name] == ' ' && s[n + name + 1];
    }
    return false;
}

/* Checks the form "NAME HEX". HEX is an even number of digits, or "-" for an empty value. */
static bool is_attr(const char *s)
{
    size_t name = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-");
    if (name == 0 || s[name] != ' ')
        return false;
    const char *hex = s + name + 1;
    size_t n = strspn(hex, "0123456789abcdef");
    return strcmp(hex, "-") == 0 || (n > 0 && n % 2 == 0 && !hex[n]);
}

static bool index_of(const char *s, int *out)
{
    uint64_t v;
    if (!parse_record_numbers(&s, &v, 1) || *s || v < 1 || v > INT32_MAX)
        return false;
    *out = (int)v;
    return true;
}

/* Applies a record to the fields of j. Returns false if the record is invalid. */
static bool apply_journal_record(struct sb_journal *j, enum sb_kind kind, int nic, const char *text, size_t len)
{
    uint64_t v[2];
    int index;
    struct sb_jnic none, *k = nic >= 0 ? &j->nic[nic] : &none;
    if (kinds[kind].payload == MESSAGE && !sb_msg_ok(kind, (const void *)text, len))
        return false;
    switch (kind) {
    case SB_BOOT:
        return copy_record_text(j->boot, sizeof(j->boot), text);
    case SB_HOST:
        return ns_id(&text, &j->host) && !*text;
    case SB_NETNS:
        return ns_id(&text, &j->netns) && *text++ == ' ' && copy_record_text(j->path, sizeof(j->path), text);
    case SB_HOLDER:
        if (!parse_record_numbers(&text, v, 2) || *text || v[0] < 1 || v[0] > INT32_MAX)
            return false;
        j->holder = (pid_t)v[0];
        j->holder_start = v[1];
        return true;
    case SB_TAKEN:
        return parse_record_numbers(&text, &j->taken, 1) && !*text;
    case SB_LINK:
        if (j->nics == SB_NICS_MAX || nic != (int)j->nics)
            return false;
        *k = (struct sb_jnic){0};
        sb_link_parse((const void *)text, &k->link);
        memcpy(k->as, k->link.name, sizeof(k->as));
        j->nics++;
        return is_name(k->link.name);
    case SB_IDENT:
        return parse_record_numbers(&text, &k->ident, 1) && !*text;
    case SB_ATTR:
        return is_attr(text);
    case SB_AS:
        return is_name(text) && copy_record_text(k->as, sizeof(k->as), text);
    case SB_SYSCTL:
        return is_sysctl(text);
    case SB_RDMA:
        if (!parse_record_numbers(&text, v, 1) || v[0] > INT32_MAX || *text++ != ' ' || j->rdmas == SB_NICS_MAX)
            return false;
        j->rdma[j->rdmas].index = (int)v[0];
        return copy_record_text(j->rdma[j->rdmas++].name, sizeof(j->rdma[0].name), text);
    case SB_BEGIN:
        j->begun = true;
        return j->boot[0] && j->path[0] && j->nics > 0;
    case SB_PIN:
        j->pinned = true;
        return true;
    case SB_MOVE:
        return index_of(text, &k->there);
    case SB_RDMAMOVE:
        if (!parse_record_numbers(&text, v, 1) || *text)
            return false;
        for (unsigned i = 0; i < j->rdmas; i++)
            j->rdma[i].moved |= (uint64_t)j->rdma[i].index == v[0];
        return true;
    case SB_READY:
        j->ready = true;
        return true;
    case SB_BACK:
        j->returning = true;
        return index_of(text, &index);
    default:
        return true;
    }
}

int sb_journal_add(struct sb_journal *j, enum sb_kind kind, int nic, const void *data, size_t len)
{
    bool of_nic = nic >= 0;
    int below = (int)j->nics + (kind == SB_LINK);
    const char *text = data;
    if ((kind == SB_HEAD) != (j->n == 0) || kinds[kind].of_nic != of_nic || nic >= HW_MIN(below, SB_NICS_MAX) ||
        kinds[kind].step != j->begun)
        return hw_fail(-EBADMSG, "the record '%s' is out of place", kinds[kind].name);
    if ((kinds[kind].payload == NOTHING) != (len == 0))
        return hw_fail(-EBADMSG, "the record '%s' %s", kinds[kind].name, len ? "has unexpected data" : "has no data");
    for (size_t i = 0; kinds[kind].payload == TEXT && i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            return hw_fail(-EBADMSG, "the record '%s' contains a control character", kinds[kind].name);
    if (j->n == j->cap) {
        size_t cap = j->cap ? 2 * j->cap : 256;
        struct sb_record *more = reallocarray(j->rec, cap, sizeof(*more));
        if (!more)
            return hw_no_memory("a journal of %zu records", cap);
        j->rec = more;
        j->cap = cap;
    }
    char *own = malloc(len + 1); /* allocated separately, because a message needs malloc()'s alignment */
    if (!own)
        return hw_no_memory("a journal");
    if (len)
        memcpy(own, data, len);
    own[len] = 0;
    if (kind == SB_HEAD && strcmp(own, VERSION) != 0) {
        int rc =
            hw_fail(-EPROTONOSUPPORT, "the journal has version %.20s, but this hawser supports version " VERSION, own);
        free(own);
        return rc;
    }
    if (!apply_journal_record(j, kind, nic, own, len)) {
        free(own);
        return hw_fail(-EBADMSG, "the record '%s' has invalid contents", kinds[kind].name);
    }
    j->rec[j->n++] = (struct sb_record){kind, nic, len, own};
    return 0;
}

static int add_va(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, va_list ap,
                  int (*fn)(struct sb_journal *, enum sb_kind, int, const void *, size_t))
{
    char *text;
    int n = vasprintf(&text, fmt, ap);
    if (n < 0)
        return hw_no_memory("a journal");
    int rc = fn(j, kind, nic, text, (size_t)n);
    free(text);
    return rc;
}

int sb_journal_addf(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = add_va(j, kind, nic, fmt, ap, sb_journal_add);
    va_end(ap);
    return rc;
}

int sb_journal_stepf(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int rc = add_va(j, kind, nic, fmt, ap, sb_journal_step);
    va_end(ap);
    return rc;
}

/* ---- text ---------------------------------------------------------------------------------------- */

/* Computes the CRC-32 of IEEE 802.3, reflected. Processes single bits, which is fast enough because journals are
 * short. */
static uint32_t crc32_of(uint32_t crc, const char *p, size_t n)
{
    crc = ~crc;
    while (n--) {
        crc ^= (unsigned char)*p++;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

char *sb_journal_line(const struct sb_record *r, uint32_t *crc, size_t *len)
{
    static const char digits[] = "0123456789abcdef";
    bool hex = kinds[r->kind].payload == MESSAGE;
    size_t cap = 64 + (hex ? 2 : 1) * r->len, at;
    char *line = malloc(cap), nic[16] = "-";
    if (!line)
        return NULL;
    if (r->nic >= 0)
        snprintf(nic, sizeof(nic), "%d", r->nic);
    at = (size_t)snprintf(line, cap, "%08x %s %s ", 0u, kinds[r->kind].name, nic);
    const unsigned char *data = r->data;
    for (size_t i = 0; i < r->len; i++) {
        if (!hex) {
            line[at++] = (char)data[i];
            continue;
        }
        line[at++] = digits[data[i] >> 4];
        line[at++] = digits[data[i] & 15];
    }
    *crc = crc32_of(*crc, line + 9, at - 9);
    char sum[9];
    snprintf(sum, sizeof(sum), "%08x", *crc);
    memcpy(line, sum, 8);
    line[at++] = '\n';
    *len = at;
    return line;
}

char *sb_journal_text(const struct sb_journal *j, size_t *len, uint32_t *crc)
{
    char *out = NULL;
    FILE *f = open_memstream(&out, len);
    bool whole = f != NULL;
    *crc = 0;
    for (size_t i = 0; whole && i < j->n; i++) {
        size_t n;
        char *line = sb_journal_line(&j->rec[i], crc, &n);
        whole = line && fwrite(line, 1, n, f) == n;
        free(line);
    }
    if (f && fclose(f) != 0)
        whole = false;
    if (!whole) {
        free(out);
        return NULL;
    }
    return out;
}

static int decode_hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes n hexadecimal digits to n / 2 bytes in place. */
static bool decode_record_hex(char *s, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2) {
        int hi = decode_hex_digit(s[i]), lo = decode_hex_digit(s[i + 1]);
        if (hi < 0 || lo < 0)
            return false;
        s[i / 2] = (char)(unsigned char)(hi << 4 | lo);
    }
    return n % 2 == 0;
}

/* Parses a line without its newline. Modifies the line's buffer. */
static int parse_line(struct sb_journal *j, char *line, size_t len)
{
    uint32_t sum = 0, crc;
    for (size_t i = 0; i < 8; i++) {
        int d = i < len ? decode_hex_digit(line[i]) : -1;
        if (d < 0)
            return hw_fail(-EBADMSG, "the line does not begin with a checksum");
        sum = sum << 4 | (uint32_t)d;
    }
    if (len < 9 || line[8] != ' ' || memchr(line, 0, len) || (crc = crc32_of(j->crc, line + 9, len - 9)) != sum)
        return hw_fail(-EBADMSG, "the checksum does not match this line and the lines before it");
    char *kind = line + 9, *nic = memchr(kind, ' ', len - 9), *data;
    if (nic)
        *nic++ = 0;
    data = nic ? memchr(nic, ' ', len - (size_t)(nic - line)) : NULL;
    if (!data)
        return hw_fail(-EBADMSG, "the line has fewer than four fields");
    *data++ = 0;
    size_t n = len - (size_t)(data - line);
    int k = 0, number = -1;
    while (k < SB_KINDS && strcmp(kind, kinds[k].name) != 0)
        k++;
    if (k == SB_KINDS)
        return hw_fail(-EBADMSG, "the kind of the record is unknown");
    uint64_t v;
    if (strcmp(nic, "-") != 0) {
        const char *end = nic;
        if (!parse_record_numbers(&end, &v, 1) || *end || v >= SB_NICS_MAX ||
            (*nic == '0' && nic[1])) /* only one spelling of each number is valid */
            return hw_fail(-EBADMSG, "the number of the NIC is invalid");
        number = (int)v;
    }
    if (kinds[k].payload == MESSAGE) {
        if (!decode_record_hex(data, n))
            return hw_fail(-EBADMSG, "the record's message is not in hexadecimal");
        n /= 2;
    }
    int rc = sb_journal_add(j, (enum sb_kind)k, number, data, n);
    if (rc == 0)
        j->crc = crc;
    return rc;
}

int sb_journal_parse(struct sb_journal *j, const char *text, size_t n)
{
    size_t at = 0;
    for (unsigned line = 1; at < n; line++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t len = end ? (size_t)(end - (text + at)) : n - at;
        char *own = malloc(len + 1);
        if (!own)
            return hw_no_memory("a journal");
        memcpy(own, text + at, len);
        own[len] = 0;
        int rc = end ? parse_line(j, own, len) : 0;
        free(own);
        if (!end) { /* the step of an incomplete line was never taken */
            j->torn = true;
            break;
        }
        if (rc < 0)
            return hw_wrap(rc, "line %u", line);
        at += len + 1;
    }
    j->size = at;
    return 0;
}
