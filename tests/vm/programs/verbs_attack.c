/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile program with a uverbs device, part of tests/vm/verbs/test_verbs_attack.sh. It calls the kernel directly,
 * without libibverbs. Each mode attempts to exceed the limits of its policy, prints the result on standard output, and
 * exits with 0 if the attempt failed. In a native run, "landed" shows that the attack is effective without a policy.
 */
#include "verbs_attack.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>

uint8_t *area;
int dev = -1;
uint32_t pd;

double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

uint64_t pinned(void)
{
    char line[256];
    unsigned long kb = UINT32_MAX;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "VmPin: %lu", &kb) == 1)
            break;
    CHECK(f && kb != UINT32_MAX, "no VmPin");
    fclose(f);
    return kb << 10;
}

pid_t reap(pid_t pid, int *status)
{
    pid_t got;
    do
        got = waitpid(pid, status, 0);
    while (got < 0 && errno == EINTR);
    return got;
}

static void setup(void)
{
    area = mmap(NULL, EVIL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    CHECK(area != MAP_FAILED, "memory");
    dev = open_context();
    pd = alloc_pd(dev);
}

/* ------------------------------------------------------------------ fields that change in flight */

static atomic_bool enough;
static unsigned long flips;
struct flip {
    volatile void *where;
    size_t size;
    uint64_t good, evil;
};

static void *flipper(void *arg)
{
    const struct flip *f = arg;
    while (!enough) {
        const uint64_t v = flips++ & 1 ? f->evil : f->good;
        if (f->size == 8)
            *(volatile uint64_t *)f->where = v;
        else if (f->size == 4)
            *(volatile uint32_t *)f->where = (uint32_t)v;
        else
            *(volatile uint8_t *)f->where = (uint8_t)v;
        for (volatile int i = 0; i < 200; i++) /* each value remains for a while */
            ;
    }
    return NULL;
}

/* Additional time, on a machine that pauses, for the events that a test needs. */
#define MORE_S 60

/* Repeats a request for a while, and counts how often the kernel accepted the evil value. */
static int flip(const char *what, double seconds)
{
    const int is_qp = strcmp(what, "wr") == 0 || strcmp(what, "type") == 0;
    const int is_odp = strcmp(what, "odp") == 0, is_command = strcmp(what, "command") == 0;
    uint32_t cq = 0;
    uint64_t length = 0, driver[4];
    struct ib_uverbs_reg_mr mr, evil;
    struct ib_uverbs_reg_mr_resp mr_out;
    struct ib_uverbs_create_qp qp;
    struct ib_uverbs_create_qp_resp qp_out;
    struct request r;
    struct flip f = {&mr.length, 8, 4096, EVIL};
    memset(&mr_out, 0, sizeof(mr_out));
    memset(&qp_out, 0, sizeof(qp_out));
    CHECK(create_cq(dev, &cq) == 0, "CREATE_CQ");
    mr_of(&mr, pd, area, 4096);
    mr_of(&evil, pd, area, EVIL);
    qp_of(&qp, pd, cq, 16);
    write_cmd(&r, IB_USER_VERBS_CMD_REG_MR, &mr, sizeof(mr), &mr_out, sizeof(mr_out));
    if (strcmp(what, "pointer") == 0) { /* the address of the entire input */
        f = (struct flip){&r.a[1].data, 8, at(&mr), at(&evil)};
    } else if (is_odp) { /* memory registered on demand is not pinned */
        f = (struct flip){&mr.access_flags, 4, IB_UVERBS_ACCESS_LOCAL_WRITE,
                          IB_UVERBS_ACCESS_LOCAL_WRITE | IB_UVERBS_ACCESS_ON_DEMAND};
    } else if (is_command) {
        /* As REG_MR, the request has length 0 and is refused. As ALLOC_MW, which the policy forbids, it creates a
         * memory window: { response, pd_handle, mw_type } replaces { response, start }. */
        CHECK(pd == 0, "the first PD is not number 0");
        memset(&mr, 0, sizeof(mr));
        mr.start = (uint64_t)1 /* IB_MW_TYPE_1 */ << 32;
        f = (struct flip){&r.a[0].data, 8, IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_ALLOC_MW};
    } else if (is_qp) {
        write_cmd(&r, IB_USER_VERBS_CMD_CREATE_QP, &qp, sizeof(qp), &qp_out, sizeof(qp_out));
        add(&r, UVERBS_ATTR_UHW_OUT, sizeof(driver), at(driver));
        f = what[0] == 'w' ? (struct flip){&qp.max_send_wr, 4, 16, EVIL_WR}
                           : (struct flip){&qp.qp_type, 1, IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UD};
    } else {
        CHECK(strcmp(what, "length") == 0, "flip what?");
    }
    unsigned tried = 0, good = 0, refused = 0, landed = 0;
    int last = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, flipper, &f) == 0, "thread");
    for (const double end = now() + seconds;
         now() < end || (now() < end + MORE_S && ((good == 0 && !is_command) || refused + landed == 0)); tried++) {
        const int rc = go(dev, &r);
        if (rc) {
            refused++;
            last = rc;
            continue;
        }
        good++;
        if (is_command) {
            landed++;       /* only a memory window can have been created */
        } else if (is_qp) { /* QUERY_QP does not report a type */
            landed += f.size == 4 ? qp_wr(dev, qp_out.qp_handle) > ALLOWED_WR : init_ud(dev, qp_out.qp_handle) == 0;
            CHECK(destroy_qp(dev, qp_out.qp_handle) == 0, "DESTROY_QP");
        } else {
            CHECK(query_mr(dev, mr_out.mr_handle, &length) == 0, "QUERY_MR %u", mr_out.mr_handle);
            landed += is_odp ? pinned() == 0 : length > ALLOWED;
            CHECK(dereg_mr(dev, mr_out.mr_handle) == 0, "DEREG %u", mr_out.mr_handle);
        }
    }
    enough = 1;
    pthread_join(thread, NULL);
    printf("%s: %u tries, %u made, %u refused (last: %s), %u landed; %lu flips\n", what, tried, good, refused,
           strerror(-last), landed, flips);
    CHECK(is_command || good > 0, "nothing was made at all");
    CHECK(refused > 0 || landed > 0, "the evil value was never seen: this proves nothing");
    CHECK(pinned() == 0, "%llu bytes are still pinned", (unsigned long long)pinned());
    return landed != 0;
}

