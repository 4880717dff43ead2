/* SPDX-License-Identifier: Apache-2.0 */
/* Tests attacks of a program on its own stub, during and after the injection. As a control, each attack on the complete
 * window is also made on unprotected memory, where the attack must succeed. */
#include "base/sanitizers.h"
#include "tests/proc.h"
#include "tests/tap.h"
#include "verbs_stub.h"

#include <fcntl.h>
#include <pthread.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static struct app a;
static struct mini m;

/* --- attacks after the injection --- */
enum { CODE, REQUESTS, RESULTS, WHOLE, TARGETS };
static const struct {
    uint64_t at, size;
    int prot;
} part[TARGETS] = {
    [CODE] = {0, VB_WINDOW_CODE, PROT_READ | PROT_EXEC},
    [REQUESTS] = {VB_WINDOW_CODE, VB_WINDOW_SPLIT - VB_WINDOW_CODE, PROT_READ},
    [RESULTS] = {VB_WINDOW_SPLIT, VB_WINDOW_SIZE - VB_WINDOW_SPLIT, PROT_READ | PROT_WRITE},
    [WHOLE] = {0, VB_WINDOW_SIZE, PROT_READ},
};

/* Attacks. Each returns 0 on success. */
static int by_munmap(char *p, size_t n)
{
    return munmap(p, n);
}
static int by_mprotect(char *p, size_t n)
{
    return mprotect(p, n, PROT_READ | PROT_WRITE);
}
static int by_mprotect_none(char *p, size_t n)
{
    return mprotect(p, n, PROT_NONE);
}
static int by_pkey(char *p, size_t n)
{
    return (int)syscall(SYS_pkey_mprotect, p, n, PROT_NONE, -1);
}
static int by_mremap_away(char *p, size_t n)
{
    return mremap(p, n, n, MREMAP_MAYMOVE | MREMAP_DONTUNMAP) == MAP_FAILED &&
                   mremap(p, n, 2 * n, MREMAP_MAYMOVE) == MAP_FAILED
               ? -1
               : 0;
}
static int by_mremap_onto(char *p, size_t n)
{
    char *from = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mremap(from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, p) == MAP_FAILED ? -1 : 0;
}
static int by_shrinking(char *p, size_t n)
{
    return mremap(p, n, n - 4096, 0) == MAP_FAILED ? -1 : 0;
}
static int by_map_fixed(char *p, size_t n)
{
    return mmap(p, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0;
}
static int by_remap_file_pages(char *p, size_t n)
{
    (void)n;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    return remap_file_pages(p, 4096, 0, 1, 0);
#pragma GCC diagnostic pop
}
static int by_remove(char *p, size_t n)
{
    return madvise(p, n, MADV_REMOVE);
}
static int by_mem_file(char *p, size_t n)
{
    (void)n;
    int fd = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    char was = *p, is = (char)(was ^ 1);
    int rc = pwrite(fd, &is, 1, (off_t)(uintptr_t)p) == 1 && *(volatile char *)p == is ? 0 : -1;
    close(fd);
    return rc;
}
static int by_vm_writev(char *p, size_t n)
{
    (void)n;
    char is = (char)(*p ^ 1);
    struct iovec mine = {&is, 1}, theirs = {p, 1};
    return process_vm_writev(getpid(), &mine, 1, &theirs, 1, 0) == 1 ? 0 : -1;
}
static int by_read_into(char *p, size_t n)
{
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    int rc = read(fd, p, n) > 0 ? 0 : -1;
    close(fd);
    return rc;
}
/* Opens the mapping's file through /proc/self/map_files. */
static int file_of(char *p, int flags)
{
    char line[512], path[80];
    unsigned long from = 0, to = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof(line), f) && sscanf(line, "%lx-%lx", &from, &to) == 2)
        if (from <= (unsigned long)p && (unsigned long)p < to)
            break;
    if (f)
        fclose(f);
    snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", from, to);
    return open(path, flags | O_CLOEXEC);
}
static int by_file_write(char *p, size_t n)
{
    (void)n;
    int fd = file_of(p, O_RDWR);
    int rc = fd >= 0 && pwrite(fd, "x", 1, 0) == 1 ? 0 : -1;
    close(fd);
    return rc;
}
static int by_file_map(char *p, size_t n)
{
    int fd = file_of(p, O_RDWR);
    int rc = fd >= 0 && mmap(NULL, n, PROT_WRITE, MAP_SHARED, fd, 0) != MAP_FAILED ? 0 : -1;
    close(fd);
    return rc;
}
static int by_file_punch(char *p, size_t n)
{
    int fd = file_of(p, O_RDWR);
    int rc = fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)n) == 0 ? 0 : -1;
    close(fd);
    return rc;
}
static int by_file_cut(char *p, size_t n)
{
    (void)n;
    int fd = file_of(p, O_RDWR);
    int rc = fd >= 0 && ftruncate(fd, 0) == 0 ? 0 : -1;
    close(fd);
    return rc;
}
static int by_file_unseal(char *p, size_t n) /* seals cannot be removed; the program must not be able to add any */
{
    (void)n;
    int fd = file_of(p, O_RDWR);
    int rc = fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == 0 ? 0 : -1;
    close(fd);
    return rc;
}

