/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local sockets that other programs of the same user, and root's, find by name: folders for them, and functions that
 * make, reach and remove such sockets in folders where others may write too.
 *
 * A socket is called PID.NUMBER. Its mode is 0600 from the moment it has a name. A folder is accepted only if root or
 * the user owns it and nobody else can replace its entries. No function here follows a symbolic link in a folder.
 */
#ifndef HW_RUNDIR_H
#define HW_RUNDIR_H

#include "base/base.h"

#include <sys/types.h>

#define HW_RUNDIR_SYSTEM  "/run/hawser-metrics" /* not below /run/hawser, which systemd gives to hawserd's user */
#define HW_RUNDIR_PATH    256
#define HW_RUNDIR_NAME    32
#define HW_RUNDIR_ENTRIES 1024 /* most entries of a folder that are read */

/* Writes the i-th folder to try: only knob if that is not empty, else the system's, the one of the user's session, then
 * one in /tmp. Returns false if there is no i-th. */
bool hw_rundir_path(unsigned i, const char *knob, char path[HW_RUNDIR_PATH]);
/* Opens a folder; with make creates it first (mode 0700). also: a third user who may own it, besides root and this one;
 * geteuid(): none. Returns a descriptor; -EPERM if others could replace its entries, -EINVAL if the path is not
 * absolute, or another -errno. */
int hw_rundir_open(const char *path, bool make, uid_t also);
/* Makes a listening socket in the folder dir and writes its name. Returns the descriptor, or -errno. */
int hw_rundir_listen(int dir, int backlog, char name[HW_RUNDIR_NAME]);
/* Connects without waiting to the socket of that name. *owner must own and have opened it, unless the caller has uid 0
 * (then any user). *pid (may be NULL) receives the process that opened it, 0 if that is in another PID namespace;
 * *owner receives its user. Returns a nonblocking descriptor; -ECONNREFUSED: the process is gone; -EPERM; another
 * -errno. */
int hw_rundir_connect(int dir, const char *name, uid_t *owner, pid_t *pid);
/* Calls fn for each socket name in the folder, at most HW_RUNDIR_ENTRIES. pid, number: the parts of the name. */
void hw_rundir_each(int dir, void (*fn)(void *arg, const char *name, pid_t pid, unsigned number), void *arg);
/* Removes the socket of that name if its inode is still ino. */
void hw_rundir_remove(int dir, const char *name, ino_t ino);
/* Removes the socket of that name if no process listens on it any more and this user may remove it. */
void hw_rundir_remove_stale(int dir, const char *name);
/* Removes the sockets of all processes that are gone. */
void hw_rundir_sweep(int dir);

#endif
