/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repeats NCCL's lookup of a net plugin: tries the same names in the same order, and records each result. Child
 * processes load the third-party libraries, so that a crash, an exit or a hang is a result, too.
 */
#ifndef HW_TOOL_NCCL_LOOK_H
#define HW_TOOL_NCCL_LOOK_H

#include "tool/nccl/nccl_conf.h"

#define NCCL_LIST       16 /* maximum plugins in NCCL_NET_PLUGIN, as in NCCL 2.28 */
#define NCCL_DEVICES    64
#define NCCL_TAIL       2048 /* maximum bytes kept of a child's output, including the NUL */
#define NCCL_OLDEST     6    /* oldest table version that current NCCL versions accept */
#define NCCL_NEWEST     12
#define NCCL_TABLE_NAME "ncclNetPlugin_v"

/* The step that a child had reached when it ended. */
enum nccl_step { NCCL_LOADING, NCCL_TABLES, NCCL_INITIALISING, NCCL_COUNTING, NCCL_ASKING, NCCL_FINALISING, NCCL_DONE };

struct nccl_child {
    int rc;                /* 0, or -errno if the child did not finish; the reason is in how */
    char how[HW_ERR_TEXT]; /* how the child ended, such as "was killed by signal 11 (Segmentation fault)" */
    char tail[NCCL_TAIL];  /* last output of the child */
};

/* Runs fn in a child that must finish within ms, and stores the result in *c. Both processes share the memory `shared`
 * (see nccl_shared()). */
void nccl_run(struct nccl_child *c, void (*fn)(void *shared), void *shared, int ms);
void *nccl_shared(size_t len);
void nccl_unshare(void *p, size_t len);

struct nccl_lib {
    struct nccl_child child;
    char asked[NCCL_PATH], path[NCCL_PATH]; /* path of the loaded file, or "" with the reason in why */
    char why[HW_ERR_TEXT];
    int version; /* such as 22809; 0 if unknown */
};

struct nccl_device {
    char name[64], pci[256];
    int speed, ptr; /* Mbit/s; NCCL_PTR_* */
};

struct nccl_plugin {
    struct nccl_child child;
    char asked[NCCL_PATH]; /* item of NCCL_NET_PLUGIN, "libnccl-net.so" if nccl_net_plugins() is NULL, or our plugin */
    bool listed;           /* NCCL would try the plugin; hawser's plugin is examined in any case */
    bool ours;             /* the plugin is hawser's */
    char path[NCCL_PATH];
    char why[HW_ERR_TEXT];
    unsigned tables, tuners; /* bit v is set if the plugin has ncclNetPlugin_v<v> or ncclTunerPlugin_v<v> */
    int newest;              /* newest table version that NCCL supports */
    int table;               /* table version that NCCL uses, or 0 if none */
    enum nccl_step step;
    int rc;        /* ncclResult_t of init, devices, getProperties or finalize */
    char name[64]; /* name of the network; NCCL_NET, if set, must match it, ignoring case */
    int n_devices; /* number that the plugin reports; device[] may have fewer */
    struct nccl_device device[NCCL_DEVICES];
};

/* A library that NCCL may load. */
struct nccl_extra {
    struct nccl_child child;
    char asked[NCCL_PATH], path[NCCL_PATH], why[HW_ERR_TEXT];
};

struct nccl_look {
    struct nccl_lib *lib;
    int newest; /* newest table version that this NCCL accepts */
    bool asked; /* NCCL_NET_PLUGIN is set and not empty */
    bool none;  /* NCCL_NET_PLUGIN is "none" */
    struct nccl_plugin *plugin[NCCL_LIST + 1];
    size_t n;
    /* index of the plugin that NCCL would use, or -1 for one of NCCL's own networks */
    int chosen;
    struct nccl_extra *link, *tuner, *env; /* libnccl-net.so, the tuner plugin, libnccl-env.so */
    char dir[NCCL_PATH];                   /* folder of our plugin, or "" if not found */
};

/* Returns the newest table version that this NCCL version accepts. If version is 0, which means unknown, returns the
 * newest one that exists. */
int nccl_newest_table(int version);
/* Returns true if NCCL_NET permits a network of this name. */
bool nccl_net_allows(const char *name);
/* Returns true if the plugin works and has a device, and if NCCL_NET permits its network. */
bool nccl_usable(const struct nccl_plugin *p);
/* Loads, in a child process, the library that dlopen() finds by this name or, if the name is neither a path nor of the
 * form lib*.so, by libnccl-tuner-NAME.so. Returns NULL if out of memory. The caller frees the result with
 * nccl_unshare(). */
struct nccl_extra *nccl_find(const char *name);
#define NCCL_LIBRARY "libnccl.so.2" /* default of --nccl */

/* Examines what NCCL would load. nccl is NCCL's library, or NULL for libnccl.so.2. Fails with -ENOMEM. The caller calls
 * nccl_look_free() in any case. */
int nccl_look(struct nccl_look *l, const char *nccl);
void nccl_look_free(struct nccl_look *l);

#endif
