#include "nvml/nvml_driver.h"

#include "interpose/entry_points.h"
#include "base/log.h"

#include <pthread.h>

static struct {
    pthread_once_t once;
    struct nvml_driver calls;
    bool is_there;
} state = {.once = PTHREAD_ONCE_INIT};

static nvmlReturn_t answer_absent(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

static nvmlReturn_t answer_unavailable(void)
{
    return NVML_ERROR_LIBRARY_NOT_FOUND;
}

struct entry_library entry_library(void)
{
    return (struct entry_library){
        .path = settings()->real_nvml,
        .variable = "ALIQUOT_REAL_NVML",
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
    state.is_there = entry_points_load();
#define CALLED(name) state.calls.name = (__typeof__(&name))find(#name);
#define REPLACED(name) state.calls.name = (__typeof__(&name))find(#name);
#include "nvml/nvml_calls.h"
}

const struct nvml_driver *nvml_driver(void)
{
    pthread_once(&state.once, load);
    return &state.calls;
}

bool nvml_driver_is_there(void)
{
    nvml_driver();
    return state.is_there;
}
