/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes journals as files. */
#include "sandbox/netdev/journal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (64u << 20)
#define LOCK_WAIT_MS   60000

static void file_name(char out[SB_ID_MAX + 16], const char *id, const char *suffix)
{
    snprintf(out, SB_ID_MAX + 16, "%.*s%s", SB_ID_MAX, id, suffix);
}

int sb_id_check(const char *id)
{
    static const char alnum[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    size_t n = strlen(id), good = 0;
    while (id[good] && (strchr(alnum, id[good]) || (good > 0 && strchr("_-.+", id[good]))))
        good++;
    if (n == 0 || n > SB_ID_MAX || good < n)
        return hw_fail(-EINVAL,
                       "'%.64s' is not a valid container ID: expected at most %d letters, digits and _-.+, beginning "
                       "with a letter or digit",
                       id, SB_ID_MAX);
    return 0;
}

int sb_dir_open(const char *dir, bool make)
{
    if (!dir)
        dir = SB_JOURNAL_DIR;
    char path[512];
    if (strlen(dir) >= sizeof(path))
        return hw_fail(-ENAMETOOLONG, "the journal folder's name is too long: %.64s...", dir);
    /* Creates all missing parent folders too, since /run/hawser does not survive a reboot. Only the last folder is
     * inaccessible to other users. */
    for (const char *p = dir; make && (p = strchr(p + 1, '/')) != NULL;) {
        memcpy(path, dir, (size_t)(p - dir));
        path[p - dir] = 0;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return hw_fail(-errno, "creating %s: %s", path, strerror(errno));
    }
    if (make && mkdir(dir, 0700) < 0 && errno != EEXIST)
        return hw_fail(-errno, "creating the journal folder %s: %s", dir, strerror(errno));
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? hw_fail(-errno, "opening the journal folder %s: %s", dir, strerror(errno)) : fd;
}

int sb_dir_lock(int fd)
{
    uint64_t deadline = hw_deadline(LOCK_WAIT_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return hw_fail(-errno, "locking the journal folder: %s", strerror(errno));
        if (hw_now() >= deadline)
            return hw_fail(-EBUSY, "another process has locked the journal folder, and did not release it within %d s",
                           LOCK_WAIT_MS / 1000);
        (void)poll(NULL, 0, 20);
    }
    return 0;
}

static int write_journal_bytes(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return k < 0 ? -errno : -EIO;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

int sb_journal_step(struct sb_journal *j, enum sb_kind kind, int nic, const void *data, size_t len)
{
    int rc = sb_journal_add(j, kind, nic, data, len);
    if (rc < 0 || j->fd < 0)
        return rc;
    uint32_t crc = j->crc;
    size_t n;
    char *line = sb_journal_line(&j->rec[j->n - 1], &crc, &n);
    if (!line)
        return hw_no_memory("a journal");
    rc = write_journal_bytes(j->fd, line, n);
    if (rc == 0 && fdatasync(j->fd) < 0)
        rc = -errno;
    free(line);
    if (rc < 0) {
        /* Nothing may follow an incomplete line. If the line cannot be removed, no more lines are written. */
        if (ftruncate(j->fd, (off_t)j->size) < 0)
            hw_close(&j->fd);
        return hw_fail(rc, "writing to the journal: %s", strerror(-rc));
    }
    j->crc = crc;
    j->size += n;
    return 0;
}

/* A process that has locked the journals' folder also holds this lock while it works on the journal.
 * sb_journal_locked() only tests this lock. */
static int lock_journal(int fd, const char *id)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    if (fcntl(fd, F_OFD_SETLK, &whole) < 0)
        return hw_fail(-errno, "locking the journal of %s: %s", id, strerror(errno));
    return 0;
}

int sb_journal_create(struct sb_journal *j, int dir, const char *id)
{
    char name[SB_ID_MAX + 16], fresh[SB_ID_MAX + 16];
    size_t n;
    uint32_t crc;
    file_name(name, id, ".journal");
    file_name(fresh, id, ".new");
    if (sb_journal_there(dir, id))
        return hw_fail(-EEXIST, "there is already a journal of %s: run `hawser sandbox restore %s` first", id, id);
    char *text = sb_journal_text(j, &n, &crc);
    if (!text)
        return hw_no_memory("a journal");
    int rc = 0;
    /* The folder is locked, so an existing file with that name was left by a crash. */
    int fd = openat(dir, fresh, O_RDWR | O_APPEND | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        rc = hw_fail(-errno, "creating the journal of %s: %s", id, strerror(errno));
        goto out;
    }
    rc = lock_journal(fd, id);
    if (rc == 0 && (rc = write_journal_bytes(fd, text, n)) < 0)
        rc = hw_fail(rc, "writing the journal of %s: %s", id, strerror(-rc));
    if (rc == 0 && fdatasync(fd) < 0)
        rc = hw_fail(-errno, "writing the journal of %s: %s", id, strerror(errno));
    if (rc == 0 && renameat(dir, fresh, dir, name) < 0)
        rc = hw_fail(-errno, "renaming the journal of %s: %s", id, strerror(errno));
    if (rc < 0) {
        (void)unlinkat(dir, fresh, 0);
        goto out;
    }
    if (fsync(dir) < 0) {
        rc = hw_fail(-errno, "writing the journal folder: %s", strerror(errno));
        (void)unlinkat(dir, name, 0);
        goto out;
    }
    j->crc = crc;
    j->size = n;
    j->fd = fd;
    fd = -1;
out:
    hw_close(&fd);
    free(text);
    return rc;
}

static int read_journal_file(int fd, char **out, size_t *len)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
        return -EFBIG;
    size_t cap = (size_t)st.st_size + 1, n = 0;
    char *text = malloc(cap);
    if (!text)
        return -ENOMEM;
    while (n < cap) {
        ssize_t k = pread(fd, text + n, cap - n, (off_t)n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0) {
            int rc = -errno;
            free(text);
            return rc;
        }
        if (k == 0)
            break;
        n += (size_t)k;
    }
    *out = text;
    *len = HW_MIN(n, (size_t)st.st_size);
    return 0;
}

