#include "src/train/png_gray.h"
#include "base/alloc.h"
#include "io/sys.h"

#include <inttypes.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdio.h>

typedef struct {
    ooc_new_file file;
    uint64_t off;
    const char *path;
    ooc_status st;
    ooc_err *err;
} sink;

static void write_bytes(png_structp png, png_bytep data, size_t bytes)
{
    sink *s = png_get_io_ptr(png);

    s->st = ooc_sys_pwrite(s->file.fd, s->path, data, bytes, s->off, s->err);
    s->off += bytes;
    if (s->st)
        png_error(png, "write");
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

static void on_error(png_structp png, png_const_charp text)
{
    sink *s = png_get_error_ptr(png);

    if (!s->st)
        s->st = ooc_fail(s->err, OOC_E_IO, "%s: libpng: %s", s->path, text);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text)
{
    (void)png;
    (void)text;
}

static void range_of(const float *values, uint64_t n, bool symmetric, float *low, float *high)
{
    float a = INFINITY, b = -INFINITY;

    for (uint64_t i = 0; i < n; i++) {
        if (!isfinite(values[i]))
            continue;
        a = fminf(a, values[i]);
        b = fmaxf(b, values[i]);
    }
    if (!(a <= b))
        a = b = 0;
    if (symmetric) {
        b = fmaxf(fabsf(a), fabsf(b));
        a = -b;
    }
    *low = a;
    *high = b;
}

static uint8_t grey(float value, float low, float high)
{
    if (!isfinite(value))
        return 0;
    return (uint8_t)(high > low ? lrintf((value - low) / (high - low) * 255) : 128);
}

static void write_range(png_structp png, png_infop info, float low, float high)
{
    char text[2][32];
    png_text chunks[2] = {
        {.compression = PNG_TEXT_COMPRESSION_NONE, .key = (char *)(uintptr_t) "minimum"},
        {.compression = PNG_TEXT_COMPRESSION_NONE, .key = (char *)(uintptr_t) "maximum"}};

    snprintf(text[0], sizeof text[0], "%.9g", (double)low);
    snprintf(text[1], sizeof text[1], "%.9g", (double)high);
    chunks[0].text = text[0];
    chunks[1].text = text[1];
    png_set_text(png, info, chunks, 2);
}

/* Everything between setjmp and its return; false after an error. */
static bool write_png(png_structp png, png_infop info, const float *values, uint32_t height,
                      uint32_t width, bool symmetric, uint8_t *row)
{
    float low, high;

    if (setjmp(png_jmpbuf(png)))
        return false;
    range_of(values, (uint64_t)height * width, symmetric, &low, &high);
    png_set_IHDR(png, info, width, height, 8, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    write_range(png, info, low, high);
    png_write_info(png, info);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++)
            row[x] = grey(values[(uint64_t)y * width + x], low, high);
        png_write_row(png, row);
    }
    png_write_end(png, info);
    return true;
}

ooc_status ooc_png_gray_write(const char *path, const float *values, uint64_t height,
                              uint64_t width, bool symmetric, ooc_err *err)
{
    sink s = {.file = {.fd = -1}, .path = path, .err = err};
    uint8_t *row = ooc_malloc(width);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &s, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;

    if (!row || !info)
        s.st = ooc_fail(err, OOC_E_NOMEM, "%s: no memory to write a picture", path);
    if (!s.st)
        s.st = ooc_new_file_open(&s.file, path, true, err);
    if (!s.st) {
        png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
        png_set_write_fn(png, &s, write_bytes, flush_nothing);
        if (write_png(png, info, values, (uint32_t)height, (uint32_t)width, symmetric, row))
            s.st = ooc_new_file_commit(&s.file, err);
    }
    ooc_new_file_discard(&s.file);
    png_destroy_write_struct(&png, &info);
    ooc_free(row);
    return s.st;
}
