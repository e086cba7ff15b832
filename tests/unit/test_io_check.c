/* The inner loops of decoding and checking, in every instruction set that the processor has: what
 * they accept is exactly what a naive reading accepts, and they write nothing beside their runs. */
#include "io/store_internal.h"
#include "io/tile_emit.h"
#include "kernels/cpu/spmm_cpu.h"
#include "store_cases.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

static uint32_t random_below(uint32_t n)
{
    return (uint32_t)(case_random(&seed) % n);
}

/* What ooc_check_runs() promises, entry by entry. */
static bool naive_is_sound(const ooc_tile_view *v, uint64_t n_cols)
{
    for (uint32_t p = 0; p < v->n.n_panels; p++)
        for (uint32_t c = 0; c < v->n.n_chunks; c++) {
            uint64_t run = (uint64_t)p * v->n.n_chunks + c;
            uint32_t e = v->ent_off[run], end = v->ent_off[run + 1];
            int64_t last = -1;

            for (uint32_t s = v->seg_off[run]; s < v->seg_off[run + 1]; s++) {
                uint32_t len = 1, row = v->seg_row[s];

                if (v->len_base[p] != OOC_PAIR_PANEL)
                    len = v->seg_len[v->len_base[p] + s - v->seg_off[(uint64_t)p * v->n.n_chunks]];
                if (row < v->chunk_row[c] || row >= v->chunk_row[c + 1] || !len || len > end - e)
                    return false;
                for (; len > 0; len--, e++) {
                    int64_t place = (int64_t)row << 16 | v->col[e];

                    if (place <= last || v->col[e] >= v->n.panel_columns ||
                        (uint64_t)v->panel_id[p] * v->n.panel_columns + v->col[e] >= n_cols)
                        return false;
                    last = place;
                }
            }
            if (e != end)
                return false;
        }
    return true;
}

/* Change one item of one array, or swap it with its neighbour; returns what undoes it. */
struct change {
    uint16_t *at, old[2];
    bool two;
};

static struct change change_one(uint16_t *array, uint32_t n)
{
    uint32_t i = random_below(n);
    struct change c = {.at = array + i, .old = {array[i], 0}, .two = i + 1 < n};

    if (c.two)
        c.old[1] = array[i + 1];
    switch (random_below(c.two ? 7 : 5)) {
    case 0:
        array[i]++;
        break;
    case 1:
        array[i]--;
        break;
    case 2:
        array[i] = 0;
        break;
    case 3:
        array[i] = 65535;
        break;
    case 4:
        array[i] = (uint16_t)random_below(300);
        break;
    case 5: /* the same sum, for lengths */
        array[i]++;
        array[i + 1]--;
        break;
    default:
        array[i] = c.old[1];
        array[i + 1] = c.old[0];
    }
    return c;
}

static void undo(const struct change *c)
{
    c->at[0] = c->old[0];
    if (c->two)
        c->at[1] = c->old[1];
}

static void check_block(uint8_t *block, const ooc_tile_info *i, uint64_t n_cols, uint32_t *sound)
{
    const ooc_tile_layout l = ooc_tile_layout_of(&i->n);
    const ooc_tile_view v = ooc_tile_view_of(&i->n, i->constant, block);
    struct {
        uint64_t off;
        uint32_t n;
    } arrays[3] = {{l.seg_row, i->n.n_segments}, {l.seg_len, i->n.n_lens}, {l.col, i->n.n_entries}};

    uint16_t *last = (uint16_t *)(block + l.col) + i->n.n_entries - 1, old = *last;
    uint32_t limit = ooc_panel_limit(&v, n_cols, i->n.n_panels - 1);
    uint64_t n_runs = (uint64_t)i->n.n_panels * i->n.n_chunks;

    assert_true(naive_is_sound(&v, n_cols));
    *last = (uint16_t)(limit - 1);
    assert_null(ooc_check_runs(&v, n_cols, 0, n_runs));
    *last = (uint16_t)limit;
    assert_true(limit == 65536 || ooc_check_runs(&v, n_cols, 0, n_runs));
    *last = old;
    for (int round = 0; round < 6000; round++) {
        int a = round % 3;
        struct change c;
        const char *what;
        bool naive;

        if (!arrays[a].n)
            continue;
        c = change_one((uint16_t *)(block + arrays[a].off), arrays[a].n);
        what = ooc_check_runs(&v, n_cols, 0, n_runs);
        naive = naive_is_sound(&v, n_cols);
        if (naive != !what)
            fail_msg("round %d, array %d: %s, naively %s", round, a, what ? what : "sound",
                     naive ? "sound" : "not");
        *sound += naive;
        undo(&c);
    }
}

