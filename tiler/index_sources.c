#include "tiler/index_sources.h"

#include "base/alloc.h"
#include "base/checked.h"

#define PTR_BLOCK     ((size_t)4096)
#define PIECE_ENTRIES 16384u

typedef struct {
    ooc_source base;
    ooc_index_parts p;
    char *name;
    uint64_t n_entries, at;
    /* compressed and dense: */
    uint64_t major, n_major; /* the row (column) that is being read */
    uint64_t major_end;      /* its entries end here (dense: the next minor index) */
    uint64_t ptr[PTR_BLOCK];
    size_t ptr_at, ptr_held;
} index_source;

void ooc_batch_cut(ooc_batch *b, uint32_t n)
{
    uint32_t size = n / OOC_BATCH_PIECES + 1;

    if (size < PIECE_ENTRIES)
        size = PIECE_ENTRIES;
    for (b->n_pieces = 0; n; b->n_pieces++) {
        b->piece[b->n_pieces].first = b->n_pieces * size;
        b->piece[b->n_pieces].n = n < size ? n : size;
        n -= b->piece[b->n_pieces].n;
    }
}

void ooc_index_parts_close(const ooc_index_parts *p)
{
    ooc_seq_close(p->ptr);
    ooc_seq_close(p->row);
    ooc_seq_close(p->col);
    ooc_seq_close(p->val);
    if (p->container)
        p->close_container(p->container);
}

static void close_index(ooc_source *base)
{
    index_source *s = (index_source *)base;

    ooc_index_parts_close(&s->p);
    ooc_free(s->name);
    ooc_free(s);
}

static uint64_t memory_of(const ooc_index_parts *p)
{
    return sizeof(index_source) + p->container_bytes +
           (uint64_t)(!!p->ptr + !!p->row + !!p->col + !!p->val) * OOC_SEQ_MEMORY;
}

static ooc_status new_source(index_source **out, const ooc_index_parts *p, ooc_err *err)
{
    index_source *s = ooc_calloc(1, sizeof *s);
    char *name = ooc_strdup(p->name);

    *out = NULL;
    if (!s || !name) {
        ooc_index_parts_close(p);
        ooc_free(s);
        ooc_free(name);
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", p->name);
    }
    s->p = *p;
    s->name = name;
    s->n_entries = p->col ? p->col->n_items : p->val->n_items;
    s->base.close = close_index;
    s->base.info = (ooc_source_info){.n_rows = p->n_rows,
                                     .n_cols = p->n_cols,
                                     .max_entries = s->n_entries,
                                     .wide = p->val && ooc_elem_is_wide(p->val->elem),
                                     .integer = p->val && ooc_elem_is_index(p->val->elem),
                                     .is_complex = p->val && ooc_elem_is_complex(p->val->elem),
                                     .value_type = p->val ? ooc_elem_name(p->val->elem) : "pattern",
                                     .memory_bytes = memory_of(p)};
    *out = s;
    return OOC_OK;
}

static ooc_status read_values(index_source *s, ooc_batch *b, uint32_t n, ooc_err *err)
{
    if (s->p.val)
        return ooc_seq_read_value(s->p.val, b->val, b->imag, n, err);
    for (uint32_t i = 0; i < n; i++)
        b->val[i] = 1;
    return OOC_OK;
}

static ooc_status finish(index_source *s, ooc_err *err)
{
    ooc_seq *all[] = {s->p.ptr, s->p.row, s->p.col, s->p.val};
    ooc_status st = OOC_OK;

    for (int i = 0; !st && i < 4; i++)
        if (all[i])
            st = ooc_seq_finish(all[i], err);
    return st;
}

static ooc_status check_lengths(const index_source *s, const ooc_seq *other, ooc_err *err)
{
    if (!other || other->n_items == s->p.col->n_items)
        return OOC_OK;
    return ooc_fail(err, OOC_E_FORMAT, "%s has %llu items, %s has %llu: they must be as many",
                    other->name, (unsigned long long)other->n_items, s->p.col->name,
                    (unsigned long long)s->p.col->n_items);
}

