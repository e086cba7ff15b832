#include "tiler/h5_seq.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <stdio.h>
#include <string.h>

#define MIN_CACHE ((uint64_t)1 << 20)

typedef struct {
    hid_t data, memory_type;
    uint64_t at;
    char *name;
} h5_ctx;

static hid_t native_type(ooc_elem e)
{
    switch (e) {
    case OOC_ELEM_I8:
        return H5T_NATIVE_INT8;
    case OOC_ELEM_BOOL:
    case OOC_ELEM_U8:
        return H5T_NATIVE_UINT8;
    case OOC_ELEM_I16:
        return H5T_NATIVE_INT16;
    case OOC_ELEM_U16:
        return H5T_NATIVE_UINT16;
    case OOC_ELEM_I32:
        return H5T_NATIVE_INT32;
    case OOC_ELEM_U32:
        return H5T_NATIVE_UINT32;
    case OOC_ELEM_I64:
        return H5T_NATIVE_INT64;
    case OOC_ELEM_U64:
        return H5T_NATIVE_UINT64;
    case OOC_ELEM_F32:
    case OOC_ELEM_C64:
    case OOC_ELEM_F16: /* libhdf5 widens it exactly */
    case OOC_ELEM_BF16:
        return H5T_NATIVE_FLOAT;
    case OOC_ELEM_F64:
    case OOC_ELEM_C128:
        break;
    }
    return H5T_NATIVE_DOUBLE;
}

/* Two floats under the names that the file has for them. */
static hid_t complex_memory_type(hid_t type, ooc_elem elem)
{
    size_t half = ooc_elem_bytes(elem) / 2;
    hid_t made = H5Tcreate(H5T_COMPOUND, 2 * half);

    for (unsigned i = 0; i < 2; i++) {
        char *name = H5Tget_member_name(type, i);

        if (!name || H5Tinsert(made, name, i * half, native_type(elem)) < 0) {
            H5free_memory(name);
            H5Tclose(made);
            return -1;
        }
        H5free_memory(name);
    }
    return made;
}

/* The element type of an HDF5 type and the type to read it as; false: not one of ours. */
static bool elem_of(hid_t type, ooc_elem *elem, hid_t *memory_type)
{
    size_t bytes = H5Tget_size(type);
    H5T_class_t class = H5Tget_class(type);
    hid_t member;
    bool known = false;

    if (class == H5T_INTEGER)
        known = ooc_elem_from_kind(H5Tget_sign(type) == H5T_SGN_NONE ? 'u' : 'i', (uint32_t)bytes,
                                   elem);
    else if (class == H5T_FLOAT) {
        *elem = bytes <= 4 ? OOC_ELEM_F32 : OOC_ELEM_F64;
        known = bytes == 2 || bytes == 4 || bytes == 8;
    } else if (class == H5T_ENUM && bytes == 1) { /* how h5py stores bool */
        *elem = OOC_ELEM_BOOL;
        *memory_type = H5Tcopy(type);
        return true;
    } else if (class == H5T_COMPOUND && H5Tget_nmembers(type) == 2) {
        member = H5Tget_member_type(type, 0);
        known = H5Tget_class(member) == H5T_FLOAT && (bytes == 8 || bytes == 16) &&
                H5Tget_size(member) * 2 == bytes;
        H5Tclose(member);
        *elem = bytes == 8 ? OOC_ELEM_C64 : OOC_ELEM_C128;
        *memory_type = known ? complex_memory_type(type, *elem) : -1;
        return known && *memory_type >= 0;
    }
    if (known)
        *memory_type = H5Tcopy(native_type(*elem));
    return known && *memory_type >= 0;
}

static ooc_status read_items(void *ctx, void *buf, size_t n, ooc_err *err)
{
    h5_ctx *c = ctx;
    hsize_t start = c->at, count = n;
    hid_t file_space = H5Dget_space(c->data), memory_space = H5Screate_simple(1, &count, NULL);
    herr_t rc = n ? H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, NULL, &count, NULL) : 0;

    if (rc >= 0 && n)
        rc = H5Dread(c->data, c->memory_type, memory_space, file_space, H5P_DEFAULT, buf);
    H5Sclose(file_space);
    H5Sclose(memory_space);
    c->at += n;
    return rc >= 0 ? OOC_OK
                   : ooc_fail(err, OOC_E_FORMAT,
                              "%s: items %llu to %llu cannot be read; the file is damaged", c->name,
                              (unsigned long long)start, (unsigned long long)(start + n));
}