static void runs(void **state)
{
    /* segments; pairs; both; few columns in the last panel; a row in several segments */
    static const struct {
        case_kind kind;
        uint32_t rows, cols, per_row, panel;
    } cases[] = {{CASE_BANDED, 40, 700, 60, 256},
                 {CASE_RANDOM, 60, 3000, 4, 512},
                 {CASE_CLUSTER, 60, 1100, 20, 512},
                 {CASE_DENSE, 2, 65536, 0, 65536}};

    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        case_matrix m =
            case_make(cases[k].kind, cases[k].rows, cases[k].cols, cases[k].per_row, OOC_F16, k);
        char path[] = "/tmp/test_io_check.XXXXXX";
        ooc_pool *pool = ooc_pool_new(1);
        uint8_t *stored, *block;
        uint32_t sound = 0;
        ooc_tile_info i;
        ooc_store *s;
        ooc_err err;

        close(mkstemp(path));
        assert_int_equal(case_write(&m, path, cases[k].panel, OOC_CODEC_RAW, 100, pool, &err), 0);
        assert_int_equal(ooc_store_open(&s, path, &err), OOC_OK);
        assert_int_equal(case_read_tile(s, 0, &stored, &block, &err), OOC_OK);
        ooc_store_get_tile(s, 0, &i);
        check_block(block, &i, m.n_cols, &sound);
        assert_true(sound > 10 || cases[k].kind == CASE_DENSE);
        ooc_store_close(s);
        ooc_pool_free(pool);
        unlink(path);
        free(stored);
        free(block);
        case_free(&m);
    }
}

/* A chunk for the emitter: at most MOST of everything, with gaps between the panels' runs. */
enum { MOST = 4096, PANELS = 5, GAP = 96, WIDEST = 8 };

struct chunk {
    uint32_t n_segments, n_entries, width;
    uint16_t seg_row[MOST], seg_panel[MOST], seg_len[MOST], col[MOST + OOC_OVERREAD];
    uint8_t plane[WIDEST][MOST + OOC_OVERREAD];
    uint32_t limit[PANELS], segs[PANELS], ents[PANELS]; /* room in each panel's run */
    bool pairs[PANELS];
};

struct output {
    uint16_t seg_row[MOST + PANELS * GAP], seg_len[MOST + PANELS * GAP], dropped;
    uint16_t col[MOST + PANELS * GAP];
    uint8_t val[(MOST + PANELS * GAP) * WIDEST];
};

static void add_segment(struct chunk *c, uint32_t row, uint32_t p, uint32_t n, uint32_t first)
{
    uint32_t s = c->n_segments++;

    c->seg_row[s] = (uint16_t)row;
    c->seg_panel[s] = (uint16_t)p;
    c->seg_len[s] = (uint16_t)(n - 1);
    for (uint32_t i = 0; i < n; i++) {
        first += i ? 1 + random_below(3) : 0;
        c->col[c->n_entries++] = (uint16_t)first;
    }
    c->segs[p]++;
    c->ents[p] += n;
    if (first >= c->limit[p])
        c->limit[p] = first + 1;
}

static void make_chunk(struct chunk *c, uint32_t width, uint32_t longest)
{
    memset(c, 0, sizeof *c);
    c->width = width;
    for (uint32_t p = 0; p < PANELS; p++)
        c->pairs[p] = random_below(3) == 0;
    for (uint32_t row = 7; c->n_entries + PANELS * longest < MOST; row += 1 + random_below(2))
        for (uint32_t p = random_below(2); p < PANELS; p += 1 + random_below(2)) {
            add_segment(c, row, p, c->pairs[p] ? 1 : 1 + random_below(longest), random_below(400));
            if (random_below(8) == 0) /* the row goes on in the same panel */
                add_segment(c, row, p, 1, c->col[c->n_entries - 1] + 1u);
        }
    for (uint32_t b = 0; b < width; b++)
        for (uint32_t i = 0; i < c->n_entries; i++)
            c->plane[b][i] = (uint8_t)case_random(&seed);
}

