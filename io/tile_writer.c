#include "io/tile_writer.h"
#include "io/checksum.h"
#include "io/store_internal.h"
#include "io/sys.h"
#include "io/tile_encode.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <math.h>
#include <stdatomic.h>

/* What `auto` expects of a step from disk, in nanoseconds on a machine like the one that
 * bench_decode ran on: two cores, a disk of 2 GB/s. Reading overlaps with decoding and the product;
 * the slower side counts. */
#define READ_NS_PER_BYTE      0.5
#define DECODE_NS_PER_ENTRY   1.0
#define DECODE_NS_PER_SEGMENT 6.0
#define PRODUCT_NS_PER_ENTRY  1.0
#define CORES                 2
/* So much slower may a tile be that is less than half as large. */
#define SMALL_MAY_TAKE 1.1

struct thread_state {
    ooc_piece_encoder *enc;
    uint8_t *planes; /* scratch: planes of a chunk, or cursors */
};

struct ooc_tile_writer {
    ooc_tile_writer_opts opts;
    ooc_pool *pool;
    ooc_new_file file;
    ooc_tile_plan plan;
    uint32_t n_threads;
    struct thread_state *threads;
    uint64_t scratch_room; /* of each thread */
    uint8_t *body;         /* the tile behind its head */
    uint64_t body_room;
    uint8_t *dir; /* chunk records or block checksums, then the head */
    uint64_t dir_room;
    uint64_t *slot; /* [chunks] where each chunk's bytes begin in body */
    uint64_t slot_room;
    uint8_t *index;
    uint64_t index_room, n_tiles;
    uint64_t file_end, n_rows, n_entries;
    bool failed, done;
};

static ooc_status check_opts(const ooc_tile_writer_opts *o, const char *path, ooc_err *err)
{
    if (!o->panel_columns || o->panel_columns > OOC_MAX_PANEL_COLUMNS)
        return ooc_fail(err, OOC_E_ARG, "%s: panels of %u columns (1 to %u are possible)", path,
                        o->panel_columns, OOC_MAX_PANEL_COLUMNS);
    if (o->n_cols > UINT32_MAX || o->n_rows > INT64_MAX)
        return ooc_fail(err, OOC_E_ARG, "%s: a matrix of %llu x %llu is too large", path,
                        (unsigned long long)o->n_rows, (unsigned long long)o->n_cols);
    if (o->n_cols > (uint64_t)OOC_MAX_PANELS * o->panel_columns)
        return ooc_fail(err, OOC_E_ARG,
                        "%s: panels of %u columns are too narrow for %llu columns (at most %u "
                        "panels are possible)",
                        path, o->panel_columns, (unsigned long long)o->n_cols, OOC_MAX_PANELS);
    if ((unsigned)o->vtype >= OOC_CONST || (unsigned)o->codec > OOC_CODEC_ZSTD)
        return ooc_fail(err, OOC_E_ARG, "%s: no such type of values or codec", path);
    if (o->level < 0 || o->level > 22)
        return ooc_fail(err, OOC_E_ARG, "%s: no such zstd level: %d (1 to 22 are possible)", path,
                        o->level);
    return OOC_OK;
}

static ooc_piece_policy policy_of(const ooc_tile_writer_opts *o)
{
    return (ooc_piece_policy){
        .smallest = o->codec == OOC_CODEC_ZSTD, .level = o->level, .most = OOC_ENCODE_ENTRIES};
}

