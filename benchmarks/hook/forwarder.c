/* The smallest possible hook: a libcuda.so.1 whose functions jump to the real one's. With
 * SPIN_NANOSECONDS, a hook of known cost: each launch first spins for so long. A benchmark that
 * does not read the true cost of these two does not measure hooks. BENCH_REAL_CUDA names the
 * real library. With STARTS_A_THREAD it begins one thread, as a hook does that an agent can
 * reach: the least that such a hook adds to a start. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#ifdef SPIN_NANOSECONDS
#define CALIBRATIONS 20000

static uint64_t spin_ticks;

static inline uint64_t read_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

static inline void spin(void)
{
    uint64_t start = read_ticks();
    while (read_ticks() - start < spin_ticks)
        ;
}

static double now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The least of several measurements, since every disturbance makes them longer. */
static double time_of_a_spin(void)
{
    double least = 1e18;
    for (int batch = 0; batch < 20; batch++) {
        double begin = now_nanoseconds();
        for (int i = 0; i < CALIBRATIONS / 20; i++)
            spin();
        double each = (now_nanoseconds() - begin) / (CALIBRATIONS / 20);
        least = each < least ? each : least;
    }
    return least;
}

/* The read of the counter takes time itself: find the number of ticks with which a whole spin
 * takes the requested time. */
static void calibrate(void)
{
    double begin = now_nanoseconds();
    uint64_t ticks = read_ticks();
    while (now_nanoseconds() - begin < 2e6)
        ;
    double ticks_per_nanosecond = (double)(read_ticks() - ticks) / (now_nanoseconds() - begin);
    spin_ticks = (uint64_t)(SPIN_NANOSECONDS * ticks_per_nanosecond);
    for (int step = 0; step < 3; step++) {
        double over = (time_of_a_spin() - SPIN_NANOSECONDS) * ticks_per_nanosecond;
        spin_ticks = (double)spin_ticks > over ? (uint64_t)((double)spin_ticks - over) : 0;
    }
}
#else
#define spin()
#define calibrate()
#endif

#define FUNCTIONS(F)                                                                                               \
    F(cuInit, (unsigned int flags), (flags), )                                                                     \
    F(cuDeviceGet, (CUdevice * device, int ordinal), (device, ordinal), )                                          \
    F(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device), (context, device), )                       \
    F(cuCtxSetCurrent, (CUcontext context), (context), )                                                           \
    F(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes), (pointer, bytes), )                                    \
    F(cuMemFree_v2, (CUdeviceptr pointer), (pointer), )                                                            \
    F(cuMemAllocAsync, (CUdeviceptr * pointer, size_t bytes, CUstream stream), (pointer, bytes, stream), )         \
    F(cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream), (pointer, stream), )                                 \
    F(cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes), (free_bytes, total_bytes), )                   \
    F(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream),                     \
      (to, from, bytes, stream), )                                                                                 \
    F(cuMemsetD8Async, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream),                       \
      (to, value, count, stream), )                                                                                \
    F(cuStreamQuery, (CUstream stream), (stream), )                                                                \
    F(cuLaunchKernel,                                                                                              \
      (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,   \
       unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters,  \
       void **extra),                                                                                              \
      (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters, extra),      \
      spin())                                                                                                      \
    F(cuLaunchKernelEx,                                                                                            \
      (const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra),                        \
      (config, function, parameters, extra), spin())                                                               \
    F(cuGraphLaunch, (CUgraphExec graph, CUstream stream), (graph, stream), spin())

#define DEFINE(name, parameters, arguments, first)     \
    static __typeof__(&name) real_##name;              \
    CUresult name parameters                           \
    {                                                  \
        first;                                         \
        return real_##name arguments;                  \
    }
FUNCTIONS(DEFINE)

#ifdef STARTS_A_THREAD
#define STACK_BYTES (256u << 10)

static void *rest(void *unused)
{
    poll(NULL, 0, -1);
    return unused;
}

static void start_thread(void)
{
    sigset_t all, previous;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    if (pthread_create(&thread, &attributes, rest, NULL) != 0)
        abort();
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
}
#else
static void start_thread(void)
{
}
#endif

static __attribute__((constructor)) void open_real(void)
{
    const char *path = getenv("BENCH_REAL_CUDA");
    void *real = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!real)
        abort();
#define FIND(name, parameters, arguments, first) real_##name = (__typeof__(&name))dlsym(real, #name);
    FUNCTIONS(FIND)
    calibrate();
    start_thread();
}
