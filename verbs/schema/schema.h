/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program may say to a uverbs device, as data: each (object, method), and under INVOKE_WRITE each command, with
 * every attribute's kind and length and the fields that are memory addresses. What is not in here is EOPNOTSUPP.
 *
 * Sources: <rdma/ib_user_ioctl_cmds.h>, <rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_verbs.h> and each driver's
 * *-abi.h; drivers/infiniband/core/uverbs_cmd.c and uverbs_std_types*.c of the kernel for what is read and written.
 *
 * Some requests are privileged, and the kernel asks whoever makes the call: CAP_NET_RAW for raw packet QPs, flows and
 * Q_Keys with the high bit set, CAP_SYS_RAWIO for large tables of WQs. Who makes it here is the broker, which must not
 * have them unless the policy allows such things.
 */
#ifndef HW_VERBS_SCHEMA_H
#define HW_VERBS_SCHEMA_H

#include "base/base.h"

/* Of an attribute. "in" and "out" are the application's: in is what it gives. */
enum vb_kind {
    VB_END,        /* behind the last of a list */
    VB_IN,         /* bytes; in `data` itself where len <= 8, else data is their address */
    VB_OUT,        /* data is always the address of len bytes to be written */
    VB_HANDLE,     /* an object's number in data; len 0 */
    VB_HANDLE_NEW, /* the kernel writes it to data */
    VB_FD,         /* a descriptor of an object (a completion channel's); data_s64 */
    VB_FD_NEW,     /* the kernel writes it to data */
    VB_RAW_FD      /* any descriptor of the application's (a dma-buf's); data_s64, -1 may be a probe */
};

struct vb_attr_rule {
    uint16_t id;
    uint8_t kind;
    bool mandatory;    /* by the kernel, in every version since 5.0: without it nothing is done */
    bool more;         /* a struct that grows: longer is fine; what is given beyond max must be 0 (else -EOPNOTSUPP) */
    bool driver;       /* UHW_IN or UHW_OUT: the length is the driver's business, struct vb_driver_part */
    bool memory;       /* its value is an address of memory to be pinned: with it the request is VB_MEMORY */
    uint32_t min, max; /* of len; max 0: as min; UINT32_MAX: what fits */
    const char *name;  /* "REG_DMABUF_MR_FD" */
};
extern const struct vb_attr_rule vb_write_attrs[]; /* those of INVOKE_WRITE */

/* A field of 8 bytes in the core or the driver's part of the input that is an address of the application's. */
struct vb_address {
    uint16_t at; /* its offset */
    bool driver; /* in UHW_IN, not in CORE_IN */
    const char *name;
};

/* Where a command runs. */
enum vb_where {
    VB_REFUSED, /* nowhere: known, and never allowed; why says it */
    VB_BROKER,  /* in the broker, on the application's open file */
    VB_MEMORY   /* in the application's own mm: it pins its memory */
};

/* What is counted, and destroyed by its number. */
enum vb_type {
    VB_NONE,
    VB_CONTEXT,
    VB_PD,
    VB_MR,
    VB_MW,
    VB_CQ,
    VB_QP,
    VB_SRQ,
    VB_AH,
    VB_CHANNEL,
    VB_XRCD,
    VB_WQ,
    VB_RWQ_TABLE,
    VB_FLOW,
    VB_DM,
    VB_COUNTERS,
    VB_ASYNC,
    VB_TYPES
};
const char *vb_type_name(enum vb_type t); /* "mr" */

/* Where a number of an object lies. */
enum vb_place { VB_NOWHERE, VB_CORE_IN, VB_CORE_OUT, VB_ATTR };

struct vb_number {
    uint8_t place; /* enum vb_place */
    uint16_t at;   /* offset in the core part, or the attribute's id */
};

/* A descriptor among the bytes of a core part: 4 bytes, -1 for none. Going in, the kernel takes it from the table of
 * whoever makes the call, so that the broker fetches the application's and puts its own number there (in
 * vb_request.core_in; where the stub runs it, into the stub's table first). Coming out, the kernel has put it into the
 * table of whoever made the call, so that the broker hands it over and puts the application's number there. */
struct vb_core_fd {
    uint8_t place; /* VB_CORE_IN, VB_CORE_OUT; VB_NOWHERE: there is none */
    uint8_t kind;  /* VB_FD: a completion channel's; VB_RAW_FD: of any file; VB_FD_NEW */
    uint16_t at;
};

struct vb_command {
    uint16_t object, method;
    uint32_t command; /* under INVOKE_WRITE: IB_USER_VERBS_CMD_*, with 0x80000000 for the extended; else 0 */
    const char *name; /* "REG_MR" */
    enum vb_where where;
    const char *why; /* of VB_REFUSED */
    /* Lengths of CORE_IN and CORE_OUT under INVOKE_WRITE. in_max UINT32_MAX: what fits; what is given beyond in_max
     * must be 0, and is cut off. Of a longer CORE_OUT the kernel fills the rest with 0. */
    uint32_t in_min, in_max, out_min;
    uint16_t zero_at;                 /* 4 bytes of CORE_IN that must be 0 (work requests in line); 0: none */
    const struct vb_attr_rule *attrs; /* all others' attributes, to VB_END; NULL under INVOKE_WRITE: vb_write_attrs */
    struct vb_core_fd fd;
    const struct vb_address *addresses; /* n_addresses of them, in the core part */
    unsigned n_addresses;
    enum vb_type makes, ends;
    struct vb_number made, ended; /* their numbers */
};

/* What a driver adds: lengths of UHW_IN and UHW_OUT for a command, and what of it is an address. What is given of
 * UHW_IN beyond in_max must be 0, and is cut off (in_max 0: all of it); so is UHW_OUT beyond out_max, or VB_UHW_OUT_ANY
 * if that is more, as if the kernel were an older one. A command that a driver does not name here is one with 0s. */
#define VB_UHW_OUT_ANY 64
struct vb_driver_part {
    uint16_t object, method;
    uint32_t command;
    uint32_t in_min, in_max, out_max;
    bool memory;   /* makes the command VB_MEMORY with this driver */
    bool by_write; /* -EPROTONOSUPPORT: the library then asks by INVOKE_WRITE, which the stub can run */
    const struct vb_address *addresses; /* .driver is true */
    unsigned n_addresses;
};

struct vb_driver {
    uint32_t id;      /* enum rdma_driver_id, <rdma/ib_user_ioctl_verbs.h> */
    const char *name; /* "mlx5" */
    bool doorbells;   /* posts by write() (rxe, siw): the broker passes them on */
    const struct vb_driver_part *parts;
    unsigned n_parts;
};

/* NULL: not known. command is of no matter unless (object, method) is INVOKE_WRITE. */
const struct vb_command *vb_schema(uint16_t object, uint16_t method, uint32_t command);
const struct vb_command *vb_schema_at(unsigned i); /* all of them, NULL behind the last: for documentation and tests */
const struct vb_driver *vb_driver(uint32_t id);    /* NULL: not known */
const struct vb_driver *vb_driver_at(unsigned i);
const struct vb_driver_part *vb_driver_part(const struct vb_driver *d, const struct vb_command *c); /* NULL: none */

#endif
