/* tile_format.h - sizes and offsets of the tile store on disk: docs/tile-format.md in numbers.
 *
 * Nothing is read or written by casting a struct: the functions below take and give little-endian
 * fields byte by byte. Arrays in kernel form (kernels/tile_view.h) are little-endian too and used
 * in place, so the host must be. */
#ifndef OOC_IO_TILE_FORMAT_H
#define OOC_IO_TILE_FORMAT_H

#include "kernels/tile_view.h"

#include <assert.h>
#include <stdint.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "kernel-form arrays are used in place");

#define OOC_FORMAT_MAJOR 1u
#define OOC_FORMAT_MINOR 0u
#define OOC_STORE_PAGE   4096u /* header, tiles and index begin and end at multiples of this */
/* The byte above 127 and the line ends show transfers that were not binary. */
#define OOC_STORE_MAGIC "\x8aTILES\r\n"

/* Limits of the format. */
#define OOC_MAX_CHUNK_ENTRIES (1u << 20)   /* of a ROWS chunk: bounds what decoding needs */
#define OOC_MAX_ROWS_PANELS   65536u       /* of a ROWS tile: panel indices have 16 bits */
#define OOC_MAX_PANELS        (1u << 22)   /* n_cols / panel_columns, rounded up */
#define OOC_MAX_TILE_RUNS     (1ull << 32) /* n_panels * n_chunks */
#define OOC_KERNEL_BLOCK      (1u << 20)   /* bytes under one checksum in a KERNEL tile */

enum { /* header page: offsets */
       OOC_HDR_MAGIC = 0,
       OOC_HDR_MAJOR = 8,
       OOC_HDR_MINOR = 10,
       OOC_HDR_MUST_FLAGS = 12, /* a reader that does not know a set bit refuses the store */
       OOC_HDR_MAY_FLAGS = 16,  /* a reader may ignore these */
       OOC_HDR_PANEL_COLUMNS = 20,
       OOC_HDR_ROWS = 24,
       OOC_HDR_COLS = 32,
       OOC_HDR_ENTRIES = 40,
       OOC_HDR_TILES = 48,
       OOC_HDR_FILE_BYTES = 56,
       OOC_HDR_INDEX_OFF = 64,
       OOC_HDR_INDEX_BYTES = 72,
       OOC_HDR_INDEX_HASH = 80,
       OOC_HDR_RECORD_BYTES = 88,
       OOC_HDR_VTYPE = 92,
       OOC_HDR_RESERVED = 93, /* zero up to the hash */
       OOC_HDR_HASH = 4088,
};
static_assert(OOC_HDR_HASH + 8 == OOC_STORE_PAGE, "the hash ends the page");

enum { /* index record: offsets */
       OOC_REC_FILE_OFF = 0,
       OOC_REC_STORED_BYTES = 8,
       OOC_REC_FIRST_ROW = 16,
       OOC_REC_DIR_HASH = 24,
       OOC_REC_CONSTANT = 32,
       OOC_REC_ROWS = 40,
       OOC_REC_CHUNKS = 44,
       OOC_REC_PANELS = 48,
       OOC_REC_ENTRIES = 52,
       OOC_REC_SEGMENTS = 56,
       OOC_REC_LENS = 60,
       OOC_REC_DIR_BYTES = 64,
       OOC_REC_CHUNK_ENTRIES = 72, /* the most of any chunk; these three are 0 in KERNEL tiles */
       OOC_REC_CHUNK_SEGMENTS = 76,
       OOC_REC_CHUNK_ROWS = 80,
       OOC_REC_LAYOUT = 84,
       OOC_REC_VTYPE = 85,
       OOC_REC_RESERVED = 86, /* zero up to the end */
       OOC_REC_SIZE = 96,
};

typedef enum { OOC_LAYOUT_KERNEL = 0, OOC_LAYOUT_ROWS = 1 } ooc_tile_layout_id;

/* A ROWS chunk is a row of pieces: byte plane b (0: the lowest) of each of five arrays. */
enum {
    OOC_PIECE_ROW_SEGS = 0,  /* u32 [rows]     segments of the row */
    OOC_PIECE_SEG_PANEL = 4, /* u16 [segments] panel, as an index into the tile's list */
    OOC_PIECE_SEG_LEN = 6,   /* u16 [segments] entries, less one */
    OOC_PIECE_COL = 8,       /* u16 [entries]  column in the panel, less the entry's before */
    OOC_PIECE_VAL = 10,      /* vtype [entries] */
    OOC_MAX_PIECES = 18,
};

typedef enum {
    OOC_PIECE_CONST = 0, /* one byte, repeated */
    OOC_PIECE_RAW = 1,
    OOC_PIECE_ZSTD = 2, /* one frame */
    OOC_PIECE_LZ4 = 3,  /* one block */
    OOC_N_PIECE_CODECS
} ooc_piece_codec;

enum {                  /* chunk record in the directory of a ROWS tile: offsets */
       OOC_CHK_OFF = 0, /* from the start of the tile */
       OOC_CHK_HASH = 8,
       OOC_CHK_STORED_BYTES = 16,
       OOC_CHK_ENTRIES = 20,
       OOC_CHK_SEGMENTS = 24,
       OOC_CHK_RESERVED = 28,
       OOC_CHK_PIECE_BYTES = 32,
       OOC_CHK_PIECE_CODEC = 104,
       OOC_CHK_RESERVED_END = 122, /* zero up to the end */
       OOC_CHK_SIZE = 128,
};
static_assert(OOC_CHK_PIECE_BYTES + 4 * OOC_MAX_PIECES == OOC_CHK_PIECE_CODEC, "no gap");
static_assert(OOC_CHK_PIECE_CODEC + OOC_MAX_PIECES == OOC_CHK_RESERVED_END, "no gap");

static inline uint32_t ooc_n_pieces(ooc_dtype vtype)
{
    return OOC_PIECE_VAL + ooc_dtype_bytes(vtype);
}

/* Items in piece `piece` of a chunk with so many rows, segments and entries. */
static inline uint32_t ooc_piece_items(uint32_t piece, uint32_t rows, uint32_t segments,
                                       uint32_t entries)
{
    return piece < OOC_PIECE_SEG_PANEL ? rows : piece < OOC_PIECE_COL ? segments : entries;
}

static inline uint16_t ooc_get_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t ooc_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t ooc_get_u64(const uint8_t *p)
{
    return ooc_get_u32(p) | (uint64_t)ooc_get_u32(p + 4) << 32;
}

static inline void ooc_put_u16(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline void ooc_put_u32(uint8_t *p, uint32_t v)
{
    ooc_put_u16(p, v);
    ooc_put_u16(p + 2, v >> 16);
}

static inline void ooc_put_u64(uint8_t *p, uint64_t v)
{
    ooc_put_u32(p, (uint32_t)v);
    ooc_put_u32(p + 4, (uint32_t)(v >> 32));
}
#endif
