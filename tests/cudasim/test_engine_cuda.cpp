/* The engine and its CUDA backend on simulated cards.
 *
 *     --seeds [N]   every layout under N orders of the streams: the bits of the first, within
 * bounds
 *     --mutate      every call site of event record, event wait and synchronization skipped in
 * turn: some order must show it
 *     --faults      every CUDA call fails once: a clear error, nothing left behind
 *     --one RUN SEED SKIP KIND NTH   one run in a process of its own, for the other modes
 *
 * Exit code 0: all good, 1: not. */
#include "engine_runs.h"
#include "sim_control.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <map>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t device_bytes = 8u << 20;
static std::string self, folder;

static void reset(const engine_run &r, uint64_t seed)
{
    cudasim_config c = {};

    c.n_devices = 2;
    c.device_bytes = device_bytes;
    c.context_bytes = 1u << 20;
    c.no_peer = r.no_peer;
    c.seed = seed;
    cudasim_reset(&c);
}

static uint64_t hash_of(const std::vector<double> &v)
{
    uint64_t h = 1469598103934665603u;

    for (double x : v) {
        uint64_t b;

        memcpy(&b, &x, 8);
        h = (h ^ b) * 1099511628211u;
        h ^= h >> 29;
    }
    return h;
}

/* ---- --seeds ---- */

static bool check_seeds(uint64_t n)
{
    for (int i = 0; i < n_engine_runs; i++) {
        const engine_run &r = engine_runs[i];
        std::vector<double> first;
        double share = 0;

        for (uint64_t seed = 0; seed < n; seed++) {
            reset(r, seed);
            engine_result got = engine_run_once(r);

            if (got.st) {
                printf("%s, seed %llu: %s\n", r.name, static_cast<unsigned long long>(seed),
                       got.err.text);
                return false;
            }
            if (!seed) {
                first = got.values;
                share = engine_run_error(r, first);
            }
            if (got.peak > (r.where == ON_MATRIX_DEVICE ? device_bytes : r.vram) || got.n_live ||
                !(share <= 1) || hash_of(got.values) != hash_of(first)) {
                printf("%s, seed %llu: error %.3g of the bound, peak %llu of %llu, %llu objects "
                       "left, %s bits\n",
                       r.name, static_cast<unsigned long long>(seed), share,
                       static_cast<unsigned long long>(got.peak),
                       static_cast<unsigned long long>(r.vram),
                       static_cast<unsigned long long>(got.n_live),
                       hash_of(got.values) == hash_of(first) ? "the same" : "other");
                return false;
            }
            if (seed == n - 1)
                printf("%s: %llu orders, %llu tiles, %llu read, error %.3f of the bound\n", r.name,
                       static_cast<unsigned long long>(n),
                       static_cast<unsigned long long>(got.n_tiles),
                       static_cast<unsigned long long>(got.tiles_read), share);
        }
    }
    return true;
}

/* ---- one run in its own process ---- */

struct one_result {
    bool crashed;
    int st;
    uint64_t hash, n_live, calls;
    int n_sites;
    std::string text, sites;
};

static int run_one(char **argv)
{
    const engine_run &r = engine_runs[atoi(argv[0])];

    reset(r, strtoull(argv[1], nullptr, 10));
    cudasim_skip_site(atoi(argv[2]));
    cudasim_fail(static_cast<cudasim_kind>(atoi(argv[3])), strtoull(argv[4], nullptr, 10), false);
    engine_result got = engine_run_once(r);
    printf("%d %llu %llu %llu %d\n%s\n", static_cast<int>(got.st),
           static_cast<unsigned long long>(hash_of(got.values)),
           static_cast<unsigned long long>(got.n_live),
           static_cast<unsigned long long>(cudasim_calls(CUDASIM_ANY)), cudasim_n_sites(),
           got.st ? got.err.text : "");
    for (int i = 0; i < cudasim_n_sites(); i++)
        printf("%s\n", cudasim_site_name(i));
    return 0;
}

static one_result spawn(int run, uint64_t seed, int skip, cudasim_kind kind, uint64_t nth)
{
    one_result out = {true, 0, 0, 0, 0, 0, "", ""};
    std::string command = "exec '" + self + "' --one " + std::to_string(run) + " " +
                          std::to_string(seed) + " " + std::to_string(skip) + " " +
                          std::to_string(kind) + " " + std::to_string(nth) + " '" + folder +
                          "' 2>&1";
    FILE *f = popen(command.c_str(), "r");
    char line[2000];

    if (!f)
        return out;
    unsigned long long hash = 0, live = 0, calls = 0;
    bool complete = fgets(line, sizeof line, f) && sscanf(line, "%d %llu %llu %llu %d", &out.st,
                                                          &hash, &live, &calls, &out.n_sites) == 5;
    out.hash = hash, out.n_live = live, out.calls = calls;
    if (fgets(line, sizeof line, f))
        out.text = line;
    while (fgets(line, sizeof line, f))
        out.sites += line;
    out.crashed = pclose(f) != 0 || !complete;
    return out;
}

