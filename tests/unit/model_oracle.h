/* model_oracle.h - the networks of docs/model.md once more, in double, written as plainly as
 * possible: what test_model_*.c compare with. Images here are (channel, y, x), one sample. */
#ifndef OOC_TESTS_UNIT_MODEL_ORACLE_H
#define OOC_TESTS_UNIT_MODEL_ORACLE_H

#include "src/model/model.h"

/* X (N values) of one sample. `weights`: the model's block, in double. */
void oracle_model(const ooc_model *m, const double *weights, const double *sample, uint32_t number,
                  double *X);
#endif
