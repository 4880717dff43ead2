/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the number of CPUs that a process may use, with control-group quotas in a root folder that the test creates and
 * with quotas of the running kernel. */
#include "net/cpus.h"
#include "net/sysfs.h"
#include "tests/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/hawser-cpus-XXXXXX";

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void put(const char *path, const char *text)
{
    char file[512];
    snprintf(file, sizeof file, "%s/%s", dir, path);
    for (char *slash = strchr(file + strlen(dir) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        (void)mkdir(file, 0755);
        *slash = '/';
    }
    FILE *f = fopen(file, "we");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0)
        die("a file of the test's");
}

static void start_over(const char *cgroup)
{
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s/*", dir);
    if (system(command))
        die("removing the test's files");
    put("proc/self/cgroup", cgroup);
}

static void gives(unsigned cpus, const char *what)
{
    int root = hw_root_open(dir);
    is_int(hw_cpu_quota(root), cpus, what);
    hw_close(&root);
}

static void check_roots(void)
{
    start_over("0::/\n");
    gives(0, "no file");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    gives(0, "no quota");
    put("sys/fs/cgroup/cpu.max", "400000 100000\n");
    gives(4, "a container's own root: four CPUs");
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    gives(1, "one and a half: one");
    put("sys/fs/cgroup/cpu.max", "20000 100000\n");
    gives(1, "a fifth: one");

    start_over("0::/pods/pod7/main\n");
    put("sys/fs/cgroup/pods/pod7/main/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/pods/pod7/cpu.max", "1600000 100000\n");
    put("sys/fs/cgroup/pods/cpu.max", "9600000 100000\n");
    gives(16, "of nested groups the smallest counts");
    put("sys/fs/cgroup/pods/pod7/main/cpu.max", "50000 10000\n");
    gives(5, "with another period");

    start_over("0::/kubepods.slice/x/y\n");
    put("sys/fs/cgroup/cpu.max", "800000 100000\n");
    gives(8, "a path of the host's, of which the container sees the end");

    start_over("9:name=systemd:/\n2:cpuacct,cpu:/jobs/3\n0::/\n");
    put("sys/fs/cgroup/cpu,cpuacct/jobs/3/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/jobs/3/cpu.cfs_period_us", "100000\n");
    gives(0, "version 1: no quota");
    put("sys/fs/cgroup/cpu,cpuacct/jobs/3/cpu.cfs_quota_us", "300000\n");
    gives(3, "version 1: three");
    start_over("1:cpuset:/\n2:cpuacct:/a\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
    put("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
    gives(0, "other controllers' groups do not count");

    start_over("nonsense\n0:\n::\n0::/a\n");
    put("sys/fs/cgroup/a/cpu.max", "12\n");
    gives(0, "files that are none");
    put("sys/fs/cgroup/a/cpu.max", "100000 0\n");
    gives(0, "a period of nothing");
    put("sys/fs/cgroup/a/cpu.max", "0 100000\n");
    gives(0, "a quota of nothing");
    put("sys/fs/cgroup/a/cpu.max", "18446744073709551615 1\n");
    gives(0, "a quota without end is none");
    put("sys/fs/cgroup/a/cpu.max", "99999999999999999999999 1\n");
    gives(0, "and one beyond that");
}

/* Returns the exit status for a child with a quota: 1 if the child has one CPU, the affinity of its parent, and a
 * control group. */
static int measure_child(uint64_t shared)
{
    struct hw_cpus c = hw_cpus_read(0);
    return c.n != 1 || c.quota != 1 ? 98 : c.shared != shared || !c.group ? 97 : 1;
}

/* Tests a quota that the kernel enforces, if this process can create a version 1 control group. */
static void check_kernel(void)
{
    static const char *const parents[] = {"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"};
    char group[128] = "", file[192], pid[32];
    for (size_t i = 0; i < HW_ARRAY_LEN(parents) && !*group; i++) {
        snprintf(group, sizeof group, "%s/hawser-test-%d", parents[i], (int)getpid());
        snprintf(file, sizeof file, "%s/cpu.cfs_quota_us", group);
        if (mkdir(group, 0755) || access(file, W_OK))
            *group = 0;
    }
    if (!*group) {
        tap_skip("a quota of the kernel's", "no control group of version 1 can be made here");
        return;
    }
    uint64_t shared = hw_cpus_read(0).shared;
    pid_t child = fork();
    if (child == 0) {
        FILE *f = fopen(file, "we");
        bool good = f && fputs("100000", f) >= 0 && fclose(f) == 0;
        snprintf(file, sizeof file, "%s/cgroup.procs", group);
        snprintf(pid, sizeof pid, "%d", (int)getpid());
        f = good ? fopen(file, "we") : NULL;
        good = f && fputs(pid, f) >= 0 && fclose(f) == 0;
        _exit(good ? measure_child(shared) : 99);
    }
    int status = 0;
    waitpid(child, &status, 0);
    is_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1, "a quota of the kernel's, of one CPU");
    (void)rmdir(group);
}

int main(void)
{
    if (!mkdtemp(dir))
        die("a folder");
    check_roots();
    struct hw_cpus c = hw_cpus_read(0), again = hw_cpus_read(getpid());
    ok(c.n >= 1 && (long)c.n <= sysconf(_SC_NPROCESSORS_ONLN), "this process has %u CPUs", c.n);
    ok(again.n == c.n && again.shared == c.shared && again.group == c.group, "its first thread has the same");
    check_kernel();
    start_over("");
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ok(system(command) == 0, "nothing is left");
    return tap_done();
}
