/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request (RDMA_VERBS_IOCTL), copied from the application once and judged by the schema; nothing of it is read
 * again. Pure but for the reading, which a function does that the caller brings: fuzzed.
 */
#ifndef HW_VERBS_REQUEST_H
#define HW_VERBS_REQUEST_H

#include "verbs/schema/schema.h"

#include <rdma/rdma_user_ioctl_cmds.h>

#define VB_ATTRS_MAX 64
/* Of all inputs and outputs of a request together; QUERY_GID_TABLE has 32 bytes for each of rxe's 1,024 entries. */
#define VB_COPY_MAX 65536
/* What vb_request_build() needs at most with split 0. */
#define VB_BUILD_MAX \
    (VB_COPY_MAX + sizeof(struct ib_uverbs_ioctl_hdr) + (VB_ATTRS_MAX + 1) * sizeof(struct ib_uverbs_attr))

/* struct ib_uverbs_ioctl_hdr without the attributes at its end, which a struct in another cannot have. */
struct vb_header {
    uint16_t length, object_id, method_id, num_attrs;
    uint64_t reserved1;
    uint32_t driver_id, reserved2;
};
_Static_assert(sizeof(struct vb_header) == sizeof(struct ib_uverbs_ioctl_hdr), "the kernel's");

struct vb_attr {
    struct ib_uverbs_attr raw;       /* as the application wrote it */
    const struct vb_attr_rule *rule; /* NULL: optional, and not in the schema: left out when the request is made anew */
    uint32_t at;                     /* its bytes, in or out, begin at vb_request.copy[at]; of those with an address */
    uint32_t len;                    /* how many; 0: none, and `raw.data` is all there is */
};

struct vb_request {
    uint64_t address; /* the header's, in the application */
    struct vb_header hdr;
    const struct vb_command *command;
    const struct vb_driver *driver;
    const struct vb_driver_part *part; /* NULL: none */
    enum vb_where where;
    unsigned n;
    struct vb_attr attr[VB_ATTRS_MAX];
    /* core_* under INVOKE_WRITE, uhw_* wherever given; else NULL. Behind an input of in_len bytes there are zeros as
     * far as the command's in_max (in_min where that is what fits), as the kernel takes a struct that is too short.
     * Bytes of an input with an address (all but those of 8 and less) may be changed here: they are what the kernel
     * gets. */
    void *core_in, *core_out, *uhw_in, *uhw_out;
    uint32_t core_in_len, core_out_len, uhw_in_len, uhw_out_len;
    uint32_t used; /* of copy */
    uint8_t copy[VB_COPY_MAX] __attribute__((aligned(8)));
};

/* Reads n bytes at address of the application to dst: 0 or -EFAULT. */
typedef int (*vb_read_fn)(void *arg, uint64_t address, void *dst, size_t n);

/* Copies and judges. 0, or what the application is told, with hw_error() for the log; nothing of r but address, hdr
 * and, once it is known, command is of use then.
 * - EFAULT: it cannot be read, or an output is no address.
 * - EINVAL: no well-formed request: lengths, more than VB_ATTRS_MAX attributes, a mandatory one that misses or is
 * twice, numbers that overflow.
 * - EPROTONOSUPPORT: reserved fields that are set, or an attribute marked mandatory that the schema does not have, as
 *   the kernel says it; or a method that the driver's library is to ask for by INVOKE_WRITE.
 * - ENOSPC: a core part that is too short, also the probe for INVOKE_WRITE, WRITE_CMD alone, as the kernel says it.
 * - EOPNOTSUPP: not in the schema, or VB_REFUSED there, or of a driver that the schema does not have; bytes that are
 *   not 0 behind a struct that the schema knows shorter, as the kernel says it.
 * - E2BIG: more than VB_COPY_MAX.
 *
 * The driver is the one that the header says: the kernel refuses any other than the device's. Outputs may overlap each
 * other, inputs and the header: each has a copy of its own here, and nothing of the application is read again. */
int vb_request_take(struct vb_request *r, uint64_t address, vb_read_fn read, void *arg);

/* The descriptor of a VB_FD, VB_RAW_FD or VB_FD_NEW; REG_DMABUF_MR's is a number of 4 bytes, others' of 8. */
static inline int vb_attr_fd(const struct vb_attr *a)
{
    return (int)(int32_t)a->raw.data;
}
static inline void vb_attr_set_fd(struct vb_attr *a, int fd)
{
    a->raw.data = a->raw.len == 4 ? (uint32_t)fd : (uint64_t)(int64_t)fd;
}

struct vb_attr *vb_request_attr(struct vb_request *r, uint16_t id); /* NULL: there is none */
/* The number of an object as the command has it (command->made after it ran, ->ended); -ENOENT: it has none. */
int vb_request_number(const struct vb_request *r, const struct vb_number *n, uint32_t *out);

/* Makes the request anew at out (cap bytes, which will be at `base` in the mm where it runs): header and attributes
 * with bytes around them, all addresses those of the copies. Only attributes of the schema are in it.
 *
 * split 0: all of out can be written. Else a multiple of 4096: before it lies what must not change under way (header,
 * every input attribute, all input bytes), behind it what the kernel writes, and the application may write too. Outputs
 * come last. The first of them ends the fixed part with its id and len, and begins the other with its flags and data,
 * as the kernel writes flags; the others are whole behind it, where the application can put something else in their
 * place. That comes to nothing, since they are mandatory, and missing would be seen by the kernel before it does
 * anything; or, for INVOKE_WRITE's UHW_OUT, since all others that there are lie before split (UHW_IN of no length, if
 * need be), so that anything in its place is a double, which the kernel refuses, or unknown to it. The header begins 28
 * bytes and 16 for each input before split. -EOPNOTSUPP where neither holds: two outputs that are not mandatory.
 * -E2BIG. */
struct vb_layout {
    uint64_t header;                /* address of the header, to call with */
    uint32_t out_at[VB_ATTRS_MAX];  /* by index in r->attr: offset in out of an output's bytes; 0: none */
    uint32_t attr_at[VB_ATTRS_MAX]; /* offset in out of the attribute itself; 0: left out */
};
int vb_request_build(const struct vb_request *r, uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     struct vb_layout *l);
/* Takes the results at out (as vb_request_build() laid it) up into r: outputs' bytes to r->copy, new numbers and flags
 * to raw. */
void vb_request_collect(struct vb_request *r, const uint8_t *out, const struct vb_layout *l);

/* Does it have results, which vb_request_give() gives? */
bool vb_request_gives(const struct vb_request *r);
/* How much of a request there is, from its begin: what it has copied comes last. */
static inline size_t vb_request_size(const struct vb_request *r)
{
    return offsetof(struct vb_request, copy) + r->used;
}

/* Writes n bytes to address of the application. */
typedef int (*vb_write_fn)(void *arg, uint64_t address, const void *src, size_t n);
/* Gives the application the results as the kernel would: outputs, new numbers, flags; at most two writes for each
 * attribute. -EFAULT. */
int vb_request_give(const struct vb_request *r, vb_write_fn write, void *arg);

/* One line: "REG_MR length=1048576 access=0x7", for logs. */
const char *vb_request_text(const struct vb_request *r, char *out, size_t cap);

#endif
