/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated kernel's processes, threads, file descriptors and memory. */
#include "fuzz/tenant/tenant.h"

#include <errno.h>

struct t_os t;
struct t_totals t_totals;
bool t_verbose;

T_UNSEEN uint8_t t_byte(void)
{
    if (t.pos < t.size)
        return t.input[t.pos++];
    if (t.tail == 0) {
        t.over = true;
        return 0;
    }
    t.tail--;
    t.random = t.random * 6364136223846793005u + 1442695040888963407u; /* Knuth's 64-bit generator */
    if (t.written)
        fputc((int)(t.random >> 56), t.written);
    return (uint8_t)(t.random >> 56);
}

static void *allocate(size_t n)
{
    void *p = calloc(1, n);
    if (!p)
        abort();
    return p;
}

/* ---- files -------------------------------------------------------------------------------------------- */

struct t_file *t_file_new(enum t_kind kind)
{
    struct t_file *f = allocate(sizeof *f);
    f->kind = kind;
    f->refs = 1;
    return f;
}

/* Ends an inode when the last file descriptor of its node is closed. */
static void end_inode(const struct t_file *f)
{
    struct t_file **at = &t.nodes;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    t.inode[f->ino] = false;
    if (f->watch && t.n_ended < HW_ARRAY_LEN(t.ended))
        t.ended[t.n_ended++] = f->watch;
}

T_UNSEEN void t_file_put(struct t_file *f)
{
    if (!f || --f->refs)
        return;
    for (unsigned i = 0; i < t.n_watched; i++) {
        if (t.watched[i].file == f)
            t.watched[i--] = t.watched[--t.n_watched];
    }
    if (f->kind == T_DEVICE && !f->stranger)
        end_inode(f);
    if (f->kind == T_LISTENER) { /* waiting calls return ENOSYS */
        for (unsigned i = 0; i < T_THREADS; i++) {
            struct t_thread *th = &t.thread[i];
            if (th->used && !th->zombie && th->process->listener == f) {
                th->process->listener = NULL;
                if (th->call != T_IDLE)
                    t_call_end(th, -ENOSYS);
            }
        }
        for (struct t_process *p = t.processes; p; p = p->next) {
            if (p->listener == f)
                p->listener = NULL;
        }
    }
    free(f);
}

T_UNSEEN int t_broker_fd(struct t_file *f)
{
    for (int i = 0; i < T_FDS; i++) {
        if (!t.broker[i].file) {
            t.broker[i].file = f;
            return T_FD_FIRST + i;
        }
    }
    t_file_put(f);
    errno = EMFILE;
    return -1;
}

T_UNSEEN struct t_file *t_broker_file(int fd)
{
    struct t_file *f = fd >= T_FD_FIRST && fd < T_FD_FIRST + T_FDS ? t.broker[fd - T_FD_FIRST].file : NULL;
    if (!f)
        errno = EBADF;
    return f;
}

/* ---- tables of descriptors ---------------------------------------------------------------------------- */

T_UNSEEN struct t_table *t_table_copy(const struct t_table *from, bool exec)
{
    struct t_table *table = allocate(sizeof *table);
    table->refs = 1;
    for (unsigned i = 0; from && i < T_TABLE; i++) {
        if (from->fd[i].file && !(exec && from->fd[i].cloexec)) {
            table->fd[i] = from->fd[i];
            table->fd[i].file->refs++;
        }
    }
    return table;
}

T_UNSEEN void t_table_put(struct t_table *table)
{
    if (--table->refs)
        return;
    for (unsigned i = 0; i < T_TABLE; i++)
        t_file_put(table->fd[i].file);
    free(table);
}

void t_table_set(struct t_table *table, unsigned at, struct t_file *f, bool cloexec)
{
    struct t_file *was = table->fd[at].file;
    table->fd[at] = (struct t_entry){f, cloexec};
    t_file_put(was);
}

T_UNSEEN struct t_file *t_table_get(const struct t_table *table, int64_t fd)
{
    return fd >= 0 && fd < T_TABLE ? table->fd[fd].file : NULL;
}

/* ---- memory ------------------------------------------------------------------------------------------- */

#define TAG_BASE 0x4000000u

struct t_mm *t_mm_new(void)
{
    struct t_mm *mm = allocate(sizeof *mm);
    mm->refs = 1;
    mm->tag = TAG_BASE + ++t.tags * 0x1235;
    return mm;
}

bool t_is_tag(uint32_t tag)
{
    return tag > TAG_BASE && (tag - TAG_BASE) % 0x1235 == 0 && (tag - TAG_BASE) / 0x1235 <= t.tags;
}

void t_window_put(struct t_window *w)
{
    if (!w || --w->refs)
        return;
    free(w->room);
    free(w);
}

void t_mm_put(struct t_mm *mm)
{
    if (--mm->refs)
        return;
    t_window_put(mm->window);
    free(mm);
}

uint64_t t_address(const struct t_mm *mm, uint32_t offset)
{
    return (uint64_t)mm->tag << 20 | offset;
}

