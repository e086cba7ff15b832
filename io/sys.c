#include "io/sys.h"
#include "base/alloc.h"
#include "base/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* One call moves at most this much; the kernel's own limit is a page less than 2 GiB. */
#define MAX_CALL_BYTES ((size_t)1 << 30)
/* Names tried for a temporary file before giving up. */
#define MAX_TMP_NAMES 100

/* -1 with errno, which ooc_fail_errno() may not leave as it was. */
static int open_fd(const char *path, int flags)
{
    int fd;

    if (ooc_fault_hit(OOC_FAULT_OPEN)) {
        errno = EMFILE;
        return -1;
    }
    do
        fd = open(path, flags | O_CLOEXEC, 0666);
    while (fd < 0 && errno == EINTR);
    return fd;
}

ooc_status ooc_sys_open(int *fd, const char *path, int flags, ooc_err *err)
{
    *fd = open_fd(path, flags);
    return *fd < 0 ? ooc_fail_errno(err, OOC_E_IO, "%s: cannot open", path) : OOC_OK;
}

void ooc_sys_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

ooc_status ooc_sys_size(int fd, const char *name, uint64_t *bytes, ooc_err *err)
{
    struct stat st;

    *bytes = 0;
    if (fstat(fd, &st) != 0)
        return ooc_fail_errno(err, OOC_E_IO, "%s: cannot ask for its size", name);
    if (!S_ISREG(st.st_mode))
        return ooc_fail(err, OOC_E_IO, "%s: not a regular file", name);
    *bytes = (uint64_t)st.st_size;
    return OOC_OK;
}

static size_t call_bytes(size_t bytes, ooc_fault_site short_site)
{
    if (bytes > MAX_CALL_BYTES)
        bytes = MAX_CALL_BYTES;
    return ooc_fault_hit(short_site) && bytes > 1 ? bytes / 2 : bytes;
}

/* True, with errno, if this read must fail. */
static bool read_must_fail(void)
{
    if (ooc_fault_hit(OOC_FAULT_READ_EINTR)) {
        errno = EINTR;
        return true;
    }
    if (ooc_fault_hit(OOC_FAULT_READ)) {
        errno = EIO;
        return true;
    }
    return false;
}

int64_t ooc_sys_pread_once(int fd, void *buf, size_t bytes, uint64_t off)
{
    if (read_must_fail())
        return -1;
    return pread(fd, buf, call_bytes(bytes, OOC_FAULT_SHORT_READ), (off_t)off);
}

ooc_status ooc_sys_pread(int fd, const char *name, void *buf, size_t bytes, uint64_t off,
                         ooc_err *err)
{
    char *to = buf;

    while (bytes) {
        int64_t got = ooc_sys_pread_once(fd, to, bytes, off);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            ooc_status st = ooc_fail_errno(err, OOC_E_IO, "%s: cannot read %zu bytes at byte %llu",
                                           name, bytes, (unsigned long long)off);

            if (err)
                err->offset = off;
            return st;
        }
        if (!got)
            return ooc_fail_at(err, OOC_E_FORMAT, off, -1,
                               "%s: cut off at byte %llu, %zu more bytes were expected", name,
                               (unsigned long long)off, bytes);
        to += got;
        off += (uint64_t)got;
        bytes -= (size_t)got;
    }
    return OOC_OK;
}

ooc_status ooc_sys_read_some(int fd, const char *name, void *buf, size_t bytes, size_t *got,
                             ooc_err *err)
{
    ssize_t n;

    do
        n = read_must_fail() ? -1 : read(fd, buf, call_bytes(bytes, OOC_FAULT_SHORT_READ));
    while (n < 0 && errno == EINTR);
    *got = n > 0 ? (size_t)n : 0;
    return n < 0 ? ooc_fail_errno(err, OOC_E_IO, "%s: cannot read", name) : OOC_OK;
}

ooc_status ooc_sys_pwrite(int fd, const char *name, const void *buf, size_t bytes, uint64_t off,
                          ooc_err *err)
{
    const char *from = buf;

    while (bytes) {
        ssize_t put = -1;

        if (ooc_fault_hit(OOC_FAULT_WRITE))
            errno = ENOSPC;
        else
            put = pwrite(fd, from, call_bytes(bytes, OOC_FAULT_SHORT_WRITE), (off_t)off);
        if (put < 0 && errno == EINTR)
            continue;
        if (put == 0)
            errno = ENOSPC; /* POSIX leaves open what a write of nothing means */
        if (put <= 0)
            return ooc_fail_errno(err, OOC_E_IO, "%s: cannot write %zu bytes at byte %llu", name,
                                  bytes, (unsigned long long)off);
        from += put;
        off += (uint64_t)put;
        bytes -= (size_t)put;
    }
    return OOC_OK;
}

