#include "streams/green.h"

#include "accounting/contexts.h"
#include "accounting/devices.h"
#include "base/log.h"
#include "agent_link/page.h"
#include "swap/residency.h"

#include <stdint.h>
#include <string.h>

#define KEPT 64u
#define WHOLE_PERCENT 100u

/* Of one size on one device. Another size is another one: streams of the first go on in it. */
struct kept {
    CUgreenCtx green; /* atomic, as the next two: read without the lock. NULL: free */
    CUcontext face;   /* what the driver names its streams' context */
    CUcontext primary;
    CUdevice device;
    uint32_t percent;
};

static struct {
    struct kept kept[KEPT]; /* written under the lifecycle mutex of contexts.c */
    uint32_t count;         /* atomic; entries from 0 to it may be in use */
    uint32_t uses[DEVICES_MAX];
    bool has_said; /* atomic */
} state;

static uint32_t wanted_percent(CUdevice device)
{
    int index = devices_page_index(device);
    const struct aliquot_agent_page *page = page_agent();
    uint32_t percent = index < 0 ? 0 : __atomic_load_n(&page->devices[index].sm_percent, __ATOMIC_RELAXED);
    return percent < WHOLE_PERCENT ? percent : 0;
}

static CUresult open_part(CUdevice device, uint32_t percent, CUgreenCtx *green)
{
    CUdevResource whole, part;
    CUdevResourceDesc description;
    unsigned int groups = 1;
    CUresult result = driver()->cuDeviceGetDevResource(device, &whole, CU_DEV_RESOURCE_TYPE_SM);
    if (result != CUDA_SUCCESS)
        return result;
    unsigned int wanted = (whole.sm.smCount * percent + WHOLE_PERCENT - 1) / WHOLE_PERCENT;
    result = driver()->cuDevSmResourceSplitByCount(&part, &groups, &whole, NULL, 0, wanted);
    if (result == CUDA_SUCCESS && groups == 0)
        result = CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (result == CUDA_SUCCESS)
        result = driver()->cuDevResourceGenerateDesc(&description, &part, 1);
    return result ? result : driver()->cuGreenCtxCreate(green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
}

/* Under the lock. */
static struct kept *free_entry(void)
{
    for (uint32_t i = 0; i < KEPT; i++)
        if (!state.kept[i].green) {
            if (i >= state.count)
                __atomic_store_n(&state.count, i + 1, __ATOMIC_RELEASE);
            return &state.kept[i];
        }
    return NULL;
}

/* Under the lock. */
static CUresult find_or_open(CUdevice device, CUcontext primary, uint32_t percent, CUgreenCtx *green)
{
    for (uint32_t i = 0; i < state.count; i++) {
        const struct kept *kept = &state.kept[i];
        *green = kept->green;
        if (kept->green && kept->device == device && kept->primary == primary && kept->percent == percent)
            return CUDA_SUCCESS;
    }
    struct kept *entry = free_entry();
    CUcontext face = NULL;
    CUresult result = entry ? open_part(device, percent, green) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuCtxFromGreenCtx(&face, *green);
    if (result != CUDA_SUCCESS) {
        driver()->cuGreenCtxDestroy(*green);
        return result;
    }
    entry->device = device;
    entry->percent = percent;
    __atomic_store_n(&entry->primary, primary, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->face, face, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->green, *green, __ATOMIC_RELEASE);
    LOG("event=green_context device=%d sm_percent=%u", device, percent);
    return CUDA_SUCCESS;
}

/* Under the lock. NULL: the current context is another one. One that was reset is left so: a use would make it anew. */
static CUcontext current_primary(CUdevice device)
{
    CUcontext current = NULL, primary = NULL;
    unsigned int flags;
    int is_active = 0;
    if (driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current ||
        driver()->cuDevicePrimaryCtxGetState(device, &flags, &is_active) != CUDA_SUCCESS || !is_active ||
        driver()->cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
        return NULL;
    driver()->cuDevicePrimaryCtxRelease_v2(device);
    return primary == current ? primary : NULL;
}

/* Making a context takes memory, and in a capture is not for this thread to do under the program's mode. */
static CUresult make(CUstream *stream, CUdevice device, uint32_t percent, int priority, bool *is_refused)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = CUDA_ERROR_INVALID_CONTEXT;
    CUgreenCtx green;
    *is_refused = false;
    if (!residency_enter())
        return CUDA_ERROR_OUT_OF_MEMORY;
    contexts_hold();
    CUcontext primary = state.uses[device] ? current_primary(device) : NULL;
    *is_refused = primary != NULL;
    if (primary) {
        bool has_mode = driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
        result = find_or_open(device, primary, percent, &green);
        if (result == CUDA_SUCCESS)
            result = driver()->cuGreenCtxStreamCreate(stream, green, CU_STREAM_NON_BLOCKING, priority);
        if (has_mode)
            driver()->cuThreadExchangeStreamCaptureMode(&mode);
    }
    contexts_release();
    residency_leave();
    return result;
}

bool green_make_stream(CUstream *stream, unsigned int flags, int priority)
{
    uint32_t actuators = __atomic_load_n(&page_agent()->actuators, __ATOMIC_RELAXED);
    if (!(actuators & ALIQUOT_ACT_GREEN_CONTEXT) || flags != CU_STREAM_NON_BLOCKING || !stream)
        return false;
    CUdevice device = devices_current();
    uint32_t percent = device < 0 || device >= DEVICES_MAX ? 0 : wanted_percent(device);
    bool is_refused;
    if (percent == 0)
        return false;
    CUresult result = make(stream, device, percent, priority, &is_refused);
    if (result != CUDA_SUCCESS && is_refused && !__atomic_exchange_n(&state.has_said, true, __ATOMIC_RELAXED))
        LOG("event=green_context_refused device=%d sm_percent=%u code=%d note=\"streams are plain\"", device, percent,
            (int)result);
    return result == CUDA_SUCCESS;
}

CUcontext green_context_shown(CUcontext context)
{
    uint32_t count = __atomic_load_n(&state.count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count && context; i++)
        if (__atomic_load_n(&state.kept[i].face, __ATOMIC_ACQUIRE) == context)
            return __atomic_load_n(&state.kept[i].primary, __ATOMIC_ACQUIRE);
    return context;
}

bool green_is_ours(CUgreenCtx green)
{
    uint32_t count = __atomic_load_n(&state.count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < count && green; i++)
        if (__atomic_load_n(&state.kept[i].green, __ATOMIC_ACQUIRE) == green)
            return true;
    return false;
}

void green_use_begins(CUdevice device)
{
    devices_use(device);
    if (device >= 0 && device < DEVICES_MAX)
        state.uses[device]++;
}

/* A reset leaves the uses counted: the driver does, too. */
void green_use_ends(CUdevice device, bool is_reset)
{
    if (device < 0 || device >= DEVICES_MAX)
        return;
    if (!is_reset && state.uses[device] > 0)
        state.uses[device]--;
    if (!is_reset && state.uses[device] > 0)
        return;
    for (uint32_t i = 0; i < state.count; i++) {
        struct kept *kept = &state.kept[i];
        CUgreenCtx green = kept->green;
        if (!green || kept->device != device)
            continue;
        __atomic_store_n(&kept->green, NULL, __ATOMIC_RELEASE);
        __atomic_store_n(&kept->face, NULL, __ATOMIC_RELEASE);
        driver()->cuGreenCtxDestroy(green);
    }
}

void green_reset(void)
{
    memset(&state, 0, sizeof state);
}
