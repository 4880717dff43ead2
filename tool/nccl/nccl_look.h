/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NCCL's way to a net plugin, gone once without NCCL: what it would try, in which order, and what came of it. All that
 * loads strangers' libraries happens in child processes, where a crash, an exit or a hang is an answer too.
 */
#ifndef HW_TOOL_NCCL_LOOK_H
#define HW_TOOL_NCCL_LOOK_H

#include "tool/nccl/nccl_conf.h"

#define NCCL_LIST       16 /* plugins of one NCCL_NET_PLUGIN, as many as NCCL 2.28 takes */
#define NCCL_DEVICES    64
#define NCCL_TAIL       2048 /* of what a child said */
#define NCCL_OLDEST     6    /* tables that a NCCL of today takes */
#define NCCL_NEWEST     12
#define NCCL_TABLE_NAME "ncclNetPlugin_v"

/* How far a child came: the step it was in when it ended. */
enum nccl_step { NCCL_LOADING, NCCL_TABLES, NCCL_INITIALISING, NCCL_COUNTING, NCCL_ASKING, NCCL_FINALISING, NCCL_DONE };

struct nccl_child {
    int rc;                /* 0, or -errno: it ended early, and how */
    char how[HW_ERR_TEXT]; /* "was killed by signal 11 (Segmentation fault)" */
    char tail[NCCL_TAIL];  /* what it said last */
};

/* Runs fn in a child that has `ms` to end; shared is memory of both (nccl_shared()). */
void nccl_run(struct nccl_child *c, void (*fn)(void *shared), void *shared, int ms);
void *nccl_shared(size_t len);
void nccl_unshare(void *p, size_t len);

struct nccl_lib {
    struct nccl_child child;
    char asked[NCCL_PATH], path[NCCL_PATH]; /* path: of the file that was found; "": none, why */
    char why[HW_ERR_TEXT];
    int version; /* 22809; 0: not known */
};

struct nccl_device {
    char name[64], pci[256];
    int speed, ptr; /* Mbit/s; NCCL_PTR_* */
};

struct nccl_plugin {
    struct nccl_child child;
    char asked[256]; /* as NCCL_NET_PLUGIN has it; "libnccl-net.so" where it is not set */
    bool listed;     /* NCCL would try it; ours is looked at anyway */
    bool ours;       /* hawser's */
    char path[NCCL_PATH];
    char why[HW_ERR_TEXT];
    unsigned tables, tuners; /* bit v: it has ncclNetPlugin_v<v>, ncclTunerPlugin_v<v> */
    int newest;              /* given: what NCCL knows */
    int table;               /* which of them NCCL takes; 0: none */
    enum nccl_step step;
    int rc;        /* of init, devices or getProperties: ncclResult_t */
    char name[64]; /* which NCCL_NET must equal */
    int n_devices; /* as it says; device[] has no more than fit */
    struct nccl_device device[NCCL_DEVICES];
};

/* A library of a given name that NCCL loads where there is one. */
struct nccl_extra {
    struct nccl_child child;
    char asked[NCCL_PATH], path[NCCL_PATH], why[HW_ERR_TEXT];
};

struct nccl_look {
    struct nccl_lib *lib;
    int newest; /* table that this NCCL takes */
    bool asked; /* NCCL_NET_PLUGIN is set */
    bool none;  /* to "none" */
    struct nccl_plugin *plugin[NCCL_LIST + 1];
    size_t n;
    int chosen;                            /* whose network it would be; -1: one of NCCL's own */
    struct nccl_extra *link, *tuner, *env; /* libnccl-net.so, libnccl-tuner.so, libnccl-env.so */
    char dir[NCCL_PATH];                   /* where our plugin is; "": not found */
};

/* The table that NCCL of this version takes at most; 0: not known, and the newest there is. */
int nccl_newest_table(int version);
/* NCCL_NET lets a network of this name be used. */
bool nccl_net_allows(const char *name);
/* What NCCL would do with a plugin: use it? */
bool nccl_usable(const struct nccl_plugin *p);
/* What dlopen() makes of a name. NULL: no memory. To be given back by nccl_unshare(). */
struct nccl_extra *nccl_find(const char *name);
/* nccl: its library, NULL for libnccl.so.2. -ENOMEM. To be freed after either. */
int nccl_look(struct nccl_look *l, const char *nccl);
void nccl_look_free(struct nccl_look *l);

#endif
