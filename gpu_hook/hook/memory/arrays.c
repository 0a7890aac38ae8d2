#include "memory/arrays.h"

#include "base/guard.h"
#include "charging/charge.h"
#include "accounting/devices.h"
#include "charging/retry.h"
#include "memory/sparse.h"
#include "vmm/vmm.h"

#include <pthread.h>

#define WITHOUT_MEMORY (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* Shapes whose size the driver has answered: a query may wait for the device, and programs make
 * many arrays of the same shape. */
struct answer {
    CUDA_ARRAY3D_DESCRIPTOR shape;
    unsigned int levels;
    int device;
    uint64_t bytes; /* 0: empty */
};

static struct { /* guarded by the mutex */
    pthread_mutex_t mutex;
    struct answer answers[16];
    unsigned next;
} state = {.mutex = PTHREAD_MUTEX_INITIALIZER};

struct size {
    uint64_t bytes;
    int device;       /* or CHARGE_NOTHING */
    bool looks_wrong; /* the driver refused to tell */
};

static uint64_t format_bytes(CUarray_format format)
{
    switch ((int)format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
        return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
        return 2;
    default: /* the compressed ones take less: this is used only where the driver does not tell */
        return 4;
    }
}

/* Without tiles and padding; UINT64_MAX when that is more than a number holds. */
static uint64_t guess_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    uint64_t width = shape->Width, height = shape->Height ? shape->Height : 1,
             depth = shape->Depth ? shape->Depth : 1;
    uint64_t total = 0;
    for (unsigned int level = 0; level < levels && level < 64; level++) {
        uint64_t bytes = shape->NumChannels * format_bytes(shape->Format);
        if (__builtin_mul_overflow(bytes, width, &bytes) ||
            __builtin_mul_overflow(bytes, height, &bytes) ||
            __builtin_mul_overflow(bytes, depth, &bytes) ||
            __builtin_add_overflow(total, bytes, &total))
            return UINT64_MAX;
        width = width > 1 ? width / 2 : 1;
        height = height > 1 ? height / 2 : 1;
        if (!(shape->Flags & CUDA_ARRAY3D_LAYERED))
            depth = depth > 1 ? depth / 2 : 1;
    }
    return total;
}

static CUresult ask_array(const CUDA_ARRAY3D_DESCRIPTOR *shape, int device,
                          CUDA_ARRAY_MEMORY_REQUIREMENTS *answer)
{
    CUarray array;
    CUresult result = driver()->cuArray3DCreate_v2(&array, shape);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuArrayGetMemoryRequirements(answer, array, device);
    driver()->cuArrayDestroy(array);
    return result;
}

static CUresult ask_mipmapped(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels, int device,
                              CUDA_ARRAY_MEMORY_REQUIREMENTS *answer)
{
    CUmipmappedArray array;
    CUresult result = driver()->cuMipmappedArrayCreate(&array, shape, levels);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver()->cuMipmappedArrayGetMemoryRequirements(answer, array, device);
    driver()->cuMipmappedArrayDestroy(array);
    return result;
}

static bool is_alike(const struct answer *answer, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                     unsigned int levels, int device)
{
    const CUDA_ARRAY3D_DESCRIPTOR *other = &answer->shape;
    return answer->bytes && answer->levels == levels && answer->device == device &&
           other->Width == shape->Width && other->Height == shape->Height &&
           other->Depth == shape->Depth && other->Format == shape->Format &&
           other->NumChannels == shape->NumChannels && other->Flags == shape->Flags;
}

static uint64_t recall(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels, int device)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&state.mutex);
    for (size_t i = 0; i < sizeof state.answers / sizeof *state.answers; i++)
        if (is_alike(&state.answers[i], shape, levels, device))
            bytes = state.answers[i].bytes;
    pthread_mutex_unlock(&state.mutex);
    return bytes;
}

static void remember(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels, int device,
                     uint64_t bytes)
{
    pthread_mutex_lock(&state.mutex);
    state.answers[state.next++ % (sizeof state.answers / sizeof *state.answers)] =
        (struct answer){*shape, levels, device, bytes};
    pthread_mutex_unlock(&state.mutex);
}

void arrays_reset(void)
{
    pthread_mutex_init(&state.mutex, NULL);
}

/* `levels` 0: an array that is not mipmapped. */
static struct size measure(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    int device = devices_current(), can_defer = 0;
    struct size size = {.device = device < 0 ? CHARGE_NOTHING : device};
    if (device < 0 || shape->Flags & WITHOUT_MEMORY)
        return (struct size){.device = CHARGE_NOTHING};
    size.bytes = recall(shape, levels, device);
    if (size.bytes)
        return size;
    size.bytes = quota_rounded(guess_bytes(shape, levels ? levels : 1));
    if (driver()->cuDeviceGetAttribute(&can_defer,
                                       CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
                                       device) != CUDA_SUCCESS ||
        !can_defer)
        return size;
    CUDA_ARRAY_MEMORY_REQUIREMENTS answer = {0};
    CUDA_ARRAY3D_DESCRIPTOR deferred = *shape;
    deferred.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
    CUresult result = levels ? ask_mipmapped(&deferred, levels, device, &answer)
                             : ask_array(&deferred, device, &answer);
    size.looks_wrong = result != CUDA_SUCCESS;
    if (result == CUDA_SUCCESS && answer.size) {
        size.bytes = quota_rounded(answer.size);
        remember(shape, levels, device, size.bytes);
    }
    return size;
}

