/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile tenant with a uverbs device, part of tests/vm/verbs/test_verbs_tenant.sh. verbs_attack makes hostile
 * requests; this program uses the other means of a container: user IDs, resources that the kernel counts per user,
 * dropped privileges, the /proc files of threads, and the broker's processes. Each mode exits with 0 if it gained no
 * forbidden access.
 */
#include "verbs_raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SIZE  (1u << 20)
#define FILES 4000 /* number of files to watch */

static uint8_t *area;
static int dev = -1;
static uint32_t pd;

static void setup(void)
{
    area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(area != MAP_FAILED, "memory");
    dev = open_context();
    pd = alloc_pd(dev);
}

/* Signals the test that this point is reached, and waits until the test creates the file `on`. */
static void meet(const char *here, const char *on)
{
    close(open(here, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    while (access(on, F_OK) != 0)
        usleep(50000);
}

/* ---- resources that the kernel counts per user */

/* Allocates all inotify instances and all watches that the user's limits allow. */
static void take_inotify(void)
{
    static int fd[65536];
    struct rlimit l;
    unsigned instances = 0, watches = 0;
    char name[64];
    CHECK(getrlimit(RLIMIT_NOFILE, &l) == 0, "limits");
    l.rlim_cur = l.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &l) == 0 && l.rlim_cur > 4096, "descriptors");
    while (instances < 65536 && (fd[instances] = inotify_init1(IN_CLOEXEC)) >= 0)
        instances++;
    CHECK(errno == EMFILE && instances < l.rlim_cur - 64, "%u instances", instances);
    mkdir("/tmp/watched", 0777);
    for (unsigned k = 0; k < FILES; k++) {
        snprintf(name, sizeof(name), "/tmp/watched/%u", k);
        close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    }
    errno = 0;
    for (unsigned i = 0; i < instances && errno != ENOSPC; i++)
        for (unsigned k = 0; k < FILES && errno != ENOSPC; k++) {
            snprintf(name, sizeof(name), "/tmp/watched/%u", k);
            watches += inotify_add_watch(fd[i], name, IN_OPEN) >= 0;
        }
    printf("%u instances, %u watches\n", instances, watches);
    CHECK(errno == ENOSPC, "watches without end");
    meet("/tmp/taken", "/tmp/give");
}

/* ---- privileges that a program drops */

static int dropped(void)
{
    const struct rlimit limit = {65536, 65536};
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {0};
    uint32_t mr;
    CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "a limit");
    CHECK(reg_mr(dev, pd, area, SIZE / 2, &mr) == 0 && dereg_mr(dev, mr) == 0, "512 KiB of 64 with CAP_IPC_LOCK");
    CHECK(setgroups(0, NULL) == 0 && setresgid(1000, 1000, 1000) == 0 && setresuid(1000, 1000, 1000) == 0, "its user");
    CHECK(syscall(SYS_capset, &h, d) == 0, "capabilities");
    const int rc = reg_mr(dev, pd, area, SIZE / 2, &mr);
    printf("512 KiB of 64 without: %s\n", strerror(-rc));
    CHECK(reg_mr(dev, pd, area, 4096, &mr) == 0 && dereg_mr(dev, mr) == 0, "what it may");
    return rc != -ENOMEM;
}

/* ---- the stub's memory and files in /proc */

static int write_window(int mem)
{
    static const char evil[8] = {'\xcc', '\xcc', '\xcc', '\xcc', '\xcc', '\xcc', '\xcc', '\xcc'};
    char line[512], perm[8];
    unsigned long from, to;
    int bad = 0, seen = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof(line), f)) {
        if (!strstr(line, "memfd:hawser-verbs (") || sscanf(line, "%lx-%lx %7s", &from, &to, perm) != 3)
            continue;
        seen++;
        for (unsigned long a = from; a < to; a += 4096)
            bad += pwrite(mem, evil, sizeof(evil), (off_t)a) > 0;
    }
    CHECK(f && seen, "no window");
    fclose(f);
    return bad;
}

static int write_file(const char *path)
{
    static const int how[] = {O_RDWR, O_WRONLY};
    int bad = 0;
    for (int i = 0; i < 2; i++) {
        const int fd = open(path, how[i] | O_CLOEXEC);
        if (fd < 0)
            continue;
        bad += pwrite(fd, "x", 1, 64) > 0;
        bad += ftruncate(fd, 4096) == 0;
        bad += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
        bad += mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
        close(fd);
    }
    return bad;
}

