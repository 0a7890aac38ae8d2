#include "launch.h"

#include "activation.h"
#include "devices.h"
#include "driver.h"
#include "gate.h"
#include "graph_memory.h"
#include "page.h"
#include "residency.h"

#include <time.h>

static struct {
    uint64_t published[DEVICES_MAX]; /* touched by the session's thread alone */
} state;

void launch_forget_device(void)
{
    threads_counter = NULL;
}

static void find_counter(void)
{
    struct thread_record *own = threads_take();
    int device = devices_current();
    if (own && device >= 0 && device < DEVICES_MAX)
        threads_counter = &own->launches[device];
}

static inline void count(uint64_t *counter)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

void launch_count(void)
{
    if (!threads_counter)
        find_counter();
    if (threads_counter)
        count(threads_counter);
}

/* The way of a thread's first launch, of the first after a tick, of one that has to wait, and of every one where the
 * hook does not act. True: residency_leave is due. */
static __attribute__((noinline)) bool enter_slowly(void)
{
    if (!activation_enter()) {
        struct thread_record *own = gate_is_off() ? threads_take() : NULL;
        if (own)
            threads_counter = &own->uncounted;
        return false;
    }
    residency_enter();
    launch_count();
    activation_leave();
    return true;
}

/* False: enter_slowly is due. Whoever has a counter has a record. */
static inline bool enter(void)
{
    uint64_t *counter = threads_counter;
    if (__builtin_expect(!counter, 0) || !threads_try_mark(threads_own))
        return false;
    count(counter);
    return true;
}

bool launch_tick(void)
{
    struct aliquot_hook_page *page = page_hook();
    bool has_changed = gate_tick();
    for (int device = 0; device < devices_count(); device++) {
        uint64_t total = threads_launches(device);
        int index = total != state.published[device] ? devices_page_index(device) : -1;
        if (index < 0)
            continue;
        page_write(&page->devices[index].launches, total);
        state.published[device] = total;
        has_changed = true;
    }
    if (has_changed) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        page_write(&page->last_call_nanoseconds, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
        gate_stay_awake();
    }
    return has_changed;
}

void launch_reset(void)
{
    for (int device = 0; device < DEVICES_MAX; device++)
        state.published[device] = 0;
}

/* Defines an entry point. The slow way is a function of its own, so that the fast one saves nothing for it. */
#define DEFINE_LAUNCH(name, parameters, arguments)                                                        \
    static __attribute__((noinline, cold)) CUresult name##_slowly parameters                              \
    {                                                                                                     \
        bool is_marked = enter_slowly();                                                                  \
        CUresult result = real_##name arguments;                                                          \
        if (is_marked)                                                                                    \
            residency_leave();                                                                            \
        return result;                                                                                    \
    }                                                                                                     \
    CUresult name parameters                                                                              \
    {                                                                                                     \
        if (!enter())                                                                                     \
            return name##_slowly arguments;                                                               \
        CUresult result = real_##name arguments;                                                          \
        threads_unmark(threads_own);                                                                      \
        return result;                                                                                    \
    }

DEFINE_LAUNCH(cuLaunch, (CUfunction function), (function))
DEFINE_LAUNCH(cuLaunchGrid, (CUfunction function, int width, int height), (function, width, height))
DEFINE_LAUNCH(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream),
              (function, width, height, stream))

#define GRID_PARAMETERS                                                                                       \
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, \
        unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **parameters
#define GRID_ARGUMENTS function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters

DEFINE_LAUNCH(cuLaunchKernel, (GRID_PARAMETERS, void **extra), (GRID_ARGUMENTS, extra))
DEFINE_LAUNCH(cuLaunchKernel_ptsz, (GRID_PARAMETERS, void **extra), (GRID_ARGUMENTS, extra))
DEFINE_LAUNCH(cuLaunchCooperativeKernel, (GRID_PARAMETERS), (GRID_ARGUMENTS))
DEFINE_LAUNCH(cuLaunchCooperativeKernel_ptsz, (GRID_PARAMETERS), (GRID_ARGUMENTS))

#define CONFIG_PARAMETERS const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra

DEFINE_LAUNCH(cuLaunchKernelEx, (CONFIG_PARAMETERS), (config, function, parameters, extra))
DEFINE_LAUNCH(cuLaunchKernelEx_ptsz, (CONFIG_PARAMETERS), (config, function, parameters, extra))
DEFINE_LAUNCH(cuLaunchCooperativeKernelMultiDevice,
              (CUDA_LAUNCH_PARAMS * launches, unsigned int count, unsigned int flags), (launches, count, flags))

/* A graph may take memory when it is launched; then it asks for credit before it enters. */
#define DEFINE_GRAPH_LAUNCH(name, with_memory)                                                            \
    static __attribute__((noinline, cold)) CUresult name##_slowly(CUgraphExec graph, CUstream stream)     \
    {                                                                                                     \
        bool is_marked = enter_slowly();                                                                  \
        CUresult result = driver_calls.name(graph, stream);                                               \
        if (is_marked)                                                                                    \
            residency_leave();                                                                            \
        return result;                                                                                    \
    }                                                                                                     \
    CUresult name(CUgraphExec graph, CUstream stream)                                                     \
    {                                                                                                     \
        if (__builtin_expect(graph_memory_is_used(), 0))                                                  \
            return with_memory(graph, stream);                                                            \
        if (!enter())                                                                                     \
            return name##_slowly(graph, stream);                                                          \
        CUresult result = driver_calls.name(graph, stream);                                               \
        threads_unmark(threads_own);                                                                      \
        return result;                                                                                    \
    }

DEFINE_GRAPH_LAUNCH(cuGraphLaunch, launch_graph)
DEFINE_GRAPH_LAUNCH(cuGraphLaunch_ptsz, launch_graph_ptsz)
