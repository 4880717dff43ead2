/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of fake GPUs in other processes: maps the same pages from the other process's memfd. */
#include "internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x6370696b65616675ull

/* The contents of an IPC handle. */
struct ticket {
    uint64_t magic, offset, len; /* offset and len in the file; offset need not be page-aligned */
    int32_t pid, fd, device;
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "it fits");

CUresult fake_IpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr ptr)
{
    ENTER_CONTEXT("cuIpcGetMemHandle", ctx);
    const struct range *r = fake_range(ptr);
    if (!r || r->kind != DEVICE || !r->ctx || r->imported) /* managed, mapped or imported memory */
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    const struct gpu *g = &fake_gpus[r->device];
    const struct ticket t = {.magic = MAGIC,
                             .offset = r->start - (uintptr_t)g->base,
                             .len = r->len,
                             .pid = (int32_t)getpid(),
                             .fd = g->fd,
                             .device = r->device};
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &t, sizeof(t));
    return fake_leave(CUDA_SUCCESS);
}

/* Maps the ticket's page range with the given protection. */
static char *map(int fd, const struct ticket *t, int prot)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before = t->offset % page;
    char *p = mmap(NULL, before + t->len, prot, MAP_SHARED, fd, (off_t)(t->offset - before));
    return p == MAP_FAILED ? NULL : p + before;
}

static void unmap(char *at, size_t len)
{
    const uintptr_t before = (uintptr_t)at % (uintptr_t)sysconf(_SC_PAGESIZE);
    if (at)
        munmap(at - before, before + len);
}

CUresult fake_IpcOpenMemHandle(CUdeviceptr *ptr, CUipcMemHandle handle, unsigned flags)
{
    ENTER_CONTEXT("cuIpcOpenMemHandle_v2", ctx);
    struct ticket t;
    struct stat st;
    char path[64];
    memcpy(&t, &handle, sizeof(t));
    if (t.magic != MAGIC || t.len == 0 || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || t.device != ctx->device)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    if (t.pid == (int32_t)getpid())
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_CONTEXT)); /* as the real driver does */
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)t.pid, (int)t.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    char *base = NULL, *alias = NULL;
    if (fstat(fd, &st) == 0 && t.offset <= (uint64_t)st.st_size && t.len <= (uint64_t)st.st_size - t.offset) {
        base = map(fd, &t, PROT_NONE);
        alias = map(fd, &t, PROT_READ | PROT_WRITE);
    }
    close(fd);
    if (!base || !alias) {
        unmap(base, t.len);
        unmap(alias, t.len);
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    }
    (void)fake_range_add((struct range){
        .start = (uintptr_t)base, .len = t.len, .kind = DEVICE, .device = ctx->device, .ctx = ctx, .imported = alias});
    *ptr = (uintptr_t)base;
    return fake_leave(CUDA_SUCCESS);
}

CUresult fake_IpcCloseMemHandle(CUdeviceptr ptr)
{
    ENTER_CONTEXT("cuIpcCloseMemHandle", ctx);
    struct range *r = fake_range(ptr);
    if (!r || !r->imported || r->start != ptr)
        return fake_leave(fake_misuse(CUDA_ERROR_INVALID_VALUE));
    unmap((char *)(uintptr_t)r->start, r->len);
    unmap(r->imported, r->len);
    fake_range_remove(r);
    return fake_leave(CUDA_SUCCESS);
}