static int sync_fd(int fd)
{
    int rc;

    if (ooc_fault_hit(OOC_FAULT_SYNC)) {
        errno = EIO;
        return -1;
    }
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* The folder that `path` stands in, into dir[PATH_MAX]; false if it is too long. */
static bool folder_of(const char *path, char dir[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;

    if (n >= PATH_MAX)
        return false;
    if (!slash)
        memcpy(dir, ".", 2);
    else if (!n)
        memcpy(dir, "/", 2);
    else {
        memcpy(dir, path, n);
        dir[n] = 0;
    }
    return true;
}

static bool same_inode(const char *a, const char *b)
{
    struct stat sa, sb;

    return stat(a, &sa) == 0 && stat(b, &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

static const char *name_in_folder(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

bool ooc_sys_same_file(const char *a, const char *b)
{
    char dir_a[PATH_MAX], dir_b[PATH_MAX];

    if (!strcmp(a, b) || same_inode(a, b))
        return true;
    return !strcmp(name_in_folder(a), name_in_folder(b)) && folder_of(a, dir_a) &&
           folder_of(b, dir_b) && same_inode(dir_a, dir_b);
}

static ooc_status sync_folder(const char *path, ooc_err *err)
{
    char dir[PATH_MAX];
    ooc_status st = OOC_OK;
    int fd;

    if (!folder_of(path, dir))
        return ooc_fail(err, OOC_E_ARG, "%s: name too long", path);
    st = ooc_sys_open(&fd, dir, O_RDONLY | O_DIRECTORY, err);
    if (st)
        return st;
    if (sync_fd(fd) != 0 && errno != EINVAL) /* EINVAL: this file system syncs no folders */
        st = ooc_fail_errno(err, OOC_E_IO, "%s: cannot sync the folder", dir);
    ooc_sys_close(fd);
    return st;
}

static ooc_status check_target(const char *path, bool force, ooc_err *err)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return OOC_OK; /* absent, or open will say why not */
    if (!S_ISREG(st.st_mode))
        return ooc_fail(err, OOC_E_ARG, "%s: exists and is not a regular file", path);
    if (!force)
        return ooc_fail(err, OOC_E_ARG, "%s: exists already (--force replaces it)", path);
    return OOC_OK;
}

/* The n-th temporary name for f->path, into f->tmp_path (allocated at the first call). */
static ooc_status set_tmp_path(ooc_new_file *f, unsigned n, ooc_err *err)
{
    size_t room = strlen(f->path) + 32;

    if (!f->tmp_path)
        f->tmp_path = ooc_malloc(room);
    if (!f->tmp_path)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its name", f->path);
    if (n)
        snprintf(f->tmp_path, room, "%s.tmp.%ld-%u", f->path, (long)getpid(), n);
    else
        snprintf(f->tmp_path, room, "%s.tmp.%ld", f->path, (long)getpid());
    return OOC_OK;
}

static void drop_tmp_path(ooc_new_file *f)
{
    ooc_free(f->tmp_path);
    f->tmp_path = NULL;
}

static ooc_status open_named(ooc_new_file *f, ooc_err *err)
{
    ooc_status st;

    for (unsigned n = 0; n < MAX_TMP_NAMES; n++) {
        st = set_tmp_path(f, n, err);
        if (st)
            return st;
        f->fd = open_fd(f->tmp_path, O_RDWR | O_CREAT | O_EXCL);
        if (f->fd >= 0)
            return OOC_OK;
        if (errno != EEXIST)
            break;
    }
    st = ooc_fail_errno(err, OOC_E_IO, "%s: cannot create %s", f->path, f->tmp_path);
    drop_tmp_path(f); /* not ours: discard must not remove it */
    return st;
}

static int open_unnamed(const char *dir)
{
    if (ooc_fault_hit(OOC_FAULT_TMPFILE)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return open_fd(dir, O_RDWR | O_TMPFILE);
}

ooc_status ooc_new_file_open(ooc_new_file *f, const char *path, bool force, ooc_err *err)
{
    char dir[PATH_MAX];
    ooc_status st;

    *f = (ooc_new_file){.fd = -1, .force = force};
    st = check_target(path, force, err);
    if (st)
        return st;
    if (!*path || path[strlen(path) - 1] == '/' || !folder_of(path, dir))
        return ooc_fail(err, OOC_E_ARG, "'%s': not the name of a file", path);
    f->path = ooc_strdup(path);
    if (!f->path)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its name", path);
    /* Giving an unnamed file its name goes through /proc. */
    if (access("/proc/self/fd", X_OK) == 0) {
        f->fd = open_unnamed(dir);
        if (f->fd >= 0)
            return OOC_OK;
        if (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL) {
            st = ooc_fail_errno(err, OOC_E_IO, "%s: cannot create a file in its folder", path);
            goto fail;
        }
    }
    st = open_named(f, err);
    if (!st)
        return OOC_OK;
fail:
    ooc_new_file_discard(f);
    return st;
}

static int fault_rename(void)
{
    if (!ooc_fault_hit(OOC_FAULT_RENAME))
        return 0;
    errno = EIO;
    return -1;
}

static int link_unnamed(int fd, const char *name)
{
    char proc[64];

    if (fault_rename() != 0)
        return -1;
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, proc, AT_FDCWD, name, AT_SYMLINK_FOLLOW);
}

static ooc_status give_tmp_name(ooc_new_file *f, ooc_err *err)
{
    for (unsigned n = 0; n < MAX_TMP_NAMES; n++) {
        ooc_status st = set_tmp_path(f, n, err);

        if (st)
            return st;
        if (link_unnamed(f->fd, f->tmp_path) == 0)
            return OOC_OK;
        if (errno != EEXIST)
            break;
    }
    ooc_fail_errno(err, OOC_E_IO, "%s: cannot name the new file", f->path);
    drop_tmp_path(f);
    return OOC_E_IO;
}

/* Give the file its name where nothing has it: -1 with errno EEXIST otherwise, even if the name
 * appeared only now. */
static int place_new(const ooc_new_file *f)
{
    int rc;

    if (!f->tmp_path)
        return link_unnamed(f->fd, f->path);
    if (fault_rename() != 0)
        return -1;
    rc = renameat2(AT_FDCWD, f->tmp_path, AT_FDCWD, f->path, RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) {
        /* The file system knows no NOREPLACE. */
        if (access(f->path, F_OK) != 0)
            return rename(f->tmp_path, f->path);
        errno = EEXIST;
    }
    return rc;
}

/* Only rename() replaces atomically, so an unnamed file gets a temporary name first. */
static ooc_status replace_old(ooc_new_file *f, ooc_err *err)
{
    ooc_status st = f->tmp_path ? OOC_OK : give_tmp_name(f, err);

    if (st)
        return st;
    if (fault_rename() != 0 || rename(f->tmp_path, f->path) != 0)
        return ooc_fail_errno(err, OOC_E_IO, "%s: cannot put the new file in place", f->path);
    drop_tmp_path(f);
    return OOC_OK;
}

static ooc_status put_in_place(ooc_new_file *f, bool *replaced, ooc_err *err)
{
    *replaced = false;
    if (place_new(f) == 0) {
        drop_tmp_path(f);
        return OOC_OK;
    }
    if (errno != EEXIST)
        return ooc_fail_errno(err, OOC_E_IO, "%s: cannot put the new file in place", f->path);
    if (!f->force)
        return ooc_fail(err, OOC_E_ARG, "%s: appeared meanwhile (--force replaces it)", f->path);
    *replaced = true;
    return replace_old(f, err);
}

ooc_status ooc_new_file_commit(ooc_new_file *f, ooc_err *err)
{
    bool replaced;
    ooc_status st;

    if (sync_fd(f->fd) != 0)
        return ooc_fail_errno(err, OOC_E_IO, "%s: cannot sync", f->path);
    st = put_in_place(f, &replaced, err);
    if (st)
        return st;
    st = sync_folder(f->path, err);
    /* It may not survive a power cut, so it must not look done. A replaced file is gone already:
     * then the new one, which is complete, is better than nothing. */
    if (st && !replaced)
        (void)unlink(f->path);
    return st;
}

void ooc_new_file_discard(ooc_new_file *f)
{
    ooc_sys_close(f->fd);
    if (f->tmp_path)
        (void)unlink(f->tmp_path);
    ooc_free(f->tmp_path);
    ooc_free(f->path);
    *f = (ooc_new_file){.fd = -1};
}
