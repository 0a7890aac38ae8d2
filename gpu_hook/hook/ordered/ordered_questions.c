/* Questions about our pools and their memory. */
#include "ordered/ordered_pools_state.h"

void ordered_attribute_set(CUmemoryPool pool, CUmemPool_attribute attribute, const void *value)
{
    pthread_mutex_lock(&ordered.mutex);
    struct ordered_heap *heap = ordered_heap_of(pool);
    if (heap && attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
        heap->threshold = *(const cuuint64_t *)value;
        ordered_note_loose(heap);
    } else if (heap && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) {
        heap->reserved_high = heap->reserved;
    } else if (heap && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        heap->used_high = heap->used;
    }
    pthread_mutex_unlock(&ordered.mutex);
}

/* Add to the driver's answer, which knows what it serves itself. */
void ordered_add_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    pthread_mutex_lock(&ordered.mutex);
    const struct ordered_heap *heap = ordered_heap_of(pool);
    cuuint64_t *bytes = value;
    if (heap && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *bytes += heap->reserved;
    else if (heap && attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        *bytes += heap->reserved_high;
    else if (heap && attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *bytes += heap->used;
    else if (heap && attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        *bytes += heap->used_high;
    pthread_mutex_unlock(&ordered.mutex);
}

bool ordered_find(CUdeviceptr address, struct ordered_view *view)
{
    bool is_within = false;
    pthread_mutex_lock(&ordered.mutex);
    for (const struct ordered_heap *heap = ordered.all; heap && !is_within; heap = heap->next) {
        const struct ordered_block *block = ordered_heap_find(heap, address, &is_within);
        if (is_within)
            *view = (struct ordered_view){.start = block ? block->start : 0,
                                          .bytes = block ? block->asked : 0,
                                          .device = heap->device,
                                          .pool = heap->handle,
                                          .id = block ? block->id : 0,
                                          .is_beyond = !block};
    }
    pthread_mutex_unlock(&ordered.mutex);
    return is_within;
}