ooc_status ooc_tile_writer_open(ooc_tile_writer **out, const char *path,
                                const ooc_tile_writer_opts *opts, ooc_pool *pool, ooc_err *err)
{
    ooc_tile_writer *w;
    ooc_status st = check_opts(opts, path, err);

    *out = NULL;
    if (st)
        return st;
    w = ooc_calloc(1, sizeof *w);
    if (!w)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a writer", path);
    w->opts = *opts;
    w->pool = pool;
    w->file.fd = -1;
    w->n_threads = ooc_pool_threads(pool);
    w->file_end = OOC_STORE_PAGE;
    st = ooc_tile_plan_init(&w->plan, opts, err);
    if (!st) {
        w->threads = ooc_calloc(w->n_threads, sizeof *w->threads);
        if (!w->threads)
            st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory for a writer", path);
    }
    for (uint32_t i = 0; !st && i < w->n_threads && opts->codec != OOC_CODEC_RAW; i++) {
        w->threads[i].enc = ooc_piece_encoder_new(policy_of(opts));
        if (!w->threads[i].enc)
            st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory for an encoder", path);
    }
    if (!st)
        st = ooc_new_file_open(&w->file, path, opts->force, err);
    if (st)
        ooc_tile_writer_close(w);
    else
        *out = w;
    return st;
}

/* At least `bytes` of pages at *p, without keeping what was there. */
static ooc_status reserve(uint8_t **p, uint64_t *room, uint64_t bytes, ooc_err *err)
{
    if (bytes <= *room)
        return OOC_OK;
    ooc_pages_free(*p, *room);
    *room = 0;
    *p = ooc_pages_alloc(bytes);
    if (!*p)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for a tile of %llu bytes",
                        (unsigned long long)bytes);
    *room = bytes;
    return OOC_OK;
}

static ooc_status reserve_scratch(ooc_tile_writer *w, uint64_t bytes, ooc_err *err)
{
    uint64_t room = w->scratch_room;

    if (bytes <= room)
        return OOC_OK;
    for (uint32_t i = 0; i < w->n_threads; i++) {
        uint64_t old = room;
        ooc_status st = reserve(&w->threads[i].planes, &old, bytes, err);

        if (st) {
            /* Threads differ now: start over next time. */
            for (uint32_t j = 0; j < w->n_threads; j++) {
                ooc_pages_free(w->threads[j].planes, j < i ? bytes : room);
                w->threads[j].planes = NULL;
            }
            w->scratch_room = 0;
            return st;
        }
    }
    w->scratch_room = bytes;
    return OOC_OK;
}

struct encode_job {
    ooc_tile_writer *w;
    const ooc_csr_rows *rows;
    atomic_bool failed;
};

static void encode_chunk(void *ctx, uint32_t chunk, uint32_t thread)
{
    struct encode_job *j = ctx;
    ooc_tile_writer *w = j->w;

    if (ooc_encode_rows_chunk(&w->plan, j->rows, chunk, w->threads[thread].enc,
                              w->threads[thread].planes, w->body + w->slot[chunk],
                              w->dir + (uint64_t)chunk * OOC_CHK_SIZE) == UINT64_MAX)
        atomic_store(&j->failed, true);
}

static void scatter_chunk(void *ctx, uint32_t chunk, uint32_t thread)
{
    struct encode_job *j = ctx;
    ooc_tile_writer *w = j->w;

    ooc_scatter_chunk(&w->plan, j->rows, chunk, (uint32_t *)w->threads[thread].planes, w->body);
}

static void hash_block(void *ctx, uint32_t task, uint32_t thread)
{
    struct encode_job *j = ctx;
    ooc_tile_writer *w = j->w;
    const ooc_tile_layout l = ooc_tile_layout_of(&w->plan.n);
    uint64_t off = (uint64_t)task * OOC_KERNEL_BLOCK, bytes = l.total - l.seg_row - off;

    (void)thread;
    ooc_put_u64(w->dir + (uint64_t)task * 8,
                ooc_checksum(w->body + off, ooc_min_u64(bytes, OOC_KERNEL_BLOCK)));
}

