/* ct-phantom - images to project with tile-apply and to train on, and how near a result comes. */
#include "tools/cli.h"
#include "tools/phantom.h"

#include "base/alloc.h"
#include "base/parse.h"
#include "io/npy.h"
#include "io/sys.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    bool shepp_logan;
    uint64_t count, size, seed;
} request;

/* "ellipses:COUNT:SIZE" or "shepp-logan:SIZE". */
static bool parse_request(const char *text, request *r)
{
    char number[32];
    const char *rest, *colon;

    r->count = 1;
    r->shepp_logan = strncmp(text, "shepp-logan:", 12) == 0;
    if (r->shepp_logan) {
        rest = text + 12;
    } else {
        if (strncmp(text, "ellipses:", 9) != 0)
            return false;
        rest = text + 9;
        colon = strchr(rest, ':');
        if (!colon || (size_t)(colon - rest) >= sizeof number)
            return false;
        memcpy(number, rest, (size_t)(colon - rest));
        number[colon - rest] = 0;
        if (!ooc_parse_u64(number, &r->count) || !r->count || r->count >= (uint64_t)1 << 32)
            return false;
        rest = colon + 1;
    }
    return ooc_parse_u64(rest, &r->size) && r->size && r->size <= 32768;
}

static void draw(const request *r, uint64_t index, float *image)
{
    if (r->shepp_logan)
        phantom_shepp_logan(image, (uint32_t)r->size);
    else
        phantom_ellipses(image, (uint32_t)r->size, r->seed, index);
}

static ooc_status write_images(const request *r, const char *path, ooc_progress *progress,
                               ooc_err *err)
{
    uint64_t shape[3] = {r->count, r->size, r->size};
    size_t bytes = (size_t)(r->size * r->size) * sizeof(float);
    ooc_npy_writer *w = NULL;
    float *image = ooc_malloc(bytes);
    ooc_status st;

    if (!image)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for an image of %zu bytes", bytes);
    st = ooc_npy_writer_open(&w, path, "<f4", 3, shape, err);
    for (uint64_t i = 0; !st && i < r->count; i++) {
        draw(r, i, image);
        st = ooc_npy_writer_write(w, image, bytes, err);
        if (!st && ooc_cli_interrupted())
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted; %s was not written", path);
        ooc_progress_update(progress, i + 1, (i + 1) * bytes, NULL);
    }
    if (!st)
        st = ooc_npy_writer_commit(w, err);
    ooc_npy_writer_close(w);
    ooc_free(image);
    return st;
}

typedef struct {
    double squares, peak;
} difference;

static ooc_status open_images(const request *r, const char *path, int *fd, ooc_npy *npy,
                              ooc_err *err)
{
    ooc_status st = ooc_npy_open(fd, npy, path, err);

    if (st)
        return st;
    if (npy->kind != 'f' || npy->item_bytes != 4 || npy->big_endian || npy->fortran_order)
        return ooc_fail(err, OOC_E_ARG, "%s: expected little-endian float32 in C order", path);
    /* No overflow: count < 2^32 and size^2 <= 2^30. */
    if (npy->n_items != r->count * (r->size * r->size))
        return ooc_fail(err, OOC_E_ARG,
                        "%s: expected %" PRIu64 " images of %" PRIu64 " x %" PRIu64
                        ", found %" PRIu64 " values",
                        path, r->count, r->size, r->size, npy->n_items);
    return OOC_OK;
}

/* Sum of squared differences between the images of a file and the phantoms. */
static ooc_status compare_images(const request *r, const char *path, ooc_progress *progress,
                                 difference *d, ooc_err *err)
{
    uint64_t pixels = r->size * r->size;
    size_t bytes = (size_t)pixels * sizeof(float);
    float *images = ooc_malloc(2 * bytes);
    ooc_npy npy;
    int fd = -1;
    ooc_status st;

    if (!images)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for two images of %zu bytes", bytes);
    st = open_images(r, path, &fd, &npy, err);
    for (uint64_t i = 0; !st && i < r->count; i++) {
        draw(r, i, images);
        st = ooc_sys_pread(fd, path, images + pixels, bytes, npy.data_off + i * bytes, err);
        for (uint64_t k = 0; !st && k < pixels; k++) {
            double off = (double)images[pixels + k] - images[k];

            d->squares += off * off;
            d->peak = fmax(d->peak, images[k]);
        }
        if (!st && ooc_cli_interrupted())
            st = ooc_fail(err, OOC_E_INTERRUPTED, "interrupted");
        ooc_progress_update(progress, i + 1, (i + 1) * bytes, NULL);
    }
    ooc_sys_close(fd);
    ooc_free(images);
    return st;
}

