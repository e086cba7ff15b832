/* alloc.h - every host allocation of the library goes through here.
 *
 * Why not malloc itself: tests count allocations (a pass must make none) and make the n-th one
 * fail. */
#ifndef OOC_BASE_ALLOC_H
#define OOC_BASE_ALLOC_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* NULL on failure. ooc_calloc checks count * size for overflow; a size of 0 gives a valid pointer.
 */
void *ooc_malloc(size_t bytes);
void *ooc_calloc(size_t count, size_t size);
void *ooc_realloc(void *p, size_t bytes); /* on failure `p` stays valid */
char *ooc_strdup(const char *s);
void ooc_free(void *p); /* NULL is allowed */

/* Anonymous zeroed pages (4096-aligned, huge pages asked for), for slots and arenas: exact size, so
 * that O_DIRECT, registered buffers and cudaHostRegister accept them. NULL on failure. */
void *ooc_pages_alloc(size_t bytes);
void ooc_pages_free(void *p, size_t bytes); /* NULL is allowed */

/* How many of the calls above have taken memory since the process began. */
uint64_t ooc_alloc_count(void);

#ifdef __cplusplus
}
#endif
#endif
