#include "src/model/dense_ops.h"
#include "src/model/layer_dnnl.h"
#include "base/alloc.h"
#include "base/checked.h"
#include "src/streamtrain.h"

#include <dlfcn.h>
#include <string.h>

/* Elements of one task of an element-wise call: fixed, so that sums have a fixed order. */
#define BLOCK 65536u

typedef struct {
    ooc_dense base;
    ooc_pool *pool;
    ooc_dnnl *dnnl;
} dense_cpu;

static dense_cpu *cpu_of(ooc_dense *d)
{
    return (dense_cpu *)d;
}

/* ---- layers ---- */

static ooc_status layer_new(ooc_dense *d, ooc_layer **out, const ooc_layer_shape *shape,
                            ooc_err *err)
{
    return ooc_layer_dnnl_new(cpu_of(d)->dnnl, out, shape, err);
}

static void layer_free(ooc_dense *d, ooc_layer *l)
{
    (void)d;
    ooc_layer_dnnl_free(l);
}

static ooc_status layer_forward(ooc_dense *d, ooc_layer *l, const float *x, const float *w,
                                const float *b, float *y, void *workspace, ooc_err *err)
{
    return ooc_layer_dnnl_forward(cpu_of(d)->dnnl, l, x, w, b, y, workspace, err);
}

static ooc_status layer_backward_weights(ooc_dense *d, ooc_layer *l, const float *x,
                                         const float *dy, float *dw, float *db, void *workspace,
                                         ooc_err *err)
{
    return ooc_layer_dnnl_backward_weights(cpu_of(d)->dnnl, l, x, dy, dw, db, workspace, err);
}

static ooc_status layer_backward_data(ooc_dense *d, ooc_layer *l, const float *w, const float *dy,
                                      float *dx, void *workspace, ooc_err *err)
{
    return ooc_layer_dnnl_backward_data(cpu_of(d)->dnnl, l, w, dy, dx, workspace, err);
}

/* ---- rows of images, split over the pool ---- */

typedef struct {
    const float *a, *b;
    float *out, *out2;
    ooc_image s, l;
    uint32_t h, w;
    uint64_t n_rows, rows_per_task;
    bool add;
    void (*run)(const void *job, uint64_t r0, uint64_t r1);
} rows_job;

static void rows_task(void *ctx, uint32_t task, uint32_t thread)
{
    const rows_job *j = ctx;
    const uint64_t r0 = task * j->rows_per_task;

    (void)thread;
    j->run(j, r0, ooc_min_u64(r0 + j->rows_per_task, j->n_rows));
}

static ooc_status run_rows(ooc_dense *d, rows_job *j)
{
    ooc_pool *pool = cpu_of(d)->pool;
    const uint64_t parts = 4 * (uint64_t)ooc_pool_threads(pool);

    j->rows_per_task = ooc_max_u64(1, j->n_rows / parts);
    ooc_parallel_for(pool, (uint32_t)((j->n_rows + j->rows_per_task - 1) / j->rows_per_task),
                     rows_task, j);
    return OOC_OK;
}

static void run_maxpool_forward(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_maxpool_forward_cpu(j->a, j->s, j->out, r0, r1);
}

static ooc_status maxpool_forward(ooc_dense *d, const float *x, uint32_t n, ooc_image s, float *y,
                                  ooc_err *err)
{
    rows_job j = {
        .a = x, .s = s, .out = y, .n_rows = (uint64_t)n * (s.h / 2), .run = run_maxpool_forward};

    (void)err;
    return run_rows(d, &j);
}

static void run_maxpool_backward(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_maxpool_backward_cpu(j->a, j->s, j->b, j->add, j->out, r0, r1);
}

static ooc_status maxpool_backward(ooc_dense *d, const float *x, uint32_t n, ooc_image s,
                                   const float *dy, bool add, float *dx, ooc_err *err)
{
    rows_job j = {.a = x,
                  .s = s,
                  .b = dy,
                  .add = add,
                  .out = dx,
                  .n_rows = (uint64_t)n * (s.h / 2),
                  .run = run_maxpool_backward};

    (void)err;
    return run_rows(d, &j);
}

static void run_upcat_forward(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_upcat_forward_cpu(j->a, j->l, j->b, j->s, j->out, r0, r1);
}

static ooc_status upcat_forward(ooc_dense *d, const float *low, ooc_image l, const float *skip,
                                uint32_t n, ooc_image s, float *out, ooc_err *err)
{
    rows_job j = {.a = low,
                  .l = l,
                  .b = skip,
                  .s = s,
                  .out = out,
                  .n_rows = (uint64_t)n * s.h,
                  .run = run_upcat_forward};

    (void)err;
    return run_rows(d, &j);
}

static void run_upcat_backward_low(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_upcat_backward_low_cpu(j->a, j->l, j->s, j->out, r0, r1);
}

