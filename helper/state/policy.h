/* SPDX-License-Identifier: Apache-2.0 */
/* Reads hawserd's policy file, which defines what each user may use. */
#ifndef HW_HELPER_POLICY_H
#define HW_HELPER_POLICY_H

#include "helper/kernel/kernel.h"

#include <sys/types.h>

#define HD_POLICY_FILE     "/etc/hawser/hawserd.conf"
#define HD_SECTIONS_MAX    64
#define HD_NICS_TEXT       160
#define HD_POLICY_FILE_MAX (64u << 10)

/* A section of the policy. Its limits apply to each user separately, and cover all connections of the user together. */
struct hd_rights {
    char who[40]; /* for example "user alice", for messages */
    bool group;
    uint32_t id;             /* user id, or group id if group is true */
    char nics[HD_NICS_TEXT]; /* list of shell patterns, separated by NUL, ending with an empty one */
    bool queues_set;         /* only the queues in `queues` are allowed */
    struct hd_set queues;
    uint32_t max_queues, max_bindings, max_rules;
    uint64_t max_bytes;
};

struct hd_policy {
    struct hd_rights section[HD_SECTIONS_MAX];
    unsigned n;
};

/* Sets the policy that applies without a file: root and uid may use all NICs, within the default limits. */
void hd_policy_default(struct hd_policy *p, uid_t uid);
/* Reads the policy from a file. Fails with -EACCES if users other than root and the user of this process can write to
 * the file, with -EINVAL if the policy is invalid, or with another -errno. */
int hd_policy_load(struct hd_policy *p, const char *path);
/* Parses a policy. name is the file's name for messages. */
int hd_policy_parse(struct hd_policy *p, const char *text, const char *name);
/* Returns the section of the user or, if there is none, the first section of one of the user's groups. Returns NULL if
 * the policy grants nothing to the user. */
const struct hd_rights *hd_policy_find(const struct hd_policy *p, uid_t uid, const gid_t *gids, unsigned n_gids);
/* Returns true if the rights include the NIC. */
bool hd_policy_nic(const struct hd_rights *r, const char *nic);

#endif
