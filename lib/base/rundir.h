/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local sockets that other programs of the same user, and of root, find by name: folders for such sockets, and
 * functions that create, open and remove sockets in folders that other users may also write to.
 *
 * The name of a socket is PID.NUMBER. The socket has mode 0600 as soon as its name exists. A folder is accepted only if
 * root, this user or a user that the caller names owns the folder, and no other user can replace its entries. The
 * functions never follow a symbolic link in a folder.
 */
#ifndef HW_RUNDIR_H
#define HW_RUNDIR_H

#include "base/base.h"

#include <sys/types.h>

/* Not below /run/hawser, which systemd assigns to hawserd's user. */
#define HW_RUNDIR_SYSTEM  "/run/hawser-metrics"
#define HW_RUNDIR_PATH    256
#define HW_RUNDIR_NAME    32
#define HW_RUNDIR_ENTRIES 1024 /* maximum number of entries of a folder that are read */

/* Writes the path of the i-th folder to try. If knob is not empty, it is the only folder. Otherwise the folders are the
 * system's, the folder of the user's session, and a folder in /tmp. The path is empty if the user has no session folder
 * or if the path would be too long. Returns false if there is no i-th folder. */
bool hw_rundir_path(unsigned i, const char *knob, char path[HW_RUNDIR_PATH]);
/* Opens a folder. If `make` is true, first creates the folder with mode 0700. `also` is a third user who may own the
 * folder, in addition to root and the calling user, or geteuid() for none. Returns a descriptor. Fails with -EPERM if
 * another user owns the folder or could replace its entries, with -EINVAL if the path is not absolute, or with another
 * negative errno. */
int hw_rundir_open(const char *path, bool make, uid_t also);
/* Creates a listening socket in the folder dir and writes its name. Returns the descriptor or a negative errno. */
int hw_rundir_listen(int dir, int backlog, char name[HW_RUNDIR_NAME]);
/* Connects to the socket with this name, without waiting. The socket's owner must be the user who opened it and, unless
 * the caller is root, the calling user. *owner receives the socket's owner. If pid is not NULL, *pid receives the
 * process that opened the socket, or 0 if the process is not visible in the caller's PID namespace. Returns a
 * nonblocking descriptor. Fails with -ECONNREFUSED if no process listens on the socket, with -EPERM for another user's
 * socket or a file that is not a socket, or with another negative errno. */
int hw_rundir_connect(int dir, const char *name, uid_t *owner, pid_t *pid);
/* Calls fn for each name of the form PID.NUMBER among the first HW_RUNDIR_ENTRIES entries of the folder. pid and number
 * are the parts of the name. */
void hw_rundir_each(int dir, void (*fn)(void *arg, const char *name, pid_t pid, unsigned number), void *arg);
/* Removes the socket with this name if its inode is still ino. */
void hw_rundir_remove(int dir, const char *name, ino_t ino);
/* Removes the socket with this name if no process listens on it, this user may remove it, and it is at least 10 s
 * old. */
void hw_rundir_remove_stale(int dir, const char *name);
/* Calls hw_rundir_remove_stale() for the sockets of processes that seem to have exited. */
void hw_rundir_sweep(int dir);

#endif