/* Writes random bytes to all parts of a request while the request is executed. The request is alone in 16 MiB, far from
 * all other mappings, so results are written to this arena or nowhere, even if the request's addresses change. */
struct chaos {
    struct request *r;
    struct ib_uverbs_reg_mr *mr;
    unsigned seed;
};
enum { ARENA = 16 * MIB };

static void *scribble(void *arg)
{
    const struct chaos *c = arg;
    unsigned seed = c->seed;
    while (!enough) {
        const int in_request = rand_r(&seed) & 1;
        volatile uint8_t *p = in_request ? (uint8_t *)c->r : (uint8_t *)c->mr;
        const size_t n = in_request ? sizeof(c->r->h) + 3 * sizeof(c->r->a[0]) : sizeof(*c->mr);
        const size_t i = (size_t)rand_r(&seed) % n;
        const uint8_t was = p[i];
        if (rand_r(&seed) & 7)
            p[i] = (uint8_t)rand_r(&seed);
        else
            c->mr->length = (uint64_t)rand_r(&seed) % EVIL;
        for (volatile int k = 0; k < 100; k++)
            ;
        if (rand_r(&seed) & 3)
            p[i] = was;
    }
    return NULL;
}

static int chaos(double seconds, unsigned seed)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address in which each byte can change
    uint8_t *all = mmap((void *)0x2010000000, ARENA, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    CHECK(all != MAP_FAILED, "an arena");
    uint8_t *middle = all + ARENA / 2 + 0x8000;
    struct chaos c = {(void *)middle, (void *)(middle + 0x2000), seed};
    struct ib_uverbs_reg_mr_resp *out = (void *)(middle + 0x3000);
    uint64_t most = 0;
    unsigned tried = 0, good = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, scribble, &c) == 0, "thread");
    for (const double end = now() + seconds; now() < end || (good == 0 && now() < end + MORE_S); tried++) {
        mr_of(c.mr, pd, area, 4096);
        write_cmd(c.r, IB_USER_VERBS_CMD_REG_MR, c.mr, sizeof(*c.mr), out, sizeof(*out));
        if (go(dev, c.r))
            continue;
        const uint64_t n = pinned();
        most = n > most ? n : most;
        good += dereg_mr(dev, out->mr_handle) == 0;
    }
    enough = 1;
    pthread_join(thread, NULL);
    printf("chaos: seed %u, %u tries, %u made and ended, at most %llu bytes pinned\n", seed, tried, good,
           (unsigned long long)most);
    CHECK(good > 0, "nothing was made at all");
    return most > ALLOWED;
}

