/* text_number.h - decimal numbers in text: fast, and rounded exactly as strtod does.
 *
 * The text must be followed by OOC_TEXT_SLACK readable bytes, the first of which ends the number
 * (a line end): that is how the parsers do without an end pointer. */
#ifndef OOC_TILER_TEXT_NUMBER_H
#define OOC_TILER_TEXT_NUMBER_H

#include <stdint.h>

#define OOC_TEXT_SLACK 16

/* The first byte behind the number, or NULL where there is no digit or the number exceeds 64 bits.
 * No sign. */
const char *ooc_text_u64(const char *p, uint64_t *out);

/* Sign, digits, point, exponent (e, E, and Fortran's d, D), "inf", "infinity", "nan" in any case.
 * NULL where there is no number. Too large gives an infinity, too small a (signed) zero. */
const char *ooc_text_double(const char *p, double *out);
#endif
