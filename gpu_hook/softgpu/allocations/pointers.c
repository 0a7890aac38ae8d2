/* The kind of a pointer: device memory, a reserved address with or without memory, page-locked host
 * memory, or nothing known to the driver. */
#include <string.h>

#include "driver/driver.h"
#include "memory/host_memory.h"
#include "implemented.h"
#include "managed/managed.h"
#include "memory/mappings.h"
#include "pools/pools.h"
#include "memory/window_state.h"

enum pointer_kind { POINTER_UNKNOWN, POINTER_DEVICE, POINTER_MAPPED, POINTER_RESERVED, POINTER_MANAGED, POINTER_HOST };

/* The attributes of a pointer; an attribute of another kind of memory reads as none. */
struct pointer {
    enum pointer_kind kind;
    struct context *context; /* NULL: of no context */
    int device;              /* visible ordinal */
    uint64_t start, bytes;   /* of the allocation, or the reservation */
    uint64_t id, memory_id;
    struct pool *pool;
    uint64_t mapping_start, mapping_bytes;
    unsigned handle_types, rights;
    int is_exportable; /* by legacy IPC */
    int is_on_host; /* the host can use it; managed memory, too */
};

static void describe_reservation(CUdeviceptr address, const struct context *current, struct pointer *pointer)
{
    struct mapping_view view;
    window_lock();
    int failed = mappings_describe(address, &view);
    window_unlock();
    if (failed)
        return;
    *pointer = (struct pointer){.kind = view.is_mapped ? POINTER_MAPPED : POINTER_RESERVED,
                                .start = view.reserved_start, .bytes = view.reserved_bytes,
                                .id = view.mapping.id, .memory_id = view.memory_id,
                                .mapping_start = view.mapping.start, .mapping_bytes = view.mapping.bytes,
                                .handle_types = view.properties.requestedHandleTypes,
                                .rights = view.mapping.rights[current->physical]};
    pointer->is_on_host = view.is_mapped && view.properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE;
    pointer->device = pointer->is_on_host ? CU_DEVICE_CPU : view.properties.location.id;
}

static int identify(CUdeviceptr address, const struct context *current, struct pointer *pointer)
{
    struct allocation found;
    struct host_range host;
    struct managed_range managed;
    memset(pointer, 0, sizeof *pointer);
    if (window_find(address, &found) == 0 && found.kind != ALLOCATION_MAPPED)
        *pointer = (struct pointer){.kind = POINTER_DEVICE, .context = found.pool ? NULL : found.context,
                                    .device = driver_ordinal(found.device), .start = found.start, .bytes = found.bytes,
                                    .id = found.id, .memory_id = found.id, .pool = found.pool,
                                    .mapping_start = found.start, .mapping_bytes = found.bytes,
                                    .rights = RIGHTS_WRITE,
                                    .is_exportable = found.kind == ALLOCATION_PLAIN && found.pool == NULL};
    else if (window_is_device(address))
        describe_reservation(address, current, pointer);
    else if (managed_find(address, &managed) == 0)
        *pointer = (struct pointer){.kind = POINTER_MANAGED, .context = managed.context,
                                    .device = managed.context->device, .start = managed.start,
                                    .bytes = managed.bytes, .id = managed.id | 1ull << 61,
                                    .memory_id = managed.id | 1ull << 61, .mapping_start = managed.start,
                                    .mapping_bytes = managed.bytes, .rights = RIGHTS_WRITE, .is_on_host = 1};
    else if (host_memory_find(address, &host) == 0)
        *pointer = (struct pointer){.kind = POINTER_HOST, .context = host.context, .device = host.context->device,
                                    .start = host.start, .bytes = host.bytes, .id = host.id | 1ull << 62,
                                    .memory_id = host.id | 1ull << 62, .mapping_start = host.start,
                                    .mapping_bytes = host.bytes, .rights = RIGHTS_WRITE, .is_on_host = 1};
    return pointer->kind == POINTER_UNKNOWN ? -1 : 0;
}

static void put_flag(void *data, int flag)
{
    *(unsigned *)data = (unsigned)flag; /* the header says bool; the driver writes four bytes */
}

/* Attributes that addresses without memory have, too. */
static CUresult write_range(void *data, CUpointer_attribute attribute, const struct pointer *pointer)
{
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = pointer->start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        *(size_t *)data = pointer->bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        put_flag(data, pointer->kind != POINTER_RESERVED);
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* Numbers and handles of the memory behind the pointer. */
static CUresult write_memory(void *data, CUpointer_attribute attribute, const struct pointer *pointer)
{
    int is_host = pointer->is_on_host && pointer->kind != POINTER_MANAGED;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = (CUcontext)pointer->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned *)data = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(unsigned long long *)data = pointer->id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        *(unsigned long long *)data = pointer->memory_id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *(int *)data = pointer->device;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void **)data = pointer->pool;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        *(CUdeviceptr *)data = pointer->mapping_start;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        *(size_t *)data = pointer->mapping_bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(cuuint64_t *)data = pointer->handle_types;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
}

/* How many bytes an attribute takes is the caller's to know; each case writes its own type. */
static CUresult write_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                                const struct pointer *pointer)
{
    CUresult result = write_range(data, attribute, pointer);
    if (result == CUDA_SUCCESS || pointer->kind == POINTER_RESERVED)
        return result;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!pointer->is_on_host)
            return CUDA_ERROR_INVALID_VALUE;
        *(void **)data = (void *)address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned *)data = pointer->rights;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        put_flag(data, pointer->kind == POINTER_MANAGED);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        put_flag(data, pointer->is_exportable);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        put_flag(data, 0);
        return CUDA_SUCCESS;
    default:
        return write_memory(data, attribute, pointer);
    }
}

CUresult impl_cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct context *context;
    struct pointer pointer;
    CUresult result = context_current(&context);
    if (result || data == NULL || identify(ptr, context, &pointer) != 0)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return write_attribute(data, attribute, ptr, &pointer);
}

/* The plural form never fails for an unknown pointer: unknown values read 0, a device -2. */
CUresult impl_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute *attributes, void **data,
                                     CUdeviceptr ptr)
{
    struct context *context;
    struct pointer pointer;
    CUresult result = context_current(&context);
    if (result || attributes == NULL || data == NULL)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    int is_known = identify(ptr, context, &pointer) == 0;
    for (unsigned i = 0; i < numAttributes; i++) {
        if (data[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        if (is_known && write_attribute(data[i], attributes[i], ptr, &pointer) == CUDA_SUCCESS)
            continue;
        switch ((int)attributes[i]) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            *(uint64_t *)data[i] = 0;
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data[i] = -2;
            break;
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            put_flag(data[i], 0);
            break;
        default:
            *(unsigned *)data[i] = 0;
        }
    }
    return CUDA_SUCCESS;
}

CUresult impl_cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
    struct allocation found;
    if (value == NULL || window_find(ptr, &found) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    /* Synchronous memory operations are what streams order anyway. */
    return attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
