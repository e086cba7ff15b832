/* text.h - text that grows inside a buffer of fixed size, for JSON. */
#ifndef OOC_SRC_TRAIN_TEXT_H
#define OOC_SRC_TRAIN_TEXT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char *at; /* NULL with size 0: only count */
    size_t size;
    size_t n; /* bytes so far without the final 0; goes on counting where they don't fit */
} ooc_text;

void ooc_text_append(ooc_text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* , "key": value - a number (null where it is not finite), a count, a string (escaped). */
void ooc_text_number(ooc_text *t, const char *key, double value);
void ooc_text_count(ooc_text *t, const char *key, uint64_t value);
void ooc_text_string(ooc_text *t, const char *key, const char *value);
#endif
