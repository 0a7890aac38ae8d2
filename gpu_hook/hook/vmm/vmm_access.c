/* Mapped addresses: their access rights, the calls that end them, and the calls that pin their
 * memory to its device. */

#include "aliquot_protocol.h"
#include "accounting/devices.h"
#include "swappable/swappable.h"
#include "vmm/vmm.h"

static bool is_swappable(CUdeviceptr address)
{
    struct swappable_view view;
    return swappable_is_used() && swappable_find(address, &view);
}

/* Called with the lock. Mappings that are out are unmapped in the books alone; a range that cuts
 * one is refused, as a driver does. */
static CUresult unmap_swapped(CUdeviceptr pointer, size_t bytes)
{
    CUdeviceptr end = pointer + bytes;
    for (CUdeviceptr at = pointer; at < end;) { /* first whether all of it is mapped */
        const struct mapping *mapping = handles_mapping_from(at);
        if (mapping && mapping->span.start <= at) {
            if (mapping->span.start < at || span_end(&mapping->span) > end)
                return CUDA_ERROR_INVALID_VALUE;
            at = span_end(&mapping->span);
            continue;
        }
        CUdeviceptr next = mapping && mapping->span.start < end ? mapping->span.start : end;
        /* memory of another process, which stays */
        CUresult result = driver()->cuMemUnmap(at, next - at);
        if (result != CUDA_SUCCESS)
            return result;
        at = next;
    }
    for (struct mapping *mapping = handles_mapping_from(pointer);
         mapping && mapping->span.start < end; mapping = handles_mapping_from(pointer)) {
        if (!mapping->handle->is_out)
            driver()->cuMemUnmap(mapping->span.start, mapping->span.bytes);
        handles_unmap(mapping);
    }
    return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUdeviceptr end;
    bool is_resident, acts = vmm_hold(&is_resident);
    if (!acts)
        return driver()->cuMemUnmap(pointer, bytes);
    if (__builtin_add_overflow(pointer, bytes, &end) || is_swappable(pointer))
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    if (!is_resident && bytes)
        return vmm_end(acts, unmap_swapped(pointer, bytes));
    CUresult result = driver()->cuMemUnmap(pointer, bytes);
    struct mapping *mapping;
    while (result == CUDA_SUCCESS && (mapping = handles_mapping_from(pointer)) &&
           mapping->span.start < end)
        handles_unmap(mapping);
    return vmm_end(acts, result);
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *accesses,
                        size_t count)
{
    bool acts;
    if (!vmm_begin(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (acts && is_swappable(pointer))
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    CUresult result = driver()->cuMemSetAccess(pointer, bytes, accesses, count);
    if (acts && result == CUDA_SUCCESS)
        handles_set_access(pointer, bytes, accesses, count);
    return vmm_end(acts, result);
}

static unsigned long long access_of(const struct mapping *mapping, const CUmemLocation *location)
{
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return mapping->host.flags;
    if (location->id < 0 || location->id >= DEVICES_MAX)
        return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    uint64_t bit = 1ull << location->id;
    return mapping->writers & bit   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : mapping->readers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer)
{
    bool is_resident, acts = vmm_hold(&is_resident);
    if (acts && is_swappable(pointer))
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    const struct mapping *mapping = acts && !is_resident ? handles_mapping_at(pointer) : NULL;
    if (!mapping || !mapping->handle->is_out || !flags || !location)
        return vmm_end(acts, driver()->cuMemGetAccess(flags, location, pointer));
    *flags = access_of(mapping, location);
    return vmm_end(acts, CUDA_SUCCESS);
}

/* Addresses where something is mapped cannot be given back, wherever that is now. */
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    bool is_resident, acts = vmm_hold(&is_resident);
    const struct mapping *mapping = acts && !is_resident ? handles_mapping_from(pointer) : NULL;
    bool is_in_use =
        mapping && (mapping->span.start < pointer || mapping->span.start - pointer < bytes);
    if (is_in_use || (acts && is_swappable(pointer)))
        return vmm_end(acts, CUDA_ERROR_INVALID_VALUE);
    return vmm_end(acts, driver()->cuMemAddressFree(pointer, bytes));
}

/* Called with the lock: all memory in the range stays from now on. */
void vmm_hold_range(CUdeviceptr start, size_t bytes, uint32_t reason)
{
    struct mapping *mapping = handles_mapping_from(start);
    for (; mapping && mapping->span.start < start + bytes;
         mapping = handles_mapping_from(span_end(&mapping->span)))
        handles_hold(mapping->handle, reason);
    if (swappable_is_used())
        swappable_hold(start, reason);
}

/* The holder of the descriptor reaches these very pages. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr pointer, size_t bytes,
                                       CUmemRangeHandleType type, unsigned long long flags)
{
    bool acts;
    if (!vmm_begin(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = driver()->cuMemGetHandleForAddressRange(handle, pointer, bytes, type, flags);
    if (acts && result == CUDA_SUCCESS)
        vmm_hold_range(pointer, bytes, ALIQUOT_PIN_EXPORTED);
    return vmm_end(acts, result);
}
