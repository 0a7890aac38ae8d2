/* Virtual memory management: addresses, mappings, and access rights. None of it needs a context. */
#include <stdlib.h>
#include <sys/mman.h>

#include "driver/driver.h"
#include "implemented.h"
#include "memory/mappings.h"
#include "memory/window_state.h"

#define PAGE 4096u

static uint64_t whole_units(uint64_t bytes)
{
    return (bytes + MACHINE_LARGE_UNIT - 1) & ~(uint64_t)(MACHINE_LARGE_UNIT - 1);
}

CUresult impl_cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                  unsigned long long flags)
{
    if (ptr == NULL || flags || size == 0 || size % PAGE || addr % PAGE || alignment & (alignment - 1))
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t unit = alignment > MACHINE_LARGE_UNIT ? alignment : MACHINE_LARGE_UNIT;
    if (size > UINT64_MAX - MACHINE_LARGE_UNIT)
        return CUDA_ERROR_OUT_OF_MEMORY;
    window_lock();
    uint64_t start = window_take_addresses(whole_units(size), unit, addr);
    window_unlock();
    if (start == 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ptr = start;
    return CUDA_SUCCESS;
}

/* Only a whole reservation, and only an empty one. */
CUresult impl_cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
    uint64_t start, bytes;
    window_lock();
    int is_free = size && size % PAGE == 0 && window_find_addresses(ptr, &start, &bytes) == 0 && start == ptr &&
                  bytes == whole_units(size) && mappings_are_none(start, bytes);
    if (is_free)
        window_give_addresses(start);
    window_unlock();
    return is_free ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock. */
static CUresult map(uint64_t ptr, uint64_t size, struct physical *physical)
{
    uint64_t start, bytes;
    if (physical == NULL || size > physical->bytes || window_find_addresses(ptr, &start, &bytes) != 0 ||
        size > bytes - (ptr - start) || !mappings_are_none(ptr, size))
        return CUDA_ERROR_INVALID_VALUE;
    return mappings_add(physical, ptr, size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult impl_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                       unsigned long long flags)
{
    if (flags || offset || size == 0 || size % MACHINE_LARGE_UNIT || ptr % MACHINE_LARGE_UNIT)
        return CUDA_ERROR_INVALID_VALUE;
    window_lock();
    CUresult result = map(ptr, size, physical_of(handle));
    window_unlock();
    return result;
}

CUresult impl_cuMemUnmap(CUdeviceptr ptr, size_t size)
{
    struct physical *last = NULL;
    uint64_t end;
    if (size == 0 || __builtin_add_overflow(ptr, size, &end))
        return CUDA_ERROR_INVALID_VALUE;
    window_lock();
    int is_whole = mappings_fill(ptr, size);
    struct mapping *taken = is_whole ? mappings_remove(ptr, size) : NULL;
    while (taken) {
        struct mapping *next = taken->next;
        if (physical_let_go(taken->physical, 0, 1)) {
            taken->physical->next = last; /* out of every list: a list of those to free */
            last = taken->physical;
        }
        free(taken);
        taken = next;
    }
    window_unlock();
    while (last) {
        struct physical *next = last->next;
        physical_free(last);
        last = next;
    }
    return is_whole ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int is_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static CUresult check_access(const CUmemAccessDesc *desc)
{
    if (desc->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        return driver_check_device(desc->location.id);
    return is_host(&desc->location) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Under the lock. The host reaches host memory at its device address: there the address must not
 * fault. */
static CUresult open_to_host(struct mapping *mapping, unsigned rights)
{
    static const int protections[] = {[RIGHTS_NONE] = PROT_NONE, [RIGHTS_READ] = PROT_READ,
                                      [RIGHTS_WRITE] = PROT_READ | PROT_WRITE};
    if (mapping->physical->device != MACHINE_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    return backing_map(&mapping->physical->backing, (void *)mapping->start, mapping->bytes, protections[rights]) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Under the lock. */
static CUresult set_access(uint64_t at, uint64_t end, const CUmemAccessDesc *desc)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && at < end) {
        struct mapping *mapping = mappings_at(at);
        unsigned place = MAPPING_HOST;
        if (is_host(&desc->location))
            result = open_to_host(mapping, (unsigned)desc->flags);
        else
            place = driver.physical[desc->location.id];
        if (result == CUDA_SUCCESS)
            mapping->rights[place] = (uint8_t)desc->flags;
        at += mapping->bytes;
    }
    return result;
}

CUresult impl_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
    uint64_t end;
    if (size == 0 || desc == NULL || count == 0 || __builtin_add_overflow(ptr, size, &end))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; i++) {
        CUresult result = check_access(&desc[i]);
        if (result)
            return result;
    }
    window_lock();
    CUresult result = mappings_fill(ptr, size) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = set_access(ptr, end, &desc[i]);
    window_unlock();
    return result;
}

CUresult impl_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr)
{
    if (flags == NULL || location == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = check_access(&(CUmemAccessDesc){.location = *location});
    if (result)
        return result;
    window_lock();
    const struct mapping *mapping = mappings_at(ptr);
    if (mapping)
        *flags = mapping->rights[is_host(location) ? MAPPING_HOST : driver.physical[location->id]];
    window_unlock();
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The handle may have been released: its mapping brings it back. */
CUresult impl_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    window_lock();
    const struct mapping *mapping = mappings_at((uint64_t)addr);
    if (mapping) {
        mapping->physical->references++;
        *handle = (CUmemGenericAllocationHandle)(uintptr_t)mapping->physical;
    }
    window_unlock();
    return mapping ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
