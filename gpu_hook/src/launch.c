#include "launch.h"

#include "activation.h"
#include "devices.h"
#include "driver.h"
#include "gate.h"
#include "graph_memory.h"
#include "page.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct counters { /* of one thread at a time; a later thread goes on with the same counts */
    struct counters *next;
    uint64_t launches[DEVICES_MAX]; /* written by its thread alone, read by the session's */
    bool is_taken;
};

static struct {
    pthread_mutex_t mutex; /* guards the list, the key and `published` */
    struct counters *list;
    pthread_key_t key;
    bool has_key;
    uint64_t published[DEVICES_MAX];
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static __thread struct counters *own __attribute__((tls_model("initial-exec")));
static __thread uint64_t *counter __attribute__((tls_model("initial-exec"))); /* of the current device */
static __thread uint64_t uncounted __attribute__((tls_model("initial-exec"))); /* counts where the hook is off */

void launch_forget_device(void)
{
    counter = NULL;
}

static void give_back_counters(void *counters)
{
    pthread_mutex_lock(&state.mutex);
    ((struct counters *)counters)->is_taken = false;
    pthread_mutex_unlock(&state.mutex);
    own = NULL;
    counter = NULL;
}

static struct counters *take_counters(void)
{
    pthread_mutex_lock(&state.mutex);
    if (!state.has_key)
        state.has_key = pthread_key_create(&state.key, give_back_counters) == 0;
    struct counters *found = state.list;
    while (found && found->is_taken)
        found = found->next;
    if (!found && (found = calloc(1, sizeof *found))) {
        found->next = state.list;
        state.list = found;
    }
    if (found)
        found->is_taken = true;
    pthread_mutex_unlock(&state.mutex);
    if (found && state.has_key)
        pthread_setspecific(state.key, found);
    return found;
}

static void find_counter(void)
{
    int device = devices_current();
    if (!own)
        own = take_counters();
    if (own && device >= 0 && device < DEVICES_MAX)
        counter = &own->launches[device];
}

static inline void count(void)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* The way of a thread's first launch, of the first after a tick, of one that finds the gate closed, and of every one
 * where the hook does not act. */
static __attribute__((noinline)) void enter_slowly(void)
{
    if (!activation_enter()) {
        if (gate_is_off())
            counter = &uncounted;
        return;
    }
    if (!counter)
        find_counter();
    gate_pass();
    if (counter)
        count();
    activation_leave();
}

/* False: enter_slowly is due. */
static inline bool enter(void)
{
    if (__builtin_expect(!counter || !gate_is_open(), 0))
        return false;
    count();
    return true;
}

static uint64_t total_of(int device)
{
    uint64_t total = 0;
    for (const struct counters *counters = state.list; counters; counters = counters->next)
        total += __atomic_load_n(&counters->launches[device], __ATOMIC_RELAXED);
    return total;
}

bool launch_tick(void)
{
    struct aliquot_hook_page *page = page_hook();
    bool has_changed = gate_tick();
    pthread_mutex_lock(&state.mutex);
    for (int device = 0; device < devices_count(); device++) {
        uint64_t total = total_of(device);
        int index = total != state.published[device] ? devices_page_index(device) : -1;
        if (index < 0)
            continue;
        page_write(&page->devices[index].launches, total);
        state.published[device] = total;
        has_changed = true;
    }
    pthread_mutex_unlock(&state.mutex);
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
    pthread_mutex_init(&state.mutex, NULL);
    state.list = NULL; /* the parent's counts; not ours to free while a stale key may point there */
    for (int device = 0; device < DEVICES_MAX; device++)
        state.published[device] = 0;
    own = NULL;
    counter = NULL;
}

/* Defines an entry point. The slow way is a function of its own, so that the fast one keeps all arguments where they
 * are and ends in a jump. */
#define DEFINE_LAUNCH(name, parameters, arguments)                                                        \
    static __attribute__((noinline, cold)) CUresult name##_slowly parameters                              \
    {                                                                                                     \
        enter_slowly();                                                                                   \
        return real_##name arguments;                                                                     \
    }                                                                                                     \
    CUresult name parameters                                                                              \
    {                                                                                                     \
        if (!enter())                                                                                     \
            return name##_slowly arguments;                                                               \
        return real_##name arguments;                                                                     \
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

/* A graph may take memory when it is launched. */
#define DEFINE_GRAPH_LAUNCH(name, with_memory)                                                            \
    static __attribute__((noinline, cold)) CUresult name##_slowly(CUgraphExec graph, CUstream stream)     \
    {                                                                                                     \
        enter_slowly();                                                                                   \
        return graph_memory_is_used() ? with_memory(graph, stream) : driver_calls.name(graph, stream);    \
    }                                                                                                     \
    CUresult name(CUgraphExec graph, CUstream stream)                                                     \
    {                                                                                                     \
        if (!enter())                                                                                     \
            return name##_slowly(graph, stream);                                                          \
        if (__builtin_expect(graph_memory_is_used(), 0))                                                  \
            return with_memory(graph, stream);                                                            \
        return driver_calls.name(graph, stream);                                                          \
    }

DEFINE_GRAPH_LAUNCH(cuGraphLaunch, launch_graph)
DEFINE_GRAPH_LAUNCH(cuGraphLaunch_ptsz, launch_graph_ptsz)