/* Encode all chunks; *bytes: what they need on disk. */
static ooc_status encode_rows(ooc_tile_writer *w, struct encode_job *j, uint64_t *bytes,
                              ooc_err *err)
{
    const ooc_tile_plan *p = &w->plan;
    uint64_t end = 0, largest = 0;
    ooc_status st;

    if (p->n.n_chunks > w->slot_room) {
        ooc_free(w->slot);
        w->slot_room = 0;
        w->slot = ooc_malloc(p->n.n_chunks * sizeof *w->slot);
        if (!w->slot)
            return ooc_fail(err, OOC_E_NOMEM, "no memory for a tile of %u chunks", p->n.n_chunks);
        w->slot_room = p->n.n_chunks;
    }
    for (uint32_t c = 0; c < p->n.n_chunks; c++) {
        uint32_t r0 = p->chunk_row[c], r1 = p->chunk_row[c + 1];
        uint64_t room = ooc_chunk_stream_bytes(
            r1 - r0, ooc_tile_plan_chunk_segments(p, c),
            (uint32_t)(j->rows->row_off[r1] - j->rows->row_off[r0]), p->n.vtype);

        w->slot[c] = end;
        end += room;
        largest = ooc_max_u64(largest, room);
    }
    st = reserve(&w->body, &w->body_room, end, err);
    if (!st)
        st = reserve_scratch(w, largest, err);
    if (st)
        return st;
    ooc_parallel_for(w->pool, p->n.n_chunks, encode_chunk, j);
    if (atomic_load(&j->failed))
        return ooc_fail(err, OOC_E_NOMEM, "no memory to compress a tile");
    *bytes = 0;
    for (uint32_t c = 0; c < p->n.n_chunks; c++)
        *bytes += ooc_get_u32(w->dir + (uint64_t)c * OOC_CHK_SIZE + OOC_CHK_STORED_BYTES);
    return OOC_OK;
}

static ooc_status build_kernel_form(ooc_tile_writer *w, struct encode_job *j, ooc_err *err)
{
    const ooc_tile_plan *p = &w->plan;
    const ooc_tile_layout l = ooc_tile_layout_of(&p->n);
    uint64_t bytes = l.total - l.seg_row;
    ooc_status st = reserve(&w->body, &w->body_room, bytes, err);

    if (!st)
        st = reserve_scratch(w, 8ull * p->n.n_panels, err);
    if (st || !bytes)
        return st;
    memset(w->body, 0, bytes); /* the gaps between the arrays */
    ooc_parallel_for(w->pool, p->n.n_chunks, scatter_chunk, j);
    ooc_parallel_for(w->pool, (uint32_t)ooc_kernel_blocks(&p->n), hash_block, j);
    return OOC_OK;
}

static ooc_status put(ooc_tile_writer *w, const void *data, uint64_t bytes, ooc_err *err)
{
    ooc_status st = ooc_sys_pwrite(w->file.fd, w->file.path, data, bytes, w->file_end, err);

    if (!st)
        w->file_end += bytes;
    return st;
}

static ooc_status pad_page(ooc_tile_writer *w, ooc_err *err)
{
    static const uint8_t zeros[OOC_STORE_PAGE];

    return put(w, zeros, ooc_round_up(w->file_end, OOC_STORE_PAGE) - w->file_end, err);
}

/* Chunks go to disk one behind the other; their records learn where. */
static ooc_status write_chunks(ooc_tile_writer *w, ooc_err *err)
{
    ooc_status st = OOC_OK;

    for (uint32_t c = 0; !st && c < w->plan.n.n_chunks; c++)
        st = put(w, w->body + w->slot[c],
                 ooc_get_u32(w->dir + (uint64_t)c * OOC_CHK_SIZE + OOC_CHK_STORED_BYTES), err);
    return st;
}

/* The index with room for `bytes` bytes, doubled so that many tiles cost few copies. */
static ooc_status reserve_index(ooc_tile_writer *w, uint64_t bytes, ooc_err *err)
{
    uint64_t room = ooc_max_u64(w->index_room, OOC_STORE_PAGE);
    uint8_t *grown;

    while (room < bytes)
        room *= 2;
    if (room == w->index_room)
        return OOC_OK;
    grown = ooc_realloc(w->index, room);
    if (!grown)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for the index", w->file.path);
    memset(grown + w->index_room, 0, room - w->index_room);
    w->index = grown;
    w->index_room = room;
    return OOC_OK;
}

