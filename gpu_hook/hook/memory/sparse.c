#include "memory/sparse.h"

#include "aliquot_protocol.h"
#include "base/log.h"
#include "contexts/green_owners.h"
#include "vmm/vmm.h"

#include <stdint.h>
#include <stdlib.h>

struct tile {
    struct tile *next;
    void *array;   /* or mipmapped array */
    void *context; /* that the array belongs to, as far as is known */
    struct handle *handle;
    CUarrayMapInfo where;
};

static struct { /* changed with vmm_lock alone */
    struct tile *all;
    uint32_t count; /* read without */
} state;

bool sparse_is_used(void)
{
    return __atomic_load_n(&state.count, __ATOMIC_RELAXED) != 0;
}

void sparse_reset(void)
{
    while (state.all) {
        struct tile *tile = state.all;
        state.all = tile->next;
        free(tile);
    }
    state.count = 0;
}

static void *array_of(const CUarrayMapInfo *where)
{
    return where->resourceType == CU_RESOURCE_TYPE_ARRAY ? (void *)where->resource.array
                                                         : (void *)where->resource.mipmap;
}

static bool lies_within(uint64_t start, uint64_t extent, uint64_t whole_start,
                        uint64_t whole_extent)
{
    return start >= whole_start && start + extent <= whole_start + whole_extent;
}

static bool is_part_of(const CUarrayMapInfo *part, const CUarrayMapInfo *whole)
{
    if (part->subresourceType != whole->subresourceType)
        return false;
    if (part->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL)
        return part->subresource.miptail.layer == whole->subresource.miptail.layer &&
               lies_within(part->subresource.miptail.offset, part->subresource.miptail.size,
                           whole->subresource.miptail.offset, whole->subresource.miptail.size);
    return part->subresource.sparseLevel.level == whole->subresource.sparseLevel.level &&
           part->subresource.sparseLevel.layer == whole->subresource.sparseLevel.layer &&
           lies_within(part->subresource.sparseLevel.offsetX,
                       part->subresource.sparseLevel.extentWidth,
                       whole->subresource.sparseLevel.offsetX,
                       whole->subresource.sparseLevel.extentWidth) &&
           lies_within(part->subresource.sparseLevel.offsetY,
                       part->subresource.sparseLevel.extentHeight,
                       whole->subresource.sparseLevel.offsetY,
                       whole->subresource.sparseLevel.extentHeight) &&
           lies_within(
               part->subresource.sparseLevel.offsetZ, part->subresource.sparseLevel.extentDepth,
               whole->subresource.sparseLevel.offsetZ, whole->subresource.sparseLevel.extentDepth);
}

/* Forget mappings that others replace; `where` NULL: all of the array, or with it NULL of the
 * context. */
static void unmap(const void *array, const void *context, const CUarrayMapInfo *where)
{
    struct tile **link = &state.all;
    while (*link) {
        struct tile *tile = *link;
        bool is_meant = array ? tile->array == array : tile->context == context;
        if (!is_meant || (where && !is_part_of(&tile->where, where))) {
            link = &tile->next;
            continue;
        }
        *link = tile->next;
        handles_change(tile->handle, 0, -1);
        free(tile);
        __atomic_fetch_sub(&state.count, 1, __ATOMIC_RELAXED);
    }
}

void sparse_forget_array(const void *array)
{
    unmap(array, NULL, NULL);
}

void sparse_forget_context(const void *context)
{
    unmap(NULL, context, NULL);
}

static void map(const CUarrayMapInfo *where, void *context)
{
    struct handle *handle = handles_find(where->memHandle.memHandle);
    if (!handle)
        return;
    handles_hold(handle, ALIQUOT_PIN_ARRAY);
    handles_change(handle, 0, 1);
    struct tile *tile = malloc(sizeof *tile);
    if (!tile) {
        LOG("event=no_memory_for_record key=%llx", (unsigned long long)where->memHandle.memHandle);
        return; /* the handle stays charged: too much rather than too little */
    }
    *tile = (struct tile){.next = state.all,
                          .array = array_of(where),
                          .context = context,
                          .handle = handle,
                          .where = *where};
    state.all = tile;
    __atomic_fetch_add(&state.count, 1, __ATOMIC_RELAXED);
}

/* The list as the driver knows its handles. NULL: no memory for it. */
static CUarrayMapInfo *name_for_driver(const CUarrayMapInfo *list, unsigned int count)
{
    CUarrayMapInfo *copy = malloc(count * sizeof *copy);
    for (unsigned int i = 0; copy && i < count; i++) {
        struct handle *handle;
        copy[i] = list[i];
        if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
            copy[i].memHandle.memHandle = vmm_real(list[i].memHandle.memHandle, &handle);
    }
    return copy;
}

/* The change happens in the stream's order; it is counted now. */
static CUresult change(CUarrayMapInfo *list, unsigned int count, CUstream stream,
                       CUresult (*real)(CUarrayMapInfo *, unsigned int, CUstream))
{
    CUcontext context = NULL;
    bool acts;
    if (!vmm_begin(&acts))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUarrayMapInfo *named = acts && list && count ? name_for_driver(list, count) : NULL;
    if (acts && list && count && !named)
        return vmm_end(acts, CUDA_ERROR_OUT_OF_MEMORY);
    CUresult result = real(named ? named : list, count, stream);
    free(named);
    if (acts && result == CUDA_SUCCESS) {
        driver()->cuCtxGetCurrent(&context);
        context = green_owner(context);
        for (unsigned int i = 0; i < count; i++) {
            unmap(array_of(&list[i]), NULL, &list[i]);
            if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP)
                map(&list[i], context);
        }
    }
    return vmm_end(acts, result);
}

CUresult cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    return change(list, count, stream, driver()->cuMemMapArrayAsync);
}

CUresult cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
    return change(list, count, stream, driver()->cuMemMapArrayAsync_ptsz);
}
