#include "base/fault.h"

#if OOC_ENABLE_FAULTS
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const site_names[OOC_FAULT_N] = {
    "alloc", "read",   "short-read", "eintr", "write",   "short-write",
    "sync",  "rename", "open",       "uring", "tmpfile", "device",
};

static struct {
    atomic_uint_fast64_t visits;
    atomic_uint_fast64_t nth;
    atomic_bool forever;
} plan[OOC_FAULT_N];

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A plan that cannot be understood must not pass for "no fault": the test would prove nothing. */
static void refuse(const char *text)
{
    fprintf(stderr, "OOC_FAULT: cannot understand '%s'\n", text);
    abort();
}

static void read_environment(void)
{
    const char *text = getenv("OOC_FAULT");

    while (text && *text) {
        char name[32];
        unsigned long long nth;
        int used = 0;
        int site;

        if (sscanf(text, "%31[a-z-]:%llu%n", name, &nth, &used) != 2 || !nth)
            refuse(text);
        for (site = 0; site < OOC_FAULT_N && strcmp(site_names[site], name) != 0; site++)
            ;
        if (site == OOC_FAULT_N)
            refuse(text);
        text += used;
        plan[site].forever = *text == '+';
        plan[site].nth = nth;
        text += *text == '+';
        if (*text == ',')
            text++;
        else if (*text)
            refuse(text);
    }
}

bool ooc_fault_hit(ooc_fault_site site)
{
    uint64_t n, nth;

    pthread_once(&once, read_environment);
    n = atomic_fetch_add(&plan[site].visits, 1) + 1;
    nth = atomic_load(&plan[site].nth);
    return nth && (n == nth || (n > nth && atomic_load(&plan[site].forever)));
}

void ooc_fault_set(ooc_fault_site site, uint64_t nth, bool forever)
{
    pthread_once(&once, read_environment);
    atomic_store(&plan[site].nth, 0);
    atomic_store(&plan[site].visits, 0);
    atomic_store(&plan[site].forever, forever);
    atomic_store(&plan[site].nth, nth);
}

uint64_t ooc_fault_visits(ooc_fault_site site)
{
    return atomic_load(&plan[site].visits);
}
#else
typedef int ooc_fault_not_built_in; /* ISO C wants a declaration in every file */
#endif
