#define ZSTD_STATIC_LINKING_ONLY /* contexts in the caller's memory, allocation through base/ */
#include "io/piece_codec.h"
#include "base/alloc.h"

#include <lz4.h>
#include <lz4hc.h>
#include <zstd.h>

/* What `auto` goes by, measured with bench_decode on the CT matrix: LZ4 planes decode 3 to 8 times
 * as fast as zstd ones of about the same size. Where LZ4 saves less than a quarter, reading the
 * plane is as fast as decoding it. zstd's entropy coding is worth its time only where it halves
 * what is left. zstd's fastest level goes first, to tell what to expect: on noise, LZ4's slow
 * matching is not tried; on planes that repeat over long distances the highest level finds longer
 * matches (they decode twice as fast as those of level 4) in reasonable time, elsewhere it takes
 * ten times as long for nothing. */
#define PROBE_LEVEL    1
#define PROBE_MOST     0.9
#define LONG_MATCHES   0.06
#define LZ4_LEVEL      4
#define LZ4_LEVEL_LONG 9
#define LZ4_MOST       0.75
#define ZSTD_TO_LZ4    0.5
#define DEFAULT_LEVEL  3

/* The memory of a decoding thread: a marker, then the context. */
#define DCTX_OFF 64u

size_t ooc_piece_dctx_bytes(void)
{
    return DCTX_OFF + ((ZSTD_estimateDCtxSize() + 63) & ~(size_t)63);
}

void ooc_piece_dctx_init(void *memory)
{
    *(ZSTD_DCtx **)memory = NULL;
}

static bool zstd_decode(void *memory, const uint8_t *stored, size_t stored_bytes, uint8_t *room,
                        size_t n)
{
    ZSTD_DCtx **dctx = memory;

    if (!*dctx)
        *dctx =
            ZSTD_initStaticDCtx((uint8_t *)memory + DCTX_OFF, ooc_piece_dctx_bytes() - DCTX_OFF);
    return ZSTD_decompressDCtx(*dctx, room, n, stored, stored_bytes) == n;
}

static bool lz4_decode(const uint8_t *stored, size_t stored_bytes, uint8_t *room, size_t n)
{
    /* Both fit an int: a piece has at most OOC_MAX_CHUNK_ENTRIES bytes, and stored ones no more
     * than that (checked here, because LZ4 takes an int). */
    return stored_bytes <= n && LZ4_decompress_safe((const char *)stored, (char *)room,
                                                    (int)stored_bytes, (int)n) == (int)n;
}

const uint8_t *ooc_piece_decode(void *dctx, uint32_t codec, const uint8_t *stored,
                                size_t stored_bytes, uint8_t *room, size_t n)
{
    switch (codec) {
    case OOC_PIECE_CONST:
        if (stored_bytes != 1)
            return NULL;
        memset(room, stored[0], n);
        return room;
    case OOC_PIECE_RAW:
        return stored_bytes == n ? stored : NULL;
    case OOC_PIECE_ZSTD:
        return zstd_decode(dctx, stored, stored_bytes, room, n) ? room : NULL;
    case OOC_PIECE_LZ4:
        return lz4_decode(stored, stored_bytes, room, n) ? room : NULL;
    default:
        return NULL;
    }
}

struct ooc_piece_encoder {
    bool smallest;
    ZSTD_CCtx *cctx;
    void *lz4_state;
    void *zstd_out, *lz4_out; /* room for the worst case, which the encoders want */
};

static void *zstd_alloc(void *opaque, size_t bytes)
{
    (void)opaque;
    return ooc_malloc(bytes);
}

static void zstd_free(void *opaque, void *p)
{
    (void)opaque;
    ooc_free(p);
}

static int zstd_level(ooc_piece_policy p)
{
    return p.level ? p.level : p.smallest ? DEFAULT_LEVEL : PROBE_LEVEL;
}