/* --- triples --- */

static ooc_status next_triples(ooc_source *base, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    index_source *s = (index_source *)base;
    uint32_t n = (uint32_t)ooc_min_u64(b->capacity, s->n_entries - s->at);
    ooc_status st = ooc_seq_read_index(s->p.row, b->row, n, err);

    (void)pool;
    if (!st)
        st = ooc_seq_read_index(s->p.col, b->col, n, err);
    if (!st)
        st = read_values(s, b, n, err);
    if (st)
        return st;
    ooc_batch_cut(b, n);
    s->at += n;
    base->done = s->n_entries ? (double)s->at / (double)s->n_entries : 1;
    b->end = s->at == s->n_entries;
    return b->end ? finish(s, err) : OOC_OK;
}

ooc_status ooc_triple_source(ooc_source **out, const ooc_index_parts *parts, ooc_err *err)
{
    index_source *s;
    ooc_status st = new_source(&s, parts, err);

    *out = NULL;
    if (st)
        return st;
    s->base.next = next_triples;
    st = check_lengths(s, s->p.row, err);
    if (!st)
        st = check_lengths(s, s->p.val, err);
    if (st) {
        close_index(&s->base);
        return st;
    }
    *out = &s->base;
    return OOC_OK;
}

/* --- compressed --- */

/* Go to the next row: its end is the next pointer. */
static ooc_status next_major(index_source *s, ooc_err *err)
{
    uint64_t end;

    if (s->ptr_at == s->ptr_held) {
        size_t n = (size_t)ooc_min_u64(PTR_BLOCK, s->p.ptr->n_items - s->p.ptr->at);
        ooc_status st = ooc_seq_read_index(s->p.ptr, s->ptr, n, err);

        if (st)
            return st;
        s->ptr_at = 0;
        s->ptr_held = n;
    }
    end = s->ptr[s->ptr_at++];
    if (end < s->major_end)
        return ooc_fail(err, OOC_E_FORMAT, "%s: item %llu is %llu, below the one before it",
                        s->p.ptr->name, (unsigned long long)(s->major + 1),
                        (unsigned long long)end);
    if (end > s->n_entries)
        return ooc_fail(err, OOC_E_FORMAT, "%s: item %llu is %llu, but %s has only %llu items",
                        s->p.ptr->name, (unsigned long long)(s->major + 1), (unsigned long long)end,
                        s->p.col->name, (unsigned long long)s->n_entries);
    s->major_end = end;
    return OOC_OK;
}

/* The major index of up to `room` entries into `major`; *n says of how many. At the end of the
 * matrix *n < room. */
static ooc_status fill_majors(index_source *s, uint64_t *major, uint32_t room, uint32_t *n,
                              ooc_err *err)
{
    *n = 0;
    while (*n < room) {
        uint32_t run = (uint32_t)ooc_min_u64(s->major_end - s->at, room - *n);
        ooc_status st;

        for (uint32_t i = 0; i < run; i++)
            major[*n + i] = s->major;
        *n += run;
        s->at += run;
        if (s->at < s->major_end)
            continue;
        if (s->major + 1 >= s->n_major)
            break;
        s->major++;
        st = next_major(s, err);
        if (st)
            return st;
    }
    return OOC_OK;
}

static ooc_status next_compressed(ooc_source *base, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    index_source *s = (index_source *)base;
    uint64_t *major = s->p.by_columns ? b->col : b->row;
    uint32_t n = 0;
    ooc_status st = OOC_OK;

    (void)pool;
    if (s->n_major)
        st = fill_majors(s, major, b->capacity, &n, err);
    if (!st)
        st = ooc_seq_read_index(s->p.col, s->p.by_columns ? b->row : b->col, n, err);
    if (!st)
        st = read_values(s, b, n, err);
    if (st)
        return st;
    ooc_batch_cut(b, n);
    b->settled = s->major;
    b->end = n < b->capacity || (s->major + 1 == s->n_major && s->at == s->major_end);
    base->done = s->n_entries ? (double)s->at / (double)s->n_entries : 1;
    if (b->end && s->p.exact_length && s->at != s->n_entries)
        return ooc_fail(err, OOC_E_FORMAT, "%s: the rows have %llu entries in all, not %llu",
                        s->p.ptr->name, (unsigned long long)s->at,
                        (unsigned long long)s->n_entries);
    return b->end ? finish(s, err) : OOC_OK;
}

