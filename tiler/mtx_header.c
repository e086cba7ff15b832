#include "tiler/mtx_header.h"

#include "base/checked.h"
#include "tiler/text_number.h"

#include <string.h>
#include <strings.h>

static const char *skip_blanks(const char *p)
{
    while (*p == ' ' || *p == '\t')
        p++;
    return p;
}

static bool at_line_end(const char *p)
{
    return *p == '\n' || *p == '\r';
}

/* Take the next word of the line into `word` (cut to fit); false where there is none. */
static bool take_word(const char **p, char *word, size_t room)
{
    size_t n = 0;

    *p = skip_blanks(*p);
    for (; !at_line_end(*p) && **p != ' ' && **p != '\t'; (*p)++)
        if (n + 1 < room)
            word[n++] = **p;
    word[n] = 0;
    return n > 0;
}

static int find_word(const char *word, const char *const *known)
{
    for (int i = 0; known[i]; i++)
        if (strcasecmp(word, known[i]) == 0)
            return i;
    return -1;
}

const char *ooc_mtx_field_name(ooc_mtx_field field)
{
    static const char *const names[] = {"real", "integer", "pattern", "complex"};

    return names[field];
}

static ooc_status parse_banner(ooc_mtx_header *h, const char *p, const char *name, ooc_err *err)
{
    static const char *const formats[] = {"coordinate", "array", NULL};
    static const char *const fields[] = {"real", "integer", "pattern", "complex", "double", NULL};
    static const char *const symmetries[] = {"general", "symmetric", "skew-symmetric", "hermitian",
                                             NULL};
    char word[32];
    int format = -1, field = -1, symmetry = -1;

    if (!take_word(&p, word, sizeof word) || strcasecmp(word, "%%MatrixMarket") != 0)
        return ooc_fail(err, OOC_E_FORMAT, "%s: line 1: expected '%%%%MatrixMarket matrix ...'",
                        name);
    if (!take_word(&p, word, sizeof word) || strcasecmp(word, "matrix") != 0)
        return ooc_fail(err, OOC_E_UNSUPPORTED, "%s: line 1: expected 'matrix', found '%s'", name,
                        word);
    if (take_word(&p, word, sizeof word))
        format = find_word(word, formats);
    if (format < 0)
        return ooc_fail(err, OOC_E_FORMAT, "%s: line 1: expected coordinate or array, found '%s'",
                        name, word);
    if (take_word(&p, word, sizeof word))
        field = find_word(word, fields);
    if (field < 0)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: line 1: expected real, integer, pattern or complex, found '%s'", name,
                        word);
    if (take_word(&p, word, sizeof word))
        symmetry = find_word(word, symmetries);
    if (symmetry < 0)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: line 1: expected general, symmetric, skew-symmetric or hermitian, "
                        "found '%s'",
                        name, word);
    h->array = format == 1;
    h->field = field == 4 ? OOC_MTX_REAL : (ooc_mtx_field)field;
    h->symmetry = (ooc_mtx_symmetry)symmetry;
    if (h->array && h->field == OOC_MTX_PATTERN)
        return ooc_fail(err, OOC_E_FORMAT, "%s: line 1: an array cannot be a pattern", name);
    if (h->symmetry == OOC_MTX_HERMITIAN && h->field != OOC_MTX_COMPLEX)
        return ooc_fail(err, OOC_E_FORMAT, "%s: line 1: only complex matrices are hermitian", name);
    if (h->symmetry == OOC_MTX_SKEW && h->field == OOC_MTX_PATTERN)
        return ooc_fail(err, OOC_E_FORMAT, "%s: line 1: a pattern cannot be skew-symmetric", name);
    return OOC_OK;
}

/* Values that an array file holds: all, or one triangle. */
static bool array_lines(const ooc_mtx_header *h, uint64_t *n)
{
    uint64_t both;

    if (h->symmetry == OOC_MTX_GENERAL)
        return ooc_mul_u64(h->n_rows, h->n_cols, n);
    if (h->symmetry == OOC_MTX_SKEW)
        return h->n_rows ? ooc_mul_u64(h->n_rows, h->n_rows - 1, &both) && (*n = both / 2, true)
                         : (*n = 0, true);
    return h->n_rows < UINT64_MAX && ooc_mul_u64(h->n_rows, h->n_rows + 1, &both) &&
           (*n = both / 2, true);
}

static ooc_status parse_sizes(ooc_mtx_header *h, const char *p, const char *name, ooc_err *err)
{
    uint64_t number[3] = {0};
    int want = h->array ? 2 : 3;
    bool ok = true;

    for (int i = 0; ok && i < want; i++) {
        p = ooc_text_u64(skip_blanks(p), &number[i]);
        ok = p && (at_line_end(p) || *p == ' ' || *p == '\t');
    }
    if (!ok || !at_line_end(skip_blanks(p)))
        return ooc_fail(err, OOC_E_FORMAT, "%s: line %llu: expected the sizes '%s'", name,
                        (unsigned long long)h->header_lines,
                        h->array ? "rows columns" : "rows columns entries");
    h->n_rows = number[0];
    h->n_cols = number[1];
    h->n_lines = number[2];
    if (h->symmetry != OOC_MTX_GENERAL && h->n_rows != h->n_cols)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: line %llu: a matrix of %llu x %llu cannot be symmetric", name,
                        (unsigned long long)h->header_lines, (unsigned long long)h->n_rows,
                        (unsigned long long)h->n_cols);
    if (h->array && !array_lines(h, &h->n_lines))
        return ooc_fail(err, OOC_E_FORMAT, "%s: line %llu: %llu x %llu values cannot be", name,
                        (unsigned long long)h->header_lines, (unsigned long long)h->n_rows,
                        (unsigned long long)h->n_cols);
    return OOC_OK;
}

ooc_status ooc_mtx_header_parse(ooc_mtx_header *out, const char *text, size_t bytes, bool whole,
                                const char *name, bool *need_more, ooc_err *err)
{
    const char *p = text, *end = text + bytes;
    ooc_status st = OOC_OK;
    bool done = false;

    *out = (ooc_mtx_header){0};
    *need_more = false;
    while (!st && !done && p < end) {
        const char *line = skip_blanks(p);

        for (p = line; p < end && !at_line_end(p); p++)
            ;
        if (p + 1 >= end && !whole) /* the line's end may lie behind the text */
            break;
        out->header_lines++;
        if (out->header_lines == 1)
            st = parse_banner(out, line, name, err);
        else if (*line != '%' && !at_line_end(line)) {
            st = parse_sizes(out, line, name, err);
            done = true;
        }
        p += p[0] == '\r' && p[1] == '\n' ? 2 : 1;
    }
    if (st || done) {
        out->header_bytes = p < end ? (size_t)(p - text) : bytes;
        return st;
    }
    *need_more = !whole;
    return whole ? ooc_fail(err, OOC_E_FORMAT, "%s: the file ends before the line of sizes", name)
                 : OOC_OK;
}