#define ON(x) (1u << (x))
static const struct {
    const char *what;
    int (*by)(char *p, size_t n);
    unsigned on;    /* parts of the window in which the attack must fail */
    bool same_file; /* the control needs a writable memfd without seals, not read-only private memory */
} attack[] = {
    {"munmap", by_munmap, ON(CODE) | ON(REQUESTS) | ON(RESULTS) | ON(WHOLE), false},
    {"mprotect for writing", by_mprotect, ON(CODE) | ON(REQUESTS), false},
    {"mprotect to nothing", by_mprotect_none, ON(CODE) | ON(REQUESTS) | ON(RESULTS) | ON(WHOLE), false},
    {"pkey_mprotect", by_pkey, ON(CODE) | ON(REQUESTS) | ON(RESULTS) | ON(WHOLE), false},
    {"mremap away", by_mremap_away, ON(CODE) | ON(REQUESTS) | ON(RESULTS), false},
    {"mremap onto", by_mremap_onto, ON(CODE) | ON(REQUESTS) | ON(RESULTS) | ON(WHOLE), false},
    {"mremap to less", by_shrinking, ON(REQUESTS) | ON(RESULTS), false},
    {"mmap with MAP_FIXED", by_map_fixed, ON(CODE) | ON(REQUESTS) | ON(RESULTS) | ON(WHOLE), false},
    {"remap_file_pages", by_remap_file_pages, ON(RESULTS), true},
    {"MADV_REMOVE", by_remove, ON(CODE) | ON(REQUESTS), true},
    {"/proc/self/mem", by_mem_file, ON(CODE) | ON(REQUESTS), false},
    {"process_vm_writev", by_vm_writev, ON(CODE) | ON(REQUESTS), true},
    {"read() into it", by_read_into, ON(CODE) | ON(REQUESTS), true},
    {"write() to its file", by_file_write, ON(CODE) | ON(REQUESTS), true},
    {"a mapping of its file", by_file_map, ON(CODE) | ON(REQUESTS), true},
    {"a hole in its file", by_file_punch, ON(CODE) | ON(REQUESTS), true},
    {"an end to its file", by_file_cut, ON(CODE) | ON(REQUESTS) | ON(RESULTS), true},
    {"a seal on its file", by_file_unseal, ON(CODE) | ON(REQUESTS) | ON(RESULTS), true},
};

/* Returns unprotected memory for the control. Private memory can be written through /proc/self/mem, and shared memory
 * through its file. Both can be remapped. */
