/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the device files of a plan. */
#include "net/sysfs.h"
#include "oci/spec.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct work {
    int root;
    struct sbx_devs *out;
    const struct hw_logger *log;
};

static int add_device_file(struct work *w, const char *path, bool must)
{
    struct stat st;
    struct sbx_dev *v = w->out->v;
    int fd = hw_root_fd(w->root, O_PATH | O_NOFOLLOW, "dev/%s", path);
    bool there = fd >= 0 && fstat(fd, &st) == 0 && S_ISCHR(st.st_mode);
    hw_close(&fd);
    if (!there) {
        if (must)
            hw_log(w->log, HAWSER_LOG_WARN,
                   "/dev/%s is missing or is not a character device, so the sandbox will not have it", path);
        return 0;
    }
    v = reallocarray(v, w->out->n + 1, sizeof(*v));
    if (!v)
        return hw_no_memory("the devices");
    w->out->v = v;
    v[w->out->n] = (struct sbx_dev){.major = major(st.st_rdev), .minor = minor(st.st_rdev)};
    snprintf(v[w->out->n].path, sizeof(v->path), "/dev/%.100s", path);
    w->out->n++;
    return 0;
}

/* Returns the minor number of a GPU's device file, or -1 if NVIDIA's driver does not manage the GPU. */
static int gpu_minor(int root, const char *at)
{
    static const char key[] = "Device Minor:";
    char text[4096];
    int rc = hw_root_text(root, text, sizeof(text), "proc/driver/nvidia/gpus/%s/information", at);
    const char *line = rc < 0 ? NULL : strstr(text, key);
    char *end;
    long n = line ? strtol(line + sizeof(key) - 1, &end, 10) : -1;
    return n >= 0 && n < 4096 ? (int)n : -1;
}

int sbx_devs_find(struct sbx_devs *out, int root, const struct sbx_snapshot *s, const struct sbx_plan *p,
                  const struct hw_logger *log)
{
    static const char *const of_gpus[] = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"};
    struct work w = {root, out, log};
    char path[SBX_NAME + 16];
    int rc;
    size_t gpus = 0, uverbs = 0;
    *out = (struct sbx_devs){0};
    for (size_t i = 0; i < p->n_gpu; i++) {
        int minor = p->gpu[i].why[0] ? -1 : gpu_minor(root, p->gpu[i].at);
        if (minor < 0)
            continue;
        snprintf(path, sizeof(path), "nvidia%d", minor);
        if ((rc = add_device_file(&w, path, true)) < 0)
            return rc;
        gpus++;
    }
    for (size_t i = 0; gpus && i < HW_ARRAY_LEN(of_gpus); i++)
        if ((rc = add_device_file(&w, of_gpus[i], false)) < 0)
            return rc;
    for (size_t i = 0; i < p->n_rdma; i++) {
        const struct sbx_rdma *r = &s->rdma[p->rdma[i].rdma];
        if (p->rdma[i].why[0] || !r->uverbs[0])
            continue;
        snprintf(path, sizeof(path), "infiniband/%s", r->uverbs);
        if ((rc = add_device_file(&w, path, true)) < 0)
            return rc;
        uverbs++;
    }
    return uverbs ? add_device_file(&w, "infiniband/rdma_cm", false) : 0;
}

void sbx_devs_free(struct sbx_devs *d)
{
    free(d->v);
    *d = (struct sbx_devs){0};
}
