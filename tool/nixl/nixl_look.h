/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the NIXL of a Python, and what that NIXL would load as the backend HAWSER. Python and the backend run in child
 * processes. */
#ifndef HW_TOOL_NIXL_LOOK_H
#define HW_TOOL_NIXL_LOOK_H

#include "tool/nccl/nccl_look.h"

#define NIXL_WHEELS      4
#define NIXL_PATH        1024
#define NIXL_PLUGIN_FILE "libplugin_HAWSER.so"
/* Lets the backend accept untested versions at the user's risk, and identifies it: the backend of each release contains
 * this name. */
#define NIXL_ANY_VERSION "HAWSER_NIXL_ANY_VERSION"

/* A file that NIXL would load as the backend HAWSER. */
struct nixl_backend {
    struct nccl_child child;
    char path[NIXL_PATH];
    bool there, ours, loads, entry; /* it exists; is hawser's; dlopen() succeeds; it has NIXL's entry point */
    char why[HW_ERR_TEXT];          /* of !loads */
};

/* An installed NIXL: the wheels nixl-cu12 and nixl-cu13. */
struct nixl_wheel {
    char name[32], version[48];
    char folder[NIXL_PATH]; /* site-packages */
    bool tried;             /* the backend was tested with this version */
    struct nixl_backend *backend;
};

struct nixl_look {
    char python[NIXL_PATH]; /* the Python that was asked; "": a folder was given */
    char where[NIXL_PATH];  /* the given folder */
    char why[HW_ERR_TEXT];  /* why Python could not be asked; "": it was */
    struct nixl_wheel wheel[NIXL_WHEELS];
    size_t n;
    char plugin_dir[NIXL_PATH]; /* NIXL_PLUGIN_DIR; "": not set */
    char own[NIXL_PATH];        /* the backend that belongs to this program; "": not found */
    char package[NIXL_PATH];    /* the Python of this program's package, which has nixl-install; "": none */
};

/* python: a program; NULL: that of this program's package, else of VIRTUAL_ENV, else python3. folder: where NIXL is
 * installed, instead of asking Python; NULL: none. -ENOMEM. Call nixl_look_free() in any case. */
int nixl_look(struct nixl_look *l, const char *python, const char *folder);
void nixl_look_free(struct nixl_look *l);
/* Writes "1.0.0, 1.0.1": the versions that the backend was tested with. */
const char *nixl_list_tried(char *buf, size_t cap);
/* Returns the newest of them. */
const char *nixl_newest_tried(void);

#endif