static void print_comparison(const ooc_cli *cli, const request *r, const difference *d)
{
    double mse = d->squares / ((double)r->count * (double)r->size * (double)r->size);
    double psnr = 10 * log10(d->peak * d->peak / mse);

    if (!cli->json)
        printf("PSNR %.2f dB, root mean square error %.4g, peak %.4g\n", psnr, sqrt(mse), d->peak);
    else if (isfinite(psnr))
        printf("{\"psnr\": %.6f, \"mse\": %.9g, \"peak\": %.9g}\n", psnr, mse, d->peak);
    else /* equal images, or not finite ones */
        printf("{\"psnr\": null, \"mse\": %s, \"peak\": %.9g}\n", mse == 0 ? "0" : "null", d->peak);
}

int main(int argc, char **argv)
{
    request r = {0};
    const char *compared = NULL;
    const ooc_opt opts[] = {{.name = "compare",
                             .kind = OOC_OPT_STRING,
                             .out = &compared,
                             .value = "IMAGES.npy",
                             .help =
                                 "write nothing; print the peak signal-to-noise ratio of these\n"
                                 "images against the phantoms"},
                            {.name = "seed",
                             .kind = OOC_OPT_U64,
                             .out = &r.seed,
                             .value = "N",
                             .help = "which random set (default 0); a set's first images don't\n"
                                     "depend on COUNT"},
                            {0}};
    ooc_cli cli = {.prog = "ct-phantom",
                   .usage = "[options] ellipses:COUNT:SIZE|shepp-logan:SIZE OUT.npy",
                   .about = "Write float32 images (COUNT, SIZE, SIZE) with values of at least 0.\n"
                            "ellipses: sums of 10 to 40 random ellipses, the usual training set.\n"
                            "shepp-logan: the one head phantom, in Toft's modified contrast, for\n"
                            "validation.\n",
                   .examples = "  ct-phantom ellipses:64:256 train.npy\n"
                               "  ct-phantom shepp-logan:256 head.npy\n"
                               "  tile-apply --samples ct.tiles train.npy measured.npy\n"
                               "  ct-phantom shepp-logan:256 --compare reconstructed.npy\n",
                   .opts = opts,
                   .min_args = 1,
                   .max_args = 2};
    difference d = {0};
    ooc_progress progress;
    ooc_err err = {0};
    ooc_status st;
    int code;

    if (!ooc_cli_parse(&cli, argc, argv, &code))
        return code;
    if (!parse_request(cli.args[0], &r))
        return ooc_cli_usage(&cli,
                             "%s: expected ellipses:COUNT:SIZE or shepp-logan:SIZE, with COUNT "
                             "below 2^32 and SIZE from 1 to 32768",
                             cli.args[0]);
    if ((cli.n_args == 2) == (compared != NULL))
        return ooc_cli_usage(&cli, "give either OUT.npy or --compare IMAGES.npy; see --help");
    ooc_cli_catch_signals(NULL, NULL);
    ooc_progress_begin(&progress, &cli, "ct-phantom", r.count);
    st = compared ? compare_images(&r, compared, &progress, &d, &err)
                  : write_images(&r, cli.args[1], &progress, &err);
    ooc_progress_end(&progress);
    if (st)
        return ooc_cli_fail(&cli, &err);
    if (compared)
        print_comparison(&cli, &r, &d);
    else if (cli.json)
        printf("{\"images\": %" PRIu64 ", \"size\": %" PRIu64 ", \"seed\": %" PRIu64 "}\n", r.count,
               r.size, r.seed);
    return ooc_cli_finish(&cli, 0);
}
