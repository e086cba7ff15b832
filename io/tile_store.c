#include "io/store_internal.h"
#include "io/checksum.h"
#include "io/sys.h"
#include "base/alloc.h"
#include "base/checked.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>

/* The fields of the header page that are not in ooc_store_info. */
struct header {
    uint64_t index_off, index_bytes, index_hash;
    uint32_t record_bytes;
};

static ooc_status damaged(const ooc_store *s, ooc_err *err, uint64_t off, const char *what)
{
    return ooc_fail_at(err, OOC_E_FORMAT, off, -1, "%s: damaged: %s", s->path, what);
}

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* What must hold before any other field means anything. */
static ooc_status check_identity(ooc_store *s, const uint8_t *page, uint64_t file_bytes,
                                 ooc_err *err)
{
    if (memcmp(page, OOC_STORE_MAGIC, 8) != 0)
        return ooc_fail_at(err, OOC_E_FORMAT, 0, -1,
                           "%s: not a tile store (tile-convert makes one)", s->path);
    s->info.version_major = ooc_get_u16(page + OOC_HDR_MAJOR);
    s->info.version_minor = ooc_get_u16(page + OOC_HDR_MINOR);
    if (ooc_checksum(page, OOC_HDR_HASH) != ooc_get_u64(page + OOC_HDR_HASH))
        return damaged(s, err, OOC_HDR_HASH, "the checksum of the header does not match");
    if (s->info.version_major != OOC_FORMAT_MAJOR)
        return ooc_fail_at(err, OOC_E_UNSUPPORTED, OOC_HDR_MAJOR, -1,
                           "%s: format version %u.%u, this program reads version %u.x", s->path,
                           s->info.version_major, s->info.version_minor, OOC_FORMAT_MAJOR);
    if (ooc_get_u32(page + OOC_HDR_MUST_FLAGS))
        return ooc_fail_at(err, OOC_E_UNSUPPORTED, OOC_HDR_MUST_FLAGS, -1,
                           "%s: needs features 0x%x of format version %u.%u, not known here",
                           s->path, ooc_get_u32(page + OOC_HDR_MUST_FLAGS), s->info.version_major,
                           s->info.version_minor);
    s->info.file_bytes = ooc_get_u64(page + OOC_HDR_FILE_BYTES);
    if (s->info.file_bytes != file_bytes)
        return ooc_fail_at(err, OOC_E_FORMAT, file_bytes, -1,
                           "%s: has %llu bytes, its header promises %llu (cut off or damaged)",
                           s->path, (unsigned long long)file_bytes,
                           (unsigned long long)s->info.file_bytes);
    return OOC_OK;
}