static ooc_status add_record(ooc_tile_writer *w, uint64_t file_off, uint64_t dir_bytes,
                             uint64_t dir_hash, bool raw, ooc_err *err)
{
    const ooc_tile_plan *p = &w->plan;
    uint64_t at = w->n_tiles * OOC_REC_SIZE, bits;
    ooc_status st;
    uint8_t *r;

    st = reserve_index(w, at + OOC_REC_SIZE, err);
    if (st)
        return st;
    r = w->index + at;
    memcpy(&bits, &p->constant, 8);
    ooc_put_u64(r + OOC_REC_FILE_OFF, file_off);
    ooc_put_u64(r + OOC_REC_STORED_BYTES, w->file_end - file_off);
    ooc_put_u64(r + OOC_REC_FIRST_ROW, w->n_rows);
    ooc_put_u64(r + OOC_REC_DIR_HASH, dir_hash);
    ooc_put_u64(r + OOC_REC_CONSTANT, bits);
    ooc_put_u32(r + OOC_REC_ROWS, p->n.n_rows);
    ooc_put_u32(r + OOC_REC_CHUNKS, p->n.n_chunks);
    ooc_put_u32(r + OOC_REC_PANELS, p->n.n_panels);
    ooc_put_u32(r + OOC_REC_ENTRIES, p->n.n_entries);
    ooc_put_u32(r + OOC_REC_SEGMENTS, p->n.n_segments);
    ooc_put_u32(r + OOC_REC_LENS, p->n.n_lens);
    ooc_put_u64(r + OOC_REC_DIR_BYTES, dir_bytes);
    if (!raw) {
        ooc_put_u32(r + OOC_REC_CHUNK_ENTRIES, p->max_chunk_entries);
        ooc_put_u32(r + OOC_REC_CHUNK_SEGMENTS, p->max_chunk_segments);
        ooc_put_u32(r + OOC_REC_CHUNK_ROWS, p->max_chunk_rows);
    }
    r[OOC_REC_LAYOUT] = raw ? OOC_LAYOUT_KERNEL : OOC_LAYOUT_ROWS;
    r[OOC_REC_VTYPE] = (uint8_t)p->n.vtype;
    w->n_tiles++;
    return OOC_OK;
}

static ooc_status write_tile(ooc_tile_writer *w, bool raw, ooc_err *err)
{
    const ooc_tile_counts *n = &w->plan.n;
    uint64_t front = ooc_dir_front_bytes(n, raw), head = ooc_head_bytes(n);
    uint64_t file_off = w->file_end, off = front + head;
    uint64_t body = ooc_tile_layout_of(n).total - head;
    ooc_status st;

    for (uint32_t c = 0; !raw && c < n->n_chunks; c++) {
        uint8_t *rec = w->dir + (uint64_t)c * OOC_CHK_SIZE;

        ooc_put_u64(rec + OOC_CHK_OFF, off);
        off += ooc_get_u32(rec + OOC_CHK_STORED_BYTES);
    }
    memcpy(w->dir + front, w->plan.head, head);
    st = put(w, w->dir, front + head, err);
    if (!st)
        st = raw ? put(w, w->body, body, err) : write_chunks(w, err);
    if (!st)
        st = pad_page(w, err);
    if (!st)
        st = add_record(w, file_off, front + head, ooc_checksum(w->dir, front + head), raw, err);
    if (!st) {
        w->n_rows += n->n_rows;
        w->n_entries += n->n_entries;
    }
    return st;
}

/* Is a tile of `rows` stored bytes used sooner than one of `kernel` bytes that needs no decoding?
 */
static bool rows_pay(const ooc_tile_counts *n, uint64_t rows, uint64_t kernel)
{
    double product = PRODUCT_NS_PER_ENTRY * n->n_entries;
    double decode = DECODE_NS_PER_ENTRY * n->n_entries + DECODE_NS_PER_SEGMENT * n->n_segments;
    double as_rows = fmax(READ_NS_PER_BYTE * (double)rows, (decode + product) / CORES);
    double as_kernel = fmax(READ_NS_PER_BYTE * (double)kernel, product / CORES);

    return as_rows < (rows < kernel / 2 ? SMALL_MAY_TAKE : 1) * as_kernel;
}

