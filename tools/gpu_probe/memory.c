/* Measures the calls of the virtual-memory API by size of a chunk, and whether cuMemFree(0)
 * waits for the device. */
#include <pthread.h>
#include <string.h>

#include "probe.h"

#define MOST_CHUNKS 32
#define BUDGET_BYTES (8192 * MIB)
#define SPIN_NANOSECONDS 100000000ull

enum { CREATE, MAP, ACCESS, UNMAP, RELEASE, STEPS };

static double took(double *since)
{
    double now = probe_microseconds(), microseconds = now - *since;
    *since = now;
    return microseconds;
}

static size_t chunks_of(size_t bytes)
{
    size_t budget = probe_free_bytes() / 2;
    budget = budget < BUDGET_BYTES ? budget : BUDGET_BYTES;
    return budget / bytes < MOST_CHUNKS ? budget / bytes : MOST_CHUNKS;
}

static void time_chunks(size_t bytes)
{
    double times[STEPS][MOST_CHUNKS], since;
    CUmemGenericAllocationHandle handles[MOST_CHUNKS];
    CUmemAllocationProp wanted = probe_pinned();
    CUmemAccessDesc access = {.location = wanted.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr base;
    size_t count = chunks_of(bytes);
    if (!count)
        return probe_say("vmm", "\"chunk_mib\": %zu, \"error\": \"the device has no room for two\"", bytes / MIB);
    MUST(CU(cuMemAddressReserve)(&base, count * bytes, 0, 0, 0));
    since = probe_microseconds();
    for (size_t i = 0; i < count; i++) {
        MUST(CU(cuMemCreate)(&handles[i], bytes, &wanted, 0));
        times[CREATE][i] = took(&since);
        MUST(CU(cuMemMap)(base + i * bytes, bytes, 0, handles[i], 0));
        times[MAP][i] = took(&since);
        MUST(CU(cuMemSetAccess)(base + i * bytes, bytes, &access, 1));
        times[ACCESS][i] = took(&since);
    }
    MUST(CU(cuMemsetD8)(base, 1, count * bytes));
    MUST(CU(cuCtxSynchronize)());
    since = probe_microseconds();
    for (size_t i = 0; i < count; i++) {
        MUST(CU(cuMemUnmap)(base + i * bytes, bytes));
        times[UNMAP][i] = took(&since);
        MUST(CU(cuMemRelease)(handles[i]));
        times[RELEASE][i] = took(&since);
    }
    MUST(CU(cuMemAddressFree)(base, count * bytes));
    double first = times[CREATE][0];
    probe_say("vmm",
              "\"chunk_mib\": %zu, \"chunks\": %zu, \"create_us\": %.1f, \"first_create_us\": %.1f, \"map_us\": %.1f, "
              "\"access_us\": %.1f, \"unmap_us\": %.1f, \"release_us\": %.1f",
              bytes / MIB, count, probe_median(times[CREATE], count), first, probe_median(times[MAP], count),
              probe_median(times[ACCESS], count), probe_median(times[UNMAP], count),
              probe_median(times[RELEASE], count));
}

struct maker {
    pthread_t thread;
    CUcontext context;
    size_t bytes, count;
    CUmemGenericAllocationHandle handles[MOST_CHUNKS];
};

static void *make(void *argument)
{
    struct maker *maker = argument;
    CUmemAllocationProp wanted = probe_pinned();
    MUST(CU(cuCtxSetCurrent)(maker->context));
    for (size_t i = 0; i < maker->count; i++)
        MUST(CU(cuMemCreate)(&maker->handles[i], maker->bytes, &wanted, 0));
    return NULL;
}

/* Creation by several threads at once: does the driver let them? */
static void time_threads(CUcontext context, size_t bytes)
{
    struct maker makers[8];
    size_t count = chunks_of(bytes) / 8 * 8;
    for (size_t threads = 1; count && threads <= 8; threads *= 2) {
        double since = probe_microseconds();
        for (size_t i = 0; i < threads; i++) {
            makers[i] = (struct maker){.context = context, .bytes = bytes, .count = count / threads};
            pthread_create(&makers[i].thread, NULL, make, &makers[i]);
        }
        for (size_t i = 0; i < threads; i++)
            pthread_join(makers[i].thread, NULL);
        probe_say("vmm_threads", "\"chunk_mib\": %zu, \"chunks\": %zu, \"threads\": %zu, \"create_all_us\": %.0f",
                  bytes / MIB, count, threads, took(&since));
        for (size_t i = 0; i < threads; i++)
            for (size_t j = 0; j < makers[i].count; j++)
                MUST(CU(cuMemRelease)(makers[i].handles[j]));
    }
}

void probe_vmm(const char *unused)
{
    static const size_t sizes[] = {2, 64, 256, 1024};
    (void)unused;
    CUcontext context = probe_start();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        time_chunks(sizes[i] * MIB);
    time_threads(context, 64 * MIB);
}

/* Microseconds of one question while a kernel runs, and whether the kernel still ran afterwards. */
static double ask_beside(CUfunction spin, CUstream stream, CUresult (*ask)(void), int *code, int *still_runs)
{
    uint64_t nanoseconds = SPIN_NANOSECONDS;
    void *arguments[] = {&nanoseconds};
    probe_launch(spin, stream, arguments);
    double since = probe_microseconds();
    *code = (int)ask();
    double microseconds = took(&since);
    *still_runs = CU(cuStreamQuery)(stream) == CUDA_ERROR_NOT_READY;
    MUST(CU(cuStreamSynchronize)(stream));
    return microseconds;
}

static CUresult free_zero(void)
{
    return CU(cuMemFree)(0);
}

static CUresult ask_flags(void)
{
    unsigned flags;
    return CU(cuCtxGetFlags)(&flags);
}

void probe_free_zero(const char *unused)
{
    int code, still_runs;
    CUstream stream;
    CUgraph graph = NULL;
    (void)unused;
    probe_start();
    CUfunction spin = probe_kernel("aliquot_spin");
    MUST(CU(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    free_zero();
    double since = probe_microseconds();
    free_zero();
    double idle = took(&since), beside = ask_beside(spin, stream, free_zero, &code, &still_runs);
    probe_say("free_zero", "\"idle_us\": %.2f, \"beside_a_kernel_us\": %.2f, \"kernel_still_runs\": %s, \"code\": %d",
              idle, beside, still_runs ? "true" : "false", code);
    beside = ask_beside(spin, stream, ask_flags, &code, &still_runs);
    probe_say("context_flags", "\"beside_a_kernel_us\": %.2f, \"kernel_still_runs\": %s, \"code\": %d", beside,
              still_runs ? "true" : "false", code);
    MUST(CU(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    code = (int)free_zero();
    int end = (int)CU(cuStreamEndCapture)(stream, &graph);
    probe_say("free_zero_in_capture", "\"code\": %d, \"end_of_capture\": %d", code, end);
}
