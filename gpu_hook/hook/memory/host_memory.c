/* Entry points of page-locked host memory, charged against the kernel's host quota in whole pages
 * of the machine. */
#include "charging/charge.h"
#include "accounting/devices.h"

#include <unistd.h>

static uint64_t page_bytes(void)
{
    static uint64_t bytes; /* every thread writes the same */
    if (!__atomic_load_n(&bytes, __ATOMIC_RELAXED))
        __atomic_store_n(&bytes, (uint64_t)sysconf(_SC_PAGESIZE), __ATOMIC_RELAXED);
    return bytes;
}

/* Return the bytes of the pages that a range touches. */
static uint64_t locked_bytes(uint64_t start, uint64_t bytes)
{
    uint64_t grain = page_bytes(), end;
    if (!bytes || __builtin_add_overflow(start, bytes, &end) || end > UINT64_MAX - grain)
        return bytes;
    return (end + grain - 1) / grain * grain - start / grain * grain;
}

static bool has_context(void)
{
    return devices_current() >= 0;
}

/* The calls that allocate differ in their arguments alone. */
#define ALLOCATE(call)                                                                        \
    struct charge charge;                                                                     \
    CUresult result = charge_begin(&charge, QUOTA_HOST, locked_bytes(0, bytes), looks_wrong); \
    if (result != CUDA_SUCCESS)                                                               \
        return result;                                                                        \
    result = driver()->call;                                                                  \
    uint64_t key = result == CUDA_SUCCESS ? (uint64_t)*pointer : 0;                           \
    if (charge_end(&charge, result, key, ALLOCATION_HOST))                                    \
        return result;                                                                        \
    driver()->cuMemFreeHost(*pointer);                                                        \
    return CUDA_ERROR_OUT_OF_MEMORY;

CUresult cuMemAllocHost(void **pointer, unsigned int bytes)
{
    bool looks_wrong = !pointer || !has_context();
    ALLOCATE(cuMemAllocHost(pointer, bytes))
}

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    bool looks_wrong = !pointer || !has_context();
    ALLOCATE(cuMemAllocHost_v2(pointer, bytes))
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    const unsigned int known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    bool looks_wrong = !pointer || flags & ~known || !has_context();
    ALLOCATE(cuMemHostAlloc(pointer, bytes, flags))
}

CUresult cuMemFreeHost(void *pointer)
{
    struct release release;
    release_begin(&release, (uint64_t)pointer, SPACE_HOST);
    CUresult result = driver()->cuMemFreeHost(pointer);
    release_end(&release, result);
    return result;
}

/* The driver knows a range that is registered already, or is its own. */
static bool cannot_register(void *pointer, unsigned int flags)
{
    const unsigned int known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                               CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    CUmemorytype type;
    return !pointer || flags & ~known || !has_context() ||
           driver()->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           (CUdeviceptr)pointer) == CUDA_SUCCESS;
}

static CUresult register_range(void *pointer, size_t bytes, unsigned int flags,
                               CUresult (*real)(void *, size_t, unsigned int))
{
    struct charge charge;
    /* a device's, not the host's */
    int account = flags & CU_MEMHOSTREGISTER_IOMEMORY ? CHARGE_NOTHING : QUOTA_HOST;
    CUresult result = charge_begin(&charge, account, locked_bytes((uint64_t)pointer, bytes),
                                   cannot_register(pointer, flags));
    if (result != CUDA_SUCCESS)
        return result;
    result = real(pointer, bytes, flags);
    if (charge_end(&charge, result, (uint64_t)pointer, ALLOCATION_HOST))
        return result;
    driver()->cuMemHostUnregister(pointer);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return register_range(pointer, bytes, flags, driver()->cuMemHostRegister);
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    return register_range(pointer, bytes, flags, driver()->cuMemHostRegister_v2);
}

CUresult cuMemHostUnregister(void *pointer)
{
    struct release release;
    release_begin(&release, (uint64_t)pointer, SPACE_HOST);
    CUresult result = driver()->cuMemHostUnregister(pointer);
    release_end(&release, result);
    return result;
}
