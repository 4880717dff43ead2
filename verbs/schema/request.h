/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request (RDMA_VERBS_IOCTL), copied from the application once and checked against the schema; nothing of it is
 * read again. Pure except for the reads, which a function of the caller does: fuzzed.
 */
#ifndef HW_VERBS_REQUEST_H
#define HW_VERBS_REQUEST_H

#include "verbs/schema/schema.h"

#include <rdma/rdma_user_ioctl_cmds.h>

#define VB_ATTRS_MAX 64
/* Most bytes of all inputs and outputs of a request; QUERY_GID_TABLE has 32 bytes for each of rxe's 1,024 entries. */
#define VB_COPY_MAX 65536
/* Most bytes that vb_request_build() needs with split 0. */
#define VB_BUILD_MAX \
    (VB_COPY_MAX + sizeof(struct ib_uverbs_ioctl_hdr) + (VB_ATTRS_MAX + 1) * sizeof(struct ib_uverbs_attr))

/* struct ib_uverbs_ioctl_hdr without the flexible array of attributes, which an embedded struct cannot have. */
struct vb_header {
    uint16_t length, object_id, method_id, num_attrs;
    uint64_t reserved1;
    uint32_t driver_id, reserved2;
};
_Static_assert(sizeof(struct vb_header) == sizeof(struct ib_uverbs_ioctl_hdr), "the kernel's");

struct vb_attr {
    struct ib_uverbs_attr raw;       /* as the application wrote it */
    const struct vb_attr_rule *rule; /* NULL: optional and not in the schema: dropped when the request is rebuilt */
    uint32_t at;                     /* with an address: its bytes, in or out, start at vb_request.copy[at] */
    uint32_t len;                    /* number of bytes; 0: none, `raw.data` is everything */
};

struct vb_request {
    uint64_t address; /* of the header, in the application */
    struct vb_header hdr;
    const struct vb_command *command;
    const struct vb_driver *driver;
    const struct vb_driver_part *part; /* NULL: none */
    enum vb_where where;
    unsigned n;
    struct vb_attr attr[VB_ATTRS_MAX];
    /* core_* of INVOKE_WRITE, uhw_* where given; else NULL. After an input of in_len bytes there are zeros up to the
     * command's in_max (in_min if that means "any length"), because the kernel accepts a struct that is too short. The
     * bytes of inputs with an address (all above 8 bytes) may be changed here: the kernel gets the changed ones. */
    void *core_in, *core_out, *uhw_in, *uhw_out;
    uint32_t core_in_len, core_out_len, uhw_in_len, uhw_out_len;
    uint32_t used; /* of copy */
    uint8_t copy[VB_COPY_MAX] __attribute__((aligned(8)));
};

/* Reads n bytes at address of the application to dst: 0 or -EFAULT. */
typedef int (*vb_read_fn)(void *arg, uint64_t address, void *dst, size_t n);

/* Copies and checks a request. 0, or the application's error, with hw_error() for the log; then only address, hdr and,
 * once it is known, command of r are valid.
 * - EFAULT: the request cannot be read, or an output is no address.
 * - EINVAL: a malformed request: lengths, more than VB_ATTRS_MAX attributes, a mandatory attribute that is missing or
 *   repeated, numbers that overflow.
 * - EPROTONOSUPPORT: reserved fields that are set, or a mandatory attribute that the schema lacks, as the kernel
 *   returns; or a method that the driver's library must request by INVOKE_WRITE.
 * - ENOSPC: a core part that is too short, also in the probe for INVOKE_WRITE, WRITE_CMD alone, as the kernel returns.
 * - EOPNOTSUPP: not in the schema, or VB_REFUSED there, or of a driver that the schema lacks; nonzero bytes after a
 *   struct that is shorter in the schema, as the kernel returns.
 * - E2BIG: more than VB_COPY_MAX.
 *
 * The driver is the one in the header: the kernel refuses any other than the device's. Outputs may overlap each other,
 * inputs and the header: each has its own copy here, and nothing of the application is read again. */
int vb_request_take(struct vb_request *r, uint64_t address, vb_read_fn read, void *arg);

/* Returns the descriptor of a VB_FD, VB_RAW_FD or VB_FD_NEW; a number of 4 bytes in REG_DMABUF_MR, of 8 in others. */
static inline int vb_attr_fd(const struct vb_attr *a)
{
    return (int)(int32_t)a->raw.data;
}
static inline void vb_attr_set_fd(struct vb_attr *a, int fd)
{
    a->raw.data = a->raw.len == 4 ? (uint32_t)fd : (uint64_t)(int64_t)fd;
}

struct vb_attr *vb_request_attr(struct vb_request *r, uint16_t id); /* NULL: there is none */
/* Returns the number of an object in the command (command->made after it ran, ->ended); -ENOENT: it has none. */
int vb_request_number(const struct vb_request *r, const struct vb_number *n, uint32_t *out);

/* Rebuilds the request at out (cap bytes, which will be at `base` in the address space where it runs): header and
 * attributes with their bytes, all addresses those of the copies. Contains only attributes of the schema.
 *
 * split 0: all of out is writable. Otherwise a multiple of 4096: before it is everything that must not change (header,
 * every input attribute, all input bytes), after it what the kernel writes, and the application may write too. Outputs
 * are last. The first output's id and len end the fixed part, and its flags and data begin the other part, because the
 * kernel writes flags; the other outputs are entirely in the other part, where the application can replace them. That
 * gains nothing, because they are mandatory, and the kernel notices a missing one before it does anything; or, for
 * INVOKE_WRITE's UHW_OUT, because all other possible attributes are before split (an empty UHW_IN, if necessary), so
 * that any replacement is a duplicate, which the kernel refuses, or unknown to it. The header begins 28 bytes and 16
 * for each input before split. -EOPNOTSUPP if neither holds: two outputs that are not mandatory. -E2BIG. */
struct vb_layout {
    uint64_t header;                /* address of the header, to call with */
    uint32_t out_at[VB_ATTRS_MAX];  /* by index in r->attr: offset in out of an output's bytes; 0: none */
    uint32_t attr_at[VB_ATTRS_MAX]; /* offset in out of the attribute itself; 0: left out */
};
int vb_request_build(const struct vb_request *r, uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     struct vb_layout *l);
/* Reads the results at out (laid out by vb_request_build()) into r: bytes of outputs to r->copy, new numbers and flags
 * to raw. */
void vb_request_collect(struct vb_request *r, const uint8_t *out, const struct vb_layout *l);

/* Returns true if there are results for vb_request_give(). */
bool vb_request_gives(const struct vb_request *r);
/* Returns the used size of a request: its copied bytes are last. */
static inline size_t vb_request_size(const struct vb_request *r)
{
    return offsetof(struct vb_request, copy) + r->used;
}

/* Writes n bytes to address of the application. */
typedef int (*vb_write_fn)(void *arg, uint64_t address, const void *src, size_t n);
/* Writes the results to the application like the kernel: outputs, new numbers, flags; at most two writes for each
 * attribute. -EFAULT. */
int vb_request_give(const struct vb_request *r, vb_write_fn write, void *arg);

/* One line: "REG_MR length=1048576 access=0x7", for logs. */
const char *vb_request_text(const struct vb_request *r, char *out, size_t cap);

#endif