static void run_upcat_backward_skip(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_upcat_backward_skip_cpu(j->a, j->l, j->s, j->out, r0, r1);
}

static ooc_status upcat_backward(ooc_dense *d, const float *dout, uint32_t n, ooc_image l,
                                 ooc_image s, float *dlow, float *dskip, ooc_err *err)
{
    rows_job j = {.a = dout,
                  .l = l,
                  .s = s,
                  .out = dlow,
                  .n_rows = (uint64_t)n * l.h,
                  .run = run_upcat_backward_low};

    (void)err;
    run_rows(d, &j);
    j.out = dskip;
    j.n_rows = (uint64_t)n * s.h;
    j.run = run_upcat_backward_skip;
    return run_rows(d, &j);
}

static void run_resize_forward(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_resize_forward_cpu(j->a, j->s, j->h, j->w, j->out, r0, r1);
}

static ooc_status resize_forward(ooc_dense *d, const float *in, uint32_t n, ooc_image s,
                                 uint32_t h_out, uint32_t w_out, float *out, ooc_err *err)
{
    rows_job j = {.a = in,
                  .s = s,
                  .h = h_out,
                  .w = w_out,
                  .out = out,
                  .n_rows = (uint64_t)n * h_out,
                  .run = run_resize_forward};

    (void)err;
    return run_rows(d, &j);
}

static void run_resize_backward(const void *job, uint64_t r0, uint64_t r1)
{
    const rows_job *j = job;

    ooc_resize_backward_cpu(j->a, j->s, j->h, j->w, j->out, r0, r1);
}

static ooc_status resize_backward(ooc_dense *d, const float *dout, uint32_t n, ooc_image s,
                                  uint32_t h_out, uint32_t w_out, float *din, ooc_err *err)
{
    rows_job j = {.a = dout,
                  .s = s,
                  .h = h_out,
                  .w = w_out,
                  .out = din,
                  .n_rows = (uint64_t)n * s.h,
                  .run = run_resize_backward};

    (void)err;
    return run_rows(d, &j);
}

/* ---- element by element ---- */

typedef struct {
    const float *a;
    float *w, *m, *v;
    uint64_t n, rows;
    const void *args;
    double *sums; /* [GROUP], one a task */
    void (*run)(const void *job, uint64_t i0, uint64_t i1, uint32_t task);
} vector_job;

static void vector_task(void *ctx, uint32_t task, uint32_t thread)
{
    const vector_job *j = ctx;
    const uint64_t i0 = (uint64_t)task * BLOCK;

    (void)thread;
    j->run(j, i0, ooc_min_u64(i0 + BLOCK, j->n), task);
}

static ooc_status run_vector(ooc_dense *d, vector_job *j)
{
    ooc_parallel_for(cpu_of(d)->pool, (uint32_t)((j->n + BLOCK - 1) / BLOCK), vector_task, j);
    return OOC_OK;
}

static void run_relu_backward(const void *job, uint64_t i0, uint64_t i1, uint32_t task)
{
    const vector_job *j = job;

    (void)task;
    ooc_relu_backward_cpu(j->a + i0, j->w + i0, i1 - i0);
}

static ooc_status relu_backward(ooc_dense *d, const float *y, float *dy, uint64_t n, ooc_err *err)
{
    vector_job j = {.a = y, .w = dy, .n = n, .run = run_relu_backward};

    (void)err;
    return run_vector(d, &j);
}

static void run_transpose(const void *job, uint64_t i0, uint64_t i1, uint32_t task)
{
    const vector_job *j = job;

    (void)task;
    ooc_transpose_cpu(j->a, j->rows, j->n, j->w, i0, i1);
}

static ooc_status transpose(ooc_dense *d, const float *in, uint64_t rows, uint64_t cols, float *out,
                            ooc_err *err)
{
    vector_job j = {.a = in, .w = out, .rows = rows, .n = cols, .run = run_transpose};

    (void)err;
    return run_vector(d, &j);
}

static void run_copy(const void *job, uint64_t i0, uint64_t i1, uint32_t task)
{
    const vector_job *j = job;

    (void)task;
    if (j->a)
        memcpy(j->w + i0, j->a + i0, (i1 - i0) * sizeof(float));
    else
        memset(j->w + i0, 0, (i1 - i0) * sizeof(float));
}

static ooc_status zero(ooc_dense *d, float *x, uint64_t n, ooc_err *err)
{
    vector_job j = {.w = x, .n = n, .run = run_copy};

    (void)err;
    return run_vector(d, &j);
}

static ooc_status copy(ooc_dense *d, const float *from, float *to, uint64_t n, ooc_err *err)
{
    vector_job j = {.a = from, .w = to, .n = n, .run = run_copy};

    (void)err;
    return run_vector(d, &j);
}

