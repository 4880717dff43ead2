/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests requests that the stub runs, with real programs and stubs. The RDMA kernel is simulated (verbs_fake_stub.c),
 * and takes memory and file descriptors from the stub itself (verbs_fake_mlx5.c). An address is valid if it is mapped
 * in the stub's mm. A file descriptor is valid if it is in the stub's own table.
 */
#include "tests/fakes/verbs/verbs_fake.h"
#include "tests/tap.h"
#include "verbs/stub/inject.h"
#include "verbs_queues.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MIB (1u << 20)

#define ALL "[default]\ndevices = *\nmr_bytes = 1M\nallow = raw xrc dmabuf\n"

static uint64_t memory[MIB / 8] __attribute__((aligned(4096)));

/* Stores the address of page n at the start of the page, where the simulated kernel expects the address when it pins
 * the page. Returns the address. */
static uint64_t page(unsigned n)
{
    uint64_t *p = memory + (size_t)n * 512;
    *p = (uintptr_t)p;
    return *p;
}

/* Creates a queue of each kind, with a channel if the kind accepts one. Then makes invalid requests, and checks that
 * destroyed objects no longer exist. */
static int one_of_each(void *arg)
{
    (void)arg;
    int fd = app_open(0), channel, foreign = eventfd(5, EFD_CLOEXEC);
    must(fd >= 0 && foreign >= 0 && (channel = app_channel(fd)) >= 0);
    for (const struct app_queue *q = app_queues; q < app_queues + APP_QUEUES; q++) {
        union app_uhw u = app_uhw_at(page(1), page(2)), bad = app_uhw_at(page(1), page(2) + 8);
        uint32_t number = 0, token[2] = {0};
        diag("%s", q->name);
        must(q->make(fd, -1, &u, &number, token) == 0);
        must(token[0] == number + FAKE_TOKEN && token[1] == 0);
        must(q->object != UVERBS_OBJECT_CQ || app_queue_resize(fd, number, page(3)) == 0);
        must(q->object != UVERBS_OBJECT_CQ || app_queue_resize(fd, number, page(3) + 8) == -EFAULT);
        must(q->object == UVERBS_OBJECT_CQ || app_queue_resize(fd, number, page(3)) == -ENOENT);
        must(app_queue_destroy(fd, q->object, number) == 0);
        must(app_queue_destroy(fd, q->object, number) == -ENOENT);
        must(q->make(fd, -1, &bad, &number, token) == -EFAULT); /* the kernel's error: not pinned */
        if (!q->channel)
            continue;
        must(q->make(fd, channel, &u, &number, token) == 0);
        must(app_queue_destroy(fd, q->object, number) == 0);
        must(q->make(fd, foreign, &u, &number, token) == -EBADF); /* the kernel's error: not a channel */
        must(q->make(fd, fd, &u, &number, token) == -EBADF);
        must(q->make(fd, 959, &u, &number, token) == -EBADF);        /* no such descriptor */
        must(q->make(fd, VB_STUB_FD, &u, &number, token) == -EBADF); /* only in the stub's table */
        must(q->make(fd, VB_STUB_FD + 1, &u, &number, token) == -EBADF);
        must(q->make(fd, -2, &u, &number, token) == -EBADF);
    }
    app_step(1);
    return 0;
}

/* Returns the first line of a file that begins with `key`, or "". */
static const char *line_of(const char *path, const char *key, char *line, int cap)
{
    FILE *f = fopen(path, "re");
    bool found = false;
    while (f && !found && fgets(line, cap, f))
        found = strncmp(line, key, strlen(key)) == 0;
    if (f)
        fclose(f);
    return found ? line : "";
}

/* Returns true if a file descriptor of the stub is harmless. The broker replaces the stub's file descriptors with a
 * pidfd of the stub's own process and an unused eventfd with count 0. The window's file is read-only. */
static bool harmless(const char *task, const char *fd, const char *link)
{
    const char key[] = "eventfd-count:", flags[] = "flags:";
    char path[400], line[128];
    if (strstr(link, "pidfd"))
        return true;
    snprintf(path, sizeof path, "%s/fdinfo/%.20s", task, fd);
    if (strstr(link, "memfd:hawser-verbs ") && strcmp(fd, "99") == 0) {
        const char *how = line_of(path, flags, line, sizeof line);
        return *how && (strtoull(how + strlen(flags), NULL, 8) & O_ACCMODE) == O_RDONLY;
    }
    const char *count = line_of(path, key, line, sizeof line);
    return *count && strtoull(count + strlen(key), NULL, 16) == 0;
}