/* ------------------------------------------------------------------ requests that must be refused */

static int forbidden(void)
{
    char io_uring_parameters[120] = {0};
    char byte = 0;
    const struct iovec v = {&byte, 1};
    int bad = 0;
#define MUST_FAIL(call)                                      \
    do {                                                     \
        errno = 0;                                           \
        const long rc_ = (long)(call);                       \
        printf("%s: %ld %s\n", #call, rc_, strerror(errno)); \
        bad += rc_ >= 0;                                     \
    } while (0)
    MUST_FAIL(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
    MUST_FAIL(process_vm_writev(getpid(), &v, 1, &v, 1, 0));
    MUST_FAIL(process_vm_readv(getpid(), &v, 1, &v, 1, 0));
    MUST_FAIL(syscall(SYS_io_uring_setup, 4, io_uring_parameters));
    MUST_FAIL(syscall(SYS_userfaultfd, O_CLOEXEC));
    MUST_FAIL(syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0));
    MUST_FAIL(syscall(438 /* pidfd_getfd */, syscall(SYS_pidfd_open, getpid(), 0), 0, 0));
    MUST_FAIL(socket(AF_NETLINK, SOCK_RAW, 20 /* NETLINK_RDMA */));
#undef MUST_FAIL
    return bad != 0;
}

struct range {
    uintptr_t from, to;
    char rights[8];
};

/* Finds the stub windows, which are mappings of a memfd. */
static unsigned find_windows(struct range *w, unsigned cap)
{
    char line[512];
    unsigned long from, to;
    unsigned n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    CHECK(f, "maps");
    while (n < cap && fgets(line, sizeof(line), f))
        if (strstr(line, "memfd:") && sscanf(line, "%lx-%lx %7s", &from, &to, w[n].rights) == 3) {
            printf("window: %s", line);
            w[n].from = from;
            w[n++].to = to;
        }
    fclose(f);
    return n;
}

/* Tries to replace a page's mapping or to change its access rights. */
static int remap(void *p, int shm)
{
    const struct {
        const char *what;
        int got;
    } t[] = {
        {"munmap", munmap(p, 4096) == 0},
        {"mprotect", mprotect(p, 4096, PROT_READ | PROT_WRITE | PROT_EXEC) == 0},
        {"mmap over it",
         mmap(p, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED},
        {"mremap", mremap(p, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, area) != MAP_FAILED},
        {"mremap over it", mremap(area, 4096, 4096, MREMAP_MAYMOVE | MREMAP_FIXED, p) != MAP_FAILED},
        {"shmat over it", shmat(shm, p, SHM_REMAP) == p},
        {"remap_file_pages", syscall(SYS_remap_file_pages, p, 4096, 0, 0, 0) == 0},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof(t) / sizeof(t[0]); i++)
        if (t[i].got) {
            printf("%p: %s was possible\n", p, t[i].what);
            bad++;
        }
    madvise(p, 4096, MADV_DONTNEED); /* removes page table entries but does not change the file */
    return bad;
}

/* Tries to change the contents with a store, with madvise(), through /proc/self/mem, and through the file in map_files.
 * The stub's code and requests are in read-only pages; the stub's writable pages are for results. */
static int overwrite(const struct range *w)
{
    char path[96], was[64];
    const void *p = (const void *)w->from; // NOLINT(performance-no-int-to-ptr): what /proc/self/maps says
    int bad = 0, status = 0;
    memcpy(was, p, sizeof(was));
    const pid_t pid = fork();
    if (pid == 0) {
        *(volatile uint8_t *)w->from = 0; // NOLINT(performance-no-int-to-ptr)
        _exit(0);
    }
    reap(pid, &status);
    bad += !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV;
    bad += madvise((void *)w->from, 4096, MADV_REMOVE) == 0; // NOLINT(performance-no-int-to-ptr)
    int fd = open("/proc/self/mem", O_RDWR);
    if (fd >= 0) {
        bad += pwrite(fd, "evil", 4, (off_t)w->from) > 0;
        close(fd);
    }
    snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)w->from, (unsigned long)w->to);
    fd = open(path, O_RDWR);
    if (fd >= 0) {
        bad += pwrite(fd, "evil", 4, 0) > 0;
        bad += ftruncate(fd, 0) == 0;
        bad += fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
        bad += mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED;
        close(fd);
    }
    bad += memcmp(was, p, sizeof(was)) != 0;
    if (bad)
        printf("%s: %d ways to change it (status of the child that stored: %#x)\n", path, bad, status);
    return bad;
}