/* Where the runs of panel p begin: gaps before each. */
static void starts(const struct chunk *c, uint32_t p, uint32_t *seg, uint32_t *ent)
{
    *seg = *ent = GAP;
    for (uint32_t q = 0; q < p; q++) {
        *seg += c->segs[q] + GAP;
        *ent += c->ents[q] + GAP;
    }
}

static bool naive_emit(const struct chunk *c, struct output *out)
{
    uint32_t seg[PANELS], ent[PANELS], s_end[PANELS], e_end[PANELS], e = 0;
    int64_t last = -1;

    memset(out, 0xa5, sizeof *out);
    for (uint32_t p = 0; p < PANELS; p++) {
        starts(c, p, &seg[p], &ent[p]);
        s_end[p] = seg[p] + c->segs[p];
        e_end[p] = ent[p] + c->ents[p];
    }
    for (uint32_t s = 0; s < c->n_segments; s++) {
        uint32_t p = c->seg_panel[s], n = c->seg_len[s] + 1u;

        if (seg[p] == s_end[p] || n > e_end[p] - ent[p] || (c->pairs[p] && n > 1))
            return false;
        out->seg_row[seg[p]] = c->seg_row[s];
        if (!c->pairs[p])
            out->seg_len[seg[p]] = (uint16_t)n;
        seg[p]++;
        for (uint32_t i = 0; i < n; i++, e++, ent[p]++) {
            int64_t place = (int64_t)c->seg_row[s] << 32 | p << 16 | c->col[e];

            if (c->col[e] >= c->limit[p] || (place >> 32 == last >> 32 && place <= last))
                return false;
            last = place;
            out->col[ent[p]] = c->col[e];
            for (uint32_t b = 0; b < c->width; b++)
                out->val[ent[p] * c->width + b] = c->plane[b][e];
        }
    }
    return true;
}

static const char *real_emit(const struct chunk *c, struct output *out)
{
    const ooc_emit_ops *ops = ooc_emit_ops_get();
    ooc_panel_cursor cursor[PANELS];
    ooc_emit_job j = {.n_segments = c->n_segments,
                      .seg_row = c->seg_row,
                      .seg_panel = c->seg_panel,
                      .seg_len = c->seg_len,
                      .col = c->col,
                      .n_descents = ops->count_not_above(c->col, c->n_entries),
                      .cursor = cursor};

    memset(out, 0xa5, sizeof *out);
    for (uint32_t p = 0; p < PANELS; p++) {
        uint32_t seg, ent;

        starts(c, p, &seg, &ent);
        cursor[p] = (ooc_panel_cursor){.seg_row = out->seg_row + seg,
                                       .seg_len = c->pairs[p] ? &out->dropped : out->seg_len + seg,
                                       .col = out->col + ent,
                                       .val = out->val + (uint64_t)ent * c->width,
                                       .seg_left = c->segs[p],
                                       .ent_left = c->ents[p],
                                       .limit = c->limit[p],
                                       .longest = c->pairs[p] ? 1 : OOC_MAX_SEGMENT,
                                       .len_step = !c->pairs[p]};
    }
    for (uint32_t b = 0; b < c->width; b++)
        j.val_plane[b] = c->plane[b];
    return c->width == 8   ? ops->emit8(&j)
           : c->width == 4 ? ops->emit4(&j)
           : c->width == 2 ? ops->emit2(&j)
                           : ops->emit0(&j);
}

/* Between the runs nothing may change, whatever the verdict. */
static void assert_gaps_untouched(const struct chunk *c, const struct output *out)
{
    for (uint32_t p = 0; p < PANELS; p++) {
        uint32_t seg, ent;

        starts(c, p, &seg, &ent);
        for (uint32_t i = 1; i <= GAP; i++) {
            assert_int_equal(out->seg_row[seg - i], 0xa5a5);
            assert_int_equal(out->seg_len[seg - i], 0xa5a5);
            assert_int_equal(out->col[ent - i], 0xa5a5);
        }
        for (uint32_t i = 1; i <= GAP * c->width; i++)
            assert_int_equal(out->val[ent * c->width - i], 0xa5);
    }
}

