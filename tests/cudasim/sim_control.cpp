/* The stand-in's state: configuration, counted and failing calls, call sites, reports. */
#include "sim_state.h"

#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

std::recursive_mutex sim_lock;
cudasim_config sim_config;
thread_local int sim_device_now;

namespace
{
struct site {
    void *frame[2];
    const char *what;
    uint64_t visits;
    std::string name;
};

bool ready;
uint64_t calls[CUDASIM_N_KINDS], random_state, n_live;
cudasim_kind fail_kind;
uint64_t fail_nth;
bool fail_sticky, stuck_forever;
thread_local cudaError_t last_error;
std::vector<site> sites;
int skipped_site = -1;

const char *const kind_names[CUDASIM_N_KINDS] = {
    "any",    "malloc", "register", "copy",    "memset", "launch",  "stream",   "event",
    "record", "wait",   "sync",     "library", "other",  "release", "execution"};

uint64_t env_u64(const char *name, uint64_t otherwise)
{
    const char *v = getenv(name);

    return v && *v ? strtoull(v, nullptr, 0) : otherwise;
}

void report()
{
    const char *path = getenv("CUDASIM_REPORT");
    FILE *f = path ? fopen(path, "a") : nullptr;

    if (!f)
        return;
    for (int d = 0; d < sim_config.n_devices; d++)
        fprintf(f, "peak %d %llu\n", d, static_cast<unsigned long long>(cudasim_peak_bytes(d)));
    fprintf(f, "live %llu\npageable %llu\nbus %llu\nsites %d\n",
            static_cast<unsigned long long>(n_live),
            static_cast<unsigned long long>(cudasim_n_pageable()),
            static_cast<unsigned long long>(cudasim_bus_bytes()), cudasim_n_sites());
    for (int k = 0; k < CUDASIM_N_KINDS; k++)
        fprintf(f, "calls %s %llu\n", kind_names[k], static_cast<unsigned long long>(calls[k]));
    for (int i = 0; i < cudasim_n_sites(); i++)
        fprintf(f, "site %d %s\n", i, cudasim_site_name(i));
    fclose(f);
}

void read_fail_plan(const char *plan)
{
    const char *colon = plan ? strchr(plan, ':') : nullptr;

    if (!colon)
        return;
    for (int k = 0; k < CUDASIM_N_KINDS; k++)
        if (strlen(kind_names[k]) == static_cast<size_t>(colon - plan) &&
            !strncmp(kind_names[k], plan, static_cast<size_t>(colon - plan)))
            cudasim_fail(static_cast<cudasim_kind>(k), strtoull(colon + 1, nullptr, 10),
                         strchr(colon, '+') != nullptr);
}

void start_from_environment()
{
    cudasim_config c = {};

    c.n_devices = static_cast<int>(env_u64("CUDASIM_DEVICES", 1));
    c.device_bytes = env_u64("CUDASIM_BYTES", 0);
    c.context_bytes = env_u64("CUDASIM_CONTEXT", 0);
    c.no_peer = env_u64("CUDASIM_PEER", 1) == 0;
    c.open_memory = env_u64("CUDASIM_OPEN", 0) != 0;
    c.seed = env_u64("CUDASIM_SEED", 0);
    c.driver = getenv("CUDASIM_DRIVER") ? atoi(getenv("CUDASIM_DRIVER")) : 0;
    cudasim_reset(&c);
    read_fail_plan(getenv("CUDASIM_FAIL"));
    skipped_site = getenv("CUDASIM_SKIP") ? atoi(getenv("CUDASIM_SKIP")) : -1;
    atexit(report);
}

std::string frame_name(void *address)
{
    char **text = backtrace_symbols(&address, 1);
    std::string s = text ? text[0] : "?";

    free(text);
    size_t slash = s.rfind('/');
    return slash == std::string::npos ? s : s.substr(slash + 1);
}
} // namespace

void sim_broken(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    fputs("cudasim: ", stderr);
    vfprintf(stderr, fmt, ap);
    fputs("\n", stderr);
    va_end(ap);
    abort();
}

