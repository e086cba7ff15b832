/* spmm_cpu.h - products with one tile on the CPU. Letters and layout: kernels/tile_view.h.
 *
 * Functions here have no threads of their own: the caller splits the work (chunks in the forward
 * product, column ranges in the adjoint) so that no two threads write the same memory; therefore no
 * atomics, no private copies, and the same bits whatever the number of threads.
 * The instruction set is chosen once per process: AVX-512, AVX2+FMA+F16C or portable C, whichever
 * is the best that the processor has; OOC_CPU_ISA=avx512|avx2|scalar forces one (refused if it is
 * missing). */
#ifndef OOC_KERNELS_SPMM_CPU_H
#define OOC_KERNELS_SPMM_CPU_H

#include "kernels/tile_view.h"

typedef enum { OOC_ISA_SCALAR = 0, OOC_ISA_AVX2 = 1, OOC_ISA_AVX512 = 2 } ooc_isa;

/* What ooc_spmm_*_cpu will use. A wrong OOC_CPU_ISA gives -1 and *why a static text. */
int ooc_cpu_isa(const char **why);
/* Force one (tests). Returns -1 and changes nothing if the processor lacks it. */
int ooc_cpu_isa_set(ooc_isa isa);
const char *ooc_isa_name(ooc_isa isa);

/* What a call needs of scratch memory, for each thread that makes calls at the same time: sums of
 * one panel (or of one column range of it) that stay in the cache before they are added to G. Long
 * f32 sums of like-signed numbers drift; sums of sums do not (DESIGN section 9). 64-byte aligned;
 * what it holds before and after a call does not matter. */
#define OOC_SPMM_SCRATCH_BYTES (1408u << 10)

/* Y[r, 0..B) += sum over entries (r, c, a) of a * X[c, 0..B), for the rows of chunks c0 .. c1-1.
 * X: its row 0, n_cols rows (the columns of A). Y: row 0 is the tile's first row. dense: OOC_F32 or
 * OOC_F64; with F32 sums are f32, with F64 f64. Adds into Y: the caller zeroes it first. B >= 1.
 * The fewer calls a tile is cut into, the less often X goes through the cache. */
void ooc_spmm_forward_cpu(const ooc_tile_view *t, uint32_t c0, uint32_t c1, uint64_t n_cols,
                          const void *X, uint64_t ldx, void *Y, uint64_t ldy, uint32_t B,
                          ooc_dtype dense, void *scratch);

/* G[c, 0..B) += sum over entries (r, c, a) of a * R[r, 0..B), for the columns of panels p0 .. p1-1
 * (indices into panel_id) whose index inside the panel is in col0 .. col1-1 (0, panel_columns:
 * all). R: the tile's first row. G: row 0 of n_cols. The order of a column's sums is fixed by the
 * tile, whatever the split. Rows of G of other columns are not touched; those of the call's
 * columns without entries keep their bits. */
void ooc_spmm_adjoint_cpu(const ooc_tile_view *t, uint32_t p0, uint32_t p1, uint32_t col0,
                          uint32_t col1, uint64_t n_cols, const void *R, uint64_t ldr, void *G,
                          uint64_t ldg, uint32_t B, ooc_dtype dense, void *scratch);
#endif
