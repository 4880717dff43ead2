/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema describes, as tables, the requests to a uverbs device: (object, method) pairs and commands of
 * INVOKE_WRITE, with the kinds and lengths of their attributes, and the fields that contain memory addresses. Commands
 * that are marked VB_REFUSED, or are not in the schema, fail with EOPNOTSUPP.
 *
 * Sources: <rdma/ib_user_ioctl_cmds.h>, <rdma/ib_user_verbs.h>, <rdma/ib_user_ioctl_verbs.h> and each driver's ABI
 * header. drivers/infiniband/core/uverbs_cmd.c and uverbs_std_types*.c of the kernel show which bytes the kernel reads
 * and writes.
 *
 * For some requests the kernel checks the capabilities of the calling process: CAP_NET_RAW for raw packet QPs, source
 * QPNs, flows and Q_Keys with the high bit set, and CAP_SYS_RAWIO for mlx5's WQs with IB_WQ_FLAGS_DELAY_DROP. Here the
 * caller is the broker or, for a VB_MEMORY request, the stub. The broker must not have these capabilities unless the
 * policy grants such requests.
 */
#ifndef HW_VERBS_SCHEMA_H
#define HW_VERBS_SCHEMA_H

#include "base/base.h"

/* Kinds of attributes. The application supplies inputs and receives outputs. */
enum vb_kind {
    VB_END,        /* end of a list of rules */
    VB_IN,         /* bytes, which are in `data` if len <= 8; otherwise `data` is their address */
    VB_OUT,        /* len bytes that the kernel writes; `data` is always their address */
    VB_HANDLE,     /* number of an object, in `data`; len is 0 */
    VB_HANDLE_NEW, /* number of a new object, which the kernel writes to `data` */
    VB_FD,         /* file descriptor of an object such as a completion channel, in data_s64 */
    VB_FD_NEW,     /* new file descriptor, which the kernel writes to `data` */
    VB_RAW_FD      /* any file descriptor of the application, such as a dma-buf, in `data`; -1 is passed on unchanged,
                      because libraries use it to probe for the method */
};

struct vb_attr_rule {
    uint16_t id;
    uint8_t kind;
    bool mandatory;    /* every kernel since Linux 5.0 that has the method requires the attribute */
    bool more;         /* extensible struct, which may exceed max; the additional bytes of an input must be 0 (otherwise
                          -EOPNOTSUPP) */
    bool driver;       /* UHW_IN or UHW_OUT, with the lengths of struct vb_driver_part */
    bool memory;       /* the value is an address of memory to pin; makes the request VB_MEMORY */
    uint32_t min, max; /* limits of len, in bytes; max 0 means min, and UINT32_MAX means no limit */
    const char *name;  /* for example "REG_DMABUF_MR_FD" */
};
extern const struct vb_attr_rule vb_write_attrs[]; /* attributes of INVOKE_WRITE */

/* A field of 8 bytes in CORE_IN or UHW_IN that contains an address in the application's memory. */
struct vb_address {
    uint16_t at; /* offset of the field, in bytes */
    bool driver; /* true if the field is in UHW_IN, false if in CORE_IN */
    const char *name;
};

/* Where a command is executed. */
enum vb_where {
    VB_REFUSED, /* nowhere: the command is known but never allowed, for the reason in `why` */
    VB_BROKER,  /* the broker, through the application's open file */
    VB_MEMORY   /* the stub, because the command accesses the application's memory */
};

/* Types of objects that commands create or destroy. */
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
const char *vb_type_name(enum vb_type t); /* for example "mr" */

/* Where an object's number or a descriptor is stored. */
enum vb_place { VB_NOWHERE, VB_CORE_IN, VB_CORE_OUT, VB_ATTR };

struct vb_number {
    uint8_t place; /* enum vb_place */
    uint16_t at;   /* offset in the core part, or id of the attribute */
};

