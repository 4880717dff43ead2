/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded through LD_PRELOAD, records a program's requests to a uverbs device in the file VERBS_RECORD. This library
 * does not know the commands. For each attribute of up to 4096 bytes, it records the memory at the attribute's address
 * if that memory is readable, both for inputs and for outputs. A record is
 *   request PROGRAM
 *   header HEX            struct ib_uverbs_ioctl_hdr
 *   attr HEX              struct ib_uverbs_attr, one for each attribute
 *   memory N ADDRESS HEX  the memory at attribute N's address before the call, if readable
 *   result RC             ioctl()'s return value, or -errno
 *   attr HEX, memory ...  the same after the call
 *   end
 * The first VERBS_RECORD_EACH (default 2) requests of each kind are recorded. Two requests are of the same kind if
 * their object, method, write command, attributes and lengths are the same. tests/data/verbs/README.md describes how
 * the files there were made. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES_MAX = 4096, KINDS_MAX = 256, ATTRS_MAX = 64, INVOKE_WRITE = 0 /* UVERBS_METHOD_INVOKE_WRITE */ };

static struct kind {
    uint64_t hash;
    unsigned seen;
} kinds[KINDS_MAX];

__attribute__((noreturn)) static void die(const char *what)
{
    perror(what);
    abort();
}

static void hex(FILE *f, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fprintf(f, "%02x", ((const uint8_t *)bytes)[i]);
    fputc('\n', f);
}

/* Reads from an address that may be invalid. The kernel then returns an error, which is not an error of this
 * program. */
static ssize_t peek(uint64_t address, void *to, size_t n)
{
    const struct iovec here = {to, n}, there = {(void *)(uintptr_t)address, n};
    return process_vm_readv(getpid(), &here, 1, &there, 1, 0);
}

static void attributes(FILE *f, const struct ib_uverbs_ioctl_hdr *h)
{
    uint8_t bytes[BYTES_MAX];
    for (unsigned i = 0; i < h->num_attrs; i++) {
        fputs("attr ", f);
        hex(f, &h->attrs[i], sizeof(h->attrs[i]));
    }
    for (unsigned i = 0; i < h->num_attrs; i++) {
        const size_t n = h->attrs[i].len;
        if (n && n <= sizeof(bytes) && peek(h->attrs[i].data, bytes, n) == (ssize_t)n) {
            fprintf(f, "memory %u %" PRIx64 " ", i, (uint64_t)h->attrs[i].data);
            hex(f, bytes, n);
        }
    }
}

static uint64_t mix(uint64_t hash, uint64_t v) /* FNV-1a */
{
    for (unsigned i = 0; i < 8; i++, v >>= 8)
        hash = (hash ^ (v & 255)) * 0x100000001b3;
    return hash;
}

static int wanted(const struct ib_uverbs_ioctl_hdr *h)
{
    const char *text = getenv("VERBS_RECORD_EACH");
    const unsigned each = text ? (unsigned)atoi(text) : 2;
    uint64_t hash = mix(mix(0xcbf29ce484222325, h->object_id), h->method_id);
    for (unsigned i = 0; i < h->num_attrs; i++) {
        const struct ib_uverbs_attr *a = &h->attrs[i];
        hash = mix(hash, a->attr_id | (uint64_t)a->len << 16);
        /* record only the write command; numbers and addresses differ from call to call */
        if (!h->object_id && h->method_id == INVOKE_WRITE && a->len == 8 && a->data < UINT32_MAX)
            hash = mix(hash, a->data);
    }
    for (unsigned i = 0; i < KINDS_MAX; i++)
        if (!kinds[i].hash || kinds[i].hash == hash) {
            kinds[i].hash = hash;
            return kinds[i].seen++ < each;
        }
    return 1;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long command, ...)
{
    static int (*next)(int, unsigned long, void *);
    static FILE *log;
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (!next) {
        void *symbol = dlsym(RTLD_NEXT, "ioctl");
        if (!symbol)
            die("verbs_record: no ioctl()");
        memcpy(&next, &symbol, sizeof(next));
    }
    const struct ib_uverbs_ioctl_hdr *h = argument;
    if (command != RDMA_VERBS_IOCTL || h->num_attrs > ATTRS_MAX || !wanted(h))
        return next(fd, command, argument);
    if (!log && !(log = fopen(getenv("VERBS_RECORD") ?: "/dev/null", "ae")))
        die("verbs_record: VERBS_RECORD");
    fprintf(log, "request %s\nheader ", program_invocation_short_name);
    hex(log, h, sizeof(*h));
    attributes(log, h);
    const int rc = next(fd, command, argument), e = errno;
    fprintf(log, "result %d\n", rc < 0 ? -e : rc);
    attributes(log, h);
    fputs("end\n", log);
    fflush(log);
    errno = e;
    return rc;
}