static void run_sum_squares(const void *job, uint64_t i0, uint64_t i1, uint32_t task)
{
    const vector_job *j = job;

    j->sums[task] = ooc_sum_squares_cpu(j->a + i0, i1 - i0);
}

static ooc_status sum_squares(ooc_dense *d, const float *x, uint64_t n, double *sum, ooc_err *err)
{
    enum { GROUP = 256 };
    double sums[GROUP];
    double total = 0;

    (void)err;
    for (uint64_t i = 0; i < n; i += (uint64_t)GROUP * BLOCK) {
        vector_job j = {.a = x + i,
                        .n = ooc_min_u64(n - i, (uint64_t)GROUP * BLOCK),
                        .sums = sums,
                        .run = run_sum_squares};

        run_vector(d, &j);
        for (uint64_t k = 0; k < (j.n + BLOCK - 1) / BLOCK; k++)
            total += sums[k];
    }
    *sum = total;
    return OOC_OK;
}

static void run_adam(const void *job, uint64_t i0, uint64_t i1, uint32_t task)
{
    const vector_job *j = job;

    (void)task;
    ooc_adam_cpu(j->args, j->w + i0, j->a + i0, j->m + i0, j->v + i0, i1 - i0);
}

static ooc_status adam(ooc_dense *d, const ooc_adam_args *a, float *w, const float *g, float *m,
                       float *v, uint64_t n, ooc_err *err)
{
    vector_job j = {.a = g, .w = w, .m = m, .v = v, .n = n, .args = a, .run = run_adam};

    (void)err;
    return run_vector(d, &j);
}

static void run_sgd(const void *job, uint64_t i0, uint64_t i1, uint32_t task)
{
    const vector_job *j = job;

    (void)task;
    ooc_sgd_cpu(j->args, j->w + i0, j->a + i0, j->m ? j->m + i0 : NULL, i1 - i0);
}

static ooc_status sgd(ooc_dense *d, const ooc_sgd_args *a, float *w, const float *g,
                      float *velocity, uint64_t n, ooc_err *err)
{
    vector_job j = {.a = g, .w = w, .m = velocity, .n = n, .args = a, .run = run_sgd};

    (void)err;
    return run_vector(d, &j);
}

static ooc_status host_copy(ooc_dense *d, void *to, const void *from, uint64_t bytes, ooc_err *err)
{
    (void)d;
    (void)err;
    memcpy(to, from, bytes);
    return OOC_OK;
}

static ooc_status sync_nothing(ooc_dense *d, ooc_err *err)
{
    (void)d;
    (void)err;
    return OOC_OK;
}

static void cpu_close(ooc_dense *d)
{
    ooc_dnnl_close(cpu_of(d)->dnnl);
    ooc_free(d);
}

static const ooc_dense_ops cpu_ops = {.layer_new = layer_new,
                                      .layer_free = layer_free,
                                      .layer_workspace = ooc_layer_dnnl_workspace,
                                      .layer_forward = layer_forward,
                                      .layer_backward_weights = layer_backward_weights,
                                      .layer_backward_data = layer_backward_data,
                                      .relu_backward = relu_backward,
                                      .maxpool_forward = maxpool_forward,
                                      .maxpool_backward = maxpool_backward,
                                      .upcat_forward = upcat_forward,
                                      .upcat_backward = upcat_backward,
                                      .resize_forward = resize_forward,
                                      .resize_backward = resize_backward,
                                      .transpose = transpose,
                                      .zero = zero,
                                      .copy = copy,
                                      .sum_squares = sum_squares,
                                      .adam = adam,
                                      .sgd = sgd,
                                      .upload = host_copy,
                                      .download = host_copy,
                                      .sync = sync_nothing,
                                      .close = cpu_close};

/* oneDNN brings libgomp with it, also where our own pool is made of pthreads and the compiler
 * offers no omp.h: the name is looked up at run time. */
static void set_openmp_threads(uint32_t n)
{
    void (*set)(int) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");

    memcpy(&set, &symbol, sizeof set);
    if (set)
        set((int)n);
}

ooc_status ooc_dense_cpu_open(ooc_dense **out, ooc_pool *pool, ooc_err *err)
{
    dense_cpu *d = ooc_calloc(1, sizeof *d);
    ooc_status st;

    *out = NULL;
    if (!d)
        return ooc_fail(err, OOC_E_NOMEM, "no memory for the dense backend");
    d->base.ops = &cpu_ops;
    d->base.ordinal = OOC_HOST;
    d->base.host_visible = true;
    d->pool = pool;
    set_openmp_threads(ooc_pool_threads(pool));
    st = ooc_dnnl_open(&d->dnnl, err);
    if (st) {
        ooc_free(d);
        return st;
    }
    *out = &d->base;
    return OOC_OK;
}