/* Tries calls on ranges that begin before `from` or end after `to`, and munmap() of the entire range. */
static int around(uintptr_t from, uintptr_t to)
{
    const size_t size = to - from;
    int bad = 0;
    // NOLINTBEGIN(performance-no-int-to-ptr): what /proc/self/maps says
    for (int side = 0; side < 2; side++) {
        uint8_t *next = (uint8_t *)(side ? to : from - 4096), *p = side ? (uint8_t *)to - 4096 : next;
        if (mmap(next, 4096, PROT_NONE, MAP_FIXED_NOREPLACE | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != next)
            continue; /* this program needs the mapping that is already there */
        const int got[] = {munmap(p, 8192) == 0,
                           mmap(p, 8192, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == p,
                           side == 0 && mremap(p, 8192, 4096, 0) == p};
        for (unsigned i = 0; i < sizeof(got) / sizeof(got[0]); i++)
            if (got[i]) {
                printf("%p: way %u to take a part of the window with a page %s it\n", p, i, side ? "behind" : "before");
                bad++;
            }
        munmap(next, 4096);
    }
    if (munmap((void *)from, size) == 0) {
        printf("%#lx: munmap of all of it was possible\n", (unsigned long)from);
        bad++;
    }
    // NOLINTEND(performance-no-int-to-ptr)
    return bad;
}

static int window(void)
{
    struct range w[8];
    uint32_t mr = 0;
    int bad = 0, shm = shmget(IPC_PRIVATE, 4096, 0600);
    unsigned sealed = 0;
    CHECK(shm >= 0, "shmget");
    CHECK(reg_mr(dev, pd, area, 4096, &mr) == 0 && dereg_mr(dev, mr) == 0, "REG_MR");
    const unsigned n = find_windows(w, 8);
    CHECK(n > 0, "no window");
    for (unsigned i = 0; i < n; i++) {
        for (uintptr_t page = w[i].from; page < w[i].to; page += 4096)
            bad += remap((void *)page, shm); // NOLINT(performance-no-int-to-ptr)
        for (uintptr_t page = w[i].from; page < w[i].to; page += 4096)
            bad += device_writes((void *)page, w[i].rights[1] == 'w'); // NOLINT(performance-no-int-to-ptr)
        if (w[i].rights[1] != 'w') {
            bad += overwrite(&w[i]);
            sealed++;
        }
    }
    CHECK(sealed > 0, "all can be written");
    bad += around(w[0].from, w[n - 1].to);
    shmctl(shm, IPC_RMID, NULL);
    CHECK(device_writes(area, 1) == 0, "memory of the program's own is no different");
    CHECK(reg_mr(dev, pd, area + MIB, 4096, &mr) == 0 && dereg_mr(dev, mr) == 0, "REG_MR afterwards");
    return bad != 0;
}

/* Calls REG_MR with n attributes, of which the additional ones are unknown and optional. */
static int crowd(unsigned n)
{
    struct request r;
    struct ib_uverbs_reg_mr in;
    struct ib_uverbs_reg_mr_resp out;
    mr_of(&in, pd, area, 8192);
    write_cmd(&r, IB_USER_VERBS_CMD_REG_MR, &in, sizeof(in), &out, sizeof(out));
    while (r.h.num_attrs < n) {
        add(&r, (uint16_t)(0x100 + r.h.num_attrs), 0, 0);
        r.a[r.h.num_attrs - 1].flags = 0;
    }
    const int rc = go(dev, &r);
    return rc ? rc : dereg_mr(dev, out.mr_handle);
}

/* Tries requests that no library sends. */
static int malformed(void)
{
    struct request r;
    struct ib_uverbs_reg_mr in;
    struct ib_uverbs_reg_mr_resp out;
    const struct {
        const char *what;
        void *where;
        size_t size;
        uint64_t value;
    } t[] = {
        {"a length too short", &r.h.length, 2, sizeof(r.h) + 3 * sizeof(r.a[0]) - 1},
        {"a length too long", &r.h.length, 2, sizeof(r.h) + 4 * sizeof(r.a[0])},
        {"no attributes", &r.h.num_attrs, 2, 0},
        {"65535 attributes", &r.h.num_attrs, 2, UINT16_MAX},
        {"reserved1", &r.h.reserved1, 8, 1},
        {"reserved2", &r.h.reserved2, 4, 1},
        {"another driver", &r.h.driver_id, 4, RDMA_DRIVER_MLX5},
        {"an unknown object", &r.h.object_id, 2, 0x7fff},
        {"an unknown attribute, mandatory", &r.a[2].attr_id, 2, 0x0abc},
        {"an input that is not there", &r.a[1].data, 8, 8},
        {"an input in the kernel", &r.a[1].data, 8, 0xffff888000000000},
        {"an input of 65535 bytes", &r.a[1].len, 2, UINT16_MAX},
        {"an input that is too short", &r.a[1].len, 2, 9},
        {"an output that is not there", &r.a[2].data, 8, 8},
        {"an output that is too short", &r.a[2].len, 2, 1},
        {"memory that wraps around", &in.start, 8, UINT64_MAX - 4095},
        {"a length of all bits", &in.length, 8, UINT64_MAX},
        {"a PD that is not there", &in.pd_handle, 4, 77},
    };
    int bad = 0;
    for (size_t i = 0; i <= sizeof(t) / sizeof(t[0]); i++) {
        mr_of(&in, pd, area, 8192);
        write_cmd(&r, IB_USER_VERBS_CMD_REG_MR, &in, sizeof(in), &out, sizeof(out));
        const char *what = "an attribute twice";
        if (i < sizeof(t) / sizeof(t[0])) {
            what = t[i].what;
            memcpy(t[i].where, &t[i].value, t[i].size);
        } else {
            add(&r, UVERBS_ATTR_CORE_IN, sizeof(in), at(&in));
        }
        const int rc = go(dev, &r);
        printf("%s: %s\n", what, rc ? strerror(-rc) : "done");
        bad += rc == 0;
    }
    CHECK(crowd(64) == 0 && crowd(65) == -EINVAL, "64 attributes are not too many, and 65 are: %d, %d", crowd(64),
          crowd(65));
    CHECK(ioctl(dev, RDMA_VERBS_IOCTL, NULL) < 0 && errno == EFAULT, "a header that is not there");
    CHECK(ioctl(dev, RDMA_VERBS_IOCTL, area + EVIL - 8) < 0, "half a header");
    CHECK(ioctl(dev, _IOWR(RDMA_IOCTL_MAGIC, 2, struct ib_uverbs_ioctl_hdr), &r) < 0, "another ioctl");
    CHECK(pinned() == 0, "something is pinned");
    return bad != 0;
}

/* Tries file descriptors that do not refer to a device. */
static int foreign(void)
{
    uint32_t out = 0;
    const char *names[] = {"/dev/null", "/tmp", "/proc/self/exe"};
    for (size_t i = 0; i < 3; i++) {
        const int fd = open(names[i], O_RDONLY);
        const int rc = reg_mr(fd, pd, area, 4096, &out);
        CHECK(fd >= 0 && rc == -ENOTTY, "%s: %d", names[i], rc);
        close(fd);
    }
    const int gone = dup(dev);
    close(gone);
    CHECK(reg_mr(gone, pd, area, 4096, &out) == -EBADF, "a closed one");
    CHECK(reg_mr(-1, pd, area, 4096, &out) == -EBADF, "-1");
    const int low = dup2(dev, 9); /* a descriptor number for which write() is not checked */
    CHECK(reg_mr(low, pd, area, 4096, &out) == 0, "a copy is as good");
    CHECK(dereg_mr(dev, out) == 0, "and names the same objects");
    const uint32_t doorbell[8] = {IB_USER_VERBS_CMD_POST_SEND, 8 << 16 | 8};
    CHECK(write(low, doorbell, sizeof(doorbell)) < 0, "a doorbell for no QP");
    printf("write on a copy: %s\n", strerror(errno));
    CHECK(write(dev, doorbell, sizeof(doorbell)) < 0, "a doorbell for no QP");
    printf("write: %s\n", strerror(errno));
    const uint32_t reg[16] = {IB_USER_VERBS_CMD_REG_MR, 14 << 16 | 3};
    CHECK(write(dev, reg, sizeof(reg)) < 0, "REG_MR by write()");
    printf("REG_MR by write(): %s\n", strerror(errno));
    return 0;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    const char *arg = argc > 2 ? argv[2] : "1";
    setvbuf(stdout, NULL, _IONBF, 0);
    if (strcmp(mode, "forbidden") == 0)
        return forbidden();
    if (strcmp(mode, "inherited") == 0 && argc == 4) {
        area = mmap(NULL, EVIL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        dev = atoi(argv[2]);
        pd = (uint32_t)atoi(argv[3]);
        pairs(3, 1e9);
        return 0;
    }
    const double begin = now();
    setup();
    int rc = 0;
    if (strcmp(mode, "flip") == 0 && argc == 4)
        rc = flip(arg, atof(argv[3]));
    else if (strcmp(mode, "chaos") == 0 && argc == 4)
        rc = chaos(atof(arg), (unsigned)atoi(argv[3]));
    else if (strcmp(mode, "window") == 0)
        rc = window();
    else if (strcmp(mode, "malformed") == 0)
        rc = malformed();
    else if (strcmp(mode, "foreign") == 0)
        rc = foreign();
    else if (strcmp(mode, "rereg") == 0)
        rc = rereg();
    else if (strcmp(mode, "quota") == 0)
        rc = quota();
    else if (strcmp(mode, "life") == 0)
        life();
    else if (strcmp(mode, "pairs") == 0)
        pairs((unsigned)atoi(arg), argc > 3 ? atof(argv[3]) : 1e9);
    else if (strcmp(mode, "forks") == 0)
        forks(argv);
    else if (strcmp(mode, "threads") == 0)
        threads((unsigned)atoi(arg));
    else if (strcmp(mode, "kills") == 0)
        kills((unsigned)atoi(arg), 1);
    else if (strcmp(mode, "signals") == 0)
        signals(atof(arg));
    else if (strcmp(mode, "stops") == 0)
        stops(atof(arg));
    else if (strcmp(mode, "memlock") == 0)
        memlock();
    else if (strcmp(mode, "pass") == 0)
        pass(arg);
    else if (strcmp(mode, "take") == 0)
        rc = take(arg);
    else
        CHECK(0, "no such mode: %s", mode);
    printf("%s: %s after %.2f s\n", mode, rc ? "NOT HELD" : "held", now() - begin);
    return rc;
}
