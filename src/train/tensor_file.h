/* tensor_file.h - safetensors files: named float tensors and a few lines of text.
 *
 * Layout (the safetensors format): 8 bytes little-endian, the length of a JSON header; the header;
 * the tensors' bytes one behind the other. Written to a temporary file that replaces the old one
 * when it is complete. Everything read is checked against the file's size before it is used.
 * Memory:  the header (in RAM, some KiB) and a buffer of OOC_TENSOR_BUFFER bytes of the caller's.
 */
#ifndef OOC_SRC_TRAIN_TENSOR_FILE_H
#define OOC_SRC_TRAIN_TENSOR_FILE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define OOC_TENSOR_BUFFER   ((uint64_t)1 << 20)
#define OOC_TENSOR_MAX_DIMS 8

typedef struct {
    char name[80];
    uint32_t n_dims;
    uint64_t shape[OOC_TENSOR_MAX_DIMS];
    uint64_t n; /* elements, float32 */
    void *at;   /* the owner's: where the data are, or shall go */
} ooc_tensor_entry;

typedef struct {
    const char *key, *value;
} ooc_tensor_text;

/* Moves bytes between `at` + off of an entry and host memory; for tensors on a device. */
typedef ooc_status (*ooc_tensor_move)(void *ctx, void *to, const void *from, uint64_t bytes,
                                      ooc_err *err);

/* `download`(ctx, buffer, at + off, bytes). An existing file is replaced. */
ooc_status ooc_tensor_file_write(const char *path, const ooc_tensor_entry *entries, uint32_t n,
                                 const ooc_tensor_text *texts, uint32_t n_texts,
                                 ooc_tensor_move download, void *ctx, void *buffer, ooc_err *err);

/* Weights and predictions that are not finite are never read or written without a word. */
bool ooc_all_finite(const float *values, uint64_t n);

typedef struct ooc_tensor_file ooc_tensor_file;

/* Reads and checks the header. OOC_E_FORMAT: not such a file, damaged, cut off. On failure *out is
 * NULL. */
ooc_status ooc_tensor_file_open(ooc_tensor_file **out, const char *path, ooc_err *err);
void ooc_tensor_file_close(ooc_tensor_file *f); /* NULL is allowed */
/* The value of a metadata key, or NULL. Lives as long as the file. */
const char *ooc_tensor_file_text(const ooc_tensor_file *f, const char *key);
uint32_t ooc_tensor_file_count(const ooc_tensor_file *f);
const char *ooc_tensor_file_name(const ooc_tensor_file *f, uint32_t i);
bool ooc_tensor_file_has(const ooc_tensor_file *f, const char *name);
/* Read the tensor of the entry's name into entry->at: it must be there, be F32 and have the entry's
 * shape (OOC_E_FORMAT says what it has instead). `upload`(ctx, at + off, buffer, bytes). */
ooc_status ooc_tensor_file_read(const ooc_tensor_file *f, const ooc_tensor_entry *entry,
                                ooc_tensor_move upload, void *ctx, void *buffer, ooc_err *err);
#endif