uint8_t *t_bytes(struct t_mm *mm, uint64_t address, uint64_t n, uint32_t *made_for)
{
    uint32_t tag = (uint32_t)(address >> 20), at = (uint32_t)(address & 0xfffff);
    *made_for = tag;
    if (address >> 47 || !t_is_tag(tag) || n > T_MEMORY || at + n > T_MEMORY)
        return NULL;
    return mm->byte + at;
}

/* ---- processes ---------------------------------------------------------------------------------------- */

T_UNSEEN struct t_thread *t_thread_by(pid_t tid)
{
    if (tid < 2 || tid >= 2 + T_THREADS)
        return NULL;
    struct t_thread *th = &t.thread[tid - 2];
    return th->used && !th->zombie ? th : NULL;
}

T_UNSEEN struct t_thread *t_thread_serial(uint32_t serial)
{
    for (unsigned i = 0; i < T_THREADS; i++) {
        if (t.thread[i].used && !t.thread[i].zombie && t.thread[i].serial == serial)
            return &t.thread[i];
    }
    return NULL;
}

T_UNSEEN struct t_thread *t_thread_new(struct t_process *p, struct t_table *shared)
{
    unsigned i = t.freed; /* reuse the number freed last, as a program can force by trying all numbers */
    if (t.thread[i].used)
        for (i = 0; i < T_THREADS && t.thread[i].used; i++)
            ;
    if (i == T_THREADS)
        return NULL;
    struct t_thread *th = &t.thread[i];
    *th = (struct t_thread){.used = true, .serial = ++t.serial, .tid = (pid_t)i + 2, .process = p, .nofile = T_TABLE};
    th->table = shared ? shared : t_table_copy(NULL, false);
    if (shared)
        shared->refs++;
    if (!p->threads++ && !p->tgid)
        p->tgid = th->tid;
    return th;
}

struct t_process *t_process_new(struct t_mm *shared, struct t_file *listener, bool stranger)
{
    struct t_process *p = allocate(sizeof *p);
    p->serial = ++t.serial;
    p->mm = shared ? shared : t_mm_new();
    if (shared)
        shared->refs++;
    p->listener = listener;
    p->stranger = stranger;
    p->next = t.processes;
    t.processes = p;
    return p;
}

T_UNSEEN void t_process_drop(struct t_process *p)
{
    for (unsigned i = 0; i < T_THREADS; i++) {
        if (t.thread[i].used && t.thread[i].process == p) { /* the main thread, which was a zombie until now */
            t.thread[i].used = false;
            t.freed = i;
        }
    }
    struct t_process **at = &t.processes;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    t_mm_put(p->mm);
    free(p);
}

void t_thread_end(struct t_thread *th)
{
    struct t_process *p = th->process;
    struct t_table *table = th->table;
    th->call = T_IDLE;
    th->table = NULL;
    th->zombie = true;
    if (th->tid != p->tgid)
        th->used = false;
    t_table_put(table);
    if (--p->threads == 0)
        t_process_drop(p);
}

T_UNSEEN void t_process_end(struct t_process *p)
{
    unsigned left = p->threads;
    for (unsigned i = 0; i < T_THREADS && left; i++) {
        struct t_thread *th = &t.thread[i];
        if (th->used && !th->zombie && th->process == p) {
            left--;
            t_thread_end(th);
        }
    }
}

T_UNSEEN unsigned t_listener_users(const struct t_file *listener)
{
    unsigned n = 0;
    for (unsigned i = 0; i < T_THREADS; i++)
        n += t.thread[i].used && !t.thread[i].zombie && t.thread[i].process->listener == listener;
    return n;
}

/* ---- all ---------------------------------------------------------------------------------------------- */

T_UNSEEN void t_os_start(const uint8_t *input, size_t size)
{
    const char *path = getenv("TENANT_WRITE");
    memset(&t, 0, sizeof t);
    if (path && size > 2) { /* writes the input with the generated bytes included, so that libFuzzer can minimise it */
        t.written = fopen(path, "we");
        if (!t.written)
            abort();
        fputc(input[0], t.written);
        fputc(0, t.written);
        fwrite(input + 2, 1, size - 2, t.written);
        setvbuf(t.written, NULL, _IONBF, 0);
    }
    t.input = input;
    t.size = size;
    for (size_t i = 0; i < size; i++)
        t.random = (t.random ^ input[i]) * 1099511628211u;
    t.now = 1000000000u;
    t.notification = 0x51ce0000;
    t.other = t_file_new(T_DEVICE);
    t.other->stranger = true;
}

T_UNSEEN void t_os_end(void)
{
    if (t.written)
        fclose(t.written);
    while (t.processes)
        t_process_end(t.processes);
    for (int i = 0; i < T_FDS; i++) {
        t_file_put(t.broker[i].file);
        t.broker[i].file = NULL;
    }
    t_file_put(t.joining.listener);
    t_file_put(t.other);
}
