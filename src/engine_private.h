/* engine_private.h - the engine's inside, shared by its files: engine.c (calls), engine_plan.c
 * (budgets), engine_arrays.c (callers' arrays), pass.c (the sweep) and nobody else. */
#ifndef OOC_SRC_ENGINE_PRIVATE_H
#define OOC_SRC_ENGINE_PRIVATE_H

#include "src/device.h"
#include "src/engine.h"

#include "io/tile_reader.h"
#include "io/tile_store.h"

#include <stdatomic.h>

#define OOC_MAX_LANES 16u

/* Where a tile lives. */
typedef enum { OOC_TIER_DISK = 0, OOC_TIER_RAM, OOC_TIER_DEVICE } ooc_tier;

typedef struct {
    void *addr;   /* RAM: its stored bytes; device: its kernel form */
    uint8_t tier; /* ooc_tier */
    bool loaded;  /* addr holds the tile, checked */
    bool on_way;  /* its last read was started: a resident tile is not read again */
} ooc_place;

/* What one visit of a tile occupies on the device: visits take the lanes in turn. */
typedef struct {
    void *tile;          /* kernel form, where the tile is not used in place */
    void *Y, *R, *T, *W; /* rows of one tile; NULL where the callers' arrays are used in place */
    ooc_event *filled;   /* all copies into the lane are done */
    ooc_event *done;     /* its job has run */
    ooc_event *free;     /* nothing reads or writes it any more */
    ooc_stream *user;    /* that recorded `free`; NULL: the lane is free */
} ooc_lane;

/* A host slot that tiles are read into, or decoded into on their way to a device. */
typedef struct {
    void *bytes;
    ooc_event *sent; /* copied to the device */
    bool sending;    /* `sent` must be waited for */
} ooc_host_slot;

struct ooc_engine {
    ooc_matrix_opts opts; /* defaults filled in */
    ooc_store *store;
    const ooc_store_info *info;
    ooc_pool *pool;
    ooc_device *device;
    bool own_device;
    uint32_t dense_bytes;
    uint64_t max_decoded_bytes; /* largest kernel form of a tile that is not raw, 0: all are raw */

    /* From start on. */
    ooc_arena *vram, *ram;
    ooc_reader *reader;
    ooc_stream *copy_in, *compute, *copy_out;
    ooc_place *place; /* [n_tiles] */
    ooc_lane lane[OOC_MAX_LANES];
    ooc_host_slot io[OOC_READER_MAX_IN_FLIGHT];
    ooc_host_slot staging[OOC_MAX_LANES];
    uint32_t n_lanes, n_io, n_staging;
    bool sending_Y;    /* copy_out has work */
    uint64_t io_bytes; /* of one I/O slot */
    void *scratch;     /* decoding, threads * scratch_bytes */
    uint64_t scratch_bytes;
    void *host_base; /* all of the above in RAM, one stretch that the device page-locks */
    uint64_t host_bytes;
    bool registered;
    void *work, *X, *G, *R_all;
    double *loss;   /* on the device */
    double fetched; /* from the device */

    /* Reading ahead. Sweeps follow each other, so tiles are counted on: tile k of the current sweep
     * is number base + k. */
    struct {
        uint64_t base, next;      /* `next` is looked at next */
        uint64_t started, waited; /* reads */
        void *dst[OOC_READER_MAX_IN_FLIGHT];
        /* I/O slots, taken, released (by the visit) and freed (sent) in order. */
        uint64_t taken, released, freed;
    } ahead;
    uint64_t n_visits;
    bool prefetch; /* at the end of a pass, start reading for the next one */

    atomic_bool interrupted;
    ooc_matrix_stats stats;
};

/* One sweep, for columns b0 .. b0+B-1 of the callers' arrays. Arrays that `todo` does not need are
 * NULL; the others have been checked and say their ld. */
typedef struct {
    uint32_t todo; /* OOC_DO_* */
    uint32_t B;
    uint32_t b0;
    ooc_dtype dense;
    const ooc_array *X, *Y, *T, *W, *R, *G;
    ooc_loss_kind loss_kind;
    bool w_per_column;
    double scale;
    bool R_all;     /* R is e->R_all: loss writes it, adjoint reads it */
    bool continues; /* another sweep of the same call follows */
} ooc_pass_args;

ooc_status ooc_pass_run(ooc_engine *e, const ooc_pass_args *a, ooc_err *err);
/* Nothing in flight any more, nothing read ahead; after an error, and before closing. */
void ooc_pass_reset(ooc_engine *e);

/* engine_plan.c: take what was planned from both arenas, then what is left for more slots and
 * resident tiles. */
ooc_status ooc_engine_take(ooc_engine *e, ooc_err *err);

/* engine_arrays.c */

/* A caller's array is usable: `what` names it in messages ("X"), rows x B. Puts a copy with ld
 * filled in to *out. */
ooc_status ooc_array_check(const ooc_engine *e, const char *what, const ooc_array *a, uint64_t rows,
                           uint32_t B, ooc_dtype dense, ooc_array *out, ooc_err *err);
/* The device's kernels can use it where it is. */
bool ooc_array_in_place(const ooc_engine *e, const ooc_array *a);
/* Address of (row, column). */
static inline void *ooc_array_at(const ooc_array *a, uint64_t row, uint32_t col)
{
    return (char *)a->data + (row * a->ld + col) * ooc_dtype_bytes(a->dtype);
}
/* Copy rows row0 .. row0+rows-1, columns b0 .. b0+B-1, to a block of the device (ld B), or back. */
ooc_status ooc_array_copy(ooc_engine *e, ooc_stream *s, const ooc_array *a, uint64_t row0,
                          uint64_t rows, uint32_t b0, uint32_t B, void *block, bool to_device,
                          ooc_err *err);
#endif
