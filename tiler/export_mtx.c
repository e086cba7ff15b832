/* Matrix Market text: coordinate, real, general; numbers with as many digits as they need to be
 * read back the same. */
#include "tiler/export.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PART_ENTRIES 8192u
#define LINE_BYTES   80u /* two numbers of 20 digits, one of 24, spaces */
#define MAX_PARTS    16u

typedef struct {
    ooc_export_shape shape;
    ooc_new_file file;
    const char *path;
    uint64_t at;
    char *text; /* MAX_PARTS parts */
    size_t part_bytes[MAX_PARTS];
    /* of the write that runs */
    const ooc_entries *e;
    uint64_t first, n;
} mtx_out;

static void close_mtx(void *ctx)
{
    mtx_out *m = ctx;

    ooc_new_file_discard(&m->file);
    ooc_free(m->text);
    ooc_free(m);
}

static ooc_status open_mtx(void **out, const char *path, const ooc_export_shape *shape,
                           ooc_err *err)
{
    mtx_out *m = ooc_calloc(1, sizeof *m);
    char head[160];
    int n;
    ooc_status st;

    *out = NULL;
    if (!m)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to write it", path);
    m->shape = *shape;
    m->path = path;
    m->file.fd = -1;
    m->text = ooc_malloc((size_t)MAX_PARTS * PART_ENTRIES * LINE_BYTES);
    st = m->text ? ooc_new_file_open(&m->file, path, shape->force, err)
                 : ooc_fail(err, OOC_E_NOMEM, "%s: no memory to write it", path);
    n = snprintf(head, sizeof head,
                 "%%%%MatrixMarket matrix coordinate real general\n%" PRIu64 " %" PRIu64 " %" PRIu64
                 "\n",
                 shape->n_rows, shape->n_cols, shape->n_entries);
    if (!st)
        st = ooc_sys_pwrite(m->file.fd, path, head, (size_t)n, 0, err);
    if (st) {
        close_mtx(m);
        return st;
    }
    m->at = (uint64_t)n;
    *out = m;
    return OOC_OK;
}

static void print_part(void *ctx, uint32_t part, uint32_t thread)
{
    mtx_out *m = ctx;
    uint64_t begin = m->first + (uint64_t)part * PART_ENTRIES;
    uint64_t end = ooc_min_u64(begin + PART_ENTRIES, m->n);
    uint64_t mask = ((uint64_t)1 << m->shape.col_bits) - 1;
    char *text = m->text + (size_t)part * PART_ENTRIES * LINE_BYTES, *p = text;

    (void)thread;
    for (uint64_t i = begin; i < end; i++) {
        uint64_t key = m->e->key[i];
        double v =
            m->shape.wide ? ((const double *)m->e->val)[i] : (double)((const float *)m->e->val)[i];

        p += snprintf(p, LINE_BYTES, "%" PRIu64 " %" PRIu64 " %.*g\n",
                      (key >> m->shape.col_bits) + 1, (key & mask) + 1, m->shape.wide ? 17 : 9, v);
    }
    m->part_bytes[part] = (size_t)(p - text);
}

static ooc_status write_mtx(void *ctx, const ooc_entries *e, uint64_t n, ooc_err *err)
{
    mtx_out *m = ctx;
    ooc_status st = OOC_OK;

    m->e = e;
    m->n = n;
    for (m->first = 0; !st && m->first < n; m->first += MAX_PARTS * PART_ENTRIES) {
        uint64_t left = ooc_min_u64(n - m->first, MAX_PARTS * PART_ENTRIES);
        uint32_t parts = (uint32_t)((left + PART_ENTRIES - 1) / PART_ENTRIES);

        ooc_parallel_for(m->shape.pool, parts, print_part, m);
        for (uint32_t i = 0; !st && i < parts; i++) {
            st =
                ooc_sys_pwrite(m->file.fd, m->path, m->text + (size_t)i * PART_ENTRIES * LINE_BYTES,
                               m->part_bytes[i], m->at, err);
            m->at += m->part_bytes[i];
        }
    }
    return st;
}

static ooc_status commit_mtx(void *ctx, uint64_t *file_bytes, ooc_err *err)
{
    mtx_out *m = ctx;

    *file_bytes = m->at;
    return ooc_new_file_commit(&m->file, err);
}

const ooc_export_form ooc_export_mtx = {open_mtx, write_mtx, commit_mtx, close_mtx};
