/* SPDX-License-Identifier: Apache-2.0 */
/* What a process holds, counted below /proc. */
#ifndef HW_TESTS_PROC_H
#define HW_TESTS_PROC_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>

/* Entries of a folder but "." and ".."; -1: it cannot be read. Of /proc/self/fd the one that reads it is among them. */
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

/* Mappings of the caller's whose file's name has text in it. */
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

#endif
