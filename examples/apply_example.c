/* apply_example - y = A*x and g = transpose(A)*y with the installed library, for x of ones.
 *
 *     cc apply_example.c $(pkg-config --cflags --libs streamtrain) -lm -o apply_example
 *     ./apply_example ct.tiles
 *
 * or with CMake: see CMakeLists.txt beside this file. */
#include <streamtrain.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static double norm(const float *v, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += (double)v[i] * v[i];
    return sqrt(sum);
}

/* Forward and adjoint; prints both norms. */
static ooc_status apply(ooc_matrix *A, ooc_err *err)
{
    ooc_matrix_shape shape = {.size = sizeof shape};
    ooc_status st = OOC_E_NOMEM;
    float *x, *y, *g;

    ooc_matrix_get_shape(A, &shape);
    x = malloc(shape.n_cols * sizeof *x);
    g = malloc(shape.n_cols * sizeof *g);
    y = malloc(shape.n_rows * sizeof *y);
    if (x && y && g) {
        ooc_array X = {.data = x, .dtype = OOC_F32, .device = OOC_HOST};
        ooc_array Y = {.data = y, .dtype = OOC_F32, .device = OOC_HOST};
        ooc_array G = {.data = g, .dtype = OOC_F32, .device = OOC_HOST};

        for (uint64_t i = 0; i < shape.n_cols; i++)
            x[i] = 1;
        st = ooc_matrix_forward(A, 1, &X, &Y, err);
        if (!st)
            st = ooc_matrix_adjoint(A, 1, &Y, &G, err);
        if (!st)
            printf("%llu x %llu, %llu entries: |A*x| = %.6g, |At*A*x| = %.6g\n",
                   (unsigned long long)shape.n_rows, (unsigned long long)shape.n_cols,
                   (unsigned long long)shape.n_entries, norm(y, shape.n_rows),
                   norm(g, shape.n_cols));
    } else {
        ooc_fail(err, OOC_E_NOMEM, "no memory for the vectors");
    }
    free(x);
    free(y);
    free(g);
    return st;
}

int main(int argc, char **argv)
{
    /* At most 64 MiB for tiles and vectors and 64 MiB for reading, however large the matrix is. */
    ooc_matrix_opts opts = {
        .size = sizeof opts, .vram_budget = 64u << 20, .ram_budget = 64u << 20, .max_batch = 1};
    ooc_matrix *A;
    ooc_err err = {0};
    ooc_status st;

    if (argc != 2) {
        fprintf(stderr, "usage: apply_example FILE.tiles\n");
        return 2;
    }
    st = ooc_matrix_open(&A, argv[1], &opts, &err);
    if (!st)
        st = apply(A, &err);
    if (st)
        fprintf(stderr, "apply_example: %s\n", err.text);
    ooc_matrix_close(A);
    return ooc_exit_code(st);
}
