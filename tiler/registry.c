#include "tiler/reader.h"

#include "base/alloc.h"
#include "io/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <zlib.h>

static const ooc_format *const formats[] = {
    &ooc_format_mtx,   &ooc_format_npz,     &ooc_format_pt,    &ooc_format_h5,    &ooc_format_mat,
    &ooc_format_petsc, &ooc_format_npy_dir, &ooc_format_radon, &ooc_format_tiles,
};

const ooc_format *ooc_format_at(size_t n)
{
    return n < sizeof formats / sizeof *formats ? formats[n] : NULL;
}

bool ooc_path_ends(const char *path, const char *suffix)
{
    size_t n = strlen(path), m = strlen(suffix);

    return n >= m && strcasecmp(path + n - m, suffix) == 0;
}

/* Replace the head of a gzip file by the head of what is packed in it. */
static void unpack_head(ooc_probe *p)
{
    uint8_t packed[sizeof p->head];
    z_stream z = {.next_in = packed, .avail_in = (uInt)p->n};

    memcpy(packed, p->head, p->n);
    if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return;
    z.next_out = p->head;
    z.avail_out = sizeof p->head;
    (void)inflate(&z, Z_SYNC_FLUSH); /* what comes out before an error is enough */
    p->n = sizeof p->head - z.avail_out;
    p->gzip = true;
    inflateEnd(&z);
}

static ooc_status read_head(ooc_probe *p, const char *path, ooc_err *err)
{
    struct stat info;
    int fd;
    ooc_status st;

    *p = (ooc_probe){.path = path};
    if (stat(path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return OOC_OK; /* may be a name like radon:... */
        return ooc_fail_errno(err, OOC_E_IO, "%s: cannot look at it", path);
    }
    p->is_dir = S_ISDIR(info.st_mode);
    p->is_file = S_ISREG(info.st_mode);
    if (!p->is_file)
        return OOC_OK;
    st = ooc_sys_open(&fd, path, O_RDONLY, err);
    if (st)
        return st;
    st = ooc_sys_read_some(fd, path, p->head, sizeof p->head, &p->n, err);
    ooc_sys_close(fd);
    if (!st && p->n > 2 && p->head[0] == 0x1f && p->head[1] == 0x8b)
        unpack_head(p);
    return st;
}

static ooc_status by_name(const ooc_format **out, const char *from, ooc_err *err)
{
    char names[400] = "";
    size_t n = 0;

    for (size_t i = 0; ooc_format_at(i); i++) {
        if (strcmp(ooc_format_at(i)->name, from) == 0) {
            *out = ooc_format_at(i);
            return OOC_OK;
        }
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "",
                              ooc_format_at(i)->name);
    }
    return ooc_fail(err, OOC_E_ARG, "--from %s: no such format; known are %s", from, names);
}

/* Files that people have in place of a matrix. */
static ooc_status refuse_known(const ooc_probe *p, ooc_err *err)
{
    static const char lfs[] = "version https://git-lfs.github.com/spec/";

    if (p->n >= sizeof lfs - 1 && memcmp(p->head, lfs, sizeof lfs - 1) == 0)
        return ooc_fail(err, OOC_E_FORMAT,
                        "%s: is a Git LFS pointer, not the file itself; get it with 'git lfs pull'",
                        p->path);
    if (p->is_file && !p->n)
        return ooc_fail(err, OOC_E_FORMAT, "%s: the file is empty", p->path);
    return OOC_OK;
}

static ooc_status find(const ooc_format **out, const char *from, const char *path, ooc_err *err)
{
    ooc_probe *p;
    ooc_status st;

    *out = NULL;
    if (from)
        return by_name(out, from, err);
    p = ooc_malloc(sizeof *p);
    if (!p)
        return ooc_fail(err, OOC_E_NOMEM, "%s: no memory to look at it", path);
    st = read_head(p, path, err);
    if (!st)
        st = refuse_known(p, err);
    for (size_t i = 0; !st && !*out && ooc_format_at(i); i++)
        if (ooc_format_at(i)->fits_content && ooc_format_at(i)->fits_content(p))
            *out = ooc_format_at(i);
    for (size_t i = 0; !st && !*out && ooc_format_at(i); i++)
        if (ooc_format_at(i)->fits_name && ooc_format_at(i)->fits_name(path) &&
            (p->is_file || ooc_format_at(i)->no_file))
            *out = ooc_format_at(i);
    if (!st && !*out && !p->is_file && !p->is_dir)
        st =
            ooc_fail(err, OOC_E_ARG, "%s: no such file, and not radon:VIEWSxDETECTORS:IMAGE", path);
    else if (!st && !*out)
        st = ooc_fail(err, OOC_E_FORMAT,
                      "%s: not a format that is known here; name it with --from, see --help", path);
    ooc_free(p);
    return st;
}

/* "FILE:KEY" where FILE exists and the whole does not: *path gets a copy of FILE, *key points
 * behind the colon. */
static ooc_status split_key(char **path, const char **key, const char *text, ooc_err *err)
{
    struct stat info;

    *path = NULL;
    for (const char *c = strchr(text, ':'); c && stat(text, &info) != 0; c = strchr(c + 1, ':')) {
        *path = ooc_strdup(text);
        if (!*path)
            return ooc_fail(err, OOC_E_NOMEM, "%s: no memory for its name", text);
        (*path)[c - text] = 0;
        if (stat(*path, &info) == 0) {
            *key = c + 1;
            return OOC_OK;
        }
        ooc_free(*path);
        *path = NULL;
    }
    return OOC_OK;
}

ooc_status ooc_source_open(ooc_source **out, const char *from, const ooc_source_request *request,
                           ooc_err *err)
{
    ooc_source_request own = *request;
    const ooc_format *format;
    char *path;
    ooc_status st;

    *out = NULL;
    st = split_key(&path, &own.key, request->path, err);
    if (!st && path && request->key)
        st = ooc_fail(err, OOC_E_ARG, "%s: names an object inside the file, and so does --key %s",
                      request->path, request->key);
    if (!st && path)
        own.path = path;
    if (!st)
        st = find(&format, from, own.path, err);
    if (!st)
        st = format->open(out, &own, err);
    ooc_free(path);
    return st;
}

typedef struct {
    const ooc_format *format;
    const ooc_source_request *request;
    ooc_list_sink sink;
    void *ctx;
} listing;

/* One matrix. What is wrong with it is a part of the list; only a lack of memory ends it. */
static ooc_status list_one(void *ctx, const char *name, ooc_err *err)
{
    listing *l = ctx;
    ooc_source_request request = *l->request;
    ooc_source *s;
    ooc_err own = {0};
    ooc_status st;

    request.key = name;
    st = l->format->open(&s, &request, &own);
    if (st == OOC_E_NOMEM) {
        if (err)
            *err = own;
        return st;
    }
    l->sink(l->ctx, l->format->name, name ? name : "", st ? NULL : &s->info, own.text);
    if (!st)
        ooc_source_close(s);
    return OOC_OK;
}

ooc_status ooc_source_list(const char *from, const ooc_source_request *request, ooc_list_sink sink,
                           void *ctx, ooc_err *err)
{
    listing l = {.request = request, .sink = sink, .ctx = ctx};
    ooc_status st = find(&l.format, from, request->path, err);

    if (st)
        return st;
    return l.format->names ? l.format->names(request, list_one, &l, err) : list_one(&l, NULL, err);
}
