/* piece_codec.h - how one byte plane of a ROWS chunk is stored: one byte, as it is, by LZ4 or by
 * zstd. */
#ifndef OOC_IO_PIECE_CODEC_H
#define OOC_IO_PIECE_CODEC_H

#include "io/tile_format.h"

#include <stdbool.h>
#include <stddef.h>

/* What decoding needs beside the plane: a context in memory of the caller's. */
size_t ooc_piece_dctx_bytes(void);
/* `memory`: ooc_piece_dctx_bytes() bytes, 64-byte aligned. Begins a chunk; costs nothing until a
 * zstd piece comes. */
void ooc_piece_dctx_init(void *memory);

/* The n bytes of a plane from `stored_bytes` stored ones: in place (RAW) or in `room` (n bytes).
 * NULL if they do not decode to exactly n bytes. */
const uint8_t *ooc_piece_decode(void *dctx, uint32_t codec, const uint8_t *stored,
                                size_t stored_bytes, uint8_t *room, size_t n);

/* Encoder of one thread. */
typedef struct ooc_piece_encoder ooc_piece_encoder;

typedef struct {
    bool smallest; /* zstd wherever it saves anything; else what makes reading fastest */
    int level;     /* of zstd; 0: the default */
    size_t most;   /* bytes of a plane */
} ooc_piece_policy;

/* NULL: no memory. Takes ooc_piece_encoder_bytes() at most. */
ooc_piece_encoder *ooc_piece_encoder_new(ooc_piece_policy policy);
void ooc_piece_encoder_free(ooc_piece_encoder *e); /* NULL is allowed */
size_t ooc_piece_encoder_bytes(ooc_piece_policy policy);

/* Store plane[n] in out[n]; 1 <= n <= policy.most. Returns the stored bytes (1..n), 0 if zstd had
 * no memory. */
size_t ooc_piece_encode(ooc_piece_encoder *e, const uint8_t *plane, size_t n, uint8_t *out,
                        ooc_piece_codec *codec);
#endif
