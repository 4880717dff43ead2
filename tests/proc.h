/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that inspect processes through /proc, and one that writes to another process's memory. */
#ifndef HW_TESTS_PROC_H
#define HW_TESTS_PROC_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Returns the number of entries in a folder, excluding "." and "..", or -1 if the folder cannot be read. For
 * /proc/self/fd, the number includes the file descriptor that this function uses to read the folder. */
__attribute__((unused)) static int proc_entries(const char *folder)
{
    DIR *d = opendir(folder);
    if (!d)
        return -1;
    int n = -2;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* Returns the number of lines of /proc/self/maps that contain `text`. */
__attribute__((unused)) static int proc_maps(const char *text)
{
    FILE *f = fopen("/proc/self/maps", "re");
    char line[512];
    int n = 0;
    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return n;
}

/* Returns the number of children of the main thread of process pid, including zombies. */
__attribute__((unused)) static int proc_children(int pid)
{
    char path[64];
    int n = 0, child;
    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    FILE *f = fopen(path, "re");
    while (f && fscanf(f, "%d", &child) == 1)
        n++;
    if (f)
        fclose(f);
    return n;
}

/* Waits for at most about a second until none of the process's other threads is running. */
__attribute__((unused)) static void proc_wait_idle(void)
{
    for (int round = 0, idle = 0; round < 500 && idle < 2; round++, usleep(2000)) {
        DIR *d = opendir("/proc/self/task");
        int running = -1; /* excludes the calling thread */
        for (struct dirent *e; d && (e = readdir(d));) {
            char path[300], state = 0;
            snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
            FILE *f = e->d_name[0] == '.' ? NULL : fopen(path, "re");
            if (f && fscanf(f, "%*d (%*[^)]) %c", &state) == 1)
                running += state == 'R';
            if (f)
                fclose(f);
        }
        if (d)
            closedir(d);
        idle = running > 0 ? 0 : idle + 1;
    }
}

/* Writes n bytes to address `at` in another process. Returns the number of bytes written, or -1. */
__attribute__((unused)) static ssize_t proc_write(int pid, uint64_t at, const void *src, size_t n)
{
    struct iovec mine = {(void *)(uintptr_t)src, n}, theirs = {(void *)(uintptr_t)at, n};
    return process_vm_writev(pid, &mine, 1, &theirs, 1, 0);
}

#endif