int sb_journal_load(struct sb_journal *j, int dir, const char *id, bool write)
{
    char name[SB_ID_MAX + 16], *text = NULL;
    size_t n = 0;
    sb_journal_init(j);
    file_name(name, id, ".journal");
    /* O_NONBLOCK, because opening a FIFO would wait for a writer */
    int fd = openat(dir, name, (write ? O_RDWR : O_RDONLY) | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return hw_fail(-errno, "opening the journal of %s: %s", id, strerror(errno));
    int rc = write ? lock_journal(fd, id) : 0;
    if (rc == 0) {
        rc = read_journal_file(fd, &text, &n);
        if (rc < 0)
            rc = hw_fail(rc, "reading the journal of %s: %s", id, strerror(-rc));
    }
    if (rc == 0) {
        rc = sb_journal_parse(j, text, n);
        free(text);
        if (rc < 0)
            rc = hw_wrap(rc, "the journal of %s", id);
    }
    if (rc == 0 && write && j->torn && ftruncate(fd, (off_t)j->size) < 0)
        rc = hw_fail(-errno, "truncating the journal of %s: %s", id, strerror(errno));
    if (rc == 0 && write) {
        j->fd = fd;
        fd = -1;
    }
    hw_close(&fd);
    if (rc < 0)
        sb_journal_free(j);
    return rc;
}

bool sb_journal_there(int dir, const char *id)
{
    char name[SB_ID_MAX + 16];
    file_name(name, id, ".journal");
    return faccessat(dir, name, F_OK, 0) == 0;
}

bool sb_journal_locked(int dir, const char *id)
{
    char name[SB_ID_MAX + 16];
    file_name(name, id, ".journal");
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    bool locked = fd >= 0 && fcntl(fd, F_OFD_GETLK, &whole) == 0 && whole.l_type != F_UNLCK;
    hw_close(&fd);
    return locked;
}

int sb_journal_remove(int dir, const char *id)
{
    static const char *const suffixes[] = {".journal", ".new"}; /* .new is left by a crash in sb_journal_create() */
    char name[SB_ID_MAX + 16];
    for (size_t i = 0; i < HW_ARRAY_LEN(suffixes); i++) {
        file_name(name, id, suffixes[i]);
        if (unlinkat(dir, name, 0) < 0 && errno != ENOENT)
            return hw_fail(-errno, "removing the journal of %s: %s", id, strerror(errno));
    }
    return 0;
}
