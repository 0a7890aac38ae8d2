#include "driver.h"

#include "entry_points.h"
#include "log.h"

#include <pthread.h>
#include <stdbool.h>

struct driver driver_calls;

static struct {
    pthread_once_t once;
    bool is_loaded; /* written with release after driver_calls is complete */
} state = {.once = PTHREAD_ONCE_INIT};

static CUresult answer_absent(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult answer_unavailable(void)
{
    return CUDA_ERROR_STUB_LIBRARY;
}

struct entry_library entry_library(void)
{
    return (struct entry_library){
        .path = settings()->real_cuda,
        .variable = "ALIQUOT_REAL_CUDA",
        .absent = (void *)answer_absent,
        .unavailable = (void *)answer_unavailable,
    };
}

static void *find(const char *name)
{
    void *real = entry_points_find(name);
    return real ? real : entry_points_fallback();
}

static void load(void)
{
    bool found = entry_points_load();
#define CALLED(name) driver_calls.name = (__typeof__(&name))find(#name);
#define REPLACED(name) driver_calls.name = (__typeof__(&name))find(#name);
#include "driver_calls.h"
    if (found)
        LOG("event=driver_opened path=%s", settings()->real_cuda);
    __atomic_store_n(&state.is_loaded, true, __ATOMIC_RELEASE);
}

const struct driver *driver(void)
{
    if (__builtin_expect(!__atomic_load_n(&state.is_loaded, __ATOMIC_ACQUIRE), 0))
        pthread_once(&state.once, load);
    return &driver_calls;
}
