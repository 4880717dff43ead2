/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request (RDMA_VERBS_IOCTL) is copied from the application once and checked against the schema. The application's
 * memory is not read again, so that a later change by the application has no effect.
 *
 * This module makes no system calls: the caller passes functions that read and write the application's memory. This
 * allows fuzzing.
 */
#ifndef HW_VERBS_REQUEST_H
#define HW_VERBS_REQUEST_H

#include "verbs/schema/schema.h"

#include <rdma/rdma_user_ioctl_cmds.h>

#define VB_ATTRS_MAX 64
/* Limit for the inputs and outputs of a request together, in bytes. QUERY_GID_TABLE needs 32 bytes for each of rxe's
 * 1,024 entries. */
#define VB_COPY_MAX 65536
/* A size of `out`, in bytes, that is always sufficient for vb_request_build() if split is 0. */
#define VB_BUILD_MAX \
    (VB_COPY_MAX + sizeof(struct ib_uverbs_ioctl_hdr) + (VB_ATTRS_MAX + 1) * sizeof(struct ib_uverbs_attr))

/* Same as struct ib_uverbs_ioctl_hdr, but without the flexible array of attributes, because a struct with such an array
 * cannot be embedded in another struct. */
struct vb_header {
    uint16_t length, object_id, method_id, num_attrs;
    uint64_t reserved1;
    uint32_t driver_id, reserved2;
};
_Static_assert(sizeof(struct vb_header) == sizeof(struct ib_uverbs_ioctl_hdr),
               "must have the size of the kernel's struct");

struct vb_attr {
    struct ib_uverbs_attr raw; /* the application's attribute; short inputs, descriptors and results are updated here */
    const struct vb_attr_rule *rule; /* NULL if the attribute is not in the schema; such an attribute is optional, and
                                        vb_request_build() drops it */
    uint32_t at;  /* offset of the attribute's bytes in vb_request.copy, if `raw.data` is an address */
    uint32_t len; /* number of those bytes; 0 if `raw.data` is the value itself */
};

struct vb_request {
    uint64_t address; /* address of the header in the application */
    struct vb_header hdr;
    const struct vb_command *command;
    const struct vb_driver *driver;
    const struct vb_driver_part *part; /* NULL if the driver has no part in this command */
    enum vb_where where;
    unsigned n;
    struct vb_attr attr[VB_ATTRS_MAX];
    /* Addresses in `copy` of CORE_IN and CORE_OUT of INVOKE_WRITE, and of UHW_IN and UHW_OUT. NULL if the request lacks
     * the attribute. An input is followed by zeros up to in_max of the command or of the driver's part (unless in_max
     * is UINT32_MAX), because the kernel accepts a struct that is too short. The broker may change the bytes of inputs
     * of more than 8 bytes, which are passed by address. The kernel then gets the changed bytes. */
    void *core_in, *core_out, *uhw_in, *uhw_out;
    uint32_t core_in_len, core_out_len, uhw_in_len, uhw_out_len;
    uint32_t used; /* number of used bytes of `copy` */
    uint8_t copy[VB_COPY_MAX] __attribute__((aligned(8)));
};

/* Reads n bytes at `address` in the application's memory into dst. Returns 0, -EFAULT or another negative errno. */
typedef int (*vb_read_fn)(void *arg, uint64_t address, void *dst, size_t n);

/* Copies a request from the application and checks it. Returns 0, or the error that the application gets; hw_error()
 * then has the text for the log. After an error, only r->address, r->hdr and (if it was found) r->command are valid.
 * After -EOPNOTSUPP or -EPROTONOSUPPORT, r->n and the first n raw attributes are valid too.
 * - EFAULT: The request or an input cannot be read, or the address and length of an output overflow.
 * - EINVAL: The request is malformed: a length is wrong, there are more than VB_ATTRS_MAX attributes, a mandatory
 *   attribute is missing, an attribute occurs twice, a reserved field of an attribute is not 0, or a number overflows.
 * - EPROTONOSUPPORT: A reserved field of the header is not 0, or an attribute that is flagged as mandatory is not in
 *   the schema. The kernel returns the same error. Also returned if the driver's library must use INVOKE_WRITE instead
 *   of this method.
 * - ENOSPC: A core part is too short. The kernel returns the same error, also to libraries that probe for INVOKE_WRITE
 *   with WRITE_CMD alone.
 * - EOPNOTSUPP: The command or its driver is not in the schema, or the schema marks the command as VB_REFUSED, or the
 *   request contains work requests (zero_at of struct vb_command). Also returned, as by the kernel, if an input is
 *   longer than in the schema and the additional bytes are not 0.
 * - E2BIG: The inputs and outputs exceed VB_COPY_MAX.
 *
 * The driver is taken from the header, because the kernel refuses a request whose header does not specify the device's
 * driver. Outputs may overlap each other, inputs and the header: each has a separate copy here, and the application's
 * memory is not read again. */