static ooc_status parse_header(ooc_store *s, const uint8_t *page, struct header *h, ooc_err *err)
{
    ooc_store_info *i = &s->info;
    uint64_t need;

    h->index_off = ooc_get_u64(page + OOC_HDR_INDEX_OFF);
    h->index_bytes = ooc_get_u64(page + OOC_HDR_INDEX_BYTES);
    h->index_hash = ooc_get_u64(page + OOC_HDR_INDEX_HASH);
    h->record_bytes = ooc_get_u32(page + OOC_HDR_RECORD_BYTES);
    i->panel_columns = ooc_get_u32(page + OOC_HDR_PANEL_COLUMNS);
    i->n_rows = ooc_get_u64(page + OOC_HDR_ROWS);
    i->n_cols = ooc_get_u64(page + OOC_HDR_COLS);
    i->n_entries = ooc_get_u64(page + OOC_HDR_ENTRIES);
    i->n_tiles = ooc_get_u64(page + OOC_HDR_TILES);
    i->vtype = (ooc_dtype)page[OOC_HDR_VTYPE];
    if (i->version_minor <= OOC_FORMAT_MINOR &&
        (ooc_get_u32(page + OOC_HDR_MAY_FLAGS) || h->record_bytes != OOC_REC_SIZE ||
         !all_zero(page + OOC_HDR_RESERVED, OOC_HDR_HASH - OOC_HDR_RESERVED)))
        return damaged(s, err, OOC_HDR_RESERVED, "a reserved field of the header is not zero");
    if (page[OOC_HDR_VTYPE] >= OOC_CONST)
        return damaged(s, err, OOC_HDR_VTYPE, "the header names no known type of values");
    if (i->n_cols > UINT32_MAX || !i->panel_columns || i->panel_columns > OOC_MAX_PANEL_COLUMNS ||
        i->n_cols > (uint64_t)OOC_MAX_PANELS * i->panel_columns || i->n_rows > INT64_MAX)
        return damaged(s, err, OOC_HDR_PANEL_COLUMNS, "the shape in the header is impossible");
    if (h->record_bytes < OOC_REC_SIZE || !ooc_mul_u64(i->n_tiles, h->record_bytes, &need) ||
        need > h->index_bytes || h->index_bytes - need >= OOC_STORE_PAGE ||
        h->index_bytes % OOC_STORE_PAGE || h->index_off % OOC_STORE_PAGE ||
        h->index_off < OOC_STORE_PAGE ||
        !ooc_range_within(h->index_off, h->index_bytes, i->file_bytes) ||
        h->index_off + h->index_bytes != i->file_bytes)
        return damaged(s, err, OOC_HDR_INDEX_OFF, "the index is not where the file ends");
    return OOC_OK;
}

static bool counts_possible(const ooc_store_info *s, const ooc_tile_counts *n)
{
    uint64_t panels = s->panel_columns ? (s->n_cols + s->panel_columns - 1) / s->panel_columns : 0;

    return n->n_rows >= 1 && n->n_rows <= OOC_MAX_TILE_ROWS && n->n_chunks >= 1 &&
           n->n_chunks <= n->n_rows && n->n_panels <= panels && n->n_panels <= n->n_entries &&
           (uint64_t)n->n_panels * n->n_chunks < OOC_MAX_TILE_RUNS && n->n_entries <= INT32_MAX &&
           n->n_segments <= n->n_entries && n->n_lens <= n->n_segments &&
           n->n_segments >= n->n_panels && (n->n_segments > 0) == (n->n_entries > 0);
}

/* The bytes that a KERNEL tile has before its padding; of a ROWS tile only the directory is known
 * here. */
static bool sizes_possible(const ooc_tile_record *r)
{
    const ooc_tile_counts *n = &r->info.n;
    uint64_t least = r->dir_bytes;

    if (r->dir_bytes != ooc_dir_front_bytes(n, r->info.raw) + ooc_head_bytes(n))
        return false;
    if (r->info.raw) {
        if (r->max_chunk_entries || r->max_chunk_segments || r->max_chunk_rows)
            return false;
        least += r->info.kernel_bytes - ooc_head_bytes(n);
        return r->info.stored_bytes == ooc_round_up(least, OOC_STORE_PAGE);
    }
    return n->n_panels <= OOC_MAX_ROWS_PANELS && r->max_chunk_entries <= OOC_MAX_CHUNK_ENTRIES &&
           r->max_chunk_entries <= n->n_entries && r->max_chunk_segments <= r->max_chunk_entries &&
           r->max_chunk_rows >= 1 && r->max_chunk_rows <= n->n_rows &&
           r->info.stored_bytes >= ooc_round_up(least, OOC_STORE_PAGE);
}