static void close_ctx(void *ctx)
{
    h5_ctx *c = ctx;

    if (c->memory_type >= 0)
        H5Tclose(c->memory_type);
    if (c->data >= 0)
        H5Dclose(c->data);
    ooc_free(c->name);
    ooc_free(c);
}

/* Its chunks fit and its filters are there; *cache_bytes: what its chunk cache should hold. */
static ooc_status check_storage(hid_t data, hid_t type, const char *name, uint64_t max_chunk_bytes,
                                uint64_t *cache_bytes, ooc_err *err)
{
    hid_t create = H5Dget_create_plist(data);
    hsize_t chunk = 0;
    ooc_status st = OOC_OK;

    *cache_bytes = MIN_CACHE;
    if (H5Pget_layout(create) == H5D_CHUNKED && H5Pget_chunk(create, 1, &chunk) == 1) {
        if (chunk > max_chunk_bytes / H5Tget_size(type))
            st = ooc_fail(err, OOC_E_BUDGET,
                          "%s: is stored in chunks of %llu items, which do not fit the memory "
                          "budget; a larger --ram-budget is needed (or h5repack)",
                          name, (unsigned long long)chunk);
        else
            *cache_bytes = ooc_max_u64(MIN_CACHE, chunk * H5Tget_size(type));
    }
    for (int i = 0; !st && i < H5Pget_nfilters(create); i++) {
        char filter[64] = "";
        unsigned flags, config;
        size_t n = 0;
        H5Z_filter_t id =
            H5Pget_filter2(create, (unsigned)i, &flags, &n, NULL, sizeof filter, filter, &config);

        if (H5Zfilter_avail(id) <= 0)
            st = ooc_fail(err, OOC_E_UNSUPPORTED,
                          "%s: is packed by the HDF5 filter '%s' (number %d), which is not "
                          "installed; unpack the file with h5repack -f NONE, or install the filter "
                          "and set HDF5_PLUGIN_PATH",
                          name, filter, (int)id);
    }
    H5Pclose(create);
    return st;
}

/* Opened with a chunk cache that holds one chunk: else each read would unpack it again. */
static ooc_status open_data(h5_ctx *c, hid_t group, const char *name, uint64_t max_chunk_bytes,
                            uint64_t *memory_bytes, ooc_err *err)
{
    uint64_t cache_bytes = 0;
    hid_t access, type;
    ooc_status st;

    c->data = ooc_h5_has(group, name) ? H5Dopen2(group, name, H5P_DEFAULT) : -1;
    if (c->data < 0)
        return ooc_fail(err, OOC_E_FORMAT, "%s: there is no such dataset", c->name);
    type = H5Dget_type(c->data);
    st = check_storage(c->data, type, c->name, max_chunk_bytes, &cache_bytes, err);
    H5Tclose(type);
    if (st)
        return st;
    H5Dclose(c->data);
    access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, 521, cache_bytes, 1);
    c->data = H5Dopen2(group, name, access);
    H5Pclose(access);
    *memory_bytes += 2 * cache_bytes + OOC_SEQ_MEMORY;
    return c->data >= 0 ? OOC_OK : ooc_fail(err, OOC_E_FORMAT, "%s: cannot be opened", c->name);
}