int vb_request_take(struct vb_request *r, uint64_t address, vb_read_fn read, void *arg);

/* Returns the file descriptor in an attribute of kind VB_FD, VB_RAW_FD or VB_FD_NEW. The descriptor takes 4 bytes in
 * REG_DMABUF_MR and 8 bytes in other methods. */
static inline int vb_attr_fd(const struct vb_attr *a)
{
    return (int)(int32_t)a->raw.data;
}
static inline void vb_attr_set_fd(struct vb_attr *a, int fd)
{
    a->raw.data = a->raw.len == 4 ? (uint32_t)fd : (uint64_t)(int64_t)fd;
}

/* Returns the request's attribute with this id, or NULL if the request has none. */
struct vb_attr *vb_request_attr(struct vb_request *r, uint16_t id);
/* Stores in *out the number of the object that the request has created (if n is &command->made) or destroys (if n is
 * &command->ended). Fails with -ENOENT if the request does not contain the number. */
int vb_request_number(const struct vb_request *r, const struct vb_number *n, uint32_t *out);

/* The positions at which vb_request_build() has placed the parts of a request. */
struct vb_layout {
    uint64_t header;                /* address of the header, for the ioctl() */
    uint32_t out_at[VB_ATTRS_MAX];  /* by index in r->attr: offset of the output's bytes in out, or 0 */
    uint32_t attr_at[VB_ATTRS_MAX]; /* by index in r->attr: offset of the attribute in out, or 0 if it was left out */
};
/* Rebuilds the request in out, which has cap bytes and will be at address `base` in the address space where the request
 * runs. The result consists of the header, the attributes of the schema and copies of their bytes, to which the
 * attributes refer.
 *
 * If split is 0, nothing in out is read-only. Otherwise split is a multiple of 4096 that divides out into two parts.
 * The first part is read-only for the application: the header, the attributes of all inputs, and all bytes of inputs.
 * The second part is written by the kernel, and the application can write to it too. Attributes of outputs come last.
 * The id and len of the first output are at the end of the first part, and its flags and data at the start of the
 * second part, because the kernel writes flags. The header therefore begins 28 bytes before split, plus 16 bytes for
 * each input.
 *
 * All further outputs are in the second part, where the application can replace them. A replacement does no harm if the
 * output is mandatory, because the kernel looks for missing attributes before it executes a request. The only optional
 * output that may be there is UHW_OUT of INVOKE_WRITE. The ids of all other attributes of INVOKE_WRITE are then before
 * split (if necessary with an empty UHW_IN), so that any replacement is either a duplicate, which the kernel refuses,
 * or unknown to the kernel.
 *
 * Fails with -EOPNOTSUPP if split is not 0 and a request other than INVOKE_WRITE has several optional outputs, and with
 * -E2BIG if cap or split is too small. */
int vb_request_build(const struct vb_request *r, uint8_t *out, size_t cap, uint64_t base, uint32_t split,
                     struct vb_layout *l);
/* Reads the results from out, which has the layout l of vb_request_build(), into r. Stores the bytes of outputs in
 * r->copy, and new numbers and flags in the raw attributes. */
void vb_request_collect(struct vb_request *r, const uint8_t *out, const struct vb_layout *l);

/* Returns true if the request has outputs. Otherwise vb_request_give() writes nothing. */
bool vb_request_gives(const struct vb_request *r);
/* Returns the number of bytes of *r that are in use. The copied bytes are at the end of the struct. */
static inline size_t vb_request_size(const struct vb_request *r)
{
    return offsetof(struct vb_request, copy) + r->used;
}

/* Writes n bytes from src to `address` in the application's memory. Returns 0 or a negative errno value. */
typedef int (*vb_write_fn)(void *arg, uint64_t address, const void *src, size_t n);
/* Writes the results (outputs, new numbers, flags) to the application, as the kernel would. Calls write at most twice
 * for each attribute. Fails with -EFAULT if write fails. */
int vb_request_give(const struct vb_request *r, vb_write_fn write, void *arg);

/* Formats the request as one line for logs, for example "REG_MR length=1048576 access_flags=0x7". Returns out. */
const char *vb_request_text(const struct vb_request *r, char *out, size_t cap);

#endif
