/* SPDX-License-Identifier: Apache-2.0 */
/* Who may have what: hawserd's policy file. */
#ifndef HW_HELPER_POLICY_H
#define HW_HELPER_POLICY_H

#include "helper/kernel/kernel.h"

#include <sys/types.h>

#define HD_POLICY_FILE     "/etc/hawser/hawserd.conf"
#define HD_SECTIONS_MAX    64
#define HD_NICS_TEXT       160
#define HD_POLICY_FILE_MAX (64u << 10)

/* What each user of a section may hold at any one time, over all its connections. */
struct hd_rights {
    char who[40]; /* "user alice", for texts */
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

/* With no file: root and uid, all NICs, the default limits. */
void hd_policy_default(struct hd_policy *p, uid_t uid);
/* Reads a file that only its owner, root or this process's user, may write. -EINVAL with file and line, -EACCES, .. */
int hd_policy_load(struct hd_policy *p, const char *path);
/* The same of a text. name: for what is said. */
int hd_policy_parse(struct hd_policy *p, const char *text, const char *name);
/* The user's section, else the first one of a group that it is in; NULL: nothing is granted. */
const struct hd_rights *hd_policy_find(const struct hd_policy *p, uid_t uid, const gid_t *gids, unsigned n_gids);
bool hd_policy_nic(const struct hd_rights *r, const char *nic);

#endif
