/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the wall around a stub's window, for kernels without mseal(). The attacks are calls whose range starts below
 * the window, calls that name no mapping, and programs that are loaded at the window's address. Without the filter,
 * each attack must succeed. For attacks on the window itself, see test_verbs_attack with the argument "wall". */
#include "tests/tap.h"
#include "verbs_stub.h"

#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct app a;
static struct mini m;

#define WALL ((char *)VB_WALL_AT) /* NOLINT: an address of this process */

static void by_munmap(void)
{
    (void)syscall(SYS_munmap, 0, VB_WALL_END);
}

/* Fails because mapping at address 0 is forbidden, but only after the kernel has unmapped the old mapping
 * (mm/mremap.c). */
static void by_mremap(void)
{
    const size_t n = VB_WALL_END;
    char *from = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)syscall(SYS_mremap, from, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, 0);
}

/* Maps from the second page on. Only root may do so (vm.mmap_min_addr). */
static void by_mmap(void)
{
    (void)mmap((char *)4096, VB_WALL_END - 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
               0); /* NOLINT */
}

static void by_shmat(void)
{
    int id = shmget(IPC_PRIVATE, VB_WINDOW_SIZE, 0600);
    (void)shmat(id, WALL, SHM_REMAP);
    shmctl(id, IPC_RMID, NULL);
}

/* Declares the window to be the program's heap, then frees the heap. */
static void by_brk(void)
{
    const uint64_t at = VB_WALL_AT, end = at + VB_WINDOW_SIZE;
    struct prctl_mm_map map = {.start_code = at,
                               .end_code = end,
                               .start_data = at,
                               .end_data = at,
                               .start_brk = at,
                               .brk = end,
                               .start_stack = end,
                               .arg_start = at,
                               .arg_end = at,
                               .env_start = at,
                               .env_end = at,
                               .exe_fd = UINT32_MAX};
    (void)prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0);
    (void)syscall(SYS_brk, at);
}

static const struct {
    const char *what;
    void (*by)(void);
} attack[] = {
    {"munmap() from 0 on", by_munmap},
    {"mremap() onto 0", by_mremap},
    {"mmap() from a page below on", by_mmap},
    {"shmat() with SHM_REMAP", by_shmat},
    {"brk() of a heap that is said to be there", by_brk},
};

/* Returns true if the original mapping still exists and starts with byte x. */
static bool is_there(char x)
{
    unsigned char in[8];
    return mincore(WALL, VB_WINDOW_SIZE, in) == 0 && *(volatile char *)WALL == x;
}

static int control(void (*by)(void))
{
    int status = -1;
    pid_t pid = fork();
    if (pid == 0) {
        char *p =
            mmap(WALL, VB_WINDOW_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (p != WALL)
            _exit(9);
        *p = 'x';
        by();
        _exit(is_there('x') ? 1 : 0);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void app_attacks(void)
{
    int fd = null_fd();
    common->out[0] = reg(fd);
    for (unsigned i = 0; i < HW_ARRAY_LEN(attack); i++) {
        attack[i].by();
        common->out[2 + i] = is_there((char)vb_stub_code[0]) && reg(fd) == -ENOTTY;
    }
    common->out[1] = reg(fd);
}

static void test_around(void)
{
    for (unsigned i = 0; i < HW_ARRAY_LEN(attack); i++)
        is_int(control(attack[i].by), 0, attack[i].what);
    common_reset();
    m = (struct mini){.n = 0};
    app_start(&a, app_attacks, true);
    ok(mini_serve(&m, &a, 60), "a program that attacks its window from outside ends well");
    is_int(common->out[0], -ENOTTY, "it had its stub");
    is_int((int64_t)common->window, VB_WALL_AT, "at the wall's place");
    for (unsigned i = 0; i < HW_ARRAY_LEN(attack); i++)
        ok(common->out[2 + i] == 1, "the wall holds: %s", attack[i].what);
    is_int(common->out[1], -ENOTTY, "and the stub serves on");
    is_int(m.injected, 1, "the same");
    mini_end(&m);
}

/* --- programs that are loaded at the window's address --- */
static const char *low;

static void app_low(void)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", dup(null_fd())); /* dup() clears close-on-exec */
    personality(ADDR_NO_RANDOMIZE);
    execl(low, low, text, (char *)NULL);
    _exit(98);
}

static void loaded(const char *program, int want, const char *what)
{
    common_reset();
    low = program;
    m = (struct mini){.n = 0};
    app_start(&a, app_low, true);
    mini_serve(&m, &a, 60);
    ok(a.ended && WIFEXITED(a.status) && WEXITSTATUS(a.status) == want, "a program that is loaded %s gets %s", what,
       strerror(want));
    is_int(m.injected, 0, "no stub");
    diag("status 0x%x: %s", a.status, m.text);
    mini_end(&m);
}

static void test_loaded(const char *at, const char *behind)
{
    loaded(at, EEXIST, "where the window would be");
    loaded(behind, EOPNOTSUPP, "right behind, so that its heap could be made to reach there");
}

int main(int argc, char **argv)
{
    vb_inject_hold = VB_HOLD_WALL;
    int rc = vb_inject_possible();
    if (rc)
        tap_skip_all("%s", hw_error());
    test_around();
    if (argc == 3)
        test_loaded(argv[1], argv[2]);
    return tap_done();
}
