/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal of a move contains the previous state, followed by the steps. Each container has one file, ID.journal,
 * with lines of the form
 *
 *     CRC KIND NIC PAYLOAD
 *
 * CRC has 8 hexadecimal digits. It is the CRC-32 of "KIND NIC PAYLOAD", seeded with the CRC of the previous line, so
 * that a changed or moved line, or a gap, is detected. NIC is the number of the NIC, in the order of the `link` lines,
 * or '-'. PAYLOAD is text or an rtnetlink message in hexadecimal, and may be empty. Each line is on disk before the
 * step that it announces is taken, except that a restore also takes steps whose lines could not be written. The step of
 * an incomplete last line was never taken, so the line is ignored. Any other fault makes the whole journal unreadable
 * (-EBADMSG, or -EPROTONOSUPPORT for another version).
 */
#ifndef HW_SANDBOX_JOURNAL_H
#define HW_SANDBOX_JOURNAL_H

#include "sandbox/move/move.h"

#include <linux/netlink.h>

enum sb_kind {
    SB_HEAD,     /* "1", the version; always the first line */
    SB_BOOT,     /* ID of the boot (/proc/sys/kernel/random/boot_id); after another boot there is nothing to restore */
    SB_HOST,     /* "DEV INO COOKIE" of the namespace that the NICs come from */
    SB_NETNS,    /* "DEV INO COOKIE PATH" of the container's namespace */
    SB_HOLDER,   /* "PID START": the process that represents the container, and its start time in /proc/PID/stat */
    SB_TAKEN,    /* CLOCK_BOOTTIME in seconds; lifetimes of the addresses and routes below count from this time */
    SB_LINK,     /* RTM_NEWLINK; begins the next NIC */
    SB_IDENT,    /* number of the NIC's folder in sysfs, see ident.h */
    SB_ATTR,     /* "NAME HEX": another attribute of the device, see attr.h */
    SB_AS,       /* name of the NIC in the container */
    SB_SYSCTL,   /* "FOLDER NAME VALUE", for /proc/sys/net/FOLDER/<NIC>/NAME; FOLDER is ipv4/conf, for example */
    SB_ADDR,     /* RTM_NEWADDR */
    SB_NEIGH,    /* RTM_NEWNEIGH */
    SB_RDMA,     /* "INDEX NAME" of an RDMA device that moves with the NICs; field NIC is '-' */
    SB_ROUTE,    /* RTM_NEWROUTE; field NIC is '-', because a route may have nexthops through several NICs */
    SB_RULE,     /* RTM_NEWRULE; field NIC is '-' */
    SB_BEGIN,    /* the records above are complete; changes begin after this */
    SB_PIN,      /* ID.netns, the bind mount that keeps the container's namespace, is created */
    SB_MOVE,     /* "INDEX": the NIC moves to the container and gets this index there */
    SB_RDMAMOVE, /* "INDEX": the RDMA device with this index moves too */
    SB_MADE,     /* RTM_NEWRULE: the rule is added in the container */
    SB_READY,    /* the move is complete */
    SB_BACK,     /* "INDEX": the NIC moves back, and gets this index here if it is free */
    SB_KINDS
};

struct sb_record {
    enum sb_kind kind;
    int nic;    /* -1 if the record belongs to no NIC */
    size_t len; /* length of data, without the NUL that follows it */
    void *data; /* text or a struct nlmsghdr */
};

/* The fields of a link message that are used here. */
struct sb_link {
    int index, iflink, master;
    bool far; /* iflink is an index in another namespace */
    uint32_t flags, mtu, txqlen, group;
    char name[IFNAMSIZ], kind[16], alias[256], parent[96]; /* parent has the form "pci/0000:01:00.0" */
    char port[64];                                         /* the driver's name of the port (phys_port_name) */
    uint8_t mac[32], perm[32], port_id[32];
    uint8_t mac_len, perm_len, port_id_len;
};

struct sb_ns_id {
    uint64_t dev, ino, cookie; /* cookie is 0 on kernels before 5.14 */
};

struct sb_jnic {
    struct sb_link link;
    char as[IFNAMSIZ];
    uint64_t ident; /* 0 if unknown */
    int there;      /* the index announced by SB_MOVE; 0 if none was announced */
    /* when the state was read, a default route in the main or default table used this NIC; the route may come from a
     * router advertisement */
    bool gateway;
};

struct sb_jrdma {
    int index; /* the same in all namespaces */
    char name[64];
    bool moved; /* SB_RDMAMOVE was written */
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
    bool torn; /* the last line was incomplete, and is not among the records */
    /* The file, while steps are being written. */
    int fd;       /* -1 if there is no file */
    uint32_t crc; /* CRC of the last line */
    uint64_t size;
};

void sb_journal_init(struct sb_journal *j);
void sb_journal_free(struct sb_journal *j);

/* Adds a record in memory only. Fails with -EBADMSG if the record does not match the format above, with
 * -EPROTONOSUPPORT for another version, or with -ENOMEM. */
int sb_journal_add(struct sb_journal *j, enum sb_kind kind, int nic, const void *data, size_t len);
int sb_journal_addf(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, ...) HW_PRINTF(4, 5);
/* Adds a record. If the journal has a file, the record is on disk when the function returns 0. */
int sb_journal_step(struct sb_journal *j, enum sb_kind kind, int nic, const void *data, size_t len);
int sb_journal_stepf(struct sb_journal *j, enum sb_kind kind, int nic, const char *fmt, ...) HW_PRINTF(4, 5);

/* Parses n bytes of a journal. Fails with -EBADMSG and the line's number, with -EPROTONOSUPPORT for another version, or
 * with -ENOMEM. */
int sb_journal_parse(struct sb_journal *j, const char *text, size_t n);
/* Returns one record as a line of *len bytes from malloc(), or NULL if out of memory. *crc is the CRC of the previous
 * line, and is updated. */
char *sb_journal_line(const struct sb_record *r, uint32_t *crc, size_t *len);
/* Returns all of j as text of *len bytes from malloc(), or NULL if out of memory. *crc receives the CRC of the last
 * line. */
char *sb_journal_text(const struct sb_journal *j, size_t *len, uint32_t *crc);

/* ---- the files ---------------------------------------------------------------------------------- */

/* Checks a container's ID. Returns 0 or -EINVAL. */
int sb_id_check(const char *id);
/* Opens the folder of the journals, which is SB_JOURNAL_DIR if dir is NULL. If make is true, creates the folder if it
 * is missing. Returns a file descriptor or -errno, for example -ENOENT if the folder is missing. */
int sb_dir_open(const char *dir, bool make);
/* Locks the folder until fd is closed. Fails with -EBUSY if the lock is not released within a minute, or with another
 * -errno. */
int sb_dir_lock(int fd);

/* Writes j to a new file, atomically and synced. Leaves j->fd open and locked. Fails with -EEXIST if the journal
 * exists, or with another -errno. */
int sb_journal_create(struct sb_journal *j, int dir, const char *id);
/* Reads a file. If write is true, removes an incomplete last line, and leaves j->fd open and locked for more steps.
 * Fails with -ENOENT, -EBADMSG or another -errno. */
int sb_journal_load(struct sb_journal *j, int dir, const char *id, bool write);
bool sb_journal_there(int dir, const char *id);
/* Returns true if the journal is open for more steps, in this or another process. */
bool sb_journal_locked(int dir, const char *id);
/* Removes the file, and any new file that a crash left behind. Succeeds if neither exists. */
int sb_journal_remove(int dir, const char *id);

#endif
