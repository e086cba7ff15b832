#define OOC_ERR_C
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 0))) static void put_text(ooc_err *err, const char *fmt,
                                                           va_list ap)
{
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    /* One line: names from the outside may hold line ends. */
    for (char *p = err->text; *p; p++)
        if (*p == '\n' || *p == '\r')
            *p = ' ';
}

static void start(ooc_err *err, ooc_status code, int sys, uint64_t offset, int64_t tile)
{
    err->code = code;
    err->sys = sys;
    err->offset = offset;
    err->tile = tile;
}

ooc_status ooc_fail(ooc_err *err, ooc_status code, const char *fmt, ...)
{
    if (err) {
        va_list ap;

        start(err, code, 0, UINT64_MAX, -1);
        va_start(ap, fmt);
        put_text(err, fmt, ap);
        va_end(ap);
    }
    return code;
}

ooc_status ooc_fail_errno(ooc_err *err, ooc_status code, const char *fmt, ...)
{
    int sys = errno;

    if (err) {
        va_list ap;
        size_t n;
        char sys_text[128];

        start(err, code, sys, UINT64_MAX, -1);
        va_start(ap, fmt);
        put_text(err, fmt, ap);
        va_end(ap);
        n = strlen(err->text);
        snprintf(
            err->text + n, sizeof err->text - n, ": %s",
            strerror_r(sys, sys_text, sizeof sys_text)); /* the GNU one: any thread, never NULL */
    }
    return code;
}

ooc_status ooc_fail_at(ooc_err *err, ooc_status code, uint64_t offset, int64_t tile,
                       const char *fmt, ...)
{
    if (err) {
        va_list ap;

        start(err, code, 0, offset, tile);
        va_start(ap, fmt);
        put_text(err, fmt, ap);
        va_end(ap);
    }
    return code;
}

ooc_status ooc_fail_wrap(ooc_err *err, ooc_status st, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        char below[sizeof err->text];
        size_t n;

        memcpy(below, err->text, sizeof below);
        va_start(ap, fmt);
        put_text(err, fmt, ap);
        va_end(ap);
        n = strlen(err->text);
        snprintf(err->text + n, sizeof err->text - n, ": %s", below);
        err->code = st;
    }
    return st;
}

int ooc_exit_code(ooc_status st)
{
    switch (st) {
    case OOC_OK:
        return 0;
    case OOC_E_ARG:
    case OOC_E_BUDGET:
    case OOC_E_UNSUPPORTED:
    case OOC_E_NO_DEVICE:
    case OOC_E_DRIVER_OLD:
        return 2;
    case OOC_E_INTERRUPTED:
        return 130;
    case OOC_E_IO:
    case OOC_E_FORMAT:
    case OOC_E_NOMEM:
    case OOC_E_DEVICE:
    case OOC_E_NOT_FINITE:
        return 1;
    }
    return 1;
}

const char *ooc_status_name(ooc_status st)
{
    switch (st) {
    case OOC_OK:
        return "done";
    case OOC_E_IO:
        return "I/O error";
    case OOC_E_FORMAT:
        return "bad format";
    case OOC_E_NOMEM:
        return "out of memory";
    case OOC_E_ARG:
        return "wrong request";
    case OOC_E_BUDGET:
        return "budget too small";
    case OOC_E_UNSUPPORTED:
        return "not supported";
    case OOC_E_DEVICE:
        return "device error";
    case OOC_E_NO_DEVICE:
        return "no such device";
    case OOC_E_DRIVER_OLD:
        return "driver too old";
    case OOC_E_NOT_FINITE:
        return "not finite";
    case OOC_E_INTERRUPTED:
        return "interrupted";
    }
    return "unknown status";
}
