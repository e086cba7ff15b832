/* ct-phantom - images to project with tile-apply and to train on. */
#include "tools/cli.h"
#include "tools/phantom.h"

#include "base/alloc.h"
#include "base/parse.h"
#include "io/npy.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    bool shepp_logan;
    uint64_t count, size;
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

static ooc_status write_images(const request *r, uint64_t seed, const char *path,
                               ooc_progress *progress, ooc_err *err)
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
        if (r->shepp_logan)
            phantom_shepp_logan(image, (uint32_t)r->size);
        else
            phantom_ellipses(image, (uint32_t)r->size, seed, i);
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

int main(int argc, char **argv)
{
    uint64_t seed = 0;
    const ooc_opt opts[] = {{.name = "seed",
                             .kind = OOC_OPT_U64,
                             .out = &seed,
                             .value = "N",
                             .help = "which random set (default 0); a set's first images don't\n"
                                     "depend on COUNT"},
                            {0}};
    ooc_cli cli = {.prog = "ct-phantom",
                   .usage = "[options] ellipses:COUNT:SIZE | shepp-logan:SIZE OUT.npy",
                   .about = "Write float32 images (COUNT, SIZE, SIZE) with values of at least 0.\n"
                            "ellipses: sums of 10 to 40 random ellipses, the usual training set.\n"
                            "shepp-logan: the one head phantom, in Toft's modified contrast, for\n"
                            "validation.\n",
                   .examples = "  ct-phantom ellipses:64:256 train.npy\n"
                               "  ct-phantom shepp-logan:256 head.npy\n"
                               "  tile-apply --samples ct.tiles train.npy measured.npy\n",
                   .opts = opts,
                   .min_args = 2,
                   .max_args = 2};
    request r;
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
    ooc_cli_catch_signals(NULL, NULL);
    ooc_progress_begin(&progress, &cli, "ct-phantom", r.count);
    st = write_images(&r, seed, cli.args[1], &progress, &err);
    ooc_progress_end(&progress);
    if (st)
        return ooc_cli_fail(&cli, &err);
    if (cli.json)
        printf("{\"images\": %llu, \"size\": %llu, \"seed\": %llu}\n", (unsigned long long)r.count,
               (unsigned long long)r.size, (unsigned long long)seed);
    return ooc_cli_finish(&cli, 0);
}
