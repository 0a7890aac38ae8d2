/* A program with timed calls on the null driver. It finds its functions as the CUDA runtime does, by
 * dlopen and dlsym, for every hook catches these: one that stands in the library's place, and one that
 * replaces dlsym.
 *
 *   client LIVE               answers questions (measure.h) with LIVE allocations of 4 KiB held
 *   client once NAME COUNT    for a profiler
 *   client start BEGIN        prints nanoseconds: from BEGIN (CLOCK_MONOTONIC) to main, for finding the functions,
 *                             from cuInit to the return of the first launch, and from BEGIN to there */
#define __CUDA_API_VERSION_INTERNAL
#include "measure.h"

#include <dlfcn.h>
#include <pthread.h>

#define SMALL_BYTES ((size_t)4096)
#define LARGE_BYTES ((size_t)256 << 20) /* more than a hook keeps in hand: its agent is asked each time */
#define THREADS 8

#define FUNCTIONS(F)                                                                                       \
    F(cuInit)                                                                                              \
    F(cuDeviceGet)                                                                                         \
    F(cuDevicePrimaryCtxRetain)                                                                            \
    F(cuCtxSetCurrent)                                                                                     \
    F(cuMemAlloc_v2)                                                                                       \
    F(cuMemFree_v2)                                                                                        \
    F(cuMemGetInfo_v2)                                                                                     \
    F(cuMemAllocAsync)                                                                                     \
    F(cuMemFreeAsync)                                                                                      \
    F(cuMemcpyHtoDAsync_v2)                                                                                \
    F(cuMemsetD8Async)                                                                                     \
    F(cuStreamQuery)                                                                                       \
    F(cuLaunchKernel)                                                                                      \
    F(cuLaunchKernelEx)                                                                                    \
    F(cuGraphLaunch)

static struct {
#define DECLARE(name) __typeof__(&name) name;
    FUNCTIONS(DECLARE)
} cuda;

static CUdeviceptr buffer;
static CUcontext context;
static char host[64];

__attribute__((noinline)) void run_launch(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        cuda.cuLaunchKernel((CUfunction)host, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL);
}

__attribute__((noinline)) void run_launch_ex(unsigned long count)
{
    CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 32, .blockDimY = 1,
                             .blockDimZ = 1};
    for (unsigned long i = 0; i < count; i++)
        cuda.cuLaunchKernelEx(&config, (CUfunction)host, NULL, NULL);
}

__attribute__((noinline)) void run_graph_launch(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        cuda.cuGraphLaunch((CUgraphExec)host, NULL);
}

__attribute__((noinline)) void run_copy(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        cuda.cuMemcpyHtoDAsync_v2(buffer, host, sizeof host, NULL);
}

__attribute__((noinline)) void run_set(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        cuda.cuMemsetD8Async(buffer, 0, sizeof host, NULL);
}

__attribute__((noinline)) void run_stream_query(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++)
        cuda.cuStreamQuery(NULL);
}

__attribute__((noinline)) void run_mem_info(unsigned long count)
{
    size_t free_bytes, total_bytes;
    for (unsigned long i = 0; i < count; i++)
        cuda.cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

__attribute__((noinline)) void run_alloc_free(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        CUdeviceptr pointer;
        MUST(cuda.cuMemAlloc_v2(&pointer, SMALL_BYTES));
        MUST(cuda.cuMemFree_v2(pointer));
    }
}

__attribute__((noinline)) void run_alloc_free_async(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        CUdeviceptr pointer;
        MUST(cuda.cuMemAllocAsync(&pointer, SMALL_BYTES, NULL));
        MUST(cuda.cuMemFreeAsync(pointer, NULL));
    }
}

__attribute__((noinline)) void run_credit(unsigned long count)
{
    for (unsigned long i = 0; i < count; i++) {
        CUdeviceptr pointer;
        MUST(cuda.cuMemAlloc_v2(&pointer, LARGE_BYTES));
        MUST(cuda.cuMemFree_v2(pointer));
    }
}

static pthread_barrier_t barrier;

static void *launch_in_thread(void *count)
{
    cuda.cuCtxSetCurrent(context);
    run_launch(100);
    pthread_barrier_wait(&barrier);
    run_launch((unsigned long)(uintptr_t)count);
    return NULL;
}

/* Times itself, for the start of threads must not count. */
static double nanoseconds_with_threads(unsigned long count)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, launch_in_thread, (void *)(uintptr_t)count) != 0)
            exit(1);
    uint64_t begin = now_nanoseconds();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    uint64_t end = now_nanoseconds();
    pthread_barrier_destroy(&barrier);
    return (double)(end - begin) / (double)count / THREADS;
}

static const struct measure measures[] = {
    {"launch", run_launch, NULL, NULL},
    {"launch_ex", run_launch_ex, NULL, NULL},
    {"graph_launch", run_graph_launch, NULL, NULL},
    {"copy", run_copy, NULL, NULL},
    {"set", run_set, NULL, NULL},
    {"stream_query", run_stream_query, NULL, NULL},
    {"mem_info", run_mem_info, NULL, NULL},
    {"alloc_free", run_alloc_free, NULL, NULL},
    {"alloc_free_async", run_alloc_free_async, NULL, NULL},
    {"credit", run_credit, NULL, NULL},
    {"launch_threads", NULL, NULL, nanoseconds_with_threads},
    {NULL, NULL, NULL, NULL},
};

static void find_functions(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define FIND(name) cuda.name = (__typeof__(&name))dlsym(library, #name);
    FUNCTIONS(FIND)
}

static void start(void)
{
    CUdevice device;
    MUST(cuda.cuInit(0));
    MUST(cuda.cuDeviceGet(&device, 0));
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuda.cuCtxSetCurrent(context));
}

static int time_the_start(uint64_t begin)
{
    uint64_t in_main = now_nanoseconds();
    CUdevice device;
    find_functions();
    uint64_t found = now_nanoseconds();
    MUST(cuda.cuInit(0));
    MUST(cuda.cuDeviceGet(&device, 0));
    MUST(cuda.cuDevicePrimaryCtxRetain(&context, device));
    MUST(cuda.cuCtxSetCurrent(context));
    MUST(cuda.cuLaunchKernel((CUfunction)host, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
    uint64_t launched = now_nanoseconds();
    printf("%llu %llu %llu %llu\n", (unsigned long long)(in_main - begin), (unsigned long long)(found - in_main),
           (unsigned long long)(launched - found), (unsigned long long)(launched - begin));
    fflush(stdout);
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 3 && strcmp(arguments[1], "start") == 0)
        return time_the_start(strtoull(arguments[2], NULL, 10));
    find_functions();
    start();
    if (count == 4 && strcmp(arguments[1], "once") == 0)
        return run_once(measures, arguments[2], arguments[3]);
    for (unsigned long live = count == 2 ? strtoul(arguments[1], NULL, 10) : 0; live; live--)
        MUST(cuda.cuMemAlloc_v2(&buffer, SMALL_BYTES));
    return answer_questions(measures);
}
