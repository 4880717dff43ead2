/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request (RDMA_VERBS_IOCTL), copied from the application once and judged by the schema; nothing of it is read
 * again. Pure but for the reading, which a function does that the caller brings: fuzzed.
 */
#ifndef HW_VERBS_REQUEST_H
#define HW_VERBS_REQUEST_H

#include "verbs/schema.h"

#include <rdma/rdma_user_ioctl_cmds.h>

#define VB_ATTRS_MAX 64
#define VB_COPY_MAX  16384 /* of all inputs and outputs of a request together */

struct vb_attr {
    struct ib_uverbs_attr raw;       /* as the application wrote it */
    const struct vb_attr_rule *rule; /* NULL: optional, and not in the schema: left out when the request is made anew */
    uint32_t at;                     /* its bytes, in or out, begin at vb_request.copy[at]; of those with an address */
    uint32_t len;                    /* how many; 0: none, and `raw.data` is all there is */
};

struct vb_request {
    uint64_t address; /* the header's, in the application */
    struct ib_uverbs_ioctl_hdr hdr;
    const struct vb_command *command;
    const struct vb_driver *driver;
    const struct vb_driver_part *part; /* NULL: none */
    enum vb_where where;
    unsigned n;
    struct vb_attr attr[VB_ATTRS_MAX];
    /* Under INVOKE_WRITE, else NULL. in_len as given. */
    void *core_in, *core_out, *uhw_in, *uhw_out;
    uint32_t core_in_len, core_out_len, uhw_in_len, uhw_out_len;
    uint32_t used; /* of copy */
    uint8_t copy[VB_COPY_MAX] __attribute__((aligned(8)));
};

/* Reads n bytes at address of the application to dst: 0 or -EFAULT. */
typedef int (*vb_read_fn)(void *arg, uint64_t address, void *dst, size_t n);

/* Copies and judges. 0, or what the application is told, with hw_error() for the log:
 *  -EFAULT      cannot be read
 *  -EINVAL      no well-formed request (lengths, more than VB_ATTRS_MAX attributes, a mandatory one that misses or is
 *               twice, a core part that is too short or too long, numbers that overflow, outputs that overlap)
 *  -EPROTONOSUPPORT  an attribute marked mandatory that the schema does not have (as the kernel says it)
 *  -ENOSPC      the probe for INVOKE_WRITE: WRITE_CMD alone, without a CORE_IN (what the kernel answers)
 *  -EOPNOTSUPP  not in the schema, or VB_REFUSED there, or of a driver that the schema does not have
 *  -E2BIG       more than VB_COPY_MAX
 * The driver is the one that the header says: the kernel refuses any other than the device's. */
int vb_request_take(struct vb_request *r, uint64_t address, vb_read_fn read, void *arg);

struct vb_attr *vb_request_attr(struct vb_request *r, uint16_t id); /* NULL: there is none */
/* The number of an object as the command has it (command->made after it ran, ->ended); -ENOENT: it has none. */
int vb_request_number(const struct vb_request *r, const struct vb_number *n, uint32_t *out);

/* Makes the request anew at out (cap bytes, which will be at `base` in the mm where it runs): header and attributes
 * with bytes behind them, all addresses those of the copies. Only attributes of the schema are in it. `fixed` bytes
 * from the start are what must not change under way (header, every attribute but the flags and data of the last output,
 * all input bytes); outputs lie behind `split` (a multiple of 4096 at which memory that can be written begins; 0: all
 * can). So: the last attribute is the output whose flags the kernel writes, its id and len the last bytes before split,
 * its flags and data the first behind it. Under INVOKE_WRITE with two outputs, UHW_OUT may lie whole behind split,
 * provided that CORE_IN, CORE_OUT, WRITE_CMD and UHW_IN (of no length if need be) are before it: what could be put in
 * its place is a double then, and refused. -E2BIG, -EOPNOTSUPP (two outputs otherwise). */
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

/* Writes n bytes to address of the application. */
typedef int (*vb_write_fn)(void *arg, uint64_t address, const void *src, size_t n);
/* Gives the application the results as the kernel would: outputs, new numbers, flags. -EFAULT. */
int vb_request_give(const struct vb_request *r, vb_write_fn write, void *arg);

/* One line: "REG_MR length=1048576 access=0x7", for logs. */
const char *vb_request_text(const struct vb_request *r, char *out, size_t cap);

#endif