/* One record; `off` and `row` are where this tile must begin. */
static const char *parse_record(const ooc_store *s, const uint8_t *p, ooc_tile_record *r,
                                uint64_t off, uint64_t row, uint64_t index_off)
{
    ooc_tile_info *i = &r->info;
    uint64_t bits = ooc_get_u64(p + OOC_REC_CONSTANT);
    uint8_t vtype = p[OOC_REC_VTYPE];

    i->file_off = ooc_get_u64(p + OOC_REC_FILE_OFF);
    i->stored_bytes = ooc_get_u64(p + OOC_REC_STORED_BYTES);
    i->first_row = ooc_get_u64(p + OOC_REC_FIRST_ROW);
    r->dir_hash = ooc_get_u64(p + OOC_REC_DIR_HASH);
    memcpy(&i->constant, &bits, 8);
    i->n = (ooc_tile_counts){
        .n_rows = ooc_get_u32(p + OOC_REC_ROWS),
        .n_chunks = ooc_get_u32(p + OOC_REC_CHUNKS),
        .n_panels = ooc_get_u32(p + OOC_REC_PANELS),
        .panel_columns = s->info.panel_columns,
        .n_entries = ooc_get_u32(p + OOC_REC_ENTRIES),
        .n_segments = ooc_get_u32(p + OOC_REC_SEGMENTS),
        .n_lens = ooc_get_u32(p + OOC_REC_LENS),
        .vtype = (ooc_dtype)vtype,
    };
    r->dir_bytes = ooc_get_u64(p + OOC_REC_DIR_BYTES);
    r->max_chunk_entries = ooc_get_u32(p + OOC_REC_CHUNK_ENTRIES);
    r->max_chunk_segments = ooc_get_u32(p + OOC_REC_CHUNK_SEGMENTS);
    r->max_chunk_rows = ooc_get_u32(p + OOC_REC_CHUNK_ROWS);
    i->raw = p[OOC_REC_LAYOUT] == OOC_LAYOUT_KERNEL;
    if (s->info.version_minor <= OOC_FORMAT_MINOR &&
        !all_zero(p + OOC_REC_RESERVED, OOC_REC_SIZE - OOC_REC_RESERVED))
        return "a reserved field is not zero";
    if (vtype != s->info.vtype && vtype != OOC_CONST)
        return "its type of values is not that of the store";
    if (vtype != OOC_CONST && bits)
        return "a constant in a tile that has values";
    if (i->file_off != off || i->stored_bytes % OOC_STORE_PAGE ||
        !ooc_range_within(off, i->stored_bytes, index_off))
        return "it is not where the tile before it ends, or ends behind the index";
    if (i->first_row != row || !counts_possible(&s->info, &i->n) ||
        row + i->n.n_rows > s->info.n_rows)
        return "its rows, panels or counts are impossible";
    i->kernel_bytes = ooc_tile_layout_of(&i->n).total;
    return sizes_possible(r) ? NULL : "its sizes are impossible";
}

static void add_to_info(ooc_store_info *s, const ooc_tile_record *r)
{
    const ooc_tile_info *i = &r->info;

    s->stored_bytes += i->stored_bytes;
    s->kernel_bytes += i->kernel_bytes;
    s->max_stored_bytes = ooc_max_u64(s->max_stored_bytes, i->stored_bytes);
    s->max_kernel_bytes = ooc_max_u64(s->max_kernel_bytes, i->kernel_bytes);
    s->max_tile_rows = (uint32_t)ooc_max_u64(s->max_tile_rows, i->n.n_rows);
    s->max_tile_chunks = (uint32_t)ooc_max_u64(s->max_tile_chunks, i->n.n_chunks);
    if (!i->raw)
        s->max_scratch_bytes = ooc_max_u64(s->max_scratch_bytes, ooc_scratch_layout_of(r).total);
}