/* Returns the number of the stub's file descriptors that are not harmless, or -1 if there is no stub. Stores the total
 * number of the stub's file descriptors in *n. */
static int useful_now(const struct world *w, unsigned *n)
{
    char path[300], task[340], line[128];
    int found = -1;
    *n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)w->app);
    DIR *d = opendir(path), *fds;
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(task, sizeof task, "/proc/%d/task/%.20s", (int)w->app, e->d_name);
        snprintf(path, sizeof path, "%.280s/comm", task);
        if (strcmp(line_of(path, "", line, sizeof line), "hawser-verbs\n") != 0)
            continue;
        snprintf(path, sizeof path, "%.280s/fd", task);
        fds = opendir(path);
        found = fds ? 0 : -1;
        for (struct dirent *g; fds && (g = readdir(fds));) {
            char link[256] = "";
            if (g->d_name[0] == '.')
                continue;
            (*n)++;
            if (readlinkat(dirfd(fds), g->d_name, link, sizeof link - 1) >= 0 && harmless(task, g->d_name, link))
                continue;
            found++;
        }
        if (fds)
            closedir(fds);
    }
    if (d)
        closedir(d);
    return found;
}

/* Like useful_now(), but waits up to 30 s until the broker has closed the device. The broker closes the device only
 * when it wakes up for another reason. */
static int useful(const struct world *w, unsigned *n)
{
    int found = useful_now(w, n);
    for (int ms = 0; found > 0 && ms < 30000; ms += 10) {
        usleep(10000);
        world_status(w, "stubs");
        found = useful_now(w, n);
    }
    return found;
}

static void test_queues(void)
{
    struct world w;
    unsigned n;
    fake_reset();
    fake->driver = RDMA_DRIVER_MLX5;
    unsigned wrong = fake->wrong;
    world_start(&w, ALL, true, one_of_each, NULL);
    ok(world_until(&w, 1), "mlx5: every kind of queue, by its own memory and with a channel");
    is_int(fake->wrong, wrong, "none was run on the broker's own memory");
    is_int(world_status(&w, "stubs"), 1, "by one stub");
    is_int(useful(&w, &n), 0, "which has no descriptor of any use any more");
    ok(n <= 3, "and has not gathered others: %u", n);
    is_int(fake->live, 0, "what was destroyed is gone");
    ok(world_status(&w, "fake0.cq") == 0 && world_status(&w, "fake0.qp") == 0 && world_status(&w, "fake0.srq") == 0 &&
           world_status(&w, "fake0.wq") == 0,
       "and none is counted");
    fake->go = 1;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
}

/* Tests SIGSTOP during any step of the broker. If the filter does not hold signals back, SIGSTOP interrupts the stub's
 * call. */
static int stopped(void *arg)
{
    uint32_t number = 0, token[2];
    int fd = app_open(0), channel;
    (void)arg;
    must(fd >= 0 && (channel = app_channel(fd)) >= 0);
    for (int i = 0; fake->number[0] == 0; i++) {
        union app_uhw u = app_uhw_at(page(1), page(2));
        must(app_queues[0].make(fd, channel, &u, &number, token) == 0 && token[0] == number + FAKE_TOKEN);
        int rc = app_queue_destroy(fd, UVERBS_OBJECT_CQ, number);
        must(rc == 0 || rc == -ENOENT); /* -ENOENT: see test_stopped() */
        fake->number[1]++;
        fake->number[2] += rc != 0;
    }
    app_step(1);
    return 0;
}

