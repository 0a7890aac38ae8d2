/* Queries about pointers. The hook answers for swappable memory as for plain device memory, in
 * one extent, wherever the memory is now. Memory of a program's own handles keeps its answers
 * while it is out. No query wakes the kernel. */
#include "base/guard.h"
#include "accounting/devices.h"
#include "swappable/swappable.h"
#include "ordered/ordered_pools.h"
#include "vmm/handles.h"
#include "base/log.h"
#include "swappable/managed_mode.h"
#include "accounting/pin_reasons.h"
#include "gate/residency.h"
#include "accounting/swappability.h"

struct subject {
    bool is_swappable; /* or paged: shown as plain device memory */
    bool is_paged;
    bool is_beyond; /* not visible to the program */
    bool is_out;    /* of a program's own mapping */
    CUdeviceptr start;
    size_t bytes;
    int device;
    CUcontext context;
    uint64_t id, memory_id;
    unsigned long long handle_types;
    unsigned int access;
    bool syncs;
    CUmemoryPool pool;
};

static bool find_paged(CUdeviceptr address, struct subject *subject)
{
    struct managed_view view;
    if (!managed_mode_is_used() || !managed_mode_find(address, &view))
        return false;
    *subject = (struct subject){.is_swappable = true,
                                .is_paged = true,
                                .start = view.start,
                                .bytes = view.bytes,
                                .device = view.device,
                                .context = view.context,
                                .id = view.id,
                                .memory_id = view.id,
                                .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return true;
}

static bool find_ordered(CUdeviceptr address, struct subject *subject)
{
    struct ordered_view view;
    if (!ordered_is_used() || !ordered_find(address, &view))
        return false;
    *subject = (struct subject){.is_swappable = true,
                                .is_beyond = view.is_beyond,
                                .start = view.start,
                                .bytes = view.bytes,
                                .device = view.device,
                                .id = view.id,
                                .memory_id = view.id,
                                .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                .pool = view.pool};
    return true;
}

static bool find_swappable(CUdeviceptr address, struct subject *subject)
{
    struct swappable_view view;
    if (find_ordered(address, subject))
        return true;
    if (!swappable_is_used() || !swappable_find(address, &view))
        return find_paged(address, subject);
    *subject = (struct subject){.is_swappable = true,
                                .is_beyond = view.is_beyond,
                                .start = view.start,
                                .bytes = view.bytes,
                                .device = view.device,
                                .context = view.context,
                                .id = view.id,
                                .memory_id = view.id,
                                .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
                                .syncs = view.syncs};
    return true;
}

static unsigned int access_of_current(const struct mapping_view *view)
{
    int device = devices_current();
    uint64_t bit = device >= 0 && device < DEVICES_MAX ? 1ull << device : 0;
    return view->writers & bit   ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
           : view->readers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                 : CU_MEM_ACCESS_FLAGS_PROT_NONE;
}

/* Called with the process held where it is. Handles without a name of ours never leave: the
 * driver answers for them. */
static bool find_mapped(CUdeviceptr address, struct subject *subject)
{
    struct mapping_view view;
    if (!handles_read_mapping(address, &view))
        return false;
    *subject = (struct subject){.is_out = view.is_out,
                                .start = view.start,
                                .bytes = view.bytes,
                                .device = view.device,
                                .id = view.id,
                                .memory_id = view.memory_id,
                                .handle_types = (unsigned long long)view.handle_types,
                                .access = access_of_current(&view)};
    return true;
}

#define PUT(type, value) (*(type *)data = (type)(value), true)

/* False: the driver's own answer is right. The header says bool for some; the driver writes four
 * bytes. */
static bool answer(void *data, CUpointer_attribute attribute, CUdeviceptr address,
                   const struct subject *subject)
{
    bool is_ours = subject->is_swappable || subject->is_out;
    switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        return PUT(unsigned long long, subject->id);
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return PUT(unsigned long long, subject->memory_id);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return subject->is_swappable && PUT(CUdeviceptr, subject->start);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return subject->is_swappable && PUT(size_t, subject->bytes);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return is_ours && PUT(CUcontext, subject->context);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return is_ours && PUT(unsigned int, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return is_ours && PUT(CUdeviceptr, address);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return is_ours && PUT(int, subject->device);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return is_ours && PUT(unsigned int, 1);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return is_ours && PUT(unsigned int, subject->access);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return is_ours && PUT(CUdeviceptr, subject->start);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return is_ours && PUT(size_t, subject->bytes);
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return is_ours && PUT(cuuint64_t, subject->handle_types);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        return is_ours && PUT(unsigned int, subject->syncs);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return is_ours && PUT(CUmemoryPool, subject->pool);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return is_ours && PUT(unsigned int, 0);
    default:
        return false;
    }
}

struct question {
    bool is_held; /* residency_release is due */
    bool is_known;
    struct subject subject;
};

/* False: the driver answers for this memory. True: the caller must call end. */
static bool begin(struct question *question, CUdeviceptr address)
{
    *question = (struct question){.is_held = false};
    if (!(swappable_is_used() || handles_are_named() || managed_mode_is_used()) || !guard_enter())
        return false;
    question->is_known = find_swappable(address, &question->subject);
    if (!question->is_known && handles_are_named()) {
        residency_hold();
        question->is_held = true;
        question->is_known = find_mapped(address, &question->subject);
    }
    return true;
}

static CUresult end(const struct question *question, CUresult result)
{
    if (question->is_held)
        residency_release();
    guard_leave();
    return result;
}

/* Addresses stay reserved, so that the driver still reports the caller's errors. */
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address)
{
    struct question question;
    CUdeviceptr start;
    if (!begin(&question, address))
        return driver()->cuPointerGetAttribute(data, attribute, address);
    if (!question.is_known)
        return end(&question, driver()->cuPointerGetAttribute(data, attribute, address));
    const struct subject *subject = &question.subject;
    CUresult result =
        driver()->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        return end(&question, result);
    bool has_none = attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER &&
                    (subject->is_swappable || subject->is_out);
    if (!data || subject->is_beyond || has_none)
        return end(&question, CUDA_ERROR_INVALID_VALUE);
    if (answer(data, attribute, address, subject))
        return end(&question, CUDA_SUCCESS);
    return end(&question, driver()->cuPointerGetAttribute(data, attribute, address));
}

