#include "tests/unit/model_oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    size_t c, h, w;
    double *v;
} image;

static image image_new(size_t c, size_t h, size_t w)
{
    image i = {c, h, w, calloc(c * h * w, sizeof(double))};

    if (!i.v)
        abort();
    return i;
}

static double *at(const image *i, size_t c, size_t y, size_t x)
{
    return &i->v[(c * i->h + y) * i->w + x];
}

static const ooc_param *param(const ooc_model *m, const char *name, const char *suffix)
{
    char full[64];

    snprintf(full, sizeof full, "%s%s", name, suffix);
    for (uint32_t i = 0; i < ooc_model_n_params(m); i++)
        if (strcmp(ooc_model_param(m, i)->name, full) == 0)
            return ooc_model_param(m, i);
    printf("no tensor %s\n", full);
    abort();
}

static double conv_at(const image *in, const double *w, size_t k, size_t y, size_t x)
{
    double sum = 0;

    for (size_t c = 0; c < in->c; c++)
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j < k; j++) {
                const long yy = (long)(y + i) - (long)(k / 2), xx = (long)(x + j) - (long)(k / 2);

                if (yy >= 0 && xx >= 0 && yy < (long)in->h && xx < (long)in->w)
                    sum += w[(c * k + i) * k + j] * *at(in, c, (size_t)yy, (size_t)xx);
            }
    return sum;
}

static image conv(const ooc_model *m, const double *weights, const char *name, image in, int relu)
{
    const ooc_param *w = param(m, name, ".weight"), *b = param(m, name, ".bias");
    const size_t k = w->shape[2];
    image out = image_new(w->shape[0], in.h, in.w);

    for (size_t o = 0; o < out.c; o++)
        for (size_t y = 0; y < in.h; y++)
            for (size_t x = 0; x < in.w; x++) {
                const double v = weights[b->off + o] +
                                 conv_at(&in, weights + w->off + o * in.c * k * k, k, y, x);

                *at(&out, o, y, x) = relu && v < 0 ? 0 : v;
            }
    free(in.v);
    return out;
}

static image pool(const image *in)
{
    image out = image_new(in->c, in->h / 2, in->w / 2);

    for (size_t c = 0; c < out.c; c++)
        for (size_t y = 0; y < out.h; y++)
            for (size_t x = 0; x < out.w; x++)
                *at(&out, c, y, x) =
                    fmax(fmax(*at(in, c, 2 * y, 2 * x), *at(in, c, 2 * y, 2 * x + 1)),
                         fmax(*at(in, c, 2 * y + 1, 2 * x), *at(in, c, 2 * y + 1, 2 * x + 1)));
    return out;
}

static image upcat(image low, image skip)
{
    image out = image_new(low.c + skip.c, skip.h, skip.w);

    for (size_t y = 0; y < out.h; y++)
        for (size_t x = 0; x < out.w; x++) {
            const size_t ly = y / 2 < low.h ? y / 2 : low.h - 1;
            const size_t lx = x / 2 < low.w ? x / 2 : low.w - 1;

            for (size_t c = 0; c < low.c; c++)
                *at(&out, c, y, x) = *at(&low, c, ly, lx);
            for (size_t c = 0; c < skip.c; c++)
                *at(&out, low.c + c, y, x) = *at(&skip, c, y, x);
        }
    free(low.v);
    free(skip.v);
    return out;
}

static double clamped(const image *in, long y, long x)
{
    y = y < 0 ? 0 : y >= (long)in->h ? (long)in->h - 1 : y;
    x = x < 0 ? 0 : x >= (long)in->w ? (long)in->w - 1 : x;
    return *at(in, 0, (size_t)y, (size_t)x);
}

/* Samples beyond the border are the border's: the same as clamping the position. */
static void resize(const image *in, size_t h, size_t w, double *out)
{
    for (size_t i = 0; i < h; i++)
        for (size_t j = 0; j < w; j++) {
            const double y = ((double)i + 0.5) * (double)in->h / (double)h - 0.5;
            const double x = ((double)j + 0.5) * (double)in->w / (double)w - 0.5;
            const double fy = floor(y), fx = floor(x), ty = y - fy, tx = x - fx;
            const long y0 = (long)fy, x0 = (long)fx;

            out[i * w + j] =
                (1 - ty) * ((1 - tx) * clamped(in, y0, x0) + tx * clamped(in, y0, x0 + 1)) +
                ty * ((1 - tx) * clamped(in, y0 + 1, x0) + tx * clamped(in, y0 + 1, x0 + 1));
        }
}

static image pair(const ooc_model *m, const double *weights, const char *side, uint32_t level,
                  image in)
{
    char name[32];

    snprintf(name, sizeof name, "%s.%u.conv1", side, level);
    in = conv(m, weights, name, in, 1);
    snprintf(name, sizeof name, "%s.%u.conv2", side, level);
    return conv(m, weights, name, in, 1);
}

static void unet(const ooc_model *m, const double *weights, const double *sample, double *X)
{
    const ooc_model_opts *o = ooc_model_get_opts(m);
    image skip[OOC_MODEL_MAX_LEVELS], t = image_new(1, o->in_shape[0], o->in_shape[1]);

    memcpy(t.v, sample, o->n_in * sizeof(double));
    for (uint32_t l = 0; l < o->n_widths; l++) {
        if (l > 0)
            t = pool(&skip[l - 1]);
        t = skip[l] = pair(m, weights, "down", l, t);
    }
    for (uint32_t l = o->n_widths - 1; l-- > 0;)
        t = pair(m, weights, "up", l, upcat(t, skip[l]));
    t = conv(m, weights, "last", t, 0);
    resize(&t, o->out_shape[0], o->out_shape[1], X);
    free(t.v);
}

static void mlp(const ooc_model *m, const double *weights, const double *sample, double *X)
{
    const ooc_model_opts *o = ooc_model_get_opts(m);
    image t = image_new(o->n_in, 1, 1);

    memcpy(t.v, sample, o->n_in * sizeof(double));
    for (uint32_t l = 0; l <= o->n_widths; l++) {
        char name[32];
        const ooc_param *w, *b;
        image next;

        snprintf(name, sizeof name, "layers.%u", l);
        w = param(m, name, ".weight");
        b = param(m, name, ".bias");
        next = image_new(w->shape[0], 1, 1);
        for (size_t i = 0; i < next.c; i++) {
            double sum = weights[b->off + i];

            for (size_t j = 0; j < t.c; j++)
                sum += weights[w->off + i * t.c + j] * t.v[j];
            next.v[i] = l < o->n_widths && sum < 0 ? 0 : sum;
        }
        free(t.v);
        t = next;
    }
    memcpy(X, t.v, o->n_out * sizeof(double));
    free(t.v);
}

void oracle_model(const ooc_model *m, const double *weights, const double *sample, uint32_t number,
                  double *X)
{
    const ooc_model_opts *o = ooc_model_get_opts(m);

    if (o->kind == OOC_MODEL_UNET)
        unet(m, weights, sample, X);
    else if (o->kind == OOC_MODEL_MLP)
        mlp(m, weights, sample, X);
    else
        memcpy(X, weights + number * o->n_out, o->n_out * sizeof(double));
}
