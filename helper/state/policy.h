/* SPDX-License-Identifier: Apache-2.0 */
/* hawserd's policy file: which users may have what. */
#ifndef HW_HELPER_POLICY_H
#define HW_HELPER_POLICY_H

#include "helper/kernel/kernel.h"

#include <sys/types.h>

#define HD_POLICY_FILE     "/etc/hawser/hawserd.conf"
#define HD_SECTIONS_MAX    64
#define HD_NICS_TEXT       160
#define HD_POLICY_FILE_MAX (64u << 10)

/* What each user of a section may hold at a time, over all its connections. */
struct hd_rights {
    char who[40]; /* "user alice", for messages */
    bool group;
    uint32_t id;             /* uid or gid */
    char nics[HD_NICS_TEXT]; /* "eth1,eth2", shell patterns; NUL-separated once parsed */
    bool queues_set;         /* only these */
    struct hd_set queues;
    uint32_t max_queues, max_bindings, max_rules;
    uint64_t max_bytes;
};

struct hd_policy {
    struct hd_rights section[HD_SECTIONS_MAX];
    unsigned n;
};

/* The policy without a file: root and uid, all NICs, the default limits. */
void hd_policy_default(struct hd_policy *p, uid_t uid);
/* Reads a file that only its owner, root or this process's user, may write. -EINVAL with file and line, -EACCES and
 * others. */
int hd_policy_load(struct hd_policy *p, const char *path);
/* Parses a text. name: for messages. */
int hd_policy_parse(struct hd_policy *p, const char *text, const char *name);
/* Returns the user's section, else the first section of one of its groups; NULL: nothing is granted. */
const struct hd_rights *hd_policy_find(const struct hd_policy *p, uid_t uid, const gid_t *gids, unsigned n_gids);
bool hd_policy_nic(const struct hd_rights *r, const char *nic);

#endif
