#include "src/train/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void ooc_text_append(ooc_text *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    t->n += (size_t)vsnprintf(t->n < t->size ? t->at + t->n : NULL,
                              t->n < t->size ? t->size - t->n : 0, fmt, args);
    va_end(args);
}

void ooc_text_number(ooc_text *t, const char *key, double value)
{
    if (isfinite(value))
        ooc_text_append(t, ", \"%s\": %.9g", key, value);
    else
        ooc_text_append(t, ", \"%s\": null", key); /* JSON knows no NaN */
}

void ooc_text_count(ooc_text *t, const char *key, uint64_t value)
{
    ooc_text_append(t, ", \"%s\": %" PRIu64, key, value);
}

void ooc_text_string(ooc_text *t, const char *key, const char *value)
{
    ooc_text_append(t, ", \"%s\": \"", key);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            ooc_text_append(t, "\\%c", *value);
        else if ((unsigned char)*value < 0x20)
            ooc_text_append(t, "\\u%04x", (unsigned)*value);
        else
            ooc_text_append(t, "%c", *value);
    }
    ooc_text_append(t, "\"");
}
