/* Managed memory: advice, and attributes of ranges. Advice is kept for blocks of 2 MiB and can be
 * read back. The preferred location and the devices that access a block decide where it is used. */
#include <stdint.h>

#include "driver/driver.h"
#include "implemented.h"
#include "managed/managed.h"
#include "managed/managed_locations.h"

#define HOST_BIT 31

CUmemLocation managed_location_of(CUdevice device)
{
    if (device == CU_DEVICE_CPU)
        return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    return (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
}

CUresult managed_check_location(const CUmemLocation *location)
{
    switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        return driver_check_device(location->id);
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

struct advice {
    CUmem_advise what;
    CUmemLocation location;
};

static void apply(struct managed_advice *block, void *argument)
{
    const struct advice *advice = argument;
    int is_device = advice->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    uint32_t bit = 1u << (is_device ? advice->location.id : HOST_BIT);
    switch ((int)advice->what) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        block->is_read_mostly = advice->what == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        block->preferred = advice->location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        block->preferred = (CUmemLocation){0};
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        block->accessed_by |= bit;
        break;
    default:
        block->accessed_by &= ~bit;
    }
}

CUresult impl_cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    struct context *context;
    CUresult result = context_current(&context);
    if (result || advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    /* These two have no location, and this one needs none. */
    int needs_location = advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                         advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
    result = needs_location ? managed_check_location(&location) : CUDA_SUCCESS;
    if (result)
        return result;
    struct advice own = {advice, needs_location ? location : (CUmemLocation){0}};
    return managed_visit(devPtr, count, apply, &own) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult impl_cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
    return impl_cuMemAdvise_v2(devPtr, count, advice, managed_location_of(device));
}

/* The value that all blocks of a range agree on. */
struct agreement {
    struct managed_advice common;
    int is_started, is_preferred_common, is_prefetched_common;
};

static int is_same(const CUmemLocation *one, const CUmemLocation *other)
{
    return one->type == other->type && (one->id == other->id || one->type == CU_MEM_LOCATION_TYPE_HOST);
}

static void agree(struct managed_advice *block, void *argument)
{
    struct agreement *agreement = argument;
    if (!agreement->is_started) {
        *agreement = (struct agreement){*block, 1, 1, 1};
        return;
    }
    agreement->common.accessed_by &= block->accessed_by;
    agreement->common.is_read_mostly &= block->is_read_mostly;
    agreement->is_preferred_common &= is_same(&agreement->common.preferred, &block->preferred);
    agreement->is_prefetched_common &= is_same(&agreement->common.prefetched, &block->prefetched);
}

/* The first attributes say it as a device number, which a host node has not. */
static int number_of(const CUmemLocation *location)
{
    if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        return location->id;
    return location->type == CU_MEM_LOCATION_TYPE_HOST ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
}

static void list_devices(uint32_t accessed_by, int *out, size_t room)
{
    size_t found = 0;
    if (accessed_by >> HOST_BIT && found < room)
        out[found++] = CU_DEVICE_CPU;
    for (int i = 0; i < HOST_BIT && found < room; i++)
        if (accessed_by >> i & 1)
            out[found++] = i;
    while (found < room)
        out[found++] = CU_DEVICE_INVALID;
}

static CUresult answer(void *data, size_t bytes, CUmem_range_attribute attribute, const struct agreement *agreement)
{
    CUmemLocation none = {0};
    const CUmemLocation *preferred = agreement->is_preferred_common ? &agreement->common.preferred : &none;
    const CUmemLocation *prefetched = agreement->is_prefetched_common ? &agreement->common.prefetched : &none;
    if (data == NULL || bytes == 0 || bytes % sizeof(int) ||
        (bytes != sizeof(int) && attribute != CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY))
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int)attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        *(int *)data = agreement->common.is_read_mostly;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        *(int *)data = number_of(preferred);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        list_devices(agreement->common.accessed_by, data, bytes / sizeof(int));
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
        *(int *)data = number_of(prefetched);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        *(int *)data = (int)preferred->type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        *(int *)data = preferred->id;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        *(int *)data = (int)prefetched->type;
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        *(int *)data = prefetched->id;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult impl_cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                      size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    struct context *context;
    struct agreement agreement = {.is_started = 0};
    CUresult result = context_current(&context);
    if (result || data == NULL || dataSizes == NULL || attributes == NULL || numAttributes == 0)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    if (managed_visit(devPtr, count, agree, &agreement) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < numAttributes; i++)
        result = answer(data[i], dataSizes[i], attributes[i], &agreement);
    return result;
}

CUresult impl_cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                     size_t count)
{
    return impl_cuMemRangeGetAttributes(&data, &dataSize, &attribute, 1, devPtr, count);
}