static void emitting(void **state)
{
    static const uint32_t widths[] = {0, 2, 4, 8}, longest[] = {3, 20, 40, 200};
    struct chunk *c = malloc(sizeof *c);
    struct output *real = malloc(sizeof *real), *naive = malloc(sizeof *naive);
    uint32_t refused = 0;

    (void)state;
    for (int round = 0; round < 16; round++) {
        make_chunk(c, widths[round % 4], longest[round / 4]);
        assert_true(naive_emit(c, naive));
        assert_null(real_emit(c, real));
        real->dropped = naive->dropped;
        assert_memory_equal(real, naive, sizeof *real);
        for (int k = 0; k < 400; k++) {
            uint16_t *array = k % 4 == 0 ? c->seg_panel : k % 4 == 1 ? c->seg_len : c->col;
            struct change change = change_one(array, k % 4 > 1 ? c->n_entries : c->n_segments);
            bool in_bounds;
            uint64_t sum = c->n_segments;

            /* The decoder has checked these two before. */
            for (uint32_t s = 0; s < c->n_segments; s++)
                sum += c->seg_len[s];
            in_bounds = sum == c->n_entries;
            for (uint32_t s = 0; s < c->n_segments; s++)
                in_bounds &= c->seg_panel[s] < PANELS;
            if (in_bounds) {
                bool sound = naive_emit(c, naive);
                const char *what = real_emit(c, real);

                if (sound != !what)
                    fail_msg("round %d, change %d: %s, naively %s", round, k, what ? what : "sound",
                             sound ? "sound" : "not");
                assert_gaps_untouched(c, real);
                refused += !sound;
            }
            undo(&change);
        }
    }
    assert_true(refused > 1000);
    free(c);
    free(real);
    free(naive);
}

static void joining(void **state)
{
    static uint8_t lo[600 + OOC_OVERREAD], hi[600 + OOC_OVERREAD];
    const ooc_emit_ops *ops = ooc_emit_ops_get();

    (void)state;
    for (size_t i = 0; i < sizeof lo; i++) {
        lo[i] = (uint8_t)case_random(&seed);
        hi[i] = (uint8_t)(random_below(3) ? 0 : case_random(&seed));
    }
    for (uint32_t n = 1; n < 600; n++) {
        uint16_t plain[600 + 8], prefix[600 + 8], sum = 0, before = 0;
        uint32_t descents, expected = 0, below = 0;

        memset(plain, 0xa5, sizeof plain);
        memset(prefix, 0xa5, sizeof prefix);
        ops->join2(plain, lo, hi, n);
        descents = ops->join2_prefix(prefix, lo, hi, n);
        for (uint32_t i = 0; i < n; i++, before = sum) {
            uint16_t item = (uint16_t)(lo[i] | hi[i] << 8);

            sum = (uint16_t)(sum + item);
            assert_int_equal(plain[i], item);
            assert_int_equal(prefix[i], sum);
            expected += i && sum <= before;
            below += i && sum < before;
        }
        assert_int_equal(plain[n], 0xa5a5);
        assert_int_equal(prefix[n], 0xa5a5);
        assert_int_equal(descents, expected);
        assert_int_equal(ops->count_not_above(prefix, n), expected);
        assert_int_equal(ops->count_below(prefix, n), below);
    }
}

/* Counters of 16 bits work in blocks: go past several. */
static void long_arrays(void **state)
{
    enum { N = 200001 };
    uint16_t *x = calloc(N, sizeof *x);
    const ooc_emit_ops *ops = ooc_emit_ops_get();

    (void)state;
    assert_int_equal(ops->count_not_above(x, N), N - 1);
    assert_int_equal(ops->count_below(x, N), 0);
    assert_int_equal(ops->count_pairs_not_above(x, x, N), N - 1);
    assert_true(ops->sum_lengths(x, N) == UINT64_MAX);
    for (uint32_t i = 0; i < N; i++)
        x[i] = (uint16_t)(65535 - i % 65535);
    assert_int_equal(ops->count_below(x, N), N - 1 - (N - 1) / 65535);
    assert_int_equal(ops->highest(x, N), 65535);
    assert_true(ops->sum_lengths(x, N) ==
                3ull * 65535 * 65536 / 2 + 65535ull * 3396 - 3395ull * 1698);
    free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs),
        cmocka_unit_test(emitting),
        cmocka_unit_test(joining),
        cmocka_unit_test(long_arrays),
    };
    int bad = 0;

    for (int isa = OOC_ISA_SCALAR; isa <= OOC_ISA_AVX512; isa++) {
        if (ooc_cpu_isa_set((ooc_isa)isa) != 0)
            continue;
        seed = 1;
        printf("%s\n", ooc_isa_name((ooc_isa)isa));
        bad += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return bad ? 1 : 0;
}
