#include "base/alloc.h"
#include "base/fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static atomic_uint_fast64_t n_allocs;

static int must_fail(void)
{
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
    if (ooc_fault_hit(OOC_FAULT_ALLOC)) {
        errno = ENOMEM;
        return 1;
    }
    return 0;
}

void *ooc_malloc(size_t bytes)
{
    return must_fail() ? NULL : malloc(bytes ? bytes : 1);
}

void *ooc_calloc(size_t count, size_t size)
{
    if (!count || !size)
        count = size = 1;
    if (must_fail() || count > SIZE_MAX / size)
        return NULL;
    return calloc(count, size);
}

void *ooc_realloc(void *p, size_t bytes)
{
    return must_fail() ? NULL : realloc(p, bytes ? bytes : 1);
}

char *ooc_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = ooc_malloc(n);

    if (copy)
        memcpy(copy, s, n);
    return copy;
}

void ooc_free(void *p)
{
    free(p);
}

void *ooc_pages_alloc(size_t bytes)
{
    void *p;

    if (must_fail())
        return NULL;
    p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    /* Only advice: without huge pages everything works, a little slower. Small areas are left
     * alone, a huge page could make more of them resident than was asked for. */
    if (bytes >= (size_t)4 << 20)
        (void)madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

void ooc_pages_free(void *p, size_t bytes)
{
    if (p)
        munmap(p, bytes ? bytes : 1);
}

uint64_t ooc_alloc_count(void)
{
    return atomic_load_explicit(&n_allocs, memory_order_relaxed);
}
