/* System calls: whole reads and writes under faults, and files that appear complete or not at all.
 */
#include "base/fault.h"
#include "io/sys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[64];

static int enter_folder(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/test_io_sys.XXXXXX");
    return mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int leave_folder(void **state)
{
    (void)state;
    unlink("a");
    return chdir("/") == 0 && rmdir(dir) == 0 ? 0 : -1;
}

static unsigned files_here(void)
{
    DIR *d = opendir(".");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}

static ooc_status put(const char *text, bool force, ooc_err *err)
{
    ooc_new_file f;
    ooc_status st = ooc_new_file_open(&f, "a", force, err);

    if (!st)
        st = ooc_sys_pwrite(f.fd, "a", text, strlen(text), 0, err);
    if (!st)
        st = ooc_new_file_commit(&f, err);
    ooc_new_file_discard(&f);
    return st;
}

static void assert_file_holds(const char *text)
{
    char buf[64] = {0};
    uint64_t bytes;
    ooc_err err;
    int fd;

    assert_int_equal(ooc_sys_open(&fd, "a", O_RDONLY, &err), OOC_OK);
    assert_int_equal(ooc_sys_size(fd, "a", &bytes, &err), OOC_OK);
    assert_int_equal(bytes, strlen(text));
    assert_int_equal(ooc_sys_pread(fd, "a", buf, bytes, 0, &err), OOC_OK);
    assert_string_equal(buf, text);
    ooc_sys_close(fd);
}

static void new_files(void **state)
{
    ooc_new_file f;
    ooc_err err;

    (void)state;
    assert_int_equal(put("one", false, &err), OOC_OK);
    assert_file_holds("one");
    assert_int_equal(put("two", false, &err), OOC_E_ARG);
    assert_file_holds("one");
    assert_int_equal(put("three", true, &err), OOC_OK);
    assert_file_holds("three");
    assert_int_equal(files_here(), 1);

    assert_int_equal(ooc_new_file_open(&f, "a", true, &err), OOC_OK);
    ooc_new_file_discard(&f);
    ooc_new_file_discard(&f);
    assert_file_holds("three");
    unlink("a");

    /* The name appears while the file is being written. */
    assert_int_equal(ooc_new_file_open(&f, "a", false, &err), OOC_OK);
    assert_int_equal(put("first", false, &err), OOC_OK);
    assert_int_equal(ooc_new_file_commit(&f, &err), OOC_E_ARG);
    ooc_new_file_discard(&f);
    assert_file_holds("first");
    assert_int_equal(files_here(), 1);

    assert_int_equal(ooc_new_file_open(&f, ".", true, &err), OOC_E_ARG);
    assert_int_equal(ooc_new_file_open(&f, "/dev/null", true, &err), OOC_E_ARG);
    assert_int_equal(ooc_new_file_open(&f, "", true, &err), OOC_E_ARG);
    assert_int_equal(ooc_new_file_open(&f, "no/such/folder", true, &err), OOC_E_IO);
    assert_int_equal(ooc_new_file_open(&f, "folder/", true, &err), OOC_E_ARG);
    assert_int_equal(f.fd, -1);
}

#if OOC_ENABLE_FAULTS
static const ooc_fault_site sites[] = {OOC_FAULT_ALLOC, OOC_FAULT_OPEN,        OOC_FAULT_WRITE,
                                       OOC_FAULT_SYNC,  OOC_FAULT_SHORT_WRITE, OOC_FAULT_RENAME};

/* Make the n-th visit of `site` fail, n = 1, 2, ..., until a run has no such visit. */
static void each_fault(ooc_fault_site site, bool force)
{
    uint64_t n;

    for (n = 1; n < 50; n++) {
        ooc_status st;
        ooc_err err;

        unlink("a");
        if (force)
            assert_int_equal(put("old", false, &err), OOC_OK);
        ooc_fault_set(site, n, false);
        st = put("new", force, &err);
        if (ooc_fault_visits(site) < n)
            break;
        ooc_fault_set(site, 0, false);
        if (st == OOC_OK) {
            assert_int_equal(site, OOC_FAULT_SHORT_WRITE);
            assert_file_holds("new");
            continue;
        }
        assert_int_equal(st, site == OOC_FAULT_ALLOC ? OOC_E_NOMEM : OOC_E_IO);
        assert_true(strlen(err.text) > 0);
        if (!force)
            assert_int_equal(files_here(), 0);
        else if (access("a", F_OK) == 0 && n == 1)
            assert_file_holds("old");
        assert_true(files_here() <= 1);
    }
    ooc_fault_set(site, 0, false);
    assert_in_range(n, 2, 49); /* the site was visited, and the loop ended by itself */
}
#endif

/* File systems without unnamed files: NAME.tmp.PID stands in. */
static void named_files(void **state)
{
    (void)state;
#if OOC_ENABLE_FAULTS
    ooc_new_file f;
    char stale[64];
    FILE *left_over;
    ooc_err err;

    ooc_fault_set(OOC_FAULT_TMPFILE, 1, true);
    new_files(state);
    unlink("a");
    snprintf(stale, sizeof stale, "a.tmp.%ld", (long)getpid());
    left_over = fopen(stale, "w"); /* of a killed process that had our number */
    assert_non_null(left_over);
    fclose(left_over);
    assert_int_equal(ooc_new_file_open(&f, "a", false, &err), OOC_OK);
    assert_int_equal(files_here(), 2);
    ooc_new_file_discard(&f);
    assert_int_equal(access(stale, F_OK), 0);
    unlink(stale);
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        each_fault(sites[i], false);
        each_fault(sites[i], true);
    }
    ooc_fault_set(OOC_FAULT_TMPFILE, 0, false);
#else
    skip();
#endif
}

