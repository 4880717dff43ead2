/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the parent and the child share, and its registrations. */
#include "transport/netplugin/host/host_inner.h"

#include "transport/netplugin/table/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int map_in_child(struct np_mem *m, int fd, uint64_t offset)
{
    struct np_message q = {.op = NP_OP_MAP, .number = m->id, .offset = offset, .len = m->len};
    return np_ask(m->h, &q, &fd, 1, NULL);
}

static int new_mem(struct np_host *h, size_t len, struct np_mem **out)
{
    struct np_mem *m = calloc(1, sizeof(*m));
    const int id = m ? np_number(h, h->mem, NP_MEMS) : -1;
    if (!m)
        return hw_no_memory("a block of memory of plugin %s", h->name);
    if (id < 0) {
        free(m);
        return hw_fail(-ENOMEM, "plugin %s: too many blocks of memory: at most %d", h->name, NP_MEMS);
    }
    m->h = h;
    m->id = (uint32_t)id;
    m->len = len;
    pthread_mutex_lock(&h->lock);
    hw_list_append(&h->mems, &m->link);
    pthread_mutex_unlock(&h->lock);
    *out = m;
    return 0;
}

static void unmap_plugin_mem(struct np_mem *m)
{
    if (m->gpu)
        hw_cuda_ipc_close(m->gpu, m->at, m->gpu_offset);
    else if (m->ours && m->at)
        munmap(m->at, m->len);
    m->at = NULL;
}

void np_mem_drop(struct np_mem *m)
{
    unmap_plugin_mem(m);
    free(m);
}

static void remove_plugin_mem(struct np_mem *m)
{
    pthread_mutex_lock(&m->h->lock);
    hw_list_remove(&m->link);
    m->h->mem[m->id] = false;
    pthread_mutex_unlock(&m->h->lock);
    np_mem_drop(m);
}

int np_mem_alloc(struct np_host *h, size_t len, struct np_mem **out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct np_mem *m = NULL;
    void *at;
    int fd, rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (len == 0 || len > SIZE_MAX / 2)
        return hw_fail(-EINVAL, "plugin %s: cannot allocate %zu bytes of memory: invalid size", h->name, len);
    rc = new_mem(h, (len + page - 1) / page * page, &m);
    if (rc < 0)
        return rc;
    rc = np_shared_memory("hawser-plugin-memory", m->len, &fd, &at);
    if (rc == 0) {
        m->ours = true;
        m->at = at;
        rc = map_in_child(m, fd, 0);
        hw_close(&fd);
    }
    if (rc < 0) {
        remove_plugin_mem(m);
        return rc;
    }
    *out = m;
    return 0;
}

int np_mem_import(struct np_host *h, void *ptr, size_t len, int fd, uint64_t offset, struct np_mem **out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct stat st;
    struct np_mem *m = NULL;
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (fd < 0)
        return hw_fail(-EOPNOTSUPP,
                       "plugin %s runs in its own process, which cannot reach %zu bytes at %p of this process: copy "
                       "them through memory from np_mem_alloc()",
                       h->name, len, ptr);
    if (len == 0 || offset % page || (uintptr_t)ptr % page)
        return hw_fail(-EINVAL,
                       "plugin %s: cannot share %zu bytes at %p, offset %llu: the size must not be 0, and address and "
                       "offset must be multiples of the page size",
                       h->name, len, ptr, (unsigned long long)offset);
    if (fstat(fd, &st) < 0 || offset > (uint64_t)st.st_size || len > (uint64_t)st.st_size - offset)
        return hw_fail(-EINVAL, "plugin %s: the file of the shared memory is too short for %zu bytes at offset %llu",
                       h->name, len, (unsigned long long)offset);
    rc = new_mem(h, len, &m);
    if (rc < 0)
        return rc;
    m->at = ptr;
    rc = map_in_child(m, fd, offset);
    if (rc < 0) {
        remove_plugin_mem(m);
        return rc;
    }
    *out = m;
    return 0;
}

int np_gpu(struct np_host *h, unsigned dev, int gpu)
{
    struct np_message q = {.op = NP_OP_GPU, .number = dev, .memory = np_gpu_word(gpu)};
    struct np_reply r;
    int rc = np_usable(h);
    if (rc)
        return rc;
    if (dev >= h->info.devices)
        return hw_fail(-ENODEV, "plugin %s: device %u does not exist: the number of devices is %u", h->name, dev,
                       h->info.devices);
    rc = np_ask(h, &q, NULL, 0, &r);
    return rc ? rc : r.u.gpu.device;
}

bool np_warn_once(struct np_host *h)
{
    return !atomic_exchange(&h->warned, true);
}

