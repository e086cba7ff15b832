/* A folder with row.npy, col.npy, data.npy and shape.npy: triples in NumPy arrays. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "io/sys.h"
#include "tiler/index_sources.h"
#include "tiler/npy_seq.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

enum { ROW, COL, DATA, N_FILES };

typedef struct {
    int fd[N_FILES];
} open_files;

static void close_files(void *ctx)
{
    open_files *f = ctx;

    for (int i = 0; i < N_FILES; i++)
        ooc_sys_close(f->fd[i]);
    ooc_free(f);
}

static ooc_status open_one(ooc_seq **out, int *fd, const char *dir, const char *name, ooc_err *err)
{
    char path[PATH_MAX];

    *out = NULL;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, name) >= sizeof path)
        return ooc_fail(err, OOC_E_ARG, "%s: name too long", dir);
    return ooc_npy_file_seq(out, fd, path, err);
}

static ooc_status read_shape(const char *dir, uint64_t shape[2], ooc_err *err)
{
    ooc_seq *s;
    int fd = -1;
    ooc_status st = open_one(&s, &fd, dir, "shape.npy", err);

    if (!st)
        st = ooc_seq_read_few(s, shape, 2, err);
    ooc_seq_close(s);
    ooc_sys_close(fd);
    return st;
}

static ooc_status open_dir(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    ooc_index_parts p = {.name = request->path, .close_container = close_files};
    open_files *files = ooc_malloc(sizeof *files);
    uint64_t shape[2] = {0};
    ooc_status st;

    *out = NULL;
    if (!files)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    for (int i = 0; i < N_FILES; i++)
        files->fd[i] = -1;
    p.container = files;
    st = read_shape(request->path, shape, err);
    if (!st)
        st = open_one(&p.row, &files->fd[ROW], request->path, "row.npy", err);
    if (!st)
        st = open_one(&p.col, &files->fd[COL], request->path, "col.npy", err);
    if (!st)
        st = open_one(&p.val, &files->fd[DATA], request->path, "data.npy", err);
    if (st) {
        ooc_index_parts_close(&p);
        return st;
    }
    p.n_rows = shape[0];
    p.n_cols = shape[1];
    return ooc_triple_source(out, &p, err);
}

static bool fits_content(const ooc_probe *p)
{
    char path[PATH_MAX];

    return p->is_dir &&
           (size_t)snprintf(path, sizeof path, "%s/shape.npy", p->path) < sizeof path &&
           access(path, F_OK) == 0;
}

const ooc_format ooc_format_npy_dir = {
    .name = "npy",
    .what = "a folder with row.npy, col.npy, data.npy and shape.npy (triples)",
    .fits_content = fits_content,
    .open = open_dir};
