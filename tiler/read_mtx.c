/* Matrix Market, plain or gzipped. The text is read in blocks, each cut into pieces at line ends
 * that all threads parse. */
#include "tiler/reader.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "io/sys.h"
#include "tiler/byte_stream.h"
#include "tiler/mtx_header.h"
#include "tiler/text_number.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define BLOCK_MAX      ((size_t)8 << 20)
#define BLOCK_MIN      ((size_t)64 << 10)
#define PIECE_MIN      ((size_t)16 << 10)
#define LINE_MAX_BYTES ((size_t)32 << 10) /* longer lines are refused */

/* What parsing a piece found. */
typedef struct {
    const char *text, *end;
    uint64_t lines; /* line ends */
    uint64_t data_lines;
    uint64_t lower_line, upper_line; /* first entry below and above the diagonal; 0: none */
    const char *problem;             /* NULL: none; then `lines` counts up to the bad line */
    const char *bad_text;
} piece_result;

typedef struct {
    ooc_source base;
    ooc_mtx_header head;
    char *name;
    int fd;
    ooc_stream *stream;
    char *block;
    size_t block_bytes; /* capacity */
    size_t held;        /* bytes in the block that are not parsed yet, at its start */
    bool stream_end;
    uint64_t line; /* line ends before the block */
    uint64_t data_lines;
    uint64_t lower_line, upper_line;
    uint64_t array_row, array_col; /* the place of the next value of an array file */
    ooc_batch *batch;
    piece_result piece[OOC_BATCH_PIECES];
} mtx;

static inline bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static inline bool line_end(char c)
{
    return c == '\n' || c == '\r';
}

static inline const char *skip_blanks(const char *p)
{
    while (blank(*p))
        p++;
    return p;
}

/* Behind the line end at p. */
static inline const char *next_line(const char *p)
{
    return p + (p[0] == '\r' && p[1] == '\n' ? 2 : 1);
}

static const char *find_line_end(const char *p)
{
    while (!line_end(*p))
        p++;
    return p;
}

/* A value at p. False: *problem says why. */
static inline bool parse_value(const char **p, ooc_mtx_field field, double *value,
                               const char **problem)
{
    const char *start = skip_blanks(*p);
    const char *end = ooc_text_double(start, value);
    uint64_t whole;

    if (!end || !(blank(*end) || line_end(*end))) {
        *problem = "expected a number";
        return false;
    }
    *p = end;
    if (field != OOC_MTX_INTEGER || (fabs(*value) < 9007199254740992.0 && rint(*value) == *value))
        return true;
    if (!isfinite(*value)) /* left to --allow-nonfinite */
        return true;
    if (rint(*value) != *value) {
        *problem = "expected a whole number, the first line says integer";
        return false;
    }
    start += *start == '-' || *start == '+';
    if (!ooc_text_u64(start, &whole) || fabs(*value) >= 18446744073709551615.0 ||
        (uint64_t)fabs(*value) != whole) {
        *problem = "a whole number that 64-bit floating point cannot hold exactly";
        return false;
    }
    return true;
}

typedef struct {
    uint64_t *row, *col;
    double *val, *imag;
    uint32_t n;
} entry_out;

static inline void put(entry_out *o, uint64_t row, uint64_t col, double re, double im)
{
    o->row[o->n] = row;
    o->col[o->n] = col;
    o->val[o->n] = re;
    if (o->imag)
        o->imag[o->n] = im;
    o->n++;
}

/* The entry, and its mirror image where the file holds one triangle. */
static inline const char *put_mirrored(entry_out *o, const ooc_mtx_header *h, uint64_t row,
                                       uint64_t col, double re, double im)
{
    put(o, row, col, re, im);
    if (h->symmetry == OOC_MTX_GENERAL)
        return NULL;
    if (row != col) {
        bool skew = h->symmetry == OOC_MTX_SKEW;

        put(o, col, row, skew ? -re : re, skew || h->symmetry == OOC_MTX_HERMITIAN ? -im : im);
    } else if (h->symmetry == OOC_MTX_SKEW && (re != 0 || im != 0))
        return "a value on the diagonal of a skew-symmetric matrix must be zero";
    else if (h->symmetry == OOC_MTX_HERMITIAN && im != 0)
        return "a value on the diagonal of a hermitian matrix must be real";
    return NULL;
}

