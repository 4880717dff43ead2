/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local sockets that other programs of the same user, and root's, find by name: folders for them, and how to make,
 * reach and remove such sockets where others may write beside them.
 *
 * A socket is called PID.NUMBER. Its mode is 0600 from the moment it has a name. A folder counts only if root or the
 * user owns it and nobody else can replace what is in it. Nothing here follows a symbolic link in a folder.
 */
#ifndef HW_RUNDIR_H
#define HW_RUNDIR_H

#include "base/base.h"

#include <sys/types.h>

#define HW_RUNDIR_SYSTEM  "/run/hawser-metrics" /* not below /run/hawser, which systemd gives to hawserd's user */
#define HW_RUNDIR_PATH    256
#define HW_RUNDIR_NAME    32
#define HW_RUNDIR_ENTRIES 1024 /* of a folder that are looked at */

/* Writes the i-th folder to try: knob alone where that is not empty, else the system's, that of the user's session, one
 * in /tmp. False: there is no i-th. */
bool hw_rundir_path(unsigned i, const char *knob, char path[HW_RUNDIR_PATH]);
/* Opens a folder, which is made first (mode 0700) where make says so. also: a third user, besides root and this one,
 * who may own it; geteuid(): none. Returns a descriptor; -EPERM where others could replace what is in it, -EINVAL for a
 * path that is not absolute, -errno. */
int hw_rundir_open(const char *path, bool make, uid_t also);
/* Makes a listening socket in the folder dir and writes its name. Returns the descriptor, or -errno. */
int hw_rundir_listen(int dir, int backlog, char name[HW_RUNDIR_NAME]);
/* Connects, without waiting, to the socket of that name, which `owner` must own and have opened; with uid 0 of the
 * caller: any user. *pid (may be NULL): the process that opened it, 0 where it is in another PID namespace; *owner gets
 * its user. Returns a descriptor that does not block; -ECONNREFUSED: its process is gone; -EPERM, -errno. */
int hw_rundir_connect(int dir, const char *name, uid_t *owner, pid_t *pid);
/* Calls fn for each name in the folder that is a socket's, up to HW_RUNDIR_ENTRIES. pid, number: its parts. */
void hw_rundir_each(int dir, void (*fn)(void *arg, const char *name, pid_t pid, unsigned number), void *arg);
/* Removes the socket of that name, if it still is inode ino. */
void hw_rundir_remove(int dir, const char *name, ino_t ino);
/* Removes the socket of that name if nobody listens there any more and this user may. */
void hw_rundir_remove_stale(int dir, const char *name);
/* Does that for all sockets of processes that are gone. */
void hw_rundir_sweep(int dir);

#endif
