/* err.h - status codes and the one-line error record that every fallible function fills.
 *
 * The library never exits, aborts or prints: it returns an ooc_status and, where the caller gave an
 * ooc_err, says in one line which file, which place in it, what was expected and what to do.
 * Part of the public API: installed beside streamtrain.h. */
#ifndef OOC_BASE_ERR_H
#define OOC_BASE_ERR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    OOC_OK = 0,
    OOC_E_IO = 1,     /* a system call failed; its errno is in err->sys */
    OOC_E_FORMAT = 2, /* a file does not hold what its format promises (damaged, cut, hostile) */
    OOC_E_NOMEM = 3,  /* the host has no memory left */
    OOC_E_ARG = 4,    /* the request is wrong: an option, a shape, a pointer */
    OOC_E_BUDGET = 5, /* the request cannot fit the budgets; the text says what each part needs */
    OOC_E_UNSUPPORTED = 6, /* valid, but not something this build or version can do */
    OOC_E_DEVICE = 7,      /* a device call failed; the text names it */
    OOC_E_NO_DEVICE = 8,   /* no such device, or no driver at all */
    OOC_E_DRIVER_OLD = 9,  /* the driver is older than this build needs */
    OOC_E_NOT_FINITE = 10, /* a NaN or an infinity where none is allowed */
    OOC_E_INTERRUPTED = 11 /* stopped on request (signal); nothing half-written is left */
} ooc_status;

typedef struct {
    ooc_status code;
    int sys;         /* errno, or 0 */
    uint64_t offset; /* byte offset in the file, or UINT64_MAX where it means nothing */
    int64_t tile;    /* tile number, or -1 */
    char text[1000]; /* one line, without a line end */
} ooc_err;

/* Fill `err` (may be NULL) and return `code`, so that `return ooc_fail(...)` reads as one step. */
ooc_status ooc_fail(ooc_err *err, ooc_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for a failed system call: appends ": " and the text of the current errno. */
ooc_status ooc_fail_errno(ooc_err *err, ooc_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, and records the place in the file (`offset`) and the tile (-1: none). */
ooc_status ooc_fail_at(ooc_err *err, ooc_status code, uint64_t offset, int64_t tile,
                       const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Put "what: " before the text of an error that comes from below; returns err->code (or `st` where
 * err is NULL). For adding the file's or the option's name on the way up. */
ooc_status ooc_fail_wrap(ooc_err *err, ooc_status st, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#if defined(__clang_analyzer__) && !defined(OOC_ERR_C)
/* The static analyzer does not look into err.c: tell it that what fails does not return OOC_OK. */
#define ooc_fail(err, code, ...)       (ooc_fail(err, code, __VA_ARGS__), (code))
#define ooc_fail_errno(err, code, ...) (ooc_fail_errno(err, code, __VA_ARGS__), (code))
#define ooc_fail_at(err, code, offset, tile, ...)                                                  \
    (ooc_fail_at(err, code, offset, tile, __VA_ARGS__), (code))
#define ooc_fail_wrap(err, st, ...) (ooc_fail_wrap(err, st, __VA_ARGS__), (st))
#endif

/* The exit code of a command that ends with `st`: 0 done, 1 failed while running, 2 wrong or
 * impossible request, 130 interrupted. */
int ooc_exit_code(ooc_status st);

/* "I/O error", "bad format", ...: a static string. */
const char *ooc_status_name(ooc_status st);

#ifdef __cplusplus
}
#endif
#endif
