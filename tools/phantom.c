#include "tools/phantom.h"

#include <math.h>
#include <string.h>

typedef struct {
    double value, semi_x, semi_y, x0, y0, angle; /* the angle in radians, against the clock */
} ellipse;

#define DEGREES (M_PI / 180)

/* P. A. Toft, The Radon Transform, PhD thesis, 1996, table B.3. */
static const ellipse shepp_logan[] = {
    {1.0, 0.69, 0.92, 0, 0, 0},
    {-0.8, 0.6624, 0.874, 0, -0.0184, 0},
    {-0.2, 0.11, 0.31, 0.22, 0, -18 * DEGREES},
    {-0.2, 0.16, 0.41, -0.22, 0, 18 * DEGREES},
    {0.1, 0.21, 0.25, 0, 0.35, 0},
    {0.1, 0.046, 0.046, 0, 0.1, 0},
    {0.1, 0.046, 0.046, 0, -0.1, 0},
    {0.1, 0.046, 0.023, -0.08, -0.605, 0},
    {0.1, 0.023, 0.023, 0, -0.606, 0},
    {0.1, 0.023, 0.046, 0.06, -0.605, 0},
};

/* The pixels whose centres lie in [low, high], in pixel numbers: first..last. */
static void pixel_range(double low, double high, uint32_t size, int64_t *first, int64_t *last)
{
    *first = (int64_t)floor((low + 1) * size / 2 - 0.5);
    *last = (int64_t)ceil((high + 1) * size / 2 - 0.5);
    if (*first < 0)
        *first = 0;
    if (*last >= size)
        *last = (int64_t)size - 1;
}

static void add_ellipse(float *image, uint32_t size, const ellipse *e)
{
    double c = cos(e->angle), s = sin(e->angle);
    /* Half the width and height of the upright box around the turned ellipse. */
    double reach_x = hypot(e->semi_x * c, e->semi_y * s);
    double reach_y = hypot(e->semi_x * s, e->semi_y * c);
    int64_t left, right, top, bottom;

    pixel_range(e->x0 - reach_x, e->x0 + reach_x, size, &left, &right);
    pixel_range(-e->y0 - reach_y, -e->y0 + reach_y, size, &top, &bottom);
    for (int64_t row = top; row <= bottom; row++) {
        double y = 1 - (2 * (double)row + 1) / size - e->y0;

        for (int64_t col = left; col <= right; col++) {
            double x = (2 * (double)col + 1) / size - 1 - e->x0;
            double u = (x * c + y * s) / e->semi_x, v = (y * c - x * s) / e->semi_y;

            if (u * u + v * v <= 1)
                image[row * (int64_t)size + col] += (float)e->value;
        }
    }
}

/* Sums such as 1 - 0.8 - 0.2 end a rounding error below 0, random ones far below. */
static void clip(float *image, uint32_t size)
{
    for (uint64_t i = 0; i < (uint64_t)size * size; i++) {
        if (image[i] < 1e-6f)
            image[i] = 0;
    }
}

void phantom_shepp_logan(float *image, uint32_t size)
{
    memset(image, 0, (size_t)size * size * sizeof *image);
    for (size_t i = 0; i < sizeof shepp_logan / sizeof *shepp_logan; i++)
        add_ellipse(image, size, &shepp_logan[i]);
    clip(image, size);
}

/* SplitMix64 (Steele, Lea, Flood 2014): a stream for each image, without shared state. */
static uint64_t next_u64(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double uniform(uint64_t *state, double low, double high)
{
    return low + (high - low) * ((double)(next_u64(state) >> 11) * 0x1p-53);
}

void phantom_ellipses(float *image, uint32_t size, uint64_t seed, uint64_t index)
{
    uint64_t state = seed, n;

    state = next_u64(&state) + index;
    n = 10 + next_u64(&state) % 31;
    memset(image, 0, (size_t)size * size * sizeof *image);
    for (uint64_t i = 0; i < n; i++) {
        ellipse e;
        double radius = 0.75 * sqrt(uniform(&state, 0, 1));
        double direction = uniform(&state, 0, 2 * M_PI);

        e.x0 = radius * cos(direction);
        e.y0 = radius * sin(direction);
        e.semi_x = uniform(&state, 0.02, 0.35);
        e.semi_y = uniform(&state, 0.02, 0.35);
        e.angle = uniform(&state, 0, M_PI);
        e.value = uniform(&state, -0.3, 0.7);
        add_ellipse(image, size, &e);
    }
    clip(image, size);
}
