/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program may send to a uverbs device, as data: each (object, method), and each command of INVOKE_WRITE, with
 * every attribute's kind and length and the fields that are memory addresses. Anything else gets EOPNOTSUPP.
 *
 * Sources: <rdma/ib_user_ioctl_cmds.h>, <rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_verbs.h> and each driver's *-abi.h;
 * drivers/infiniband/core/uverbs_cmd.c and uverbs_std_types*.c of the kernel for what is read and written.
 *
 * Some requests are privileged, and the kernel checks the calling process: CAP_NET_RAW for raw packet QPs, flows and
 * Q_Keys with the high bit set, CAP_SYS_RAWIO for large tables of WQs. The caller here is the broker, which must not
 * have these capabilities unless the policy grants such requests.
 */
#ifndef HW_VERBS_SCHEMA_H
#define HW_VERBS_SCHEMA_H

#include "base/base.h"

/* Kinds of attributes. "in" and "out" are seen from the application: it supplies "in". */
enum vb_kind {
    VB_END,        /* end of a list */
    VB_IN,         /* bytes; in `data` itself if len <= 8, else data is their address */
    VB_OUT,        /* data is always the address of len bytes, which are written */
    VB_HANDLE,     /* an object's number in data; len 0 */
    VB_HANDLE_NEW, /* number of an object that the kernel writes to data */
    VB_FD,         /* a descriptor of an object (a completion channel); data_s64 */
    VB_FD_NEW,     /* a descriptor that the kernel writes to data */
    VB_RAW_FD      /* any descriptor of the application (a dma-buf); data_s64, -1 may be a probe */
};

struct vb_attr_rule {
    uint16_t id;
    uint8_t kind;
    bool mandatory;    /* required by the kernel in every version since 5.0 */
    bool more;         /* an extensible struct: it may be longer; bytes beyond max must be 0 (else -EOPNOTSUPP) */
    bool driver;       /* UHW_IN or UHW_OUT: the driver defines the length, struct vb_driver_part */
    bool memory;       /* its value is an address of memory to pin: the request is then VB_MEMORY */
    uint32_t min, max; /* of len; max 0: same as min; UINT32_MAX: any length that fits */
    const char *name;  /* "REG_DMABUF_MR_FD" */
};
extern const struct vb_attr_rule vb_write_attrs[]; /* those of INVOKE_WRITE */

/* An 8-byte field with an address of the application, in the core or driver part of the input. */
struct vb_address {
    uint16_t at; /* its offset */
    bool driver; /* in UHW_IN, not in CORE_IN */
    const char *name;
};

/* Where a command runs. */
enum vb_where {
    VB_REFUSED, /* nowhere: known, but never allowed; why has the reason */
    VB_BROKER,  /* in the broker, on the application's open file */
    VB_MEMORY   /* in the application's own address space: it pins its memory */
};

/* Types of objects that are counted, and destroyed by number. */
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

/* Where an object's number is stored. */
enum vb_place { VB_NOWHERE, VB_CORE_IN, VB_CORE_OUT, VB_ATTR };

struct vb_number {
    uint8_t place; /* enum vb_place */
    uint16_t at;   /* offset in the core part, or the attribute's id */
};

/* A descriptor among the bytes of a core part: 4 bytes, -1 for none. As input the kernel takes it from the caller's
 * table, so the broker fetches the application's descriptor and stores its own number there (in vb_request.core_in; if
 * the stub runs the request, first into the stub's table). As output the kernel has put it into the caller's table, so
 * the broker passes it on and stores the application's number there. */
struct vb_core_fd {
    uint8_t place; /* VB_CORE_IN, VB_CORE_OUT; VB_NOWHERE: none */
    uint8_t kind;  /* VB_FD: a completion channel; VB_RAW_FD: any file; VB_FD_NEW */
    uint16_t at;
};

struct vb_command {
    uint16_t object, method;
    uint32_t command; /* of INVOKE_WRITE: IB_USER_VERBS_CMD_*, with 0x80000000 for extended ones; else 0 */
    const char *name; /* "REG_MR" */
    enum vb_where where;
    const char *why; /* of VB_REFUSED */
    /* Lengths of CORE_IN and CORE_OUT of INVOKE_WRITE. in_max UINT32_MAX: any length that fits; bytes beyond in_max
     * must be 0, and are dropped. The kernel fills the rest of a longer CORE_OUT with 0. */
    uint32_t in_min, in_max, out_min;
    uint16_t zero_at; /* 4 bytes of CORE_IN that must be 0 (inline work requests); 0: none */
    /* attributes of other methods, up to VB_END; NULL for INVOKE_WRITE: vb_write_attrs */
    const struct vb_attr_rule *attrs;
    struct vb_core_fd fd;
    const struct vb_address *addresses; /* n_addresses entries, in the core part */
    unsigned n_addresses;
    enum vb_type makes, ends;
    struct vb_number made, ended; /* their numbers */
};

/* A driver's part of a command: lengths of UHW_IN and UHW_OUT, and its addresses. Bytes of UHW_IN beyond in_max must be
 * 0, and are dropped (in_max 0: all of it); UHW_OUT is cut to out_max, or VB_UHW_OUT_ANY if that is more, as with an
 * older kernel. For a command without an entry all values are 0. */
#define VB_UHW_OUT_ANY 64
struct vb_driver_part {
    uint16_t object, method;
    uint32_t command;
    uint32_t in_min, in_max, out_max;
    bool memory;   /* makes the command VB_MEMORY with this driver */
    bool by_write; /* -EPROTONOSUPPORT: the library then uses INVOKE_WRITE, which the stub can run */
    const struct vb_address *addresses; /* .driver is true */
    unsigned n_addresses;
};

struct vb_driver {
    uint32_t id;      /* enum rdma_driver_id, <rdma/ib_user_ioctl_verbs.h> */
    const char *name; /* "mlx5" */
    bool doorbells;   /* posts by write() (rxe, siw), which the broker passes on */
    const struct vb_driver_part *parts;
    unsigned n_parts;
};

/* Returns NULL if unknown. command is ignored unless (object, method) is INVOKE_WRITE. */
const struct vb_command *vb_schema(uint16_t object, uint16_t method, uint32_t command);
const struct vb_command *vb_schema_at(unsigned i); /* all entries, NULL after the last: for documentation and tests */
const struct vb_driver *vb_driver(uint32_t id);    /* NULL: not known */
const struct vb_driver *vb_driver_at(unsigned i);
const struct vb_driver_part *vb_driver_part(const struct vb_driver *d, const struct vb_command *c); /* NULL: none */

#endif
