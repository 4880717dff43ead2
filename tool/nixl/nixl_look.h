/* SPDX-License-Identifier: Apache-2.0 */
/* Which NIXL a Python has, and what that NIXL would find of the backend HAWSER. Python and the backend run in child
 * processes. */
#ifndef HW_TOOL_NIXL_LOOK_H
#define HW_TOOL_NIXL_LOOK_H

#include "tool/nccl/nccl_look.h"

#define NIXL_WHEELS      4
#define NIXL_PATH        1024
#define NIXL_PLUGIN_FILE "libplugin_HAWSER.so"
/* What the backend goes on with at the user's risk, and the name that tells it from another file: the backend of each
 * release has the name in it. */
#define NIXL_ANY_VERSION "HAWSER_NIXL_ANY_VERSION"

/* A file that NIXL would load as the backend HAWSER. */
struct nixl_backend {
    struct nccl_child child;
    char path[NIXL_PATH];
    bool there, ours, loads, entry; /* it exists; is hawser's; dlopen() takes it; it has NIXL's entry point */
    char why[HW_ERR_TEXT];          /* of !loads */
};

/* An installed NIXL: the wheels nixl-cu12 and nixl-cu13. */
struct nixl_wheel {
    char name[32], version[48];
    char folder[NIXL_PATH]; /* site-packages */
    bool tried;             /* the backend was tried with this version */
    struct nixl_backend *backend;
};

struct nixl_look {
    char python[NIXL_PATH]; /* the Python that was asked; "": a folder was given */
    char where[NIXL_PATH];  /* the folder that was given */
    char why[HW_ERR_TEXT];  /* Python could not be asked; "": it was */
    struct nixl_wheel wheel[NIXL_WHEELS];
    size_t n;
    char plugin_dir[NIXL_PATH]; /* NIXL_PLUGIN_DIR; "": not set */
    char own[NIXL_PATH];        /* the backend that belongs to this program; "": not found */
    char package[NIXL_PATH]; /* the Python of the package that this program is part of, which has nixl-install; "": none
                              */
};

/* python: a program, NULL for that of the package which this program is part of, else of VIRTUAL_ENV, else python3.
 * folder: where NIXL is installed, in place of asking Python; NULL: none. -ENOMEM. Freed by nixl_look_free() either
 * way. */
int nixl_look(struct nixl_look *l, const char *python, const char *folder);
void nixl_look_free(struct nixl_look *l);
/* "1.0.0, 1.0.1": what the backend was tried with. */
const char *nixl_list_tried(char *buf, size_t cap);
/* The newest of them. */
const char *nixl_newest_tried(void);

#endif
