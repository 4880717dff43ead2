/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the NIXL of a Python interpreter, and the file that this NIXL would load as the HAWSER backend. Python and the
 * backend run in child processes. */
#ifndef HW_TOOL_NIXL_LOOK_H
#define HW_TOOL_NIXL_LOOK_H

#include "tool/nccl/nccl_look.h"

#define NIXL_WHEELS      4
#define NIXL_PATH        1024
#define NIXL_PLUGIN_FILE "libplugin_HAWSER.so"
/* Environment variable that makes the backend accept untested versions, at the user's risk. Its name also identifies
 * hawser's backends, because the backend of each release contains the name. */
#define NIXL_ANY_VERSION "HAWSER_NIXL_ANY_VERSION"

/* A file that NIXL would load as the HAWSER backend. */
struct nixl_backend {
    struct nccl_child child;
    char path[NIXL_PATH];
    /* the file exists; the backend is hawser's; dlopen() succeeds; NIXL's entry point exists */
    bool there, ours, loads, entry;
    char why[HW_ERR_TEXT]; /* reason for !loads */
};

/* An installed NIXL, from a wheel such as nixl-cu12 or nixl-cu13. */
struct nixl_wheel {
    char name[32], version[48];
    char folder[NIXL_PATH]; /* the site-packages folder */
    bool tried;             /* the backend was tested with this version */
    struct nixl_backend *backend;
};

struct nixl_look {
    char python[NIXL_PATH]; /* the Python that was queried, or "" if a folder was given */
    char where[NIXL_PATH];  /* the given folder, or "" */
    char why[HW_ERR_TEXT];  /* why Python could not be queried or a folder could not be read, or "" */
    struct nixl_wheel wheel[NIXL_WHEELS];
    size_t n;
    char plugin_dir[NIXL_PATH]; /* NIXL_PLUGIN_DIR, or "" if not set */
    char own[NIXL_PATH];        /* backend that belongs to this program, or "" if not found */
    char package[NIXL_PATH];    /* Python of this program's package, which has nixl-install, or "" */
};

/* Examines a NIXL. python is a program; NULL means the Python of this program's package, else that of VIRTUAL_ENV, else
 * python3. folder is where NIXL is installed, or NULL to query Python. Fails with -ENOMEM or -ENAMETOOLONG. The caller
 * calls nixl_look_free() in any case. */
int nixl_look(struct nixl_look *l, const char *python, const char *folder);
void nixl_look_free(struct nixl_look *l);
/* Writes the versions with which the backend was tested, such as "1.0.0, 1.0.1", to buf. Returns buf. */
const char *nixl_list_tried(char *buf, size_t cap);
/* Returns the newest version with which the backend was tested. */
const char *nixl_newest_tried(void);

#endif
