/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of a move: the previous state, then each step before it is taken. One file per container, ID.journal,
 * with lines of
 *
 *     CRC KIND NIC PAYLOAD
 *
 * CRC: 8 hexadecimal digits, the CRC-32 of everything after its blank up to the newline, seeded with the CRC of the
 * line before, so that a changed, lost or moved line is detected. NIC: the number of the NIC, in the order of the
 * `link` lines, or '-'. PAYLOAD: text, or an rtnetlink message in hexadecimal; may be empty. Each line is on disk
 * before the step that it announces. An incomplete last line was never acted on, and is ignored; any other fault makes
 * the whole journal unreadable (-EBADMSG).
 */
#ifndef HW_SANDBOX_JOURNAL_H
#define HW_SANDBOX_JOURNAL_H

#include "sandbox/move/move.h"

#include <linux/netlink.h>

enum sb_kind {
    SB_HEAD,     /* "1", the version; the first line */
    SB_BOOT,     /* its boot (/proc/sys/kernel/random/boot_id): after another boot there is nothing to restore */
    SB_HOST,     /* "DEV INO COOKIE" of the NICs' own namespace */
    SB_NETNS,    /* "DEV INO COOKIE PATH" of the container's namespace */
    SB_HOLDER,   /* "PID START": the process that represents the container, its start time in /proc/PID/stat */
    SB_TAKEN,    /* CLOCK_BOOTTIME when the following records were read, seconds: lifetimes continue to run */
    SB_LINK,     /* RTM_NEWLINK: starts the next NIC */
    SB_IDENT,    /* the number of its folder in sysfs, see ident.h */
    SB_ATTR,     /* "NAME HEX": another attribute of the device, see attr.h */
    SB_AS,       /* the name it gets in the container */
    SB_SYSCTL,   /* "ipv4/conf NAME VALUE": /proc/sys/net/ipv4/conf/<NIC>/NAME */
    SB_ADDR,     /* RTM_NEWADDR */
    SB_NEIGH,    /* RTM_NEWNEIGH */
    SB_RDMA,     /* "INDEX NAME" of an RDMA device that moves along; '-' */
    SB_ROUTE,    /* RTM_NEWROUTE; NIC is '-': a route may have nexthops through several */
    SB_RULE,     /* RTM_NEWRULE; '-' */
    SB_BEGIN,    /* the records above are complete: from here on things change */
    SB_PIN,      /* ID.netns is made, a bind mount that keeps the container's namespace */
    SB_MOVE,     /* "INDEX": the NIC moves to the container, with this index there */
    SB_RDMAMOVE, /* "INDEX": the RDMA device of that index moves too */
    SB_MADE,     /* RTM_NEWRULE: made in the container */
    SB_READY,    /* all is there */
    SB_BACK,     /* "INDEX": the NIC moves back, with this index here if that is free */
    SB_KINDS
};

struct sb_record {
    enum sb_kind kind;
    int nic;    /* -1: of none */
    size_t len; /* of data, which is followed by a NUL */
    void *data; /* text, or a struct nlmsghdr */
};

/* The fields of a link message that matter here. */
struct sb_link {
    int index, iflink, master;
    bool far; /* iflink is an index in another namespace */
    uint32_t flags, mtu, txqlen, group;
    char name[IFNAMSIZ], kind[16], alias[256], parent[96]; /* parent: "pci/0000:01:00.0" */
    char port[64];                                         /* the driver's name of the port (phys_port_name) */
    uint8_t mac[32], perm[32], port_id[32];
    uint8_t mac_len, perm_len, port_id_len;
};

struct sb_ns_id {
    uint64_t dev, ino, cookie; /* cookie 0: a kernel before 5.14 */
};

struct sb_jnic {
    struct sb_link link;
    char as[IFNAMSIZ];
    uint64_t ident; /* 0: not known */
    int there;      /* the index announced by SB_MOVE; 0: not announced */
    bool gateway;   /* when read: it has a default route for everybody, also one from router advertisements */
};

struct sb_jrdma {
    int index; /* the same in every namespace */
    char name[64];
    bool moved; /* announced */
};

struct sb_journal {
    struct sb_record *rec;
    size_t n, cap;
    /* Parsed from the records. */
    char boot[64], path[256];
    struct sb_ns_id host, netns;
    pid_t holder;
    uint64_t holder_start, taken;
    unsigned nics;
    struct sb_jnic nic[SB_NICS_MAX];
    unsigned rdmas;
    struct sb_jrdma rdma[SB_NICS_MAX];
    bool begun, pinned, ready, returning;
    bool torn; /* its last line was incomplete, and is not among the records */
    /* The file, while steps are being written. */
    int fd;       /* -1: none */
    uint32_t crc; /* of the last line */
    uint64_t size;
};

void sb_journal_init(struct sb_journal *j);
void sb_journal_free(struct sb_journal *j);

/* Adds a record, in memory only. -EBADMSG if it does not match the format above; -ENOMEM. */
int sb_journal_add(struct sb_journal *j, enum sb_kind kind, int nic, const void *data, size_t len);
int sb_journal_addf(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, ...) HW_PRINTF(4, 5);
/* Adds a record and, if the journal has a file, syncs it to disk before returning. */
int sb_journal_step(struct sb_journal *j, enum sb_kind kind, int nic, const void *data, size_t len);
int sb_journal_stepf(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, ...) HW_PRINTF(4, 5);

/* Parses n bytes of a journal. -EBADMSG with the line; -EPROTONOSUPPORT: another version; -ENOMEM. */
int sb_journal_parse(struct sb_journal *j, const char *text, size_t n);
/* Returns one record as a line from malloc(), *len bytes; *crc: of the line before, updated. NULL: no memory. */
char *sb_journal_line(const struct sb_record *r, uint32_t *crc, size_t *len);
/* Returns all of j as text from malloc(), *len bytes; *crc: of its last line. NULL: no memory. */
char *sb_journal_text(const struct sb_journal *j, size_t *len, uint32_t *crc);

/* ---- the files ---------------------------------------------------------------------------------- */

/* 0 or -EINVAL. */
int sb_id_check(const char *id);
/* Opens the folder (NULL: the default), with make creates it. Returns a descriptor, -ENOENT, -errno. */
int sb_dir_open(const char *dir, bool make);
/* Takes the folder's lock, until fd is closed. -EBUSY if another process holds it for a minute. */
int sb_dir_lock(int fd);

/* Writes j to a new file, atomically and synced; leaves j->fd open and locked. -EEXIST. */
int sb_journal_create(struct sb_journal *j, int dir, const char *id);
/* Reads a file; write: leaves j->fd open and locked for more steps (truncates an incomplete last line). -ENOENT,
 * -EBADMSG. */
int sb_journal_load(struct sb_journal *j, int dir, const char *id, bool write);
bool sb_journal_there(int dir, const char *id);
/* Returns true if another process is using it. */
bool sb_journal_locked(int dir, const char *id);
/* Removes the file. 0 if there is none. */
int sb_journal_remove(int dir, const char *id);

#endif
