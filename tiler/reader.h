/* reader.h - foreign matrices as streams of entries: one interface, one file a format.
 *
 * To add a format: write tiler/read_NAME.c with one `const ooc_format`, declare it below, add it to
 * the table in tiler/registry.c and the file to tiler/CMakeLists.txt. Everything else (sorting,
 * duplicates, values, tiles, budgets, --transpose, --part) is done by the converter.
 *
 * A source gives every entry once, in any order, batch by batch; entries of the same place are
 * added by the converter. What a source knows about its order it says through `settles`, which
 * saves the sort. Sources check all that they read: indices are within the shape, counts agree with
 * the file's size.
 * Memory:  info.memory_bytes, taken by open; batches are the caller's.
 * Threads: a source belongs to one thread; next() may use the pool. */
#ifndef OOC_TILER_READER_H
#define OOC_TILER_READER_H

#include "base/err.h"
#include "base/parallel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether the file's order lets rows be finished before the end is seen. */
typedef enum {
    OOC_SETTLES_NOTHING = 0,
    OOC_SETTLES_ROWS, /* batch.settled counts rows */
    OOC_SETTLES_COLS  /* batch.settled counts columns (CSC) */
} ooc_settles;

#define OOC_ENTRIES_UNKNOWN UINT64_MAX

typedef struct {
    uint64_t n_rows, n_cols;
    uint64_t max_entries; /* how many will be given at most, or OOC_ENTRIES_UNKNOWN */
    ooc_settles settles;
    bool wide;              /* values may need a double; else each is exactly a float */
    bool integer;           /* whole numbers, to be kept exactly or refused */
    bool is_complex;        /* batch.imag is filled */
    const char *value_type; /* as the file has it: "float32"; a static text */
    uint64_t memory_bytes;
    uint32_t min_batch; /* the smallest batch.capacity it can work with, if above OOC_BATCH_MIN */
} ooc_source_info;

#define OOC_BATCH_PIECES 256

/* Entries in pieces (one a parallel task, with gaps between them). An entry is (row, col, val). */
typedef struct {
    uint64_t *row, *col;
    double *val;
    double *imag;      /* NULL unless info.is_complex */
    uint32_t capacity; /* of each array; at least OOC_BATCH_MIN and info.min_batch */
    uint32_t n_pieces; /* from here on filled by next() */
    struct {
        uint32_t first, n;
    } piece[OOC_BATCH_PIECES];
    uint64_t settled; /* no later batch holds an entry of a row (column) below this one */
    bool end;         /* nothing follows this batch */
} ooc_batch;

#define OOC_BATCH_MIN 8192u

typedef struct ooc_source ooc_source;

/* The head of each reader's own struct. */
struct ooc_source {
    ooc_source_info info;
    double done; /* the part of the input that was read, 0..1, for progress */
    /* Fill the batch; n_pieces 0 without `end` is allowed. The caller has set arrays, capacity, and
     * n_pieces = 0, settled = 0, end = false. */
    ooc_status (*next)(ooc_source *s, ooc_batch *batch, ooc_pool *pool, ooc_err *err);
    void (*close)(ooc_source *s);
};

static inline void ooc_source_close(ooc_source *s)
{
    if (s)
        s->close(s);
}

/* What the user asked for. Texts stay the caller's. */
typedef struct {
    const char *path;
    const char *key;       /* the object inside the file, or NULL: the only one there is */
    uint64_t memory_bytes; /* what the source's buffers may take, about */
    uint32_t n_threads;
} ooc_source_request;

/* The first bytes of the input, for finding the format. */
typedef struct {
    const char *path;
    bool is_dir, is_file;
    size_t n;
    uint8_t head[4096]; /* of a gzip file: unpacked, and `gzip` is set */
    bool gzip;
} ooc_probe;

/* Takes the name of a matrix inside a file. */
typedef ooc_status (*ooc_name_sink)(void *ctx, const char *name, ooc_err *err);

typedef struct {
    const char *name; /* for --from */
    const char *what; /* for the help text: "Matrix Market, FILE.mtx[.gz]" */
    bool (*fits_content)(const ooc_probe *p); /* NULL: never found by content */
    bool (*fits_name)(const char *path);      /* NULL: never found by name */
    bool no_file; /* INPUT names no file: entries are made from the name */
    ooc_status (*open)(ooc_source **out, const ooc_source_request *request, ooc_err *err);
    /* Give each key that open() would take to the sink; NULL: the matrix has no name. */
    ooc_status (*names)(const ooc_source_request *request, ooc_name_sink sink, void *ctx,
                        ooc_err *err);
} ooc_format;

extern const ooc_format ooc_format_mtx;
extern const ooc_format ooc_format_npz;
extern const ooc_format ooc_format_npy_dir;
extern const ooc_format ooc_format_pt;
extern const ooc_format ooc_format_petsc;
extern const ooc_format ooc_format_h5;
extern const ooc_format ooc_format_mat;
extern const ooc_format ooc_format_radon;
extern const ooc_format ooc_format_tiles;

/* The n-th format, NULL behind the last. */
const ooc_format *ooc_format_at(size_t n);

/* Find the format (`from`: its name, or NULL: by content, then by name) and open the source. Where
 * no file has the whole path as its name, "FILE:KEY" means request->key = KEY.
 * OOC_E_ARG: no such format or file; OOC_E_FORMAT: no format fits, or the file is damaged. */
ooc_status ooc_source_open(ooc_source **out, const char *from, const ooc_source_request *request,
                           ooc_err *err);

/* What a file holds, for --list: each matrix in turn, without reading its entries. info is NULL
 * where it cannot be converted; `problem` then says why. `name` is "" where it has none. */
typedef void (*ooc_list_sink)(void *ctx, const char *format, const char *name,
                              const ooc_source_info *info, const char *problem);
ooc_status ooc_source_list(const char *from, const ooc_source_request *request, ooc_list_sink sink,
                           void *ctx, ooc_err *err);

/* Case-insensitive: does `path` end with `suffix`? */
bool ooc_path_ends(const char *path, const char *suffix);
#endif