ooc_status ooc_compressed_source(ooc_source **out, const ooc_index_parts *parts, ooc_err *err)
{
    index_source *s;
    uint64_t first;
    ooc_status st = new_source(&s, parts, err);

    *out = NULL;
    if (st)
        return st;
    s->base.next = next_compressed;
    s->base.info.settles = parts->by_columns ? OOC_SETTLES_COLS : OOC_SETTLES_ROWS;
    s->n_major = parts->by_columns ? parts->n_cols : parts->n_rows;
    st = check_lengths(s, s->p.val, err);
    if (!st && s->p.ptr->n_items - 1 != s->n_major)
        st = ooc_fail(err, OOC_E_FORMAT,
                      "%s has %llu items, a matrix of %llu %s needs one more "
                      "than that",
                      s->p.ptr->name, (unsigned long long)s->p.ptr->n_items,
                      (unsigned long long)s->n_major, parts->by_columns ? "columns" : "rows");
    if (!st)
        st = ooc_seq_read_index(s->p.ptr, &first, 1, err);
    if (!st && first != 0)
        st = ooc_fail(err, OOC_E_FORMAT, "%s: begins with %llu, expected 0", s->p.ptr->name,
                      (unsigned long long)first);
    if (!st && s->n_major)
        st = next_major(s, err);
    if (st) {
        close_index(&s->base);
        return st;
    }
    *out = &s->base;
    return OOC_OK;
}

/* --- dense --- */

static ooc_status next_dense(ooc_source *base, ooc_batch *b, ooc_pool *pool, ooc_err *err)
{
    index_source *s = (index_source *)base;
    uint64_t *major = s->p.by_columns ? b->col : b->row, *minor = s->p.by_columns ? b->row : b->col;
    uint64_t n_minor = s->p.by_columns ? s->p.n_rows : s->p.n_cols;
    uint32_t n = (uint32_t)ooc_min_u64(b->capacity, s->n_entries - s->at), kept = 0;
    ooc_status st = ooc_seq_read_value(s->p.val, b->val, b->imag, n, err);

    (void)pool;
    if (st)
        return st;
    for (uint32_t i = 0; i < n; i++) {
        if (b->val[i] != 0 || (b->imag && b->imag[i] != 0)) { /* also where it is not a number */
            major[kept] = s->major;
            minor[kept] = s->major_end;
            b->val[kept] = b->val[i];
            if (b->imag)
                b->imag[kept] = b->imag[i];
            kept++;
        }
        if (++s->major_end == n_minor) {
            s->major_end = 0;
            s->major++;
        }
    }
    s->at += n;
    ooc_batch_cut(b, kept);
    b->settled = s->major;
    base->done = s->n_entries ? (double)s->at / (double)s->n_entries : 1;
    b->end = s->at == s->n_entries;
    return b->end ? finish(s, err) : OOC_OK;
}

ooc_status ooc_dense_source(ooc_source **out, const ooc_index_parts *parts, ooc_err *err)
{
    uint64_t n;
    index_source *s;
    ooc_status st = new_source(&s, parts, err);

    *out = NULL;
    if (st)
        return st;
    s->base.next = next_dense;
    s->base.info.settles = parts->by_columns ? OOC_SETTLES_COLS : OOC_SETTLES_ROWS;
    if (!ooc_mul_u64(parts->n_rows, parts->n_cols, &n) || n != s->n_entries) {
        st = ooc_fail(err, OOC_E_FORMAT, "%s: has %llu values, not %llu x %llu", parts->val->name,
                      (unsigned long long)s->n_entries, (unsigned long long)parts->n_rows,
                      (unsigned long long)parts->n_cols);
        close_index(&s->base);
        return st;
    }
    *out = &s->base;
    return OOC_OK;
}