ooc_status ooc_h5_seq(ooc_seq **out, hid_t group, const char *name, const char *where,
                      uint64_t max_chunk_bytes, uint64_t *memory_bytes, ooc_err *err)
{
    h5_ctx *c = ooc_calloc(1, sizeof *c);
    char full[600];
    ooc_elem elem = OOC_ELEM_F64;
    hid_t space, type;
    hssize_t n = -1;
    int n_dims = -1;
    ooc_status st;

    *out = NULL;
    snprintf(full, sizeof full, "%s/%s", where, name);
    if (c)
        c->name = ooc_strdup(full);
    if (!c || !c->name) {
        ooc_free(c);
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", full);
    }
    c->data = c->memory_type = -1;
    st = open_data(c, group, name, max_chunk_bytes, memory_bytes, err);
    if (!st) {
        space = H5Dget_space(c->data);
        type = H5Dget_type(c->data);
        n_dims = H5Sget_simple_extent_ndims(space);
        n = H5Sget_simple_extent_npoints(space);
        if (n_dims != 1 || n < 0)
            st = ooc_fail(err, OOC_E_FORMAT, "%s: has %d dimensions, expected 1", full, n_dims);
        else if (!elem_of(type, &elem, &c->memory_type))
            st = ooc_fail(err, OOC_E_UNSUPPORTED, "%s: is not of a type of numbers that is read",
                          full);
        H5Sclose(space);
        H5Tclose(type);
    }
    if (!st) {
        *out = ooc_seq_new(full, elem, (uint64_t)n);
        if (!*out)
            st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory to read it", full);
    }
    if (st) {
        close_ctx(c);
        return st;
    }
    (*out)->ctx = c;
    (*out)->read = read_items;
    (*out)->close = close_ctx;
    return OOC_OK;
}

bool ooc_h5_has(hid_t group, const char *name)
{
    return H5Lexists(group, name, H5P_DEFAULT) > 0;
}

/* Whole numbers of an open attribute or dataset. */
static bool numbers(hid_t space, hid_t type, uint64_t *out, uint32_t max, uint32_t *n, hid_t from,
                    bool attribute)
{
    hssize_t count = H5Sget_simple_extent_npoints(space);
    bool ok = count >= 0 && count <= max && H5Tget_class(type) == H5T_INTEGER;
    int64_t value[8];

    if (ok && count <= 8)
        ok = (attribute
                  ? H5Aread(from, H5T_NATIVE_INT64, value)
                  : H5Dread(from, H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, value)) >= 0;
    for (hssize_t i = 0; ok && i < count; i++) {
        ok = value[i] >= 0;
        out[i] = (uint64_t)value[i];
    }
    *n = ok ? (uint32_t)count : 0;
    H5Sclose(space);
    H5Tclose(type);
    return ok;
}

bool ooc_h5_attr_numbers(hid_t object, const char *name, uint64_t *out, uint32_t max, uint32_t *n)
{
    hid_t a = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    bool ok;

    if (a < 0)
        return false;
    ok = numbers(H5Aget_space(a), H5Aget_type(a), out, max < 8 ? max : 8, n, a, true);
    H5Aclose(a);
    return ok;
}

bool ooc_h5_numbers(hid_t group, const char *name, uint64_t *out, uint32_t max, uint32_t *n)
{
    hid_t d = ooc_h5_has(group, name) ? H5Dopen2(group, name, H5P_DEFAULT) : -1;
    bool ok;

    if (d < 0)
        return false;
    ok = numbers(H5Dget_space(d), H5Dget_type(d), out, max < 8 ? max : 8, n, d, false);
    H5Dclose(d);
    return ok;
}

static bool read_text(hid_t a, hid_t type, char *out, size_t room)
{
    char *text = NULL;
    bool ok = false;

    if (H5Tis_variable_str(type) > 0) {
        hid_t memory = H5Tcopy(type); /* of the file's character set */

        ok = H5Aread(a, memory, &text) >= 0 && text && strlen(text) < room;
        if (ok)
            strcpy(out, text);
        H5free_memory(text);
        H5Tclose(memory);
    } else if (H5Tget_size(type) < room) {
        ok = H5Aread(a, type, out) >= 0;
        out[H5Tget_size(type)] = 0;
    }
    return ok;
}

bool ooc_h5_attr_text(hid_t object, const char *name, char *out, size_t room)
{
    hid_t a = H5Aexists(object, name) > 0 ? H5Aopen(object, name, H5P_DEFAULT) : -1;
    hid_t type, space;
    bool ok;

    if (a < 0)
        return false;
    type = H5Aget_type(a);
    space = H5Aget_space(a);
    ok = H5Tget_class(type) == H5T_STRING && H5Sget_simple_extent_npoints(space) == 1 &&
         read_text(a, type, out, room);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(a);
    return ok;
}
