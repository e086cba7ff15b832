/* npz_blocks.h - SciPy's block (bsr) and diagonal (dia) matrices as sources. */
#ifndef OOC_TILER_NPZ_BLOCKS_H
#define OOC_TILER_NPZ_BLOCKS_H

#include "tiler/reader.h"
#include "tiler/zip_dir.h"

/* `z` becomes the source's, also on failure. */
ooc_status ooc_bsr_source(ooc_source **out, ooc_zip *z, const uint64_t shape[2], ooc_err *err);
ooc_status ooc_dia_source(ooc_source **out, ooc_zip *z, const uint64_t shape[2], ooc_err *err);
#endif
