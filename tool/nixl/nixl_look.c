/* SPDX-License-Identifier: Apache-2.0 */
#include "tool/nixl/nixl_look.h"

#include "nixl/tried.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PYTHON_MS 30000
#define LOAD_MS   10000

static const char *const tried[] = {HX_TRIED_VERSIONS};

/* A Python program that prints each folder of sys.path that contains a NIXL. MARK identifies its lines, because
 * Python's startup files may print other lines. */
#define MARK "hawser-nixl:"
static const char search[] = "import os, sys\n"
                             "for p in dict.fromkeys(map(os.path.abspath, sys.path)):\n"
                             "    if os.path.isdir(p) and any(n.startswith('.nixl_cu') for n in os.listdir(p)):\n"
                             "        print('" MARK "' + p)\n";

const char *nixl_list_tried(char *buf, size_t cap)
{
    buf[0] = 0;
    for (size_t i = 0; i < HW_ARRAY_LEN(tried); i++) {
        size_t at = strlen(buf);
        snprintf(buf + at, cap - at, "%s%s", i ? ", " : "", tried[i]);
    }
    return buf;
}

const char *nixl_newest_tried(void)
{
    return tried[HW_ARRAY_LEN(tried) - 1];
}

static bool is_tried(const char *version)
{
    for (size_t i = 0; i < HW_ARRAY_LEN(tried); i++)
        if (strcmp(tried[i], version) == 0)
            return true;
    return false;
}

/* Joins folder and name into a path. Returns true if the path fits. */
static bool join_path(char out[NIXL_PATH], const char *folder, const char *name)
{
    return (size_t)snprintf(out, NIXL_PATH, "%s/%s", folder, name) < NIXL_PATH;
}

/* ---- in a child ------------------------------------------------------------------------------- */

struct asked {
    struct nccl_child child;
    const char *python;
    int status; /* status of waitpid() */
};

static void ask_python(void *shared)
{
    struct asked *a = shared;
    pid_t pid = fork();
    if (pid == 0) {
        execlp(a->python, a->python, "-c", search, (char *)NULL);
        fprintf(stderr, "%s\n", strerror(errno));
        fflush(stderr);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &a->status, 0) != pid)
        a->status = -1;
}

static void load_backend(void *shared)
{
    struct nixl_backend *b = shared;
    void *lib = dlopen(b->path, RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        snprintf(b->why, sizeof b->why, "%s", dlerror());
    else
        b->entry = dlsym(lib, "nixl_plugin_init") != NULL;
    b->loads = lib != NULL;
}

/* ---- outside ---------------------------------------------------------------------------------- */

/* Returns true if the file contains NIXL_ANY_VERSION, as hawser's backends do. */
static bool is_our_backend(const char *path)
{
    struct stat st;
    bool ours = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p != MAP_FAILED) {
            ours = memmem(p, (size_t)st.st_size, NIXL_ANY_VERSION, strlen(NIXL_ANY_VERSION)) != NULL;
            munmap(p, (size_t)st.st_size);
        }
    }
    hw_close(&fd);
    return ours;
}

static int examine_backend(struct nixl_wheel *w, const char *plugin_dir)
{
    char folder[NIXL_PATH], name[64];
    struct nixl_backend *b = w->backend = nccl_shared(sizeof *b);
    if (!b)
        return hw_no_memory("the results for a backend");
    snprintf(name, sizeof name, ".%s.mesonpy.libs/plugins", w->name);
    name[strcspn(name, "-")] = '_';
    if (!join_path(folder, w->folder, name) || !join_path(b->path, *plugin_dir ? plugin_dir : folder, NIXL_PLUGIN_FILE))
        return hw_fail(-ENAMETOOLONG, "%.200s: the name is too long", w->folder);
    b->there = access(b->path, F_OK) == 0;
    b->ours = b->there && is_our_backend(b->path);
    if (b->there)
        nccl_run(&b->child, load_backend, b, LOAD_MS);
    return 0;
}

/* Adds a wheel if entry, a name in `folder` such as "nixl_cu12-1.5.1.dist-info", belongs to NIXL and no wheel of this
 * name was found before. */
static void add_nixl_wheel(struct nixl_look *l, const char *folder, const char *entry)
{
    static const char tail[] = ".dist-info";
    struct nixl_wheel *w = &l->wheel[l->n];
    const char *dash = strchr(entry, '-'), *end = dash ? strstr(dash, tail) : NULL;
    if (l->n == NIXL_WHEELS || strncmp(entry, "nixl_cu", 7) != 0 || !end || end[sizeof tail - 1] ||
        (size_t)(dash - entry) >= sizeof w->name || (size_t)(end - dash) > sizeof w->version ||
        strlen(folder) >= sizeof w->folder)
        return;
    *w = (struct nixl_wheel){0};
    snprintf(w->name, sizeof w->name, "nixl-%.*s", (int)(dash - entry - 5), entry + 5);
    snprintf(w->version, sizeof w->version, "%.*s", (int)(end - dash - 1), dash + 1);
    snprintf(w->folder, sizeof w->folder, "%s", folder);
    w->tried = is_tried(w->version);
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->wheel[i].name, w->name) == 0)
            return; /* Python uses the first one on its path */
    l->n++;
}

