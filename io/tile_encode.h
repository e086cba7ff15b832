/* tile_encode.h - one chunk of a planned tile into its stored form. Inner part of the writer. */
#ifndef OOC_IO_TILE_ENCODE_H
#define OOC_IO_TILE_ENCODE_H

#include "io/piece_codec.h"
#include "io/tile_plan.h"

/* Bytes of the streams of a chunk as they are: room for its planes, and for what is stored. */
uint64_t ooc_chunk_stream_bytes(uint32_t rows, uint32_t segments, uint32_t entries,
                                ooc_dtype vtype);

/* ROWS: encode chunk `chunk` into out (ooc_chunk_stream_bytes()) and its directory record, but for
 * OOC_CHK_OFF. `planes`: as much scratch. Returns the stored bytes (0 for a chunk without entries),
 * UINT64_MAX if zstd had no memory. */
uint64_t ooc_encode_rows_chunk(const ooc_tile_plan *p, const ooc_csr_rows *rows, uint32_t chunk,
                               ooc_piece_encoder *enc, uint8_t *planes, uint8_t *out, uint8_t *rec);

/* KERNEL: put the entries of a chunk into `body`, the kernel-form block from seg_row on.
 * `cursors`: 2 * n_panels. */
void ooc_scatter_chunk(const ooc_tile_plan *p, const ooc_csr_rows *rows, uint32_t chunk,
                       uint32_t *cursors, uint8_t *body);
#endif
