/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's settings on this node (environment and configuration files), and the location of our plugin. */
#ifndef HW_TOOL_NCCL_CONF_H
#define HW_TOOL_NCCL_CONF_H

#include "base/base.h"

#define NCCL_PATH        4096
#define NCCL_PLUGIN_FILE "libnccl-net-hawser.so"
#define NCCL_ANY_FILE                                                                                           \
    "libnccl-net.so" /* file that NCCL loads if nccl_net_plugins() returns NULL, and that some versions load in \
                        addition */
#define NCCL_OUR_NAME  "hawser"
#define NCCL_CONFLICTS 32

/* Reads NCCL's configuration files into the environment in NCCL's order: NCCL_CONF_FILE or $HOME/.nccl.conf, then
 * /etc/nccl.conf. NCCL itself takes the home folder from the password database. Never overrides a variable that is set.
 * Only the first call has an effect. */
void nccl_conf_read(void);
/* Returns where a variable was set: "the environment", or the path of a file. */
const char *nccl_conf_where(const char *name);

/* Returns the list of plugins in NCCL_NET_PLUGIN, or NULL if the variable is not set or is empty. NCCL then looks for
 * NCCL_ANY_FILE. */
const char *nccl_net_plugins(void);

/* Finds the folder with our plugin, relative to this program or in HW_LIBDIR. Fails with -ENOENT; the error text then
 * names the places that were searched. */
int nccl_plugin_dir(char *out, size_t cap);

/* Harmless; may cause errors or low speed; prevents the use of our plugin. */
enum nccl_weight { NCCL_NOTE, NCCL_CAUTION, NCCL_WRONG };

struct nccl_conflict {
    const char *name, *value; /* name of the variable, and its value in the environment */
    enum nccl_weight weight;
    char text[240]; /* effect of the variable */
    char mend[120]; /* shell command that fixes the conflict, or "" */
};

/* Lists the variables that conflict with our plugin or with parameters that it sets, or that do not apply to it.
 * Returns their number. */
size_t nccl_conflicts(struct nccl_conflict out[NCCL_CONFLICTS]);

#endif