static CUresult begin(struct charge *charge, const CUDA_ARRAY3D_DESCRIPTOR *shape,
                      unsigned int levels)
{
    *charge = (struct charge){0};
    if (!shape || !guard_enter())
        return CUDA_SUCCESS;
    struct size size = measure(shape, levels);
    guard_leave();
    return charge_begin(charge, size.device, size.bytes, size.looks_wrong);
}

/* The driver gave memory for an array whose size it had refused to report: it may report it now. */
static bool end(struct charge *charge, CUresult result, const void *array,
                const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
    if (charge->is_late && result == CUDA_SUCCESS)
        charge_change(charge, measure(shape, levels).bytes);
    return charge_end(charge, result, (uint64_t)array, ALLOCATION_ARRAY);
}

static CUDA_ARRAY3D_DESCRIPTOR widen(const CUDA_ARRAY3D_DESCRIPTOR_v1 *narrow)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = narrow->Width,
                                     .Height = narrow->Height,
                                     .Depth = narrow->Depth,
                                     .Format = narrow->Format,
                                     .NumChannels = narrow->NumChannels,
                                     .Flags = narrow->Flags};
}

/* The calls that create an array differ in how they describe it. */
#define CREATE(shape, call)                                                     \
    struct charge charge;                                                       \
    CUresult result = begin(&charge, array ? shape : NULL, 0);                  \
    if (result != CUDA_SUCCESS)                                                 \
        return result;                                                          \
    struct retry retry = RETRY_NONE;                                            \
    do                                                                          \
        result = driver()->call;                                                \
    while (retry_is_due(&retry, &charge, result, charge.bytes));                \
    if (end(&charge, result, result == CUDA_SUCCESS ? *array : NULL, shape, 0)) \
        return result;                                                          \
    driver()->cuArrayDestroy(*array);                                           \
    return CUDA_ERROR_OUT_OF_MEMORY;

CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {0};
    if (descriptor)
        shape = (CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                          .Height = descriptor->Height,
                                          .Format = descriptor->Format,
                                          .NumChannels = descriptor->NumChannels};
    CREATE(descriptor ? &shape : NULL, cuArrayCreate(array, descriptor))
}

CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {0};
    if (descriptor)
        shape = (CUDA_ARRAY3D_DESCRIPTOR){.Width = descriptor->Width,
                                          .Height = descriptor->Height,
                                          .Format = descriptor->Format,
                                          .NumChannels = descriptor->NumChannels};
    CREATE(descriptor ? &shape : NULL, cuArrayCreate_v2(array, descriptor))
}

CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    CUDA_ARRAY3D_DESCRIPTOR shape = {0};
    if (descriptor)
        shape = widen(descriptor);
    CREATE(descriptor ? &shape : NULL, cuArray3DCreate(array, descriptor))
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CREATE(descriptor, cuArray3DCreate_v2(array, descriptor))
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor,
                                unsigned int levels)
{
    struct charge charge;
    CUresult result = begin(&charge, array && levels ? descriptor : NULL, levels);
    if (result != CUDA_SUCCESS)
        return result;
    struct retry retry = RETRY_NONE;
    do
        result = driver()->cuMipmappedArrayCreate(array, descriptor, levels);
    while (retry_is_due(&retry, &charge, result, charge.bytes));
    if (end(&charge, result, result == CUDA_SUCCESS ? *array : NULL, descriptor, levels))
        return result;
    driver()->cuMipmappedArrayDestroy(*array);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The lock is held over the call when something is mapped into arrays: their handles are used
 * again. */
#define DESTROY(call)                                       \
    struct release release;                                 \
    release_begin(&release, (uint64_t)array, SPACE_ARRAY);  \
    bool has_mappings = release.acts && sparse_is_used();   \
    if (has_mappings)                                       \
        vmm_lock();                                         \
    CUresult result = driver()->call;                       \
    if (has_mappings && result == CUDA_SUCCESS)             \
        sparse_forget_array(array);                         \
    if (has_mappings)                                       \
        vmm_unlock();                                       \
    release_end(&release, result);                          \
    return result;

CUresult cuArrayDestroy(CUarray array)
{
    DESTROY(cuArrayDestroy(array))
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    DESTROY(cuMipmappedArrayDestroy(array))
}