void sim_live(int change)
{
    n_live += static_cast<uint64_t>(static_cast<int64_t>(change));
}

uint64_t sim_random()
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = random_state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

cudaError_t sim_enter(cudasim_kind kind)
{
    if (!ready)
        start_from_environment();
    if (stuck_forever)
        return cudaErrorLaunchFailure;
    calls[kind]++;
    if (kind == CUDASIM_EXECUTION) {
        if (fail_kind != kind || !fail_nth || calls[kind] != fail_nth)
            return cudaSuccess;
        stuck_forever = true;
        return cudaErrorIllegalAddress;
    }
    calls[CUDASIM_ANY]++;
    if (!fail_nth || fail_kind == CUDASIM_EXECUTION || calls[fail_kind] != fail_nth ||
        (fail_kind != CUDASIM_ANY && fail_kind != kind))
        return cudaSuccess;
    stuck_forever = fail_sticky;
    return kind == CUDASIM_MALLOC || kind == CUDASIM_REGISTER ? cudaErrorMemoryAllocation
           : fail_sticky                                      ? cudaErrorLaunchFailure
                                                              : cudaErrorUnknown;
}

cudaError_t sim_leave(cudaError_t e)
{
    if (e != cudaSuccess)
        last_error = e;
    return e;
}

__attribute__((noinline)) bool sim_site_skipped(const char *what)
{
    void *frame[8];
    int n = backtrace(frame, 8), entry = 0;
    size_t i;

    /* Sanitizers put frames of their own on top: look for the entry point that called us. */
    while (entry < n && frame[entry] != __builtin_return_address(0))
        entry++;
    if (entry + 2 >= n)
        return false;
    void *caller = frame[entry + 1], *its_caller = frame[entry + 2];
    for (i = 0; i < sites.size(); i++)
        if (sites[i].frame[0] == caller && sites[i].frame[1] == its_caller)
            break;
    if (i == sites.size())
        sites.push_back({{caller, its_caller}, what, 0, ""});
    sites[i].visits++;
    return static_cast<int>(i) == skipped_site;
}

void cudasim_reset(const cudasim_config *config)
{
    std::lock_guard<std::recursive_mutex> held(sim_lock);

    ready = true;
    sim_config = *config;
    if (!sim_config.n_devices)
        sim_config.n_devices = 1;
    if (!sim_config.device_bytes)
        sim_config.device_bytes = 256u << 20;
    if (!sim_config.driver)
        sim_config.driver = 12000;
    sim_device_now = 0;
    random_state = sim_config.seed;
    n_live = 0;
    last_error = cudaSuccess;
    sites.clear();
    skipped_site = -1;
    cudasim_fail(CUDASIM_ANY, 0, false);
    sim_streams_reset();
    sim_memory_reset();
}

void cudasim_fail(cudasim_kind kind, uint64_t nth, bool sticky)
{
    fail_kind = kind;
    fail_nth = nth;
    fail_sticky = sticky;
    stuck_forever = false;
    memset(calls, 0, sizeof calls);
}

uint64_t cudasim_calls(cudasim_kind kind)
{
    return calls[kind];
}

void cudasim_skip_site(int n)
{
    skipped_site = n;
}

int cudasim_n_sites(void)
{
    return static_cast<int>(sites.size());
}

const char *cudasim_site_name(int n)
{
    site &s = sites[static_cast<size_t>(n)];

    if (s.name.empty())
        s.name =
            std::string(s.what) + " at " + frame_name(s.frame[0]) + " < " + frame_name(s.frame[1]);
    return s.name.c_str();
}

uint64_t cudasim_site_visits(int n)
{
    return sites[static_cast<size_t>(n)].visits;
}

uint64_t cudasim_n_live(void)
{
    return n_live;
}

cudaError_t cudaGetLastError()
{
    cudaError_t e = last_error;

    last_error = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError()
{
    return last_error;
}