static const char *parse_entry(const ooc_mtx_header *h, const char *p, entry_out *o,
                               piece_result *r)
{
    uint64_t row, col;
    double re = 1, im = 0;

    p = ooc_text_u64(p, &row);
    if (p && blank(*p))
        p = ooc_text_u64(skip_blanks(p), &col);
    else
        p = NULL;
    if (!p || !(blank(*p) || line_end(*p))) {
        r->problem = h->field == OOC_MTX_PATTERN   ? "expected 'row column'"
                     : h->field == OOC_MTX_COMPLEX ? "expected 'row column real imaginary'"
                                                   : "expected 'row column value'";
        return NULL;
    }
    if (row - 1 >= h->n_rows || col - 1 >= h->n_cols) {
        r->problem = row && col ? "the entry lies outside of the matrix"
                                : "rows and columns are counted from 1";
        return NULL;
    }
    if (h->field != OOC_MTX_PATTERN && !parse_value(&p, h->field, &re, &r->problem))
        return NULL;
    if (h->field == OOC_MTX_COMPLEX && !parse_value(&p, h->field, &im, &r->problem))
        return NULL;
    if (row > col && !r->lower_line)
        r->lower_line = r->lines + 1;
    if (row < col && !r->upper_line)
        r->upper_line = r->lines + 1;
    r->problem = put_mirrored(o, h, row - 1, col - 1, re, im);
    return r->problem ? NULL : p;
}

/* One value of an array file; zeros of a dense matrix are no entries. */
static const char *parse_array_value(mtx *m, const char *p, entry_out *o, piece_result *r)
{
    const ooc_mtx_header *h = &m->head;
    double re, im = 0;

    if (m->data_lines + r->data_lines >= h->n_lines) {
        r->problem = "more values than the matrix has";
        return NULL;
    }
    if (!parse_value(&p, h->field, &re, &r->problem) ||
        (h->field == OOC_MTX_COMPLEX && !parse_value(&p, h->field, &im, &r->problem)))
        return NULL;
    if (re != 0 || im != 0) /* also where it is not a number */
        r->problem = put_mirrored(o, h, m->array_row, m->array_col, re, im);
    if (++m->array_row >= h->n_rows) {
        m->array_col++;
        m->array_row = h->symmetry == OOC_MTX_GENERAL ? 0
                       : h->symmetry == OOC_MTX_SKEW  ? m->array_col + 1
                                                      : m->array_col;
    }
    return r->problem ? NULL : p;
}

static void parse_piece(void *ctx, uint32_t task, uint32_t thread)
{
    mtx *m = ctx;
    ooc_batch *b = m->batch;
    piece_result *r = &m->piece[task];
    uint32_t first = b->piece[task].first;
    entry_out o = {b->row + first, b->col + first, b->val + first, b->imag ? b->imag + first : NULL,
                   0};

    (void)thread;
    for (const char *p = r->text; p < r->end;) {
        const char *line = skip_blanks(p);

        p = line;
        if (*line == '%')
            p = find_line_end(p);
        else if (!line_end(*line)) {
            p = m->head.array ? parse_array_value(m, p, &o, r) : parse_entry(&m->head, p, &o, r);
            if (p) {
                p = skip_blanks(p);
                if (!line_end(*p)) {
                    r->problem = "more on the line than expected";
                    p = NULL;
                }
            }
            if (!p) {
                r->bad_text = line;
                break;
            }
            r->data_lines++;
        }
        r->lines++;
        p = next_line(p);
    }
    b->piece[task].n = o.n;
}