static ooc_status append(ooc_tile_writer *w, const ooc_csr_rows *rows, ooc_err *err)
{
    bool automatic = w->opts.codec == OOC_CODEC_AUTO, raw;
    struct encode_job j = {.w = w, .rows = rows};
    ooc_tile_plan *p = &w->plan;
    uint64_t bytes = 0, front, kernel;
    ooc_status st;

    if (rows->n_rows > w->opts.n_rows - w->n_rows)
        return ooc_fail(err, OOC_E_ARG, "%s: more than the %llu rows that were announced",
                        w->file.path, (unsigned long long)w->opts.n_rows);
    st = ooc_tile_plan_make(p, rows, w->pool, err);
    if (st)
        return ooc_fail_wrap(err, st, "%s: tile %llu", w->file.path,
                             (unsigned long long)w->n_tiles);
    raw = w->opts.codec == OOC_CODEC_RAW || !p->rows_possible;
    front = ooc_max_u64(ooc_dir_front_bytes(&p->n, true), ooc_dir_front_bytes(&p->n, false));
    st = reserve(&w->dir, &w->dir_room, front + ooc_head_bytes(&p->n), err);
    if (st)
        return st;
    memset(w->dir, 0, front);
    if (!raw) {
        st = encode_rows(w, &j, &bytes, err);
        if (st)
            return st;
        kernel = ooc_tile_layout_of(&p->n).total - ooc_head_bytes(&p->n);
        raw = automatic ? !rows_pay(&p->n, bytes, kernel) : bytes >= kernel;
    }
    if (raw) {
        memset(w->dir, 0, front);
        st = build_kernel_form(w, &j, err);
    }
    return st ? st : write_tile(w, raw, err);
}

ooc_status ooc_tile_writer_append(ooc_tile_writer *w, const ooc_csr_rows *rows, ooc_err *err)
{
    ooc_status st;

    if (w->failed || w->done)
        return ooc_fail(err, OOC_E_ARG, "%s: the writer has failed or ended before", w->file.path);
    st = append(w, rows, err);
    w->failed = st != OOC_OK;
    return st;
}

static void put_header(const ooc_tile_writer *w, uint8_t page[OOC_STORE_PAGE], uint64_t index_off,
                       uint64_t index_bytes, uint64_t index_hash)
{
    memset(page, 0, OOC_STORE_PAGE);
    memcpy(page + OOC_HDR_MAGIC, OOC_STORE_MAGIC, 8);
    ooc_put_u16(page + OOC_HDR_MAJOR, OOC_FORMAT_MAJOR);
    ooc_put_u16(page + OOC_HDR_MINOR, OOC_FORMAT_MINOR);
    ooc_put_u32(page + OOC_HDR_PANEL_COLUMNS, w->opts.panel_columns);
    ooc_put_u64(page + OOC_HDR_ROWS, w->opts.n_rows);
    ooc_put_u64(page + OOC_HDR_COLS, w->opts.n_cols);
    ooc_put_u64(page + OOC_HDR_ENTRIES, w->n_entries);
    ooc_put_u64(page + OOC_HDR_TILES, w->n_tiles);
    ooc_put_u64(page + OOC_HDR_FILE_BYTES, w->file_end);
    ooc_put_u64(page + OOC_HDR_INDEX_OFF, index_off);
    ooc_put_u64(page + OOC_HDR_INDEX_BYTES, index_bytes);
    ooc_put_u64(page + OOC_HDR_INDEX_HASH, index_hash);
    ooc_put_u32(page + OOC_HDR_RECORD_BYTES, OOC_REC_SIZE);
    page[OOC_HDR_VTYPE] = (uint8_t)w->opts.vtype;
    ooc_put_u64(page + OOC_HDR_HASH, ooc_checksum(page, OOC_HDR_HASH));
}

