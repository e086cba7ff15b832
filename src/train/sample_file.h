/* sample_file.h - samples in a .npy file: (n, ...) arrays with M entries a sample.
 *
 * float32, float64, uint8 or uint16, little-endian, C order; one sample may also stand alone (its
 * array has M entries). Samples are read by pread when they are needed, so files may be larger than
 * memory; integers are taken as they are, unscaled. */
#ifndef OOC_SRC_TRAIN_SAMPLE_FILE_H
#define OOC_SRC_TRAIN_SAMPLE_FILE_H

#include "base/err.h"
#include "io/npy.h"

typedef struct {
    int fd; /* -1: none */
    const char *path, *option;
    ooc_npy npy;
    uint64_t n, entries; /* samples, entries of each */
    uint64_t sample_bytes;
} ooc_sample_file;

/* `option` ("--data") is for messages; both strings must outlive the file. OOC_E_ARG where type or
 * shape don't fit, with what would; OOC_E_IO, OOC_E_FORMAT. After failure nothing is open. */
ooc_status ooc_sample_file_open(ooc_sample_file *f, const char *option, const char *path,
                                uint64_t entries, ooc_err *err);
void ooc_sample_file_close(ooc_sample_file *f); /* also where fd is -1 */
/* Height and width of a sample where the array has three dimensions (n, h, w), else zeros. */
void ooc_sample_file_image(const ooc_sample_file *f, uint64_t shape[2]);
/* Raw bytes of sample i < n. */
ooc_status ooc_sample_file_read(const ooc_sample_file *f, uint64_t i, void *to, ooc_err *err);
/* Entry i of raw bytes. */
float ooc_sample_value(const ooc_npy *npy, const void *raw, uint64_t i);
#endif