static int files(void)
{
    uint32_t mr;
    char path[320], to[256];
    int bad = 0, seen = 0;
    CHECK(reg_mr(dev, pd, area, 4096, &mr) == 0, "REG_MR");
    static const int how[] = {O_RDWR, O_WRONLY};
    for (int i = 0; i < 2; i++) {
        const int mem = open("/proc/self/mem", how[i] | O_CLOEXEC);
        CHECK(mem >= 0, "/proc/self/mem");
        bad += write_window(mem);
        close(mem);
    }
    printf("by /proc/self/mem: %d\n", bad);
    DIR *d = opendir("/proc/self/task");
    for (struct dirent *e; d && (e = readdir(d));)
        for (int k = 90; *e->d_name != '.' && k < 110; k++) { /* VB_STUB_FILE, VB_STUB_FD and later descriptors */
            snprintf(path, sizeof(path), "/proc/self/task/%.20s/fd/%d", e->d_name, k);
            const ssize_t n = readlink(path, to, sizeof(to) - 1);
            to[n > 0 ? n : 0] = 0;
            if (!strstr(to, "memfd:hawser-verbs"))
                continue;
            seen++;
            bad += write_file(path);
        }
    closedir(d);
    CHECK(seen, "the stub has no file");
    CHECK(dereg_mr(dev, mr) == 0 && reg_mr(dev, pd, area, 4096, &mr) == 0, "it goes on");
    printf("and by its files: %d\n", bad);
    return bad;
}

/* ---- the broker's processes */

static unsigned find_brokers(pid_t out[8])
{
    unsigned n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && n < 8 && (e = readdir(d));) {
        char path[300], comm[32] = "";
        snprintf(path, sizeof(path), "/proc/%.20s/comm", e->d_name);
        FILE *f = *e->d_name >= '1' && *e->d_name <= '9' ? fopen(path, "re") : NULL;
        if (f && fgets(comm, sizeof(comm), f) && strncmp(comm, "hawser-", 7) == 0)
            out[n++] = (pid_t)strtol(e->d_name, NULL, 10);
        if (f)
            fclose(f);
    }
    closedir(d);
    return n;
}

/* Changes to the brokers' user, as a container with CAP_SETUID can, and tries to open the brokers' files. */
static int as_them(void)
{
    static const char *const file[] = {"mem",     "maps",  "environ", "syscall", "fd", "map_files",
                                       "pagemap", "root/", "cwd/",    "ns/mnt",  "exe"};
    pid_t pid[8];
    int bad = 0, status;
    const unsigned n = find_brokers(pid);
    CHECK(n == 2, "%u processes of a broker", n);
    for (unsigned i = 0; i < n; i++) {
        char path[64];
        struct stat st;
        snprintf(path, sizeof(path), "/proc/%d/task", pid[i]);
        CHECK(stat(path, &st) == 0, "%s", path);
        snprintf(path, sizeof(path), "/proc/%d/status", pid[i]);
        char line[256];
        unsigned uid = 0;
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f) && sscanf(line, "Uid: %u", &uid) != 1)
            ;
        CHECK(f && uid >= 0x70000000, "user %u", uid);
        fclose(f);
        const pid_t child = fork();
        if (child == 0) {
            int got = 0;
            CHECK(setgroups(0, NULL) == 0 && setresgid(uid, uid, uid) == 0 && setresuid(uid, uid, uid) == 0,
                  "its user");
            for (size_t k = 0; k < sizeof(file) / sizeof(file[0]); k++)
                for (int w = 0; w < 2; w++) {
                    snprintf(path, sizeof(path), "/proc/%d/%s", pid[i], file[k]);
                    const int fd = open(path, w ? O_RDWR : O_RDONLY);
                    if (fd >= 0)
                        printf("%s: opened\n", path);
                    got += fd >= 0;
                }
            _exit(got);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "its end");
        bad += WEXITSTATUS(status);
    }
    return bad;
}

static void stop_them(void)
{
    pid_t pid[8];
    const unsigned n = find_brokers(pid);
    for (unsigned i = 0; i < n; i++)
        CHECK(kill(pid[i], SIGSTOP) == 0, "stopping %d", pid[i]);
    printf("%u processes are stopped\n", n);
    meet("/tmp/taken", "/tmp/give");
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    int rc = 0;
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(mode, "inotify") == 0) {
        take_inotify();
        return 0;
    }
    setup();
    if (strcmp(mode, "dropped") == 0)
        rc = dropped();
    else if (strcmp(mode, "files") == 0)
        rc = files();
    else if (strcmp(mode, "asthem") == 0)
        rc = as_them();
    else if (strcmp(mode, "stop") == 0)
        stop_them();
    else if (strcmp(mode, "opens") == 0) { /* this program is already running when others start */
        meet("/tmp/open", "/tmp/go");
        for (int i = 0; i < 20; i++)
            close(open_context());
    } else
        CHECK(strcmp(mode, "open") == 0, "no such mode: %s", mode);
    printf("%s: %s\n", mode, rc ? "NOT HELD" : "held");
    return rc != 0;
}