ooc_status ooc_tile_writer_commit(ooc_tile_writer *w, ooc_err *err)
{
    uint64_t index_off = w->file_end;
    uint64_t bytes = ooc_round_up(w->n_tiles * OOC_REC_SIZE, OOC_STORE_PAGE);
    uint8_t page[OOC_STORE_PAGE];
    ooc_status st = OOC_OK;

    if (w->failed || w->done)
        return ooc_fail(err, OOC_E_ARG, "%s: the writer has failed or ended before", w->file.path);
    if (w->n_rows != w->opts.n_rows)
        return ooc_fail(err, OOC_E_ARG, "%s: %llu of %llu rows were written", w->file.path,
                        (unsigned long long)w->n_rows, (unsigned long long)w->opts.n_rows);
    w->failed = true;                  /* until all has worked */
    st = reserve_index(w, bytes, err); /* zeros behind the records */
    if (!st)
        st = put(w, w->index, bytes, err);
    if (st)
        return st;
    put_header(w, page, index_off, bytes, ooc_checksum(w->index, bytes));
    st = ooc_sys_pwrite(w->file.fd, w->file.path, page, sizeof page, 0, err);
    if (!st)
        st = ooc_new_file_commit(&w->file, err);
    w->failed = st != OOC_OK;
    w->done = st == OOC_OK;
    return st;
}

void ooc_tile_writer_close(ooc_tile_writer *w)
{
    if (!w)
        return;
    ooc_new_file_discard(&w->file);
    ooc_tile_plan_free(&w->plan);
    for (uint32_t i = 0; w->threads && i < w->n_threads; i++) {
        ooc_piece_encoder_free(w->threads[i].enc);
        ooc_pages_free(w->threads[i].planes, w->scratch_room);
    }
    ooc_free(w->threads);
    ooc_pages_free(w->body, w->body_room);
    ooc_pages_free(w->dir, w->dir_room);
    ooc_free(w->slot);
    ooc_free(w->index);
    ooc_free(w);
}

uint64_t ooc_tile_writer_bytes(const ooc_tile_writer *w)
{
    return w->file_end;
}

uint64_t ooc_tile_kernel_bytes(const ooc_tile_writer_opts *opts, uint32_t n_rows,
                               uint64_t n_entries, uint64_t n_segments)
{
    uint64_t segs = n_segments ? n_segments : n_entries;
    const ooc_tile_counts n = ooc_tile_plan_bound(opts, n_rows, n_entries, segs);

    /* 4 arrays behind the head, each padded to 64 bytes at most. */
    return ooc_head_bytes(&n) + 4 * segs + n_entries * (2 + ooc_dtype_bytes(opts->vtype)) + 4 * 64;
}

uint64_t ooc_tile_writer_memory(const ooc_tile_writer_opts *opts, uint32_t tile_rows,
                                uint64_t tile_entries, uint32_t n_threads)
{
    const ooc_tile_counts n = ooc_tile_plan_bound(opts, tile_rows, tile_entries, tile_entries);
    uint32_t chunk = (uint32_t)ooc_min_u64(tile_entries, OOC_ENCODE_ENTRIES);
    uint64_t cursors = 8ull * n.n_panels;
    uint64_t planes = ooc_chunk_stream_bytes(tile_rows, chunk, chunk, opts->vtype);
    uint64_t bytes = sizeof(ooc_tile_writer) + ooc_tile_plan_fixed_bytes(opts);

    /* body: the kernel form, or the streams, which also have 4 bytes a row; the head twice, in the
     * plan and behind the chunk records. */
    bytes += ooc_tile_kernel_bytes(opts, tile_rows, tile_entries, 0) + 4ull * tile_rows;
    bytes += 2 * ooc_head_bytes(&n) + (uint64_t)n.n_chunks * (OOC_CHK_SIZE + sizeof(uint64_t));
    bytes += n_threads * (sizeof(struct thread_state) + ooc_max_u64(planes, cursors));
    if (opts->codec != OOC_CODEC_RAW)
        bytes += n_threads * ooc_piece_encoder_bytes(policy_of(opts));
    return bytes;
}
