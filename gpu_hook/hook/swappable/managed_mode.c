#include "swappable/managed_mode.h"

#include "base/log.h"
#include "agent_link/page.h"
#include "base/spans.h"
#include "accounting/pin_reasons.h"
#include "accounting/swappability.h"

#include <pthread.h>
#include <stdlib.h>

#define IDENTITIES (1ull << 58) /* apart from the driver's own BUFFER_IDs */
/* bytes that the driver maps at once when all of it is on the device */
#define GRAIN ((size_t)2 << 20)

struct range {
    struct span span; /* first */
    size_t charged;
    int device;
    CUcontext context;
    uint64_t id;
};

static struct {
    pthread_mutex_t mutex;
    struct spans table;
    uint32_t count; /* read without the mutex */
    uint64_t last_identity; /* atomic */
    bool is_out; /* written on the mover's thread alone */
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void managed_mode_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
    state.table = (struct spans){NULL, 0}; /* the parent's */
    state.count = 0;
    state.is_out = false;
}

bool managed_mode_is_used(void)
{
    return __atomic_load_n(&state.count, __ATOMIC_RELAXED) != 0;
}

/* Without this a device cannot be paged, and a prefetch is refused. */
static bool can_page(int device)
{
    int can = 0;
    return driver()->cuDeviceGetAttribute(&can, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
                                          device) == CUDA_SUCCESS &&
           can;
}

bool managed_mode_wants(int device, size_t bytes)
{
    return swappability_mode() == ALIQUOT_RESIDENCY_MANAGED && bytes &&
           bytes >= page_read(&page_agent()->least_swappable_bytes) && can_page(device);
}

uint64_t managed_mode_rounded(size_t bytes)
{
    return bytes > SIZE_MAX - GRAIN ? SIZE_MAX : (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

/* Production is at home on its device. Opportunistic work has remote access: where the device is
 * short of room its pages go first, and its kernels use them where they then are. As in TGS. */
static CUresult advise(const struct range *range)
{
    bool is_production =
        __atomic_load_n(&page_agent()->workload_class, __ATOMIC_RELAXED) == ALIQUOT_PRODUCTION;
    CUmem_advise wrong =
        is_production ? CU_MEM_ADVISE_UNSET_ACCESSED_BY : CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
    CUmem_advise right =
        is_production ? CU_MEM_ADVISE_SET_PREFERRED_LOCATION : CU_MEM_ADVISE_SET_ACCESSED_BY;
    driver()->cuMemAdvise(range->span.start, range->span.bytes, wrong, range->device);
    return driver()->cuMemAdvise(range->span.start, range->span.bytes, right, range->device);
}

/* Called with the mutex. */
static void remove_range(struct range *range)
{
    spans_remove(&state.table, &range->span);
    __atomic_fetch_sub(&state.count, 1, __ATOMIC_RELAXED);
    if (state.is_out)
        pin_reasons_change_out(range->device, -(int64_t)range->charged);
}

/* A range that is still listed there ended with its context, and was not forgotten. */
static void add_range(struct range *range)
{
    struct range *stale;
    pthread_mutex_lock(&state.mutex);
    while ((stale = spans_from(&state.table, range->span.start)) &&
           stale->span.start < span_end(&range->span)) {
        remove_range(stale);
        free(stale);
    }
    spans_add(&state.table, &range->span);
    __atomic_fetch_add(&state.count, 1, __ATOMIC_RELAXED);
    if (state.is_out)
        pin_reasons_change_out(range->device, (int64_t)range->charged);
    pthread_mutex_unlock(&state.mutex);
}

/* `context`: NULL, or the only one whose range is meant. NULL: there is no such range. */
static struct range *take_range(CUdeviceptr address, CUcontext context)
{
    pthread_mutex_lock(&state.mutex);
    struct range *range = spans_at(&state.table, address);
    if (range && (range->span.start != address || (context && range->context != context)))
        range = NULL;
    if (range)
        remove_range(range);
    pthread_mutex_unlock(&state.mutex);
    return range;
}

CUresult managed_mode_allocate(int device, CUcontext context, size_t bytes, CUdeviceptr *address)
{
    struct range *range = calloc(1, sizeof *range);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUdeviceptr start;
    CUresult result = driver()->cuMemAllocManaged(&start, bytes, CU_MEM_ATTACH_GLOBAL);
    if (result != CUDA_SUCCESS) {
        free(range);
        return result;
    }
    *range = (struct range){.span = {.start = start, .bytes = bytes},
                            .charged = managed_mode_rounded(bytes),
                            .device = device,
                            .context = context};
    result = advise(range);
    if (result != CUDA_SUCCESS)
        LOG("event=no_advice key=%llx code=%d", (unsigned long long)start, (int)result);
    range->id = IDENTITIES | __atomic_add_fetch(&state.last_identity, 1, __ATOMIC_RELAXED);
    add_range(range);
    *address = start;
    return CUDA_SUCCESS;
}

CUresult managed_mode_free(CUdeviceptr address)
{
    struct range *range = take_range(address, NULL);
    CUresult result = driver()->cuMemFree_v2(address);
    if (range && result != CUDA_SUCCESS)
        add_range(range);
    else
        free(range);
    return result;
}

void managed_mode_forget(CUdeviceptr address, CUcontext context)
{
    free(take_range(address, context));
}

bool managed_mode_find(CUdeviceptr address, struct managed_view *view)
{
    pthread_mutex_lock(&state.mutex);
    const struct range *range = spans_at(&state.table, address);
    if (range)
        *view = (struct managed_view){range->span.start, range->span.bytes, range->device,
                                      range->context, range->id};
    pthread_mutex_unlock(&state.mutex);
    return range;
}

/* Return the legacy stream of the range's own context, which is drained. The range of a broken
 * context stays as it is. */
static CUresult prefetch(const struct range *range, bool out)
{
    CUcontext popped;
    CUresult result = driver()->cuCtxPushCurrent_v2(range->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMemPrefetchAsync(range->span.start, range->span.bytes,
                                          out ? CU_DEVICE_CPU : range->device, NULL);
    driver()->cuCtxPopCurrent_v2(&popped);
    return result;
}

static CUresult finish(const struct range *range)
{
    CUcontext popped;
    CUresult result = driver()->cuCtxPushCurrent_v2(range->context);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuCtxSynchronize();
    driver()->cuCtxPopCurrent_v2(&popped);
    return result;
}

/* Move all ranges. Memory that is back is advised anew, because the kernel's class may have
 * changed. The wait ends with each change of context. */
CUresult managed_mode_move(bool out)
{
    CUresult first = CUDA_SUCCESS;
    const struct range *before = NULL;
    pthread_mutex_lock(&state.mutex);
    for (struct range *range = spans_from(&state.table, 0); range;
         range = spans_from(&state.table, span_end(&range->span))) {
        if (!out)
            advise(range);
        if (before && before->context != range->context)
            finish(before);
        CUresult result = prefetch(range, out);
        first = first == CUDA_SUCCESS ? result : first;
        before = range;
    }
    if (before && first == CUDA_SUCCESS)
        first = finish(before);
    /* the memory is back, wherever the pages are */
    bool turns = state.is_out != out && (!out || first == CUDA_SUCCESS);
    for (struct range *range = spans_from(&state.table, 0); range && turns;
         range = spans_from(&state.table, span_end(&range->span)))
        pin_reasons_change_out(range->device,
                               out ? (int64_t)range->charged : -(int64_t)range->charged);
    state.is_out = turns ? out : state.is_out;
    pthread_mutex_unlock(&state.mutex);
    return first;
}
