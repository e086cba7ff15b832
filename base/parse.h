/* parse.h - numbers and sizes as users write them. All refuse trailing text, signs and overflow. */
#ifndef OOC_BASE_PARSE_H
#define OOC_BASE_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* "4096", "64M", "1.5G", "8GiB": K, M, G, T and KiB, MiB, GiB, TiB, all binary, either case. */
bool ooc_parse_size(const char *text, uint64_t *bytes);
bool ooc_parse_u64(const char *text, uint64_t *value);
/* A finite decimal or exponent number. */
bool ooc_parse_double(const char *text, double *value);
/* "16,32,64" into at most `max` values; *n says how many (at least 1). */
bool ooc_parse_u64_list(const char *text, uint64_t *values, uint32_t max, uint32_t *n);
/* "700x384": two numbers of at least 1. */
bool ooc_parse_shape(const char *text, uint64_t *height, uint64_t *width);

/* "512.0 MiB", "1.3 GiB", "37 bytes" into `out`; returns `out`. For messages. */
char *ooc_format_size(uint64_t bytes, char out[32]);
#endif
