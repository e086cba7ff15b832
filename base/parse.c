#include "base/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool u64_prefix(const char *text, uint64_t *value, const char **end)
{
    char *stop;

    if (!isdigit((unsigned char)*text)) /* strtoull would take a sign or a space */
        return false;
    errno = 0;
    *value = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

bool ooc_parse_u64(const char *text, uint64_t *value)
{
    const char *end;

    return u64_prefix(text, value, &end) && !*end;
}

bool ooc_parse_double(const char *text, double *value)
{
    char *end;

    if (!isdigit((unsigned char)*text) && *text != '-' && *text != '.')
        return false;
    if (strpbrk(text, "xXnN")) /* no hexadecimal, no nan */
        return false;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && !*end && isfinite(*value);
}

static int unit_shift(const char *unit)
{
    static const char letters[] = "KMGT";

    if (!*unit)
        return 0;
    for (int i = 0; letters[i]; i++) {
        char letter = (char)toupper((unsigned char)unit[0]);

        if (letter == letters[i] && (!unit[1] || strcasecmp(unit + 1, "iB") == 0))
            return 10 * (i + 1);
    }
    return -1;
}

bool ooc_parse_size(const char *text, uint64_t *bytes)
{
    const char *end;
    uint64_t whole;
    double fraction = 0;
    int shift;

    if (!u64_prefix(text, &whole, &end))
        return false;
    if (*end == '.') {
        char *stop;

        if (!isdigit((unsigned char)end[1]))
            return false;
        /* Only the digits after the point, so that whole bytes stay exact. */
        fraction = strtod(end, &stop);
        if (memchr(end, 'e', (size_t)(stop - end)) || memchr(end, 'E', (size_t)(stop - end)))
            return false;
        end = stop;
    }
    shift = unit_shift(end);
    if (shift < 0 || whole > (UINT64_MAX >> 1) >> shift || (fraction > 0 && shift == 0))
        return false;
    *bytes = (whole << shift) + (uint64_t)(fraction * (double)((uint64_t)1 << shift));
    return true;
}

bool ooc_parse_u64_list(const char *text, uint64_t *values, uint32_t max, uint32_t *n)
{
    for (*n = 0; *n < max; text++) {
        if (!u64_prefix(text, &values[(*n)++], &text))
            return false;
        if (!*text)
            return true;
        if (*text != ',')
            return false;
    }
    return false;
}

bool ooc_parse_shape(const char *text, uint64_t *height, uint64_t *width)
{
    const char *end;

    return u64_prefix(text, height, &end) && *end == 'x' && ooc_parse_u64(end + 1, width) &&
           *height && *width;
}

char *ooc_format_size(uint64_t bytes, char out[32])
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes / 1024;
    int unit = 0;

    if (bytes < 1024) {
        snprintf(out, 32, "%u bytes", (unsigned)bytes);
        return out;
    }
    for (; n >= 1024 && unit < 3; unit++)
        n /= 1024;
    snprintf(out, 32, "%.1f %s", n, units[unit]);
    return out;
}
