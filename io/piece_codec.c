#define ZSTD_STATIC_LINKING_ONLY /* contexts in the caller's memory, allocation through base/ */
#include "io/piece_codec.h"
#include "base/alloc.h"

#include <zstd.h>

size_t ooc_piece_dctx_bytes(void)
{
    return (ZSTD_estimateDCtxSize() + 63) & ~(size_t)63;
}

void *ooc_piece_dctx_init(void *memory)
{
    return ZSTD_initStaticDCtx(memory, ooc_piece_dctx_bytes());
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
        return ZSTD_decompressDCtx(dctx, room, n, stored, stored_bytes) == n ? room : NULL;
    default:
        return NULL;
    }
}

struct ooc_piece_encoder {
    ZSTD_CCtx *cctx;
    void *bound; /* zstd wants room for the worst case */
    size_t bound_bytes;
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

ooc_piece_encoder *ooc_piece_encoder_new(int level)
{
    static const ZSTD_customMem mem = {zstd_alloc, zstd_free, NULL};
    ooc_piece_encoder *e = ooc_calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->bound_bytes = ZSTD_compressBound(OOC_MAX_CHUNK_ENTRIES);
    e->bound = ooc_malloc(e->bound_bytes);
    e->cctx = ZSTD_createCCtx_advanced(mem);
    if (!e->bound || !e->cctx ||
        ZSTD_isError(ZSTD_CCtx_setParameter(e->cctx, ZSTD_c_compressionLevel, level))) {
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
    ooc_free(e->bound);
    ooc_free(e);
}

size_t ooc_piece_encoder_bytes(int level)
{
    ZSTD_compressionParameters p = ZSTD_getCParams(level, OOC_MAX_CHUNK_ENTRIES, 0);

    return ZSTD_estimateCCtxSize_usingCParams(p) + ZSTD_compressBound(OOC_MAX_CHUNK_ENTRIES) +
           sizeof(ooc_piece_encoder);
}

static bool all_equal(const uint8_t *plane, size_t n)
{
    return n < 2 || memcmp(plane, plane + 1, n - 1) == 0;
}

size_t ooc_piece_encode(ooc_piece_encoder *e, const uint8_t *plane, size_t n, double most,
                        uint8_t *out, ooc_piece_codec *codec)
{
    size_t bytes;

    if (all_equal(plane, n)) {
        *codec = OOC_PIECE_CONST;
        out[0] = plane[0];
        return 1;
    }
    if (most > 0) {
        bytes = ZSTD_compress2(e->cctx, e->bound, e->bound_bytes, plane, n);
        if (ZSTD_isError(bytes))
            return 0;
        if (bytes < n && (double)bytes <= most * (double)n) {
            *codec = OOC_PIECE_ZSTD;
            memcpy(out, e->bound, bytes);
            return bytes;
        }
    }
    *codec = OOC_PIECE_RAW;
    memcpy(out, plane, n);
    return n;
}