static ooc_status parse_index(ooc_store *s, const struct header *h, const uint8_t *index,
                              ooc_err *err)
{
    uint64_t off = OOC_STORE_PAGE, row = 0, entries = 0, used = s->info.n_tiles * h->record_bytes;

    if (ooc_checksum(index, h->index_bytes) != h->index_hash)
        return damaged(s, err, h->index_off, "the checksum of the index does not match");
    if (!all_zero(index + used, h->index_bytes - used))
        return damaged(s, err, h->index_off + used, "the index is not padded with zeros");
    for (uint64_t k = 0; k < s->info.n_tiles; k++) {
        const uint8_t *p = index + k * h->record_bytes;
        ooc_tile_record *r = &s->tiles[k];
        uint64_t at = h->index_off + k * h->record_bytes;
        const char *what;

        if (p[OOC_REC_LAYOUT] > OOC_LAYOUT_ROWS)
            return ooc_fail_at(err, OOC_E_UNSUPPORTED, at, (int64_t)k,
                               "%s: tile %llu has layout %u, not known here", s->path,
                               (unsigned long long)k, p[OOC_REC_LAYOUT]);
        what = parse_record(s, p, r, off, row, h->index_off);
        if (what)
            return ooc_fail_at(err, OOC_E_FORMAT, at, (int64_t)k,
                               "%s: damaged: index, tile %llu: %s", s->path, (unsigned long long)k,
                               what);
        off += r->info.stored_bytes;
        row += r->info.n.n_rows;
        entries += r->info.n.n_entries;
        add_to_info(&s->info, r);
    }
    if (off != h->index_off || row != s->info.n_rows || entries != s->info.n_entries)
        return damaged(s, err, h->index_off,
                       "the tiles do not add up to the rows, entries and bytes of the header");
    return OOC_OK;
}

static ooc_status read_header_and_index(ooc_store *s, ooc_err *err)
{
    uint8_t page[OOC_STORE_PAGE], *index = NULL;
    struct header h;
    uint64_t file_bytes;
    ooc_status st;

    st = ooc_sys_size(s->fd, s->path, &file_bytes, err);
    if (!st && file_bytes < 8)
        st = ooc_fail_at(err, OOC_E_FORMAT, file_bytes, -1, "%s: not a tile store (too short)",
                         s->path);
    if (!st)
        st = ooc_sys_pread(s->fd, s->path, page, sizeof page, 0, err);
    if (!st)
        st = check_identity(s, page, file_bytes, err);
    if (!st)
        st = parse_header(s, page, &h, err);
    if (st)
        return st;
    index = ooc_malloc(h.index_bytes);
    s->tiles = ooc_calloc(s->info.n_tiles, sizeof *s->tiles);
    if (!index || !s->tiles)
        st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory for the index of %llu tiles", s->path,
                      (unsigned long long)s->info.n_tiles);
    if (!st)
        st = ooc_sys_pread(s->fd, s->path, index, h.index_bytes, h.index_off, err);
    if (!st)
        st = parse_index(s, &h, index, err);
    ooc_free(index);
    return st;
}

ooc_status ooc_store_open(ooc_store **out, const char *path, ooc_err *err)
{
    ooc_store *s = ooc_calloc(1, sizeof *s);
    ooc_status st = OOC_OK;

    *out = NULL;
    if (s) {
        s->fd = -1;
        s->path = ooc_strdup(path);
    }
    if (!s || !s->path)
        st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory to open it", path);
    if (!st)
        st = ooc_sys_open(&s->fd, path, O_RDONLY, err);
    if (!st)
        st = read_header_and_index(s, err);
    if (st)
        ooc_store_close(s);
    else
        *out = s;
    return st;
}

void ooc_store_close(ooc_store *s)
{
    if (!s)
        return;
    ooc_sys_close(s->fd);
    ooc_free(s->tiles);
    ooc_free(s->path);
    ooc_free(s);
}

const ooc_store_info *ooc_store_get_info(const ooc_store *s)
{
    return &s->info;
}

void ooc_store_get_tile(const ooc_store *s, uint64_t k, ooc_tile_info *out)
{
    *out = s->tiles[k].info;
}

const char *ooc_store_path(const ooc_store *s)
{
    return s->path;
}

int ooc_store_fd(const ooc_store *s)
{
    return s->fd;
}