/* Unknown attributes read as nothing, which is the driver's answer for an address without
 * memory. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr address)
{
    struct question question;
    if (!begin(&question, address))
        return driver()->cuPointerGetAttributes(count, attributes, data, address);
    bool is_nothing = question.is_known && question.subject.is_beyond;
    CUresult result =
        driver()->cuPointerGetAttributes(count, attributes, data, is_nothing ? 1 : address);
    for (unsigned int i = 0;
         result == CUDA_SUCCESS && question.is_known && !is_nothing && i < count; i++) {
        if (attributes[i] == CU_POINTER_ATTRIBUTE_HOST_POINTER && question.subject.is_paged)
            *(void **)data[i] = NULL;
        else
            answer(data[i], attributes[i], address, &question.subject);
    }
    return end(&question, result);
}

/* Keep the setting, since the memory that comes back is other memory. */
CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute,
                               CUdeviceptr address)
{
    struct question question;
    if (!begin(&question, address))
        return driver()->cuPointerSetAttribute(value, attribute, address);
    if (!question.is_known || !question.subject.is_swappable)
        return end(&question, driver()->cuPointerSetAttribute(value, attribute, address));
    if (!value || attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || question.subject.is_beyond)
        return end(&question, CUDA_ERROR_INVALID_VALUE);
    /* the driver takes none for unified memory; its operations are synchronous */
    CUresult result = CUDA_SUCCESS;
    if (residency_hold() && !question.subject.is_paged)
        result = driver()->cuPointerSetAttribute(value, attribute, address);
    if (result == CUDA_SUCCESS)
        swappable_set_syncs(address, *(const unsigned int *)value != 0);
    residency_release();
    return end(&question, result);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    struct question question;
    if (!begin(&question, address))
        return driver()->cuMemGetAddressRange_v2(start, bytes, address);
    const struct subject *subject = &question.subject;
    CUresult result = driver()->cuMemGetAddressRange_v2(start, bytes, address);
    bool is_ours = question.is_known && (subject->is_swappable || subject->is_out);
    if (!is_ours || (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_FOUND &&
                     result != CUDA_ERROR_INVALID_VALUE))
        return end(&question, result);
    if (subject->is_beyond)
        return end(&question, CUDA_ERROR_NOT_FOUND);
    if (start)
        *start = subject->start;
    if (bytes)
        *bytes = subject->bytes;
    return end(&question, CUDA_SUCCESS);
}

/* Unified memory outside of the requested ranges has no such attributes, as device memory has
 * none. */
static bool is_paged(CUdeviceptr address)
{
    struct managed_view view;
    return managed_mode_is_used() && managed_mode_find(address, &view);
}

CUresult cuMemRangeGetAttribute(void *data, size_t data_bytes, CUmem_range_attribute attribute,
                                CUdeviceptr address, size_t bytes)
{
    return is_paged(address)
               ? CUDA_ERROR_INVALID_VALUE
               : driver()->cuMemRangeGetAttribute(data, data_bytes, attribute, address, bytes);
}

CUresult cuMemRangeGetAttributes(void **data, size_t *data_bytes, CUmem_range_attribute *attributes,
                                 size_t count, CUdeviceptr address, size_t bytes)
{
    return is_paged(address) ? CUDA_ERROR_INVALID_VALUE
                             : driver()->cuMemRangeGetAttributes(data, data_bytes, attributes,
                                                                 count, address, bytes);
}

/* Memory that is mapped by the virtual-memory API has no legacy handle: this call fails, as it
 * does for such memory of a program's own. A program that shares memory in this way will
 * allocate more for it: further allocations are plain. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    struct subject subject;
    if (!guard_enter())
        return driver()->cuIpcGetMemHandle(handle, address);
    if (!residency_enter()) {
        guard_leave();
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = driver()->cuIpcGetMemHandle(handle, address);
    residency_leave();
    if (result == CUDA_SUCCESS)
        pin_reasons_note_ipc();
    if (find_swappable(address, &subject) && !subject.is_beyond) {
        LOG("event=memory_stays reason=\"asked to share swappable memory by CUDA IPC; "
            "memory that is allocated from now on can be shared; "
            "start the kernel with residency off to share all\"");
        swappability_stop();
    }
    guard_leave();
    return result;
}
