/* Callers' arrays: what is refused, and where they are. */
#include "src/engine_private.h"
#include "base/checked.h"

#include <inttypes.h>
#include <stdio.h>

/* "the host", "cuda:1". */
static const char *place_name(int device, char out[16])
{
    if (device == OOC_HOST)
        return "the host";
    snprintf(out, 16, "cuda:%d", device);
    return out;
}

static ooc_status check_place(const ooc_engine *e, const char *what, const ooc_array *a,
                              ooc_err *err)
{
    char name[16];

    if (a->device < OOC_HOST)
        return ooc_fail(err, OOC_E_ARG, "%s: device %d is none (OOC_HOST is -1)", what, a->device);
    if (a->device != OOC_HOST && e->device->props.ordinal == OOC_HOST)
        return ooc_fail(err, OOC_E_ARG, "%s is on %s, but the matrix is on %s", what,
                        place_name(a->device, name), e->device->props.name);
    return OOC_OK;
}

ooc_status ooc_array_check(const ooc_engine *e, const char *what, const ooc_array *a, uint64_t rows,
                           uint32_t B, ooc_dtype dense, ooc_array *out, ooc_err *err)
{
    uint64_t items, bytes;
    ooc_status st;

    if (!a)
        return ooc_fail(err, OOC_E_ARG, "%s is missing (NULL)", what);
    if (a->dtype != OOC_F32 && a->dtype != OOC_F64)
        return ooc_fail(err, OOC_E_ARG, "%s: dense arrays are OOC_F32 or OOC_F64, not type %d",
                        what, (int)a->dtype);
    if (a->dtype != dense)
        return ooc_fail(err, OOC_E_ARG, "%s differs in type from the other arrays of the call",
                        what);
    if (dense == OOC_F64 && e->opts.dense != OOC_F64)
        return ooc_fail(err, OOC_E_ARG,
                        "%s is OOC_F64, but the matrix was opened for OOC_F32 (opts.dense)", what);
    if (a->ld && a->ld < B)
        return ooc_fail(err, OOC_E_ARG, "%s: ld %" PRIu64 " is less than B = %" PRIu32, what, a->ld,
                        B);
    *out = *a;
    if (!out->ld)
        out->ld = B;
    if (!ooc_mul_u64(rows, out->ld, &items) || !ooc_mul_u64(items, 8, &bytes) ||
        bytes > SIZE_MAX / 2)
        return ooc_fail(err, OOC_E_ARG, "%s: ld %" PRIu64 " is too large", what, a->ld);
    if (!a->data && rows)
        return ooc_fail(err, OOC_E_ARG, "%s: data is NULL", what);
    st = check_place(e, what, a, err);
    if (st)
        return st;
    if ((uintptr_t)a->data % ooc_dtype_bytes(dense))
        return ooc_fail(err, OOC_E_ARG, "%s: data is not aligned to its elements", what);
    return OOC_OK;
}

bool ooc_array_in_place(const ooc_engine *e, const ooc_array *a)
{
    return e->device->props.host_visible || a->device == e->device->props.ordinal;
}

/* Rows row0 .. row0+rows-1, columns b0 .. b0+B-1 of the array, and a block of the device. */
static void describe(const ooc_engine *e, const ooc_array *a, uint64_t row0, uint64_t rows,
                     uint32_t b0, uint32_t B, void *block, bool to_device, ooc_copy *c)
{
    uint64_t size = ooc_dtype_bytes(a->dtype);
    void *mine = block, *theirs = ooc_array_at(a, row0, b0);
    uint64_t theirs_pitch = a->ld * size, mine_pitch = B * size;

    c->dst = to_device ? mine : theirs;
    c->src = to_device ? theirs : mine;
    c->dst_pitch = to_device ? mine_pitch : theirs_pitch;
    c->src_pitch = to_device ? theirs_pitch : mine_pitch;
    c->row_bytes = B * size;
    c->rows = rows;
    if (mine_pitch == theirs_pitch) { /* without gaps: one row */
        c->row_bytes *= rows;
        c->rows = c->row_bytes ? 1 : 0;
    }
    c->kind = a->device != OOC_HOST ? OOC_COPY_PEER : to_device ? OOC_COPY_H2D : OOC_COPY_D2H;
    c->dst_ordinal = to_device ? e->device->props.ordinal : a->device;
    c->src_ordinal = to_device ? a->device : e->device->props.ordinal;
}

ooc_status ooc_array_copy(ooc_engine *e, ooc_stream *s, const ooc_array *a, uint64_t row0,
                          uint64_t rows, uint32_t b0, uint32_t B, void *block, bool to_device,
                          ooc_err *err)
{
    ooc_copy c;

    describe(e, a, row0, rows, b0, B, block, to_device, &c);
    return c.rows ? e->device->ops->copy(e->device, s, &c, err) : OOC_OK;
}