static char *undefended(size_t n, bool file)
{
    if (!file)
        return mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int fd = memfd_create("control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(fd, (off_t)n))
        return MAP_FAILED;
    char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p;
}

static void app_attacks(void)
{
    int fd = null_fd();
    common->out[0] = reg(fd);
    char *w = (char *)(uintptr_t)common->window; /* NOLINT: an address of this process */
    char before[VB_WINDOW_SPLIT];
    memcpy(before, w, sizeof(before));
    for (unsigned i = 0; i < HW_ARRAY_LEN(attack); i++) {
        int landed = 0;
        for (int t = 0; t < TARGETS; t++)
            if (attack[i].on & ON(t))
                landed += attack[i].by(w + part[t].at, part[t].size) == 0;
        landed += memcmp(before, w, sizeof(before)) != 0 && landed == 0;
        /* the control has three pages, because some attacks unmap a page */
        pid_t pid = fork();
        if (pid == 0) {
            char *c = undefended(3 * 4096UL, attack[i].same_file);
            int rc = attack[i].by(c, 3 * 4096UL);
            if (attack[i].by == by_file_unseal && rc) /* EBUSY: sealing is permitted, but the file is mapped */
                rc = errno == EBUSY ? 0 : rc;
            _exit(rc == 0 ? 0 : 1);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        common->out[1 + i] = landed * 2 + (status != 0);
    }
    common->out[50] = reg(fd);
    common->out[51] = memcmp(before, w, VB_WINDOW_CODE) == 0;
}

static void test_behind(void)
{
    common_reset();
    m = (struct mini){.n = 0};
    app_start(&a, app_attacks, true);
    ok(mini_serve(&m, &a, 60), "a program that attacks its window ends");
    is_int(common->out[0], -ENOTTY, "its stub was there");
    for (unsigned i = 0; i < HW_ARRAY_LEN(attack); i++) {
        ok(common->out[1 + i] < 2, "%s fails on the window", attack[i].what);
        ok((common->out[1 + i] & 1) == 0, "and lands elsewhere");
    }
    is_int(common->out[50], -ENOTTY, "the stub serves on");
    ok(common->out[51], "its code is as it was");
    is_int(m.injected, 1, "it is the same");
    mini_end(&m);
}

/* --- attacks from another process with all privileges --- */
static void app_sits(void)
{
    int fd = null_fd();
    common->out[0] = reg(fd);
    common->at = 1;
    while (!common->stop)
        usleep(500);
    common->out[1] = reg(fd);
}

static void test_sibling(void)
{
    common_reset();
    m = (struct mini){.n = 0};
    app_start(&a, app_sits, true);
    m.a = &a;
    ok(mini_until(&m, 1, 30000) && m.n == 1, "a program sits there with its stub");
    uint64_t w = m.n ? m.s[0].stub.window : 0;
    uint64_t word = 0x1122334455667788;
    unsigned landed = 0, rw = 0;
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/mem", a.pid);
    int mem = open(path, O_RDWR | O_CLOEXEC);
    const uint64_t at[] = {w, w + VB_STUB_AFTER, w + VB_WINDOW_CODE, w + VB_WINDOW_SPLIT - 8};
    for (unsigned i = 0; i < HW_ARRAY_LEN(at); i++) {
        landed += proc_write(a.pid, at[i], &word, sizeof(word)) > 0;
        landed += pwrite(mem, &word, sizeof(word), (off_t)at[i]) > 0;
    }
    rw += proc_write(a.pid, w + VB_WINDOW_SPLIT, &word, sizeof(word)) == sizeof(word);
    rw += pwrite(mem, &word, sizeof(word), (off_t)(w + VB_WINDOW_SPLIT)) == sizeof(word);
    close(mem);
    is_int(landed, 0, "no write of another process lands in code or requests");
    is_int(rw, 2, "as they do in the results");
    common->stop = true;
    ok(mini_serve(&m, &a, 60) && common->out[1] == -ENOTTY, "the stub serves on");
    mini_end(&m);
}

/* --- attacks during the injection: another thread attacks between two steps --- */
static void (*strike)(char *w);
static int theirs[2]; /* the program's descriptors for the window's memfds */

static void find_theirs(void)
{
    theirs[0] = theirs[1] = -1;
    for (int fd = 0; fd < 64; fd++) {
        char path[64], name[128];
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, name, sizeof(name) - 1);
        name[HW_MAX(n, 0)] = 0;
        if (strstr(name, "hawser-verbs-results"))
            theirs[1] = fd;
        else if (strstr(name, "hawser-verbs"))
            theirs[0] = fd;
    }
}

static char *anonymous_at(char *w, size_t n)
{
    return mmap(w, n, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}
static void strike_unmap(char *w)
{
    munmap(w, VB_WINDOW_SIZE);
}
static void strike_unmap_one(char *w)
{
    munmap(w + VB_WINDOW_SPLIT, 4096);
}
static void strike_code(char *w)
{
    char *p = anonymous_at(w, VB_WINDOW_CODE);
    if (p == MAP_FAILED)
        return;
    memset(p, 0x90, VB_WINDOW_CODE);
    memcpy(p, vb_stub_code, (size_t)(vb_stub_end_of_code - vb_stub_code));
}
static void strike_requests(char *w)
{
    anonymous_at(w + VB_WINDOW_CODE, VB_WINDOW_SPLIT - VB_WINDOW_CODE);
}
static void strike_last_page(char *w)
{
    anonymous_at(w + VB_WINDOW_SPLIT - 4096, 4096);
}
/* Maps the correct file at the correct address, but privately, so that /proc/self/mem could write to the pages. */
static void strike_private(char *w)
{
    (void)mmap(w + VB_WINDOW_CODE, VB_WINDOW_SPLIT - VB_WINDOW_CODE, PROT_READ, MAP_PRIVATE | MAP_FIXED, theirs[0],
               4096);
}
static void strike_results_as_requests(char *w)
{
    (void)mmap(w + VB_WINDOW_CODE, VB_WINDOW_SPLIT - VB_WINDOW_CODE, PROT_READ, MAP_SHARED | MAP_FIXED, theirs[1],
               4096);
}
static void strike_order(char *w) /* maps the window's pages in a different order */
{
    (void)mmap(w + VB_WINDOW_CODE, 4096, PROT_READ, MAP_SHARED | MAP_FIXED, theirs[0], (off_t)2 * 4096);
}
static void strike_executable(char *w)
{
    mprotect(w + VB_WINDOW_CODE, 4096, PROT_READ | PROT_EXEC);
}
static void strike_files(char *w) /* before the memfds are mapped, replaces them with other files */
{
    (void)w;
    for (int i = 0; i < 2; i++) {
        int fd = memfd_create("hawser-verbs", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (ftruncate(fd, VB_WINDOW_SPLIT) == 0)
            dup2(fd, theirs[i]);
        close(fd);
    }
}
static void strike_close(char *w)
{
    (void)w;
    close(theirs[0]);
    close(theirs[1]);
}

static void *striker(void *arg)
{
    (void)arg;
    while (app_at_step()) {
        find_theirs();
        strike((char *)(uintptr_t)common->at_window); /* NOLINT: an address of this process */
        app_step_done();
    }
    return NULL;
}

static void app_struck(void)
{
    pthread_t t;
    pthread_create(&t, NULL, striker, NULL);
    int fd = null_fd();
    common->out[0] = reg(fd);
    common->out[2] = common->done; /* set if the attack was made */
    vb_inject_hook = NULL;
    common->out[1] = reg(fd);
    common->stop = true;
    pthread_join(t, NULL);
}

static void test_during(void)
{
    static const struct {
        const char *what;
        void (*by)(char *w);
        int step, nth;
        int want; /* result of the first request; 0 means any error that is not from the stub */
    } strikes[] = {
        {"munmap before it is whole", strike_unmap, VB_STEP_MMAP, 1, 0},
        {"munmap before mseal", strike_unmap, VB_STEP_MSEAL, 0, 0},
        {"munmap of a page", strike_unmap_one, VB_STEP_MSEAL, 0, 0},
        {"munmap before madvise", strike_unmap, VB_STEP_MADVISE, 0, 0},
        {"other code", strike_code, VB_STEP_MSEAL, 0, -EPROTO},
        {"other code before clone", strike_code, VB_STEP_CLONE, 0, -EPROTO},
        {"other requests", strike_requests, VB_STEP_MSEAL, 0, -EPROTO},
        {"another last page of requests", strike_last_page, VB_STEP_MSEAL, 0, -EPROTO},
        {"a private mapping of the same file", strike_private, VB_STEP_MSEAL, 0, -EPROTO},
        {"results for requests", strike_results_as_requests, VB_STEP_MSEAL, 0, -EPROTO},
        {"pages in another order", strike_order, VB_STEP_MSEAL, 0, -EPROTO},
        {"requests executable", strike_executable, VB_STEP_MSEAL, 0, -EPROTO},
        {"other files", strike_files, VB_STEP_MMAP, 1, -EPROTO},
        {"no files", strike_close, VB_STEP_MMAP, 1, -EBADF},
        /* A sealed window cannot change, so the correct stub serves the request. */
        {"munmap behind mseal", strike_unmap, VB_STEP_VERIFY, 0, -ENOTTY},
        {"other code behind mseal", strike_code, VB_STEP_TABLE, 0, -ENOTTY},
        {"other files behind mseal", strike_files, VB_STEP_VERIFY, 0, -ENOTTY},
    };
    for (unsigned i = 0; i < HW_ARRAY_LEN(strikes); i++) {
        /* A wall blocks all attacks on mappings. Attacks on file descriptors are always possible. */
        bool walled = vb_inject_hold == VB_HOLD_WALL,
             at_files = strikes[i].by == strike_files || strikes[i].by == strike_close;
        int step = walled && strikes[i].step == VB_STEP_MSEAL ? VB_STEP_VERIFY : strikes[i].step;
        int want = walled && !at_files ? -ENOTTY : strikes[i].want;
        common_reset();
        common->hook_step = step;
        common->hook_nth = strikes[i].nth;
        vb_inject_hook = hook_wait;
        strike = strikes[i].by;
        m = (struct mini){.n = 0};
        app_start(&a, app_struck, true);
        bool ended = mini_serve(&m, &a, 60);
        int64_t got = common->out[0];
        bool right = want ? got == want : got < 0 && got != -ENOTTY;
        ok(ended && right && common->out[2] == step + 1, "%s: %s", strikes[i].what,
           got == -ENOTTY ? "it does not land" : hw_errno_name((int)got));
        if (!right || !ended)
            diag("got %d, %s", (int)got, m.text);
        is_int(common->out[1], -ENOTTY, "the next request has a good stub");
        mini_end(&m);
    }
}

/* --- random attacks: threads continuously map and unmap memory where the window will be --- */
static void *scramble(void *arg)
{
    (void)arg;
    while (!common->stop) {
        char *p = mmap(NULL, VB_WINDOW_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        munmap(p, VB_WINDOW_SIZE);
        anonymous_at(p + VB_WINDOW_CODE, 4096);
        munmap(p, VB_WINDOW_SIZE);
    }
    return NULL;
}

static void app_scrambled(void)
{
    pthread_t t[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, scramble, NULL);
    int fd = null_fd(), good = 0;
    for (int i = 0; i < 60; i++)
        good += reg(fd) == -ENOTTY;
    common->stop = true;
    common->out[0] = good;
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
}

static void test_chance(void)
{
#if HW_ASAN
    tap_skip("a program that unmaps where windows may be", "AddressSanitizer maps and unmaps there, too");
    return;
#endif
    common_reset();
    m = (struct mini){.end_each = true};
    app_start(&a, app_scrambled, true);
    ok(mini_serve(&m, &a, 100), "a program that unmaps where windows may be ends well");
    diag("%u injected, %u not (%s), %u results", m.injected, m.failed, m.text, m.results);
    is_int(m.injected + m.failed, 60, "each injection succeeds or fails");
    is_int(common->out[0], m.injected, "and each that succeeds gives a result");
    mini_end(&m);
}

/* --- the thread's own code changes while the broker makes system calls through this code --- */
static uint8_t *own_code;

static void strike_instruction(char *w)
{
    (void)w;
    own_code[0] = 0x90; /* replaces the syscall instruction with two nops */
    own_code[1] = 0x90;
}

static void app_own_code(void)
{
    own_code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static const uint8_t code[] = {0x0f, 0x05, 0xc3}; /* syscall; ret */
    memcpy(own_code, code, sizeof(code));
    pthread_t t;
    pthread_create(&t, NULL, striker, NULL);
    long fd = null_fd(), rax = SYS_ioctl;
    uint64_t request = 0;
    __asm__ volatile("call *%[code]"
                     : "+a"(rax)
                     : "D"(fd), "S"((long)RDMA_VERBS_IOCTL), "d"(&request), [code] "r"(own_code)
                     : "rcx", "r11", "memory", "cc");
    common->out[0] = rax;
    common->stop = true;
    pthread_join(t, NULL);
}

static void test_own_code(void)
{
    common_reset();
    common->hook_step = vb_inject_hold == VB_HOLD_WALL ? VB_STEP_MADVISE : VB_STEP_MSEAL;
    vb_inject_hook = hook_wait;
    strike = strike_instruction;
    m = (struct mini){.n = 0};
    app_start(&a, app_own_code, true);
    mini_serve(&m, &a, 60); /* any result is acceptable, because the program harms only itself */
    ok(a.ended, "a thread whose instructions change ends somehow");
    is_int(m.injected, 0, "and has no stub");
    diag("%d, %s", m.last_rc, m.text);
    mini_end(&m);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "wall") == 0)
        vb_inject_hold = VB_HOLD_WALL;
    int rc = vb_inject_possible();
    if (rc)
        tap_skip_all("%s", hw_error());
    test_behind();
    test_sibling();
    test_during();
    if (vb_inject_hold != VB_HOLD_WALL) /* needs a new stub per request; a wall allows only one */
        test_chance();
    test_own_code();
    return tap_done();
}