ooc_piece_encoder *ooc_piece_encoder_new(ooc_piece_policy policy)
{
    static const ZSTD_customMem mem = {zstd_alloc, zstd_free, NULL};
    ooc_piece_encoder *e = ooc_calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->smallest = policy.smallest;
    e->cctx = ZSTD_createCCtx_advanced(mem);
    e->zstd_out = ooc_malloc(ZSTD_COMPRESSBOUND(policy.most));
    e->lz4_state = ooc_malloc((size_t)LZ4_sizeofStateHC());
    e->lz4_out = ooc_malloc(LZ4_COMPRESSBOUND(policy.most));
    if (!e->cctx || !e->zstd_out || !e->lz4_state || !e->lz4_out ||
        ZSTD_isError(
            ZSTD_CCtx_setParameter(e->cctx, ZSTD_c_compressionLevel, zstd_level(policy)))) {
        ooc_piece_encoder_free(e);
        return NULL;
    }
    return e;
}

void ooc_piece_encoder_free(ooc_piece_encoder *e)
{
    if (!e)
        return;
    ZSTD_freeCCtx(e->cctx);
    ooc_free(e->zstd_out);
    ooc_free(e->lz4_state);
    ooc_free(e->lz4_out);
    ooc_free(e);
}

size_t ooc_piece_encoder_bytes(ooc_piece_policy policy)
{
    ZSTD_compressionParameters p = ZSTD_getCParams(zstd_level(policy), policy.most, 0);

    return ZSTD_estimateCCtxSize_usingCParams(p) + (size_t)LZ4_sizeofStateHC() +
           ZSTD_COMPRESSBOUND(policy.most) + LZ4_COMPRESSBOUND(policy.most) +
           sizeof(ooc_piece_encoder);
}

static bool all_equal(const uint8_t *plane, size_t n)
{
    return n < 2 || memcmp(plane, plane + 1, n - 1) == 0;
}

/* The codec that makes reading fastest, given what zstd makes of the plane. LZ4's matching is slow
 * on noise, so it is not tried where zstd finds nothing. */
static ooc_piece_codec fastest(ooc_piece_encoder *e, const uint8_t *plane, size_t n, size_t zstd,
                               size_t *lz4)
{
    double all = (double)n, best;
    int level = (double)zstd < LONG_MATCHES * all ? LZ4_LEVEL_LONG : LZ4_LEVEL;

    if ((double)zstd > PROBE_MOST * all)
        return OOC_PIECE_RAW;
    *lz4 = (size_t)LZ4_compress_HC_extStateHC(e->lz4_state, (const char *)plane, e->lz4_out, (int)n,
                                              LZ4_COMPRESSBOUND((int)n), level);
    best = *lz4 && (double)*lz4 <= LZ4_MOST * all ? (double)*lz4 : all;
    if ((double)zstd <= ZSTD_TO_LZ4 * best)
        return OOC_PIECE_ZSTD;
    return best < all ? OOC_PIECE_LZ4 : OOC_PIECE_RAW;
}

size_t ooc_piece_encode(ooc_piece_encoder *e, const uint8_t *plane, size_t n, uint8_t *out,
                        ooc_piece_codec *codec)
{
    size_t zstd, lz4 = 0;

    *codec = OOC_PIECE_CONST;
    out[0] = plane[0];
    if (all_equal(plane, n))
        return 1;
    zstd = ZSTD_compress2(e->cctx, e->zstd_out, ZSTD_COMPRESSBOUND(n), plane, n);
    if (ZSTD_isError(zstd))
        return 0;
    if (!e->smallest)
        *codec = fastest(e, plane, n, zstd, &lz4);
    else
        *codec = zstd < n ? OOC_PIECE_ZSTD : OOC_PIECE_RAW;
    switch (*codec) {
    case OOC_PIECE_ZSTD:
        memcpy(out, e->zstd_out, zstd);
        return zstd;
    case OOC_PIECE_LZ4:
        memcpy(out, e->lz4_out, lz4);
        return lz4;
    default:
        memcpy(out, plane, n);
        return n;
    }
}