static void test_stopped(void)
{
    struct world w;
    unsigned n, seed = 1;
    fake_reset();
    fake->driver = RDMA_DRIVER_MLX5;
    world_start(&w, ALL, false, stopped, NULL);
    for (int i = 0, still = 0; i < 400 && still < 5; i++) { /* no progress five times in a row: give up */
        long before = fake->number[1];
        kill(w.app, SIGSTOP);
        usleep(rand_r(&seed) % 1500);
        kill(w.app, SIGCONT);
        for (int k = 0; k < 10000 && fake->number[1] == before; k++)
            usleep(200);
        still = fake->number[1] == before ? still + 1 : 0;
        usleep(rand_r(&seed) % 500);
    }
    fake->number[0] = 1;
    ok(world_until(&w, 1), "a program that is stopped 400 times while it makes CQs: %ld of them",
       (long)fake->number[1]);
    /* If a signal arrives between an answer and the wakeup of the thread, the answer is lost (test_verbs_hostile.c).
     * Here, this happens to a few of 400 answers, or to more if other work delays the wakeup. */
    ok(fake->live <= 100 && fake->number[2] <= 100,
       "all but %u that were made are known to it, all but %ld destroyed once", fake->live, (long)fake->number[2]);
    is_int(world_status(&w, "fake0.cq"), fake->live, "which are counted");
    is_int(useful(&w, &n), 0, "the stub has nothing of them");
    fake->go = 1;
    is_int(world_app(&w), 0, "it sees nothing of it");
    is_int(world_end(&w), 0, "the broker ends");
}

/* ---------------------------------------------------- changed MRs */

static int reregs(void *arg)
{
    struct ib_uverbs_reg_mr_resp r;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && app_reg(fd, memory, 4096, &r) == 0);
    must(app_rereg(fd, r.mr_handle, REREG_ACCESS, 0, 0, 3) == 0);
    app_step(1);
    must(app_rereg(fd, r.mr_handle, REREG_TRANS, page(8), 65536, 0) == 0);
    /* the kernel's error: not pinned */
    must(app_rereg(fd, r.mr_handle, REREG_TRANS | REREG_ACCESS, page(9) + 8, 4096, 1) == -EFAULT);
    must(app_rereg(fd, r.mr_handle, REREG_TRANS, page(8), 2 * MIB, 0) == -ENOMEM); /* the policy's error */
    must(app_rereg(fd, r.mr_handle + 1, REREG_ACCESS, 0, 0, 1) == -ENOENT);
    app_step(2);
    must(app_dereg(fd, r.mr_handle) == 0 && app_rereg(fd, r.mr_handle, REREG_ACCESS, 0, 0, 1) == -ENOENT);
    struct ib_uverbs_reg_mr in = {.start = page(1), .length = 4096, .hca_va = page(1)}; /* read only */
    must(app_write_cmd(fd, IB_USER_VERBS_CMD_REG_MR, &in, sizeof in, &r, sizeof r) == 0);
    must(app_rereg(fd, r.mr_handle, REREG_ACCESS, 0, 0, 1) == -EACCES);
    must(app_rereg(fd, r.mr_handle, REREG_TRANS | REREG_ACCESS, page(1), 4096, 1) == 0 &&
         app_dereg(fd, r.mr_handle) == 0);
    app_step(3);
    return 0;
}

static void test_reregs(void)
{
    struct world w;
    unsigned n;
    fake_reset();
    unsigned wrong = fake->wrong;
    world_start(&w, ALL, true, reregs, NULL);
    ok(world_until(&w, 1), "an MR gets other access");
    ok(world_status(&w, "fake0.mr_bytes") == 4096 && world_status(&w, "fake0.mr") == 1, "and is as large as it was");
    fake->go = 1;
    ok(world_until(&w, 2), "and other memory");
    is_int(world_status(&w, "fake0.mr_bytes"), 65536, "which counts");
    is_int(fake->mr_bytes, 65536, "as the kernel has it");
    is_int(useful(&w, &n), 0, "the stub has nothing of it");
    fake->go = 2;
    ok(world_until(&w, 3), "what is given up has no other access");
    ok(world_status(&w, "fake0.mr_bytes") == 0 && world_status(&w, "fake0.mr") == 0, "and is not counted");
    is_int(fake->wrong, wrong, "none was run on the broker's own memory");
    fake->go = 3;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");
}

/* -------------------------------------------------------------- dma-bufs */

