/* SPDX-License-Identifier: Apache-2.0 */
/* What this node says to NCCL: its environment, NCCL's configuration files, and where our plugin is. */
#ifndef HW_TOOL_NCCL_CONF_H
#define HW_TOOL_NCCL_CONF_H

#include "base/base.h"

#define NCCL_PATH        4096
#define NCCL_PLUGIN_FILE "libnccl-net-hawser.so"
#define NCCL_ANY_FILE \
    "libnccl-net.so" /* what NCCL loads where NCCL_NET_PLUGIN is not set, and some versions after it */
#define NCCL_OUR_NAME  "hawser"
#define NCCL_CONFLICTS 32

/* Reads NCCL's configuration files into the environment, as NCCL does: NCCL_CONF_FILE or ~/.nccl.conf, then
 * /etc/nccl.conf, never over what is set. Once. */
void nccl_conf_read(void);
/* Where a variable is from: "the environment", or the file. */
const char *nccl_conf_where(const char *name);

/* The folder that has our plugin, as this program was built or installed. -ENOENT with where it was looked for. */
int nccl_plugin_dir(char *out, size_t cap);

enum nccl_weight { NCCL_NOTE, NCCL_CAUTION, NCCL_WRONG }; /* harmless, slower, or it keeps ours from being used */

struct nccl_conflict {
    const char *name, *value; /* the variable; value is the environment's */
    enum nccl_weight weight;
    char text[240]; /* what it does */
    char mend[120]; /* a shell command, "" none */
};

/* The variables that stand against our plugin, or in part against what it sets. */
size_t nccl_conflicts(struct nccl_conflict out[NCCL_CONFLICTS]);

#endif
