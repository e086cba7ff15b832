/* batch_place.h - turn the raw samples of a batch into the arrays of a step.
 *
 * Letters: M entries a sample, B the width of the arrays (ld), n <= B samples of this batch.
 * Integers become float unscaled. Where a weight is 0 the entry may be NaN (dead detectors): it
 * then is 0 in the model's input, and the loss leaves it out. Anywhere else a value that is not
 * finite is an error that names file, sample and entry. */
#ifndef OOC_SRC_TRAIN_BATCH_PLACE_H
#define OOC_SRC_TRAIN_BATCH_PLACE_H

#include "base/parallel.h"
#include "src/train/loader.h"

typedef struct {
    ooc_pool *pool;
    const ooc_sample_set *set;
    uint64_t M;
    uint32_t B;
    const float *row_weights; /* M, the same for all samples; NULL: none */
    float *input;             /* B x M; NULL: not wanted. Rows n.. become 0 */
    float *T;                 /* M x B, the B of a row contiguous; NULL: not wanted */
    float *W;                 /* M x B; written if the set has weights */
} ooc_batch_arrays;

/* OOC_E_NOT_FINITE; OOC_E_FORMAT for a negative weight. */
ooc_status ooc_batch_place(const ooc_batch_arrays *a, const ooc_batch *batch, ooc_err *err);

/* Read --weights of shape (M,) (one sample) into `to`, and check it. `raw`: sample_bytes. */
ooc_status ooc_row_weights_read(const ooc_sample_file *f, void *raw, float *to, ooc_err *err);
#endif