/* --- blocks --- */

/* The shortest line with an entry: "1 1\n", "1 1 1\n", "1 1 1 1\n"; in an array "1\n", "1 1\n". */
static size_t shortest_line(const ooc_mtx_header *h)
{
    if (h->array)
        return h->field == OOC_MTX_COMPLEX ? 4 : 2;
    return h->field == OOC_MTX_PATTERN ? 4 : h->field == OOC_MTX_COMPLEX ? 8 : 6;
}

static uint32_t mirror_factor(const ooc_mtx_header *h)
{
    return h->symmetry == OOC_MTX_GENERAL ? 1 : 2;
}

/* Read on behind what is held, up to `limit` bytes in all; at the end of the file add a line end.
 */
static ooc_status fill(mtx *m, size_t limit, ooc_err *err)
{
    size_t got = 0;
    ooc_status st = OOC_OK;

    if (m->held < limit && !m->stream_end)
        st = ooc_stream_read(m->stream, m->block + m->held, limit - m->held, &got, err);
    if (st)
        return st;
    if (m->held + got < limit)
        m->stream_end = true;
    m->held += got;
    memset(m->block + m->held, '\n', OOC_TEXT_SLACK);
    return OOC_OK;
}

/* The bytes up to the last line end among the first n, or 0. A '\r' at the very end counts only
 * where the byte behind it is known. */
static size_t whole_lines(const mtx *m, size_t n)
{
    size_t at = n;

    while (at && !line_end(m->block[at - 1]))
        at--;
    if (at == n && at && m->block[at - 1] == '\r' && at == m->held && !m->stream_end) {
        for (at--; at && !line_end(m->block[at - 1]); at--)
            ;
    } else if (at && m->block[at - 1] == '\r' && m->block[at] == '\n' && at < m->held)
        at++;
    return at;
}

/* Cut the first `bytes` bytes, whole lines, into pieces and give each its part of the batch. */
static void cut(mtx *m, size_t bytes, ooc_batch *b, uint32_t n_threads)
{
    size_t shortest = shortest_line(&m->head);
    size_t aim = bytes / (4 * (size_t)n_threads) + 1;
    const char *p = m->block, *end = m->block + bytes;
    uint32_t first = 0;

    if (aim < PIECE_MIN)
        aim = PIECE_MIN;
    if (aim < bytes / (OOC_BATCH_PIECES - 1) + 1)
        aim = bytes / (OOC_BATCH_PIECES - 1) + 1;
    if (m->head.array) /* the place of a value depends on all before it */
        aim = bytes;
    for (b->n_pieces = 0; p < end; b->n_pieces++) {
        piece_result *r = &m->piece[b->n_pieces];

        *r = (piece_result){.text = p};
        p = (size_t)(end - p) > aim ? next_line(find_line_end(p + aim)) : end;
        r->end = p = p > end ? end : p;
        b->piece[b->n_pieces].first = first;
        first += (uint32_t)((size_t)(r->end - r->text) / shortest + 1) * mirror_factor(&m->head);
    }
}

/* Text that surely fits the batch. */
static size_t text_limit(const mtx *m, const ooc_batch *b)
{
    size_t entries = b->capacity / mirror_factor(&m->head) - OOC_BATCH_PIECES;

    return (size_t)ooc_min_u64((uint64_t)entries * shortest_line(&m->head),
                               m->block_bytes - OOC_TEXT_SLACK);
}

static ooc_status refuse_line(const mtx *m, const piece_result *r, ooc_err *err)
{
    size_t n = (size_t)(find_line_end(r->bad_text) - r->bad_text);

    return ooc_fail(err, OOC_E_FORMAT, "%s: line %llu: %s, found '%.*s%s'", m->name,
                    (unsigned long long)(m->line + r->lines + 1), r->problem,
                    (int)(n > 60 ? 60 : n), r->bad_text, n > 60 ? "..." : "");
}

