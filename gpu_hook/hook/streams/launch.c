#include "streams/launch.h"

#include "base/guard.h"
#include "accounting/devices.h"
#include "interpose/driver.h"
#include "gate/gate.h"
#include "charging/graph_memory.h"
#include "compute/pacing.h"
#include "agent_link/page.h"
#include "gate/residency.h"

#include <time.h>

static struct {
    uint64_t published[DEVICES_MAX]; /* touched by the session's thread alone */
} state;

void launch_forget_device(void)
{
    threads_counter = NULL;
    pacing_forget_context();
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

/* Enter where the gate is paced: a marked thread need not take the slowest way each time. */
static bool enter_paced(struct thread_record *own)
{
    if (!own || !threads_counter)
        return false;
    threads_mark(own);
    if (gate_read() == ALIQUOT_GATE_PACED)
        return true;
    threads_unmark(own);
    return false;
}

static bool enter_gate(void)
{
    struct batches *waiting = pacing_begin_gate();
    bool has_entered = residency_enter();
    pacing_end_gate(waiting);
    return has_entered;
}

/* The slow way: for a thread's first launch, the first after a tick, one that has to wait, every
 * one where the gate is paced, and every one where the hook does not act. True: the caller must
 * call leave_slowly. A launch that is given up is not made. */
static __attribute__((noinline)) bool enter_slowly(struct batch_launch *launch)
{
    if (!guard_enter()) {
        struct thread_record *own = gate_is_off() ? threads_take() : NULL;
        if (own)
            threads_counter = &own->uncounted;
        return false;
    }
    bool has_entered = enter_paced(threads_own) || enter_gate();
    launch->is_given_up = !has_entered;
    if (has_entered) {
        launch_count();
        if (pacing_is_on())
            pacing_begin(launch);
    }
    guard_leave();
    return has_entered;
}

static void leave_slowly(struct batch_launch *launch, CUresult result)
{
    if (launch->timer && guard_enter()) {
        pacing_end(launch, result);
        guard_leave();
    }
    residency_leave();
}

/* False: the caller must call enter_slowly. A thread that has a counter has a record. */
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
        page_write(&page->last_call_nanoseconds,
                   (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
        gate_stay_awake();
    }
    return has_changed;
}

void launch_reset(void)
{
    for (int device = 0; device < DEVICES_MAX; device++)
        state.published[device] = 0;
}

#define LEGACY(stream) ((stream) ? (stream) : CU_STREAM_LEGACY)
#define OWN(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)
#define DESCRIBE(which, what, grid) \
    {.stream = (which), .function = (what), .blocks = (grid), .may_wait = true}

static uint64_t count_blocks(uint64_t x, uint64_t y, uint64_t z)
{
    return x * y * z;
}

/* Defines an entry point. The slow way is a function of its own, so that the fast one saves nothing
 * for it. The rest describes the launch: stream, function, thread blocks. */
#define DEFINE_LAUNCH(name, parameters, arguments, ...)                                          \
    static __attribute__((noinline)) CUresult name##_slowly parameters                           \
    {                                                                                            \
        struct batch_launch launch = DESCRIBE(__VA_ARGS__);                                      \
        bool is_marked = enter_slowly(&launch);                                                  \
        CUresult result = launch.is_given_up ? CUDA_ERROR_OUT_OF_MEMORY : real_##name arguments; \
        if (is_marked)                                                                           \
            leave_slowly(&launch, result);                                                       \
        return result;                                                                           \
    }                                                                                            \
    CUresult name parameters                                                                     \
    {                                                                                            \
        if (!enter())                                                                            \
            return name##_slowly arguments;                                                      \
        CUresult result = real_##name arguments;                                                 \
        threads_unmark(threads_own);                                                             \
        return result;                                                                           \
    }

DEFINE_LAUNCH(cuLaunch, (CUfunction function), (function), CU_STREAM_LEGACY, function, 1)
DEFINE_LAUNCH(cuLaunchGrid, (CUfunction function, int width, int height), (function, width, height),
              CU_STREAM_LEGACY, function, count_blocks((unsigned)width, (unsigned)height, 1))
DEFINE_LAUNCH(cuLaunchGridAsync, (CUfunction function, int width, int height, CUstream stream),
              (function, width, height, stream), LEGACY(stream), function,
              count_blocks((unsigned)width, (unsigned)height, 1))

#define GRID_PARAMETERS                                                                 \
    CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, \
        unsigned int block_x, unsigned int block_y, unsigned int block_z,               \
        unsigned int shared_bytes, CUstream stream, void **parameters
#define GRID_ARGUMENTS \
    function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters
#define GRID function, count_blocks(grid_x, grid_y, grid_z)

DEFINE_LAUNCH(cuLaunchKernel, (GRID_PARAMETERS, void **extra), (GRID_ARGUMENTS, extra),
              LEGACY(stream), GRID)
DEFINE_LAUNCH(cuLaunchKernel_ptsz, (GRID_PARAMETERS, void **extra), (GRID_ARGUMENTS, extra),
              OWN(stream), GRID)
DEFINE_LAUNCH(cuLaunchCooperativeKernel, (GRID_PARAMETERS), (GRID_ARGUMENTS), LEGACY(stream), GRID)
DEFINE_LAUNCH(cuLaunchCooperativeKernel_ptsz, (GRID_PARAMETERS), (GRID_ARGUMENTS), OWN(stream),
              GRID)

#define CONFIG_PARAMETERS \
    const CUlaunchConfig *config, CUfunction function, void **parameters, void **extra
#define CONFIG(stream)                                         \
    config ? stream(config->hStream) : stream(NULL), function, \
        config ? count_blocks(config->gridDimX, config->gridDimY, config->gridDimZ) : 0

DEFINE_LAUNCH(cuLaunchKernelEx, (CONFIG_PARAMETERS), (config, function, parameters, extra),
              CONFIG(LEGACY))
DEFINE_LAUNCH(cuLaunchKernelEx_ptsz, (CONFIG_PARAMETERS), (config, function, parameters, extra),
              CONFIG(OWN))

/* Of launches on several devices at once, find the current device's, which is paced and
 * measured. */
static const CUDA_LAUNCH_PARAMS *own_launch(const CUDA_LAUNCH_PARAMS *launches, unsigned int count)
{
    CUcontext current = NULL, context = NULL;
    driver()->cuCtxGetCurrent(&current);
    for (unsigned int i = 0; launches && i < count; i++)
        if (driver()->cuStreamGetCtx(launches[i].hStream, &context) == CUDA_SUCCESS &&
            context == current)
            return &launches[i];
    return NULL;
}

static __attribute__((noinline)) CUresult launch_on_devices(CUDA_LAUNCH_PARAMS *launches,
                                                            unsigned int count, unsigned int flags)
{
    const CUDA_LAUNCH_PARAMS *own = own_launch(launches, count);
    struct batch_launch launch = {.stream = CU_STREAM_LEGACY, .may_wait = true};
    if (own)
        launch = (struct batch_launch)DESCRIBE(
            LEGACY(own->hStream), own->function,
            count_blocks(own->gridDimX, own->gridDimY, own->gridDimZ));
    bool is_marked = enter_slowly(&launch);
    CUresult result = launch.is_given_up
                          ? CUDA_ERROR_OUT_OF_MEMORY
                          : driver()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    if (is_marked)
        leave_slowly(&launch, result);
    return result;
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count,
                                              unsigned int flags)
{
    if (!enter())
        return launch_on_devices(launches, count, flags);
    CUresult result = driver()->cuLaunchCooperativeKernelMultiDevice(launches, count, flags);
    threads_unmark(threads_own);
    return result;
}

/* A graph may take memory when it is launched; then it requests credit before it enters. */
#define DEFINE_GRAPH_LAUNCH(name, with_memory, stream_of)                                       \
    static __attribute__((noinline)) CUresult name##_slowly(CUgraphExec graph, CUstream stream) \
    {                                                                                           \
        struct batch_launch launch = DESCRIBE(stream_of(stream), graph, 0);                     \
        launch.is_graph = true;                                                                 \
        bool is_marked = enter_slowly(&launch);                                                 \
        CUresult result = launch.is_given_up ? CUDA_ERROR_OUT_OF_MEMORY                         \
                                             : driver_calls.name(graph, stream);                \
        if (is_marked)                                                                          \
            leave_slowly(&launch, result);                                                      \
        return result;                                                                          \
    }                                                                                           \
    CUresult name##_entered(CUgraphExec graph, CUstream stream)                                 \
    {                                                                                           \
        struct batch_launch launch = DESCRIBE(stream_of(stream), graph, 0);                     \
        launch.is_graph = true;                                                                 \
        if (pacing_is_on())                                                                     \
            pacing_begin(&launch);                                                              \
        CUresult result = launch.is_given_up ? CUDA_ERROR_OUT_OF_MEMORY                         \
                                             : driver_calls.name(graph, stream);                \
        pacing_end(&launch, result);                                                            \
        return result;                                                                          \
    }                                                                                           \
    CUresult name(CUgraphExec graph, CUstream stream)                                           \
    {                                                                                           \
        if (__builtin_expect(graph_memory_is_used(), 0))                                        \
            return with_memory(graph, stream);                                                  \
        if (!enter())                                                                           \
            return name##_slowly(graph, stream);                                                \
        CUresult result = driver_calls.name(graph, stream);                                     \
        threads_unmark(threads_own);                                                            \
        return result;                                                                          \
    }

DEFINE_GRAPH_LAUNCH(cuGraphLaunch, launch_graph, LEGACY)
DEFINE_GRAPH_LAUNCH(cuGraphLaunch_ptsz, launch_graph_ptsz, OWN)
