/* loss_hd.h - the losses, one entry at a time: compiles as C and as CUDA.
 *
 *     mse      l = (y-t)^2                    l' = 2(y-t)
 *     l1       l = |y-t|                      l' = sign(y-t), 0 at 0
 *     huber    l = d*d/2 for |d| <= 1, else |d|-1/2, with d = y-t
 *     poisson  l = y - t*log(y + 1e-8)        l' = 1 - t/(y + 1e-8)
 *
 * In double whatever the dense type: there are M*B entries against nnz*B multiplications, and the
 * rounding to the dense type then happens once. */
#ifndef OOC_KERNELS_LOSS_HD_H
#define OOC_KERNELS_LOSS_HD_H

#include <math.h>

#ifdef __CUDACC__
#define OOC_HD __host__ __device__
#else
#define OOC_HD
#endif

typedef enum { OOC_LOSS_MSE = 0, OOC_LOSS_L1, OOC_LOSS_HUBER, OOC_LOSS_POISSON } ooc_loss_kind;

/* l(y, t); *dl = its derivative by y. */
OOC_HD static inline double ooc_loss_entry(ooc_loss_kind kind, double y, double t, double *dl)
{
    const double eps = 1e-8;
    const double d = y - t;

    switch (kind) {
    case OOC_LOSS_MSE:
        *dl = 2 * d;
        return d * d;
    case OOC_LOSS_L1:
        *dl = d > 0 ? 1 : d < 0 ? -1 : d; /* d: 0, or NaN handed on */
        return fabs(d);
    case OOC_LOSS_HUBER:
        *dl = d > 1 ? 1 : d < -1 ? -1 : d;
        return fabs(d) <= 1 ? d * d / 2 : fabs(d) - 0.5;
    case OOC_LOSS_POISSON:
        break;
    }
    *dl = 1 - t / (y + eps);
    return y - t * log(y + eps);
}
#endif