/* Both triangles in a file that says it holds one: mirroring would double everything. */
static ooc_status check_triangles(mtx *m, const piece_result *r, ooc_err *err)
{
    if (r->lower_line && !m->lower_line)
        m->lower_line = m->line + r->lower_line;
    if (r->upper_line && !m->upper_line)
        m->upper_line = m->line + r->upper_line;
    if (m->head.symmetry == OOC_MTX_GENERAL || !m->lower_line || !m->upper_line)
        return OOC_OK;
    return ooc_fail(err, OOC_E_FORMAT,
                    "%s: line %llu: an entry on the other side of the diagonal than line %llu's; a "
                    "symmetric file holds one triangle only. If it holds the whole matrix, write "
                    "'general' into its first line",
                    m->name, (unsigned long long)ooc_max_u64(m->lower_line, m->upper_line),
                    (unsigned long long)ooc_min_u64(m->lower_line, m->upper_line));
}

static ooc_status add_up(mtx *m, const ooc_batch *b, ooc_err *err)
{
    for (uint32_t p = 0; p < b->n_pieces; p++) {
        const piece_result *r = &m->piece[p];
        ooc_status st = r->problem ? refuse_line(m, r, err) : check_triangles(m, r, err);

        if (st)
            return st;
        m->line += r->lines;
        m->data_lines += r->data_lines;
        if (m->data_lines > m->head.n_lines)
            return ooc_fail(err, OOC_E_FORMAT,
                            "%s: near line %llu: more than the %llu entries that the line of sizes "
                            "(line %llu) promises",
                            m->name, (unsigned long long)m->line,
                            (unsigned long long)m->head.n_lines,
                            (unsigned long long)m->head.header_lines);
    }
    return OOC_OK;
}

static ooc_status next(ooc_source *s, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    mtx *m = (mtx *)s;
    size_t limit = text_limit(m, b), bytes;
    ooc_status st = fill(m, limit, err);

    if (st)
        return st;
    bytes = m->held < limit ? m->held : limit;
    if (!m->stream_end || m->held > limit)
        bytes = whole_lines(m, bytes);
    if (!bytes && m->held)
        return ooc_fail(err, OOC_E_FORMAT, "%s: line %llu: longer than %zu bytes", m->name,
                        (unsigned long long)(m->line + 1), m->held);
    m->batch = b;
    cut(m, bytes, b, ooc_pool_threads(pool));
    ooc_parallel_for(pool, b->n_pieces, parse_piece, m);
    st = add_up(m, b, err);
    if (st)
        return st;
    memmove(m->block, m->block + bytes, m->held - bytes);
    m->held -= bytes;
    memset(m->block + m->held, '\n', OOC_TEXT_SLACK);
    s->done = ooc_stream_done(m->stream);
    if (m->head.array && m->head.symmetry == OOC_MTX_GENERAL)
        b->settled = m->array_col;
    b->end = m->stream_end && !m->held;
    if (b->end && m->data_lines != m->head.n_lines)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: ends after %llu of the %llu entries that the line of sizes (line "
                        "%llu) promises; the file was cut off",
                        m->name, (unsigned long long)m->data_lines,
                        (unsigned long long)m->head.n_lines,
                        (unsigned long long)m->head.header_lines);
    return OOC_OK;
}

static void close_mtx(ooc_source *s)
{
    mtx *m = (mtx *)s;

    ooc_stream_close(m->stream);
    ooc_sys_close(m->fd);
    ooc_free(m->block);
    ooc_free(m->name);
    ooc_free(m);
}