static int reg_dmabuf(int fd, int dmabuf, uint64_t length, uint32_t *number)
{
    const uint64_t zero = 0;
    uint32_t lkey, rkey;
    struct ib_uverbs_attr a[9] = {
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, .len = 4, .data = (uintptr_t)&lkey},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, .len = 4, .data = (uintptr_t)&rkey},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_FD, .len = 4, .data = (uint32_t)dmabuf},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_HANDLE},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_OFFSET, .len = 8, .data = zero},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_LENGTH, .len = 8, .data = length},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_IOVA, .len = 8, .data = zero},
        {.attr_id = UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, .len = 4, .data = 1},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(a); i++)
        a[i].flags = UVERBS_ATTR_F_MANDATORY;
    int rc = app_ioctl(fd, UVERBS_OBJECT_MR, UVERBS_METHOD_REG_DMABUF_MR, a, HW_ARRAY_LEN(a));
    *number = (uint32_t)a[3].data;
    return rc < 0 ? rc : (int32_t)a[2].data == dmabuf && lkey == *number + 1 ? 0 : -EPROTO;
}

/* Registers memory with the newer method. If the address is 0, the request contains no address. */
static int reg_method(int fd, int dmabuf, uint64_t address, uint64_t length, uint32_t *number)
{
    uint32_t lkey, rkey;
    struct ib_uverbs_attr a[10] = {
        {.attr_id = REG_MR_RESP_LKEY, .len = 4, .data = (uintptr_t)&lkey},
        {.attr_id = REG_MR_RESP_RKEY, .len = 4, .data = (uintptr_t)&rkey},
        {.attr_id = REG_MR_FD, .data = (uint64_t)(int64_t)dmabuf},
        {.attr_id = REG_MR_HANDLE},
        {.attr_id = REG_MR_PD_HANDLE},
        {.attr_id = REG_MR_IOVA, .len = 8},
        {.attr_id = REG_MR_LENGTH, .len = 8, .data = length},
        {.attr_id = REG_MR_ACCESS_FLAGS, .len = 4, .data = 1},
        {.attr_id = REG_MR_FD_OFFSET, .len = 8},
        {.attr_id = REG_MR_ADDR, .len = 8, .data = address},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(a); i++)
        a[i].flags = UVERBS_ATTR_F_MANDATORY;
    int rc = app_ioctl(fd, UVERBS_OBJECT_MR, METHOD_REG_MR, a, address ? 10 : 9);
    *number = (uint32_t)a[3].data;
    return rc < 0 ? rc : (int)a[2].data_s64 == dmabuf && lkey == *number + 1 ? 0 : -EPROTO;
}

/* Tests dma-bufs. If arg is not NULL, the policy must refuse them. */
static int dmabufs(void *arg)
{
    uint32_t number;
    int fd = app_open(0), buf = memfd_create("dmabuf", MFD_CLOEXEC), other = memfd_create("other", MFD_CLOEXEC);
    must(fd >= 0 && buf >= 0 && other >= 0 && ftruncate(buf, 65536) == 0 && ftruncate(other, 65536) == 0);
    must(pwrite(buf, FAKE_DMABUF, sizeof FAKE_DMABUF, 0) == sizeof FAKE_DMABUF);
    if (arg) {
        must(reg_dmabuf(fd, buf, 4096, &number) == -EOPNOTSUPP);
        must(reg_method(fd, buf, 0, 4096, &number) == -EOPNOTSUPP);
        must(reg_method(fd, buf, page(1), 4096, &number) == -EOPNOTSUPP);
        return 0;
    }
    must(app_reg_method(fd, memory, 4096, &number) == 0 && app_dereg(fd, number) == 0); /* starts the stub */
    must(reg_dmabuf(fd, -1, 4096, &number) == -EBADF); /* libraries test for support in this way */
    must(reg_dmabuf(fd, buf, 65536, &number) == 0 && app_dereg(fd, number) == 0);
    must(reg_method(fd, buf, 0, 65536, &number) == 0 && app_dereg(fd, number) == 0);
    must(reg_dmabuf(fd, buf, 65536, &number) == 0);
    app_step(1);
    must(app_dereg(fd, number) == 0);
    must(reg_dmabuf(fd, buf, 65537, &number) == -ERANGE && reg_method(fd, buf, 0, 65537, &number) == -ERANGE);
    must(reg_dmabuf(fd, other, 4096, &number) == -EINVAL && reg_method(fd, other, 0, 4096, &number) == -EINVAL);
    must(reg_dmabuf(fd, fd, 4096, &number) == -EINVAL && reg_method(fd, fd, 0, 4096, &number) == -EINVAL);
    must(reg_dmabuf(fd, 959, 4096, &number) == -EBADF && reg_method(fd, 959, 0, 4096, &number) == -EBADF);
    /* If the request also contains an address, the stub makes the request, and the dma-buf is in the stub's table. The
     * kernel accepts only one of the two. */
    must(reg_method(fd, buf, page(1), 4096, &number) == -EINVAL);
    app_step(2);
    return 0;
}