static std::string site_name(const one_result &r, int n)
{
    size_t at = 0;

    while (n--)
        at = r.sites.find('\n', at) + 1;
    return r.sites.substr(at, r.sites.find('\n', at) - at);
}

/* ---- --mutate ---- */

/* ooc_pass_reset waits for all three streams, when a call was cut short and before memory is given
 * back. compute waits for the copies of every complete visit, so copy_in itself is only missed
 * where a CUDA call failed in the middle of a visit; and behind a complete run all three are empty.
 */
static bool end_of_run(const std::string &function)
{
    return function.find("stream sync in ooc_pass_reset") == 0 ||
           function.find("stream sync in settle") == 0; /* its helper, unless it was inlined */
}

/* "event wait in copying (pass.c:180)" from "event wait at test(+0x1f) [..] < test(+0x2a) [..]". */
static std::string readable(const std::string &site)
{
    size_t from = site.find("(+", site.find(" < ")), to = site.find(')', from);
    std::string out = site.substr(0, site.find(" at ")) + " in ";
    char line[500];

    if (from == std::string::npos)
        return site;
    FILE *f = popen(("addr2line -i -f -s -e '" + self + "' $(printf %x $((" +
                     site.substr(from + 2, to - from - 2) + "-1))) 2>&1")
                        .c_str(),
                    "r");
    while (f && fgets(line, sizeof line, f))
        out += std::string(line, strcspn(line, "\n")) + " ";
    if (f)
        pclose(f);
    return out;
}

/* A site that one layout needs is no luxury in another: caught anywhere is caught. */
static bool check_mutations()
{
    const uint64_t n_seeds = 12;
    std::map<std::string, bool> caught;
    int n_missed = 0;

    for (int i = 0; i < n_engine_runs; i++) {
        one_result good = spawn(i, 0, -1, CUDASIM_ANY, 0);

        if (good.crashed || good.st) {
            printf("%s: the run itself fails: %s\n", engine_runs[i].name, good.text.c_str());
            return false;
        }
        for (int site = 0; site < good.n_sites; site++) {
            bool &seen = caught[readable(site_name(good, site))];

            for (uint64_t seed = 1; seed <= n_seeds && !seen; seed++) {
                one_result r = spawn(i, seed, site, CUDASIM_ANY, 0);

                seen = r.crashed || r.st || r.hash != good.hash;
            }
        }
    }
    for (const auto &s : caught)
        if (!s.second) {
            printf("nobody misses %s%s\n", s.first.c_str(),
                   end_of_run(s.first) ? "(end of run)" : "");
            n_missed += !end_of_run(s.first);
        }
    printf("%zu call sites, %d survive without reason\n", caught.size(), n_missed);
    return !caught.empty() && n_missed == 0;
}

/* ---- --faults ---- */

static bool check_faults()
{
    uint64_t n_calls = 0;

    for (int i = 0; i < n_engine_runs; i += 2) {
        one_result good = spawn(i, 0, -1, CUDASIM_ANY, 0);
        /* Every call up to the first sweep's end, and then some. */
        for (uint64_t nth = 1; nth <= good.calls; nth += nth < 250 ? 1 : 37) {
            one_result r = spawn(i, nth % 3, -1, CUDASIM_ANY, nth);

            n_calls++;
            /* Calls that only give back or make current are not told to anybody. */
            if (r.crashed || r.n_live || (!r.st && r.hash != good.hash) ||
                (r.st && r.text.find("cuda") == std::string::npos)) {
                printf("%s: call %llu fails: status %d, %llu objects left, %s: %s\n",
                       engine_runs[i].name, static_cast<unsigned long long>(nth), r.st,
                       static_cast<unsigned long long>(r.n_live), r.crashed ? "crash" : "no crash",
                       r.text.c_str());
                return false;
            }
        }
    }
    printf("%llu failing calls\n", static_cast<unsigned long long>(n_calls));
    return n_calls > 0;
}

static void drop_folder()
{
    for (const char *file : {"/raw.tiles", "/zstd.tiles"})
        unlink((folder + file).c_str());
    rmdir(folder.c_str());
}

int main(int argc, char **argv)
{
    std::string mode = argc > 1 ? argv[1] : "";
    char name[] = "/tmp/cudasim-engine-XXXXXX", exe[4096];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    bool good = false;

    if (n <= 0)
        return 1;
    self.assign(exe, static_cast<size_t>(n));
    if (mode == "--one" && argc == 8) {
        folder = argv[7];
        engine_runs_find(folder.c_str());
        return run_one(argv + 2);
    }
    if (!mkdtemp(name))
        return 1;
    folder = name;
    if (!engine_runs_prepare(name))
        fprintf(stderr, "no stores in %s\n", name);
    else if (mode == "--seeds")
        good = check_seeds(argc > 2 ? strtoull(argv[2], nullptr, 10) : 6);
    else if (mode == "--mutate")
        good = check_mutations();
    else if (mode == "--faults")
        good = check_faults();
    else
        fprintf(stderr, "usage: %s --seeds [N] | --mutate | --faults\n", argv[0]);
    if (!getenv("KEEP"))
        drop_folder();
    return !good;
}