static ooc_status open_text(mtx *m, const char *path, ooc_err *err)
{
    ooc_stream_opts opts = {.name = path, .unpacked_bytes = UINT64_MAX};
    uint8_t magic[2] = {0};
    ooc_status st = ooc_sys_open(&m->fd, path, O_RDONLY, err);

    if (!st)
        st = ooc_sys_size(m->fd, path, &opts.bytes, err);
    if (!st && opts.bytes >= 2)
        st = ooc_sys_pread(m->fd, path, magic, 2, 0, err);
    if (st)
        return st;
    opts.fd = m->fd;
    opts.packed = magic[0] == 0x1f && magic[1] == 0x8b ? OOC_PACKED_GZIP : OOC_PACKED_NOT;
    return ooc_stream_open(&m->stream, &opts, err);
}

static ooc_status read_head(mtx *m, ooc_err *err)
{
    bool need_more = true;
    size_t limit = LINE_MAX_BYTES;
    ooc_status st = OOC_OK;

    while (!st && need_more) {
        if (limit > m->block_bytes - OOC_TEXT_SLACK)
            return ooc_fail(err, OOC_E_FORMAT, "%s: no line of sizes in the first %zu bytes",
                            m->name, m->held);
        st = fill(m, limit, err);
        if (!st)
            st = ooc_mtx_header_parse(&m->head, m->block, m->held, m->stream_end, m->name,
                                      &need_more, err);
        limit *= 2;
    }
    if (st)
        return st;
    m->line = m->head.header_lines;
    m->held -= m->head.header_bytes;
    memmove(m->block, m->block + m->head.header_bytes, m->held);
    memset(m->block + m->held, '\n', OOC_TEXT_SLACK);
    m->array_row = m->head.symmetry == OOC_MTX_SKEW ? 1 : 0;
    return OOC_OK;
}

static ooc_status open_mtx(ooc_source **out, const ooc_source_request *request, ooc_err *err)
{
    mtx *m = ooc_calloc(1, sizeof *m);
    const ooc_mtx_header *h;
    ooc_status st;

    if (!m)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    m->fd = -1;
    m->block_bytes = (size_t)ooc_min_u64(ooc_max_u64(request->memory_bytes, BLOCK_MIN), BLOCK_MAX);
    m->block = ooc_malloc(m->block_bytes);
    m->name = ooc_strdup(request->path);
    m->base.close = close_mtx;
    m->base.next = next;
    st = m->block && m->name
             ? open_text(m, request->path, err)
             : ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", request->path);
    if (!st)
        st = read_head(m, err);
    if (st) {
        close_mtx(&m->base);
        return st;
    }
    h = &m->head;
    m->base.info = (ooc_source_info){
        .n_rows = h->n_rows,
        .n_cols = h->n_cols,
        .max_entries =
            h->n_lines > UINT64_MAX / 2 ? OOC_ENTRIES_UNKNOWN : h->n_lines * mirror_factor(h),
        .settles =
            h->array && h->symmetry == OOC_MTX_GENERAL ? OOC_SETTLES_COLS : OOC_SETTLES_NOTHING,
        .wide = h->field != OOC_MTX_PATTERN,
        .integer = h->field == OOC_MTX_INTEGER,
        .is_complex = h->field == OOC_MTX_COMPLEX,
        .value_type = ooc_mtx_field_name(h->field),
        .memory_bytes = m->block_bytes + sizeof *m + OOC_STREAM_MEMORY};
    *out = &m->base;
    return OOC_OK;
}

static bool fits_content(const ooc_probe *p)
{
    static const char banner[] = "%%MatrixMarket";

    return p->n >= sizeof banner - 1 &&
           strncasecmp((const char *)p->head, banner, sizeof banner - 1) == 0;
}

static bool fits_name(const char *path)
{
    return ooc_path_ends(path, ".mtx") || ooc_path_ends(path, ".mtx.gz");
}

const ooc_format ooc_format_mtx = {.name = "mtx",
                                   .what = "Matrix Market, FILE.mtx or FILE.mtx.gz",
                                   .fits_content = fits_content,
                                   .fits_name = fits_name,
                                   .open = open_mtx};