static void test_dmabufs(void)
{
    struct world w;
    unsigned n;
    fake_reset();
    fake->driver = RDMA_DRIVER_MLX5;
    world_start(&w, ALL, true, dmabufs, NULL);
    ok(world_until(&w, 1), "a dma-buf is registered, by both methods");
    is_int(world_status(&w, "fake0.mr_bytes"), 65536, "and counted");
    unsigned fds = world_fds(&w);
    fake->go = 1;
    ok(world_until(&w, 2), "another file is none, nor a descriptor that there is not, nor one with an address");
    is_int(useful(&w, &n), 0, "the stub has none of them");
    is_int(world_status(&w, "fake0.mr_bytes"), 0, "and none is counted");
    ok(world_fds(&w) <= fds, "nor open in the broker"); /* the broker may keep a device open briefly */
    fake->go = 2;
    is_int(world_app(&w), 0, "the program was content");
    is_int(world_end(&w), 0, "the broker ends");

    fake_reset();
    fake->driver = RDMA_DRIVER_MLX5;
    world_start(&w, "[default]\ndevices = *\n", true, dmabufs, &n);
    is_int(world_app(&w), 0, "where the policy has no dma-bufs there are none, by no method");
    is_int(fake->live, 0, "at all");
    is_int(world_end(&w), 0, "the broker ends");
}

/* --------------------------------------------- MRs of another container */

static int owner(void *arg)
{
    struct ib_uverbs_reg_mr_resp r;
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0);
    for (int i = 0; i < 8; i++)
        must(app_reg(fd, memory, 4096, &r) == 0);
    fake->number[0] = r.mr_handle;
    app_step(1);
    must(app_dereg(fd, r.mr_handle) == 0); /* the MR still exists */
    return 0;
}

static int stranger(void *arg)
{
    struct ib_uverbs_reg_mr_resp r;
    uint32_t theirs = (uint32_t)fake->number[0];
    (void)arg;
    int fd = app_open(0);
    must(fd >= 0 && app_reg(fd, memory, 8192, &r) == 0 && r.mr_handle != theirs);
    must(app_dereg(fd, theirs) == -ENOENT);
    must(app_rereg(fd, theirs, REREG_ACCESS, 0, 0, 1) == -ENOENT);
    must(app_rereg(fd, theirs, REREG_TRANS, page(1), 4096, 0) == -ENOENT);
    fake->number[1] = 1;
    while (!fake->number[2])
        usleep(1000);
    return 0;
}

static void test_two(void)
{
    struct world a, b;
    fake_reset();
    world_start(&b, ALL, true, owner, NULL);
    ok(world_until(&b, 1), "a container has MRs");
    world_start(&a, ALL, true, stranger, NULL);
    ok(world_becomes(&a, "fake0.mr_bytes", 8192), "another container on the same device, too");
    for (int ms = 0; ms < 60000 && !fake->number[1]; ms++)
        usleep(1000);
    ok(fake->number[1], "which ends the first one's by its number, on an open of its own");
    ok(world_status(&b, "fake0.mr") == 8 && world_status(&b, "fake0.mr_bytes") == 8 * 4096, "that has all it had");
    ok(world_status(&a, "fake0.mr") == 1 && world_status(&a, "fake0.mr_bytes") == 8192, "and so has the other");
    is_int(fake->mr_bytes, 8 * 4096 + 8192, "as the kernel counts");
    fake->number[2] = 1;
    fake->go = 1;
    is_int(world_app(&a), 0, "the second was refused");
    is_int(world_app(&b), 0, "the first has its MR still");
    ok(world_end(&a) == 0 && world_end(&b) == 0, "the brokers end");
}

int main(void)
{
    fake_start();
    if (vb_inject_possible())
        tap_skip_all("%s", hw_error());
    test_queues();
    test_stopped();
    test_reregs();
    test_dmabufs();
    test_two();
    fake_end();
    return tap_done();
}
