#include "kernels/cpu/loss_cpu.h"

/* One weight-handling loop for both dense types; `T_` is the element type. */
#define DEFINE_LOSS_ROWS(name, T_)                                                                 \
    static double name(const ooc_loss_job *j, uint64_t rows, uint32_t B)                           \
    {                                                                                              \
        double sum = 0;                                                                            \
                                                                                                   \
        for (uint64_t r = 0; r < rows; r++) {                                                      \
            const T_ *y = (const T_ *)j->Y + r * j->ldy;                                           \
            const T_ *t = (const T_ *)j->T + r * j->ldt;                                           \
            const T_ *w = j->W ? (const T_ *)j->W + r * j->ldw : 0;                                \
            T_ *out = (T_ *)j->R + r * j->ldr;                                                     \
            double row_sum = 0;                                                                    \
                                                                                                   \
            for (uint32_t b = 0; b < B; b++) {                                                     \
                double weight = !w ? 1 : (double)w[j->w_per_entry ? b : 0];                        \
                double dl;                                                                         \
                                                                                                   \
                if (weight == 0) {                                                                 \
                    out[b] = 0;                                                                    \
                    continue;                                                                      \
                }                                                                                  \
                row_sum += weight * ooc_loss_entry(j->kind, (double)y[b], (double)t[b], &dl);      \
                out[b] = (T_)(j->scale * weight * dl);                                             \
            }                                                                                      \
            sum += row_sum;                                                                        \
        }                                                                                          \
        return sum;                                                                                \
    }

DEFINE_LOSS_ROWS(loss_rows_f32, float)
DEFINE_LOSS_ROWS(loss_rows_f64, double)

double ooc_loss_rows_cpu(const ooc_loss_job *job, uint64_t rows, uint32_t B)
{
    return job->dense == OOC_F64 ? loss_rows_f64(job, rows, B) : loss_rows_f32(job, rows, B);
}

double ooc_weight_sum_cpu(const void *W, uint64_t ldw, bool w_per_entry, uint64_t rows, uint32_t B,
                          ooc_dtype dense)
{
    const uint32_t n = w_per_entry ? B : 1;
    double sum = 0;

    for (uint64_t r = 0; r < rows; r++) {
        double row_sum = 0;

        for (uint32_t b = 0; b < n; b++)
            row_sum += dense == OOC_F64 ? ((const double *)W)[r * ldw + b]
                                        : (double)((const float *)W)[r * ldw + b];
        sum += row_sum;
    }
    return sum;
}