/* A file descriptor in a core part: 4 bytes, -1 for none. The kernel looks up an input descriptor in the caller's file
 * table. The broker therefore fetches the application's descriptor and stores the number of the broker's descriptor in
 * vb_request.core_in. If the stub runs the request, the broker first installs the descriptor in the stub's table. An
 * output descriptor is in the caller's file table, so the broker moves the descriptor to the application and stores the
 * application's number in the output. */
struct vb_core_fd {
    uint8_t place; /* VB_CORE_IN or VB_CORE_OUT, or VB_NOWHERE if the command has no descriptor */
    uint8_t kind;  /* VB_FD (a completion channel), VB_RAW_FD (any file) or VB_FD_NEW */
    uint16_t at;   /* offset in the core part, in bytes */
};

struct vb_command {
    uint16_t object, method;
    uint32_t command; /* for INVOKE_WRITE: IB_USER_VERBS_CMD_*, or 0x80000000 + IB_USER_VERBS_EX_CMD_*; otherwise 0 */
    const char *name; /* for example "REG_MR" */
    enum vb_where where;
    const char *why; /* the reason if where is VB_REFUSED */
    /* Lengths of CORE_IN and CORE_OUT of INVOKE_WRITE, in bytes. Bytes of CORE_IN beyond in_max must be 0 and are
     * dropped; if in_max is UINT32_MAX, any length that fits is accepted. If CORE_OUT is longer than the result, the
     * kernel fills the rest with 0. */
    uint32_t in_min, in_max, out_min;
    uint16_t zero_at; /* offset of 4 bytes in CORE_IN that must be 0 (number of inline work requests), or 0 for none */
    /* Attributes, up to VB_END. NULL for INVOKE_WRITE, which has vb_write_attrs, and for VB_REFUSED. */
    const struct vb_attr_rule *attrs;
    struct vb_core_fd fd;
    const struct vb_address *addresses; /* n_addresses fields of CORE_IN */
    unsigned n_addresses;
    enum vb_type makes, ends;
    struct vb_number made, ended; /* where the numbers of these objects are stored */
};

/* A driver's part of a command: the lengths of UHW_IN and UHW_OUT in bytes, and the addresses in UHW_IN. Bytes of
 * UHW_IN beyond in_max must be 0 and are dropped. UHW_OUT is truncated to out_max or VB_UHW_OUT_ANY, whichever is
 * larger, as an older kernel would do. For a command without an entry, all values are 0. */
#define VB_UHW_OUT_ANY 64
struct vb_driver_part {
    uint16_t object, method;
    uint32_t command;
    uint32_t in_min, in_max, out_max;
    bool memory;   /* the command is VB_MEMORY for this driver */
    bool by_write; /* refuse with -EPROTONOSUPPORT, so that the library uses INVOKE_WRITE, which the stub can run */
    const struct vb_address *addresses; /* n_addresses fields of UHW_IN; `driver` is true in each */
    unsigned n_addresses;
};

struct vb_driver {
    uint32_t id;      /* enum rdma_driver_id in <rdma/ib_user_ioctl_verbs.h> */
    const char *name; /* for example "mlx5" */
    bool doorbells;   /* the library announces work requests with write(), which the broker passes on (rxe, siw) */
    const struct vb_driver_part *parts;
    unsigned n_parts;
};

/* Returns a command of the schema, or NULL if the schema lacks it. `command` is ignored unless (object, method) is
 * INVOKE_WRITE. */
const struct vb_command *vb_schema(uint16_t object, uint16_t method, uint32_t command);
/* Returns the i-th command of the schema, or NULL after the last command. */
const struct vb_command *vb_schema_at(unsigned i);
const struct vb_driver *vb_driver(uint32_t id);   /* returns NULL if the schema lacks the driver */
const struct vb_driver *vb_driver_at(unsigned i); /* returns NULL after the last driver */
/* Returns the part of driver d in command c, or NULL if the driver has none. */
const struct vb_driver_part *vb_driver_part(const struct vb_driver *d, const struct vb_command *c);

#endif