static void search_folder(struct nixl_look *l, const char *folder)
{
    DIR *d = opendir(folder);
    if (!d && !*l->why)
        snprintf(l->why, sizeof l->why, "%.200s: %s", folder, strerror(errno));
    for (struct dirent *e; d && (e = readdir(d));)
        add_nixl_wheel(l, folder, e->d_name);
    if (d)
        closedir(d);
}

static int search_python(struct nixl_look *l)
{
    struct asked *a = nccl_shared(sizeof *a);
    if (!a)
        return hw_no_memory("Python's output");
    a->python = l->python;
    nccl_run(&a->child, ask_python, a, PYTHON_MS);
    char *text = a->child.tail;
    if (a->child.rc < 0)
        snprintf(l->why, sizeof l->why, "%.120s %.120s", l->python, a->child.how);
    else if (a->status != 0)
        snprintf(l->why, sizeof l->why, "%.120s failed: %.120s", l->python, text);
    else
        for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
            if (strncmp(line, MARK, strlen(MARK)) == 0)
                search_folder(l, line + strlen(MARK));
    l->why[strcspn(l->why, "\n")] = 0;
    nccl_unshare(a, sizeof *a);
    return 0;
}

/* Finds the backend that was built or installed with this program. If this program is part of the Python package, also
 * finds the Python in which the package is installed. */
static void find_own_backend(struct nixl_look *l)
{
    static const char *const near[] = {"nixl", "../lib/nixl", "../lib/x86_64-linux-gnu/nixl",
                                       "../lib/aarch64-linux-gnu/nixl", "../lib64/nixl"};
    char exe[NIXL_PATH], file[NIXL_PATH + 64], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    char *slash = strrchr(exe, '/');
    if (slash)
        *slash = 0;
    for (size_t i = 0; i <= HW_ARRAY_LEN(near) && !*l->own; i++) {
        if (i < HW_ARRAY_LEN(near))
            snprintf(file, sizeof file, "%s/%s/" NIXL_PLUGIN_FILE, exe, near[i]);
        else
            snprintf(file, sizeof file, "%s", HW_LIBDIR "/nixl/" NIXL_PLUGIN_FILE);
        if (realpath(file, real) && strlen(real) < sizeof l->own)
            snprintf(l->own, sizeof l->own, "%s", real);
    }
    /* such as .../lib/python3.11/site-packages/hawser/native */
    snprintf(file, sizeof file, "%s/../__init__.py", exe);
    if (access(file, F_OK) != 0)
        return;
    snprintf(file, sizeof file, "%s/../../../../../bin", exe);
    if (!realpath(file, real) || !join_path(l->package, real, "python3") || access(l->package, X_OK) != 0)
        snprintf(l->package, sizeof l->package, "python3");
}

static void choose_python(struct nixl_look *l, const char *python)
{
    const char *venv = getenv("VIRTUAL_ENV");
    if (python)
        snprintf(l->python, sizeof l->python, "%s", python);
    else if (strchr(l->package, '/'))
        snprintf(l->python, sizeof l->python, "%s", l->package);
    else if (!venv || !*venv || !join_path(l->python, venv, "bin/python3") || access(l->python, X_OK) != 0)
        snprintf(l->python, sizeof l->python, "python3");
}

int nixl_look(struct nixl_look *l, const char *python, const char *folder)
{
    const char *plugin_dir = getenv("NIXL_PLUGIN_DIR");
    int rc = 0;
    *l = (struct nixl_look){0};
    find_own_backend(l);
    snprintf(l->plugin_dir, sizeof l->plugin_dir, "%s", plugin_dir ? plugin_dir : "");
    if (folder) {
        snprintf(l->where, sizeof l->where, "%s", folder);
        search_folder(l, folder);
    } else {
        choose_python(l, python);
        rc = search_python(l);
    }
    for (size_t i = 0; i < l->n && rc == 0; i++)
        rc = examine_backend(&l->wheel[i], l->plugin_dir);
    return rc;
}

void nixl_look_free(struct nixl_look *l)
{
    for (size_t i = 0; i < l->n; i++)
        nccl_unshare(l->wheel[i].backend, sizeof *l->wheel[i].backend);
    *l = (struct nixl_look){0};
}