static void faults(void **state)
{
    (void)state;
#if OOC_ENABLE_FAULTS
    for (size_t i = 0; i < sizeof sites / sizeof *sites; i++) {
        each_fault(sites[i], false);
        each_fault(sites[i], true);
    }
#else
    skip();
#endif
}

static void reads(void **state)
{
    char buf[16];
    size_t got;
    ooc_err err;
    int fd;

    (void)state;
    unlink("a");
    assert_int_equal(put("0123456789", false, &err), OOC_OK);
    assert_int_equal(ooc_sys_open(&fd, "none", O_RDONLY, &err), OOC_E_IO);
    assert_int_equal(err.sys, ENOENT);
    assert_int_equal(ooc_sys_open(&fd, "a", O_RDONLY, &err), OOC_OK);
    assert_int_equal(ooc_sys_pread(fd, "a", buf, 4, 8, &err), OOC_E_FORMAT);
    assert_int_equal(err.offset, 10);
#if OOC_ENABLE_FAULTS
    ooc_fault_set(OOC_FAULT_SHORT_READ, 1, true);
    ooc_fault_set(OOC_FAULT_READ_EINTR, 2, false);
    memset(buf, 0, sizeof buf);
    assert_int_equal(ooc_sys_pread(fd, "a", buf, 10, 0, &err), OOC_OK);
    assert_string_equal(buf, "0123456789");
    assert_true(ooc_fault_visits(OOC_FAULT_SHORT_READ) > 2);
    ooc_fault_set(OOC_FAULT_SHORT_READ, 0, false);
    ooc_fault_set(OOC_FAULT_READ, 1, false);
    assert_int_equal(ooc_sys_pread(fd, "a", buf, 10, 0, &err), OOC_E_IO);
    assert_int_equal(err.sys, EIO);
    ooc_fault_set(OOC_FAULT_READ_EINTR, 1, false);
#endif
    assert_int_equal(ooc_sys_read_some(fd, "a", buf, sizeof buf, &got, &err), OOC_OK);
    assert_int_equal(got, 10);
    assert_int_equal(ooc_sys_read_some(fd, "a", buf, sizeof buf, &got, &err), OOC_OK);
    assert_int_equal(got, 0);
    ooc_sys_close(fd);
    ooc_sys_close(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(new_files, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(named_files, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(faults, enter_folder, leave_folder),
        cmocka_unit_test_setup_teardown(reads, enter_folder, leave_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
