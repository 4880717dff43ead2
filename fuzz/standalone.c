/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target on files, or on all files of folders, with any compiler: the corpus as a regression test. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>

static int inputs, unread;

static void trouble(const char *path)
{
    printf("# %s: %s\n", path, strerror(errno));
    unread++;
}

static void run_file(const char *path, off_t want)
{
    size_t size = (size_t)want;
    uint8_t *data = malloc(size > 0 ? size : 1);
    FILE *f = fopen(path, "re");

    if (!data || !f || fread(data, 1, size, f) != size) {
        trouble(path);
    } else {
        /* Printed before the run, so that the path is the last line if the target crashes. */
        printf("# %s\n", path);
        fflush(stdout);
        LLVMFuzzerTestOneInput(data, size);
        inputs++;
    }
    if (f)
        fclose(f);
    free(data);
}

static void run(const char *path)
{
    char inner[4096];
    struct dirent *e;
    struct stat st;
    DIR *d;

    if (stat(path, &st) < 0) {
        trouble(path);
        return;
    }
    if (!S_ISDIR(st.st_mode)) {
        run_file(path, st.st_size);
        return;
    }
    d = opendir(path);
    if (!d) {
        trouble(path);
        return;
    }
    while ((e = readdir(d)))
        if (e->d_name[0] != '.' && snprintf(inner, sizeof(inner), "%s/%s", path, e->d_name) < (int)sizeof(inner))
            run(inner);
    closedir(d);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run(argv[i]);
    printf("%sok 1 - %d inputs run, %d unreadable\n1..1\n", inputs > 0 && unread == 0 ? "" : "not ", inputs, unread);
    return inputs > 0 && unread == 0 ? 0 : 1;
}