int np_mem_alloc_on(struct np_host *h, const struct hw_space *space, size_t len, struct np_mem **out)
{
    /* The driver shares whole pieces of this size, so no other data may be in these pieces. */
    const size_t piece = (size_t)2 << 20;
    struct np_mem *m = NULL;
    struct np_reply r;
    void *at;
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (len == 0 || len > SIZE_MAX / 2 || space->device < 0)
        return hw_fail(-EINVAL, "plugin %s: cannot allocate %zu bytes of memory of %s", h->name, len, space->name);
    rc = new_mem(h, (len + piece - 1) / piece * piece, &m);
    if (rc < 0)
        return rc;
    struct np_message q = {.op = NP_OP_ALLOC, .number = m->id, .memory = (uint32_t)space->device, .len = m->len};
    rc = np_ask(h, &q, NULL, 0, &r);
    if (rc < 0) {
        remove_plugin_mem(m);
        return rc;
    }
    rc = hw_cuda_ipc_open(space, &r.u.gpu.handle, r.u.gpu.offset, m->len, &at);
    if (rc < 0) {
        HW_KEEP_ERROR();
        (void)np_mem_free(m);
        return rc;
    }
    m->gpu = space;
    m->gpu_offset = r.u.gpu.offset;
    m->at = at;
    *out = m;
    return 0;
}

void *np_mem_ptr(const struct np_mem *m)
{
    return m->at;
}

int np_mem_free(struct np_mem *m)
{
    struct np_message q = {.op = NP_OP_UNMAP, .number = m->id};
    if (m->regs > 0)
        return hw_fail(-EBUSY, "plugin %s: the memory is still registered (registrations: %u)", m->h->name, m->regs);
    if (m->gpu) /* the parent unmaps the memory before the child frees it */
        unmap_plugin_mem(m);
    (void)np_ask(m->h, &q, NULL, 0,
                 NULL); /* the result is ignored, because the memory is freed even if the child is dead */
    remove_plugin_mem(m);
    return 0;
}

/* ---- registrations -------------------------------------------------------------------------- */

int np_reg(struct np_comm *c, struct np_mem *m, size_t offset, size_t len, struct np_mr **out)
{
    struct np_host *h = c->h;
    const size_t most = np_table_reg_max(h->info.version);
    const uint32_t align = h->info.quirk->align;
    int rc = np_usable(h);
    if (rc < 0)
        return rc;
    if (!c->open || m->h != h)
        return hw_fail(-EINVAL,
                       "plugin %s: cannot register memory: the connection is not established, or the memory belongs to "
                       "another plugin process",
                       h->name);
    if (len == 0 || offset > m->len || len > m->len - offset)
        return hw_fail(-EINVAL, "plugin %s: cannot register %zu bytes at offset %zu of a block of %zu bytes", h->name,
                       len, offset, m->len);
    if (len > most)
        return hw_fail(
            -EMSGSIZE,
            "plugin %s: its table v%u registers at most %zu bytes at a time, not %zu: register the memory in pieces",
            h->name, h->info.version, most, len);
    if (align && offset % align)
        return hw_fail(-EINVAL, "plugin %s: cannot register memory at offset %zu: the offset must be a multiple of %u",
                       h->name, offset, align);
    struct np_mr *mr = calloc(1, sizeof(*mr));
    const int id = mr ? np_number(h, h->mr, NP_MRS) : -1;
    if (!mr)
        return hw_no_memory("a registration with plugin %s", h->name);
    if (id < 0) {
        free(mr);
        return hw_fail(-ENOMEM, "plugin %s: too many registrations: at most %d", h->name, NP_MRS);
    }
    struct np_message q = {
        .op = NP_OP_REG, .slot = c->slot, .number = (uint32_t)id, .memory = m->id, .offset = offset, .len = len};
    rc = np_ask(h, &q, NULL, 0, NULL);
    if (rc < 0) {
        np_number_free(h, h->mr, (uint32_t)id);
        free(mr);
        return rc;
    }
    *mr = (struct np_mr){.c = c, .m = m, .id = (uint32_t)id, .len = len};
    hw_list_append(&c->mrs, &mr->link);
    m->regs++;
    *out = mr;
    return 0;
}

int np_dereg(struct np_mr *mr)
{
    struct np_host *h = mr->c->h;
    struct np_message q = {.op = NP_OP_DEREG, .number = mr->id};
    int rc = np_ask(h, &q, NULL, 0, NULL);
    np_number_free(h, h->mr, mr->id);
    hw_list_remove(&mr->link);
    mr->m->regs--;
    free(mr);
    return rc;
}
