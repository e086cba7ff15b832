/* h5_seq.h - one-dimensional HDF5 datasets as number sequences, and small helpers around the HDF5
 * library, which reads the file itself.
 *
 * Memory: libhdf5's, one chunk of each open dataset packed and one unpacked; ooc_h5_seq() refuses
 * chunks that are larger than its `max_chunk_bytes`. Threads: one at a time in the process. */
#ifndef OOC_TILER_H5_SEQ_H
#define OOC_TILER_H5_SEQ_H

#include "tiler/number_seq.h"

#include <hdf5.h>

/* Dataset `name` of `group`; `where` names the group in messages. *memory_bytes grows by what
 * libhdf5 will hold for it. OOC_E_FORMAT: not there, not one-dimensional;
 * OOC_E_UNSUPPORTED: its type, or a filter that this libhdf5 lacks; OOC_E_BUDGET: its chunks. */
ooc_status ooc_h5_seq(ooc_seq **out, hid_t group, const char *name, const char *where,
                      uint64_t max_chunk_bytes, uint64_t *memory_bytes, ooc_err *err);

bool ooc_h5_has(hid_t group, const char *name); /* a link of this name */
/* Up to `max` whole numbers of an attribute or a dataset; *n: how many there are. False: not there
 * or not whole numbers. */
bool ooc_h5_attr_numbers(hid_t object, const char *name, uint64_t *out, uint32_t max, uint32_t *n);
bool ooc_h5_numbers(hid_t group, const char *name, uint64_t *out, uint32_t max, uint32_t *n);
/* A text attribute, of fixed or variable length; false: not there, or longer than room. */
bool ooc_h5_attr_text(hid_t object, const char *name, char *out, size_t room);
#endif
