/* sys.h - the few system calls of the project, whole (no short counts, EINTR repeated), with faults
 * on demand (base/fault.h), and files that appear complete or not at all. */
#ifndef OOC_IO_SYS_H
#define OOC_IO_SYS_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* OOC_E_IO with errno where the file cannot be opened. `flags` as open(2); O_CLOEXEC is added. */
ooc_status ooc_sys_open(int *fd, const char *path, int flags, ooc_err *err);
void ooc_sys_close(int fd); /* negative is allowed */
ooc_status ooc_sys_size(int fd, const char *name, uint64_t *bytes, ooc_err *err);
/* All `bytes` bytes at `off`; OOC_E_FORMAT where the file ends before ("cut off at byte ..."). */
ooc_status ooc_sys_pread(int fd, const char *name, void *buf, size_t bytes, uint64_t off,
                         ooc_err *err);
/* At most `bytes`; *got says how many (0: the end). For streams whose length isn't known. */
ooc_status ooc_sys_read_some(int fd, const char *name, void *buf, size_t bytes, size_t *got,
                             ooc_err *err);
/* One pread with the hooks of base/fault.h: the raw result, -1 with errno. For the reader engines.
 */
int64_t ooc_sys_pread_once(int fd, void *buf, size_t bytes, uint64_t off);
ooc_status ooc_sys_pwrite(int fd, const char *name, const void *buf, size_t bytes, uint64_t off,
                          ooc_err *err);

/* Whether two names lead to the same file, or would if it existed: other spellings of a folder,
 * links. */
bool ooc_sys_same_file(const char *a, const char *b);

/* A new file that will replace `path`: unnamed (O_TMPFILE) where the file system can, so that even
 * kill -9 leaves nothing; else NAME.tmp.PID, removed by discard. */
typedef struct {
    int fd;                /* -1: none */
    bool force;            /* replace an existing file */
    char *path, *tmp_path; /* tmp_path NULL while unnamed */
} ooc_new_file;
/* `path` exists and !force, or is no regular file: OOC_E_ARG. On failure nothing is held. */
ooc_status ooc_new_file_open(ooc_new_file *f, const char *path, bool force, ooc_err *err);
/* fsync, put it in place (atomically replacing an old one), fsync the folder. After failure `path`
 * is as it was before; only if the last step fails and an old file was replaced, it holds the new,
 * complete one. */
ooc_status ooc_new_file_commit(ooc_new_file *f, ooc_err *err);
/* Without a commit before, nothing stays. Needed after commit too; also takes {.fd = -1}. */
void ooc_new_file_discard(ooc_new_file *f);
#endif
