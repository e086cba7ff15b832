/* piece_codec.h - how one byte plane of a ROWS chunk is stored: one byte, as it is, or by zstd. */
#ifndef OOC_IO_PIECE_CODEC_H
#define OOC_IO_PIECE_CODEC_H

#include "io/tile_format.h"

#include <stdbool.h>
#include <stddef.h>

/* What decoding needs beside the plane: a context in memory of the caller's. */
size_t ooc_piece_dctx_bytes(void);
/* `memory`: ooc_piece_dctx_bytes() bytes, 64-byte aligned. NULL never, if that holds. */
void *ooc_piece_dctx_init(void *memory);

/* The n bytes of a plane from `stored_bytes` stored ones: in place (RAW) or in `room` (n bytes).
 * NULL if they do not decode to exactly n bytes. */
const uint8_t *ooc_piece_decode(void *dctx, uint32_t codec, const uint8_t *stored,
                                size_t stored_bytes, uint8_t *room, size_t n);

/* Encoder of one thread. */
typedef struct ooc_piece_encoder ooc_piece_encoder;
/* level: of zstd. NULL: no memory. Takes ooc_piece_encoder_bytes() at most. */
ooc_piece_encoder *ooc_piece_encoder_new(int level);
void ooc_piece_encoder_free(ooc_piece_encoder *e); /* NULL is allowed */
size_t ooc_piece_encoder_bytes(int level);

/* Store plane[n] in out[n] by the codec that suits it; RAW where zstd would need more than
 * `most` of the bytes (0: never zstd). Returns the stored bytes (1..n), 0 if zstd failed
 * (no memory). n >= 1. */
size_t ooc_piece_encode(ooc_piece_encoder *e, const uint8_t *plane, size_t n, double most,
                        uint8_t *out, ooc_piece_codec *codec);
#endif
