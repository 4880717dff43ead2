/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of a network device, beyond its link properties, addresses and routes, that a container with CAP_NET_ADMIN
 * can change: offloads, rings, channels, RSS, XDP, queueing disciplines and so on. One table (attr.c) has a row for
 * each attribute, which defines how to read, compare and write the attribute. Each attribute is read before the move,
 * and again after the device has returned. If the value differs, the old value is written, and read back to verify it.
 * An attribute that the device lacks is skipped.
 */
#ifndef HW_SANDBOX_ATTR_H
#define HW_SANDBOX_ATTR_H

#include "sandbox/netdev/netdev.h"
#include "sys/genl.h"

/* A value, as bytes in a format that is private to the attribute's row. p is allocated with malloc(). */
struct sb_blob {
    uint8_t *p;
    size_t n, cap;
};
int sb_blob_put(struct sb_blob *b, const void *data, size_t n);
/* Appends a netlink attribute, padded with zeros. */
int sb_blob_attr(struct sb_blob *b, uint16_t type, const void *data, size_t len);
void sb_blob_free(struct sb_blob *b);
/* Returns the attribute of this type in a blob of netlink attributes, or NULL if there is none. */
const struct nlattr *sb_blob_find(const struct sb_blob *b, int type);
#define sb_blob_each(a, b)           \
    for ((a) = (const void *)(b)->p; \
         (b)->p && mnl_attr_ok((a), (int)((const char *)(b)->p + (b)->n - (const char *)(a))); (a) = mnl_attr_next(a))

/* Access to the namespace of the devices. The calling thread must stay in that namespace. */
struct sb_attr_kernel {
    struct hw_netlink *rt;
    struct hw_genl genl;
    int sock; /* socket for ioctls */
    int sys;  /* descriptor of the namespace's sysfs; negative if none */
};
struct sb_dev {
    struct sb_attr_kernel *k;
    int index;
    char name[IFNAMSIZ];
    int folder; /* descriptor of the device's folder in sysfs; negative if none */
};

int sb_attr_open(struct sb_attr_kernel *k, struct hw_netlink *rt, int sys);
void sb_attr_close(struct sb_attr_kernel *k);

struct sb_attr {
    const char *name; /* name in the journal */
    const char *what; /* noun for messages, as in "reading its WHAT" */
    /* Returns 0 or -errno. If the device lacks the attribute, the result is -EOPNOTSUPP or another error for
     * which is_missing_attr_error() is true. */
    int (*read)(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out);
    /* Changes `now` to `was` as far as possible. The caller reads the result again. Returns 0, or -errno and sets
     * hw_error(). */
    int (*write)(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was, const struct sb_blob *now);
    /* NULL to compare the bytes. */
    bool (*same)(const struct sb_attr *a, const struct sb_blob *was, const struct sb_blob *now);
    /* Parameters of read() and write(). */
    uint8_t get, set;      /* ethtool's message types */
    uint16_t header, type; /* ethtool's header attribute; a number of another interface, such as an attribute's type */
    uint64_t keep; /* bit i is set if attribute i of the message can be set; for sb_read_link() and sb_read_tunable():
                      length of the value, or 0 for any length */
    const char *const *path; /* files in sysfs, terminated by NULL */
};

/* ---- the table (attr.c) --------------------------------------------------------------------------- */

/* Adds a record to j for each attribute of NIC nic, which is the device with this index and name. Leaves out attributes
 * that the device lacks. Logs and leaves out attributes that cannot be read. If the cause is the machine or this
 * program, as with -ENOMEM, the function fails unless skip is set. */
int sb_attrs_read(struct sb_attr_kernel *k, struct sb_journal *j, int nic, int index, const char *name, bool skip,
                  const struct hw_logger *log);
/* Restores the device's attributes that differ from j's records. If last is set, any remaining difference is reported
 * as a fault. */
void sb_attrs_apply(struct sb_attr_kernel *k, const struct sb_journal *j, int nic, int index, const char *name,
                    bool last, struct sb_faults *f);
/* ---- the rows' functions -------------------------------------------------------------------------- */

typedef int sb_attr_read(const struct sb_attr *a, struct sb_dev *d, struct sb_blob *out);
typedef int sb_attr_write(const struct sb_attr *a, struct sb_dev *d, const struct sb_blob *was,
                          const struct sb_blob *now);

/* attr_ethtool.c: attributes accessed through ethtool's netlink interface */
sb_attr_read sb_read_ethtool, sb_read_features, sb_read_modes, sb_read_contexts;
sb_attr_write sb_write_ethtool, sb_write_features, sb_write_contexts;
bool sb_same_modes(const struct sb_attr *a, const struct sb_blob *was, const struct sb_blob *now);

/* attr_ioctl.c: attributes accessed through ethtool's ioctl */
int sb_ethtool_ioctl(const struct sb_dev *d, void *data, const char *what);
sb_attr_read sb_read_rss, sb_read_hash, sb_read_rules, sb_read_tunable, sb_read_stamps;
sb_attr_write sb_write_rss, sb_write_hash, sb_write_rules, sb_write_tunable, sb_write_stamps;

/* attr_link.c: attributes accessed through rtnetlink */
sb_attr_read sb_read_link, sb_read_altnames, sb_read_down, sb_read_vfs, sb_read_kind, sb_read_token, sb_read_dcb;
sb_attr_write sb_write_link, sb_write_altnames, sb_write_down, sb_write_vfs, sb_write_kind, sb_write_token,
    sb_write_dcb;

/* attr_bpf.c */
sb_attr_read sb_read_xdp, sb_read_tcx;
sb_attr_write sb_write_xdp, sb_write_tcx;

/* attr_tc.c */
sb_attr_read sb_read_tc;
sb_attr_write sb_write_tc;
bool sb_same_tc(const struct sb_attr *a, const struct sb_blob *was, const struct sb_blob *now);

/* attr_sysfs.c */
sb_attr_read sb_read_files, sb_read_queues;
sb_attr_write sb_write_files;

#endif
