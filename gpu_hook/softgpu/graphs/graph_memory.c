/* Allocations of graphs: their nodes, their addresses, and frees from outside. An allocation has
 * two states. One follows the order of calls: which calls may free it, whether its graph may be
 * launched again. The other follows the order of work: whether its memory is there. */
#include "graphs/graph_memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver/driver.h"
#include "graphs/graph_memory_state.h"
#include "implemented.h"
#include "memory/window_state.h"
#include "queue/work_items.h"

static struct {
    struct graph_allocation *all;
} allocations;

/* The payload of the work items of memory nodes and of frees. */
struct change {
    struct graph_allocation *allocation;
    int is_last; /* the work item holds a reference of its own */
};

/* Under the mutex. The addresses go with the last that names them. */
static void drop(struct graph_allocation *allocation)
{
    if (--allocation->references)
        return;
    struct graph_allocation **link = &allocations.all;
    while (*link != allocation)
        link = &(*link)->next;
    *link = allocation->next;
    window_lock();
    window_give_addresses(allocation->address);
    window_unlock();
    free(allocation->access);
    free(allocation);
}

static struct graph_allocation *find(CUdeviceptr address)
{
    struct graph_allocation *allocation = allocations.all;
    while (allocation && allocation->address != address)
        allocation = allocation->next;
    return allocation;
}

static void set_present(const struct graph_allocation *allocation, int is_present)
{
    window_lock();
    window_look_up(allocation->address)->is_absent = !is_present;
    window_unlock();
}

void graph_memory_forget_pages(unsigned physical)
{
    for (const struct graph_allocation *allocation = allocations.all; allocation; allocation = allocation->next) {
        window_lock();
        if (allocation->physical == physical && window_look_up(allocation->address)->is_absent)
            madvise(window_bytes(allocation->address), allocation->bytes, MADV_DONTNEED);
        window_unlock();
    }
}

static CUresult run_allocation(struct work_item *work, uint64_t *clock)
{
    const struct change *change = (const struct change *)work->payload;
    pthread_mutex_lock(&graph_memory_mutex);
    set_present(change->allocation, 1);
    pthread_mutex_unlock(&graph_memory_mutex);
    return CUDA_SUCCESS;
}

/* Under the mutex: the memory of one launch goes back to the reserve. */
static void let_go(struct graph_allocation *allocation)
{
    set_present(allocation, 0);
    if (allocation->holds && --allocation->holds == 0)
        graph_reserve_count(allocation->physical, -(int64_t)graph_memory_round(allocation->bytes));
}

static CUresult run_free(struct work_item *work, uint64_t *clock)
{
    const struct change *change = (const struct change *)work->payload;
    pthread_mutex_lock(&graph_memory_mutex);
    let_go(change->allocation);
    if (change->is_last)
        drop(change->allocation);
    pthread_mutex_unlock(&graph_memory_mutex);
    return CUDA_SUCCESS;
}

static struct work_item *make_change(struct graph_allocation *allocation, int is_free, int is_last)
{
    struct work_item *work = work_new(is_free ? run_free : run_allocation, sizeof(struct change));
    if (work) {
        *(struct change *)work->payload = (struct change){allocation, is_last};
        work->runs_after_failure = is_free;
    }
    return work;
}

/* Under the mutex: addresses for it, without memory. */
static int place(struct graph_allocation *allocation)
{
    uint64_t whole = (allocation->bytes + MACHINE_LARGE_UNIT - 1) & ~(uint64_t)(MACHINE_LARGE_UNIT - 1);
    window_lock();
    allocation->address = window_take_addresses(whole, MACHINE_LARGE_UNIT, 0);
    if (allocation->address) {
        struct allocation *record = window_look_up(allocation->address);
        record->kind = ALLOCATION_GRAPH;
        record->bytes = allocation->bytes;
        record->device = allocation->physical;
        record->id = window_new_id();
        record->is_absent = 1;
    }
    window_unlock();
    return allocation->address ? 0 : -1;
}

static CUresult check_properties(const CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params)
{
    const CUmemPoolProps *pool = &params->poolProps;
    if (params->bytesize == 0 || params->bytesize > 1ull << 48 || pool->handleTypes ||
        (params->accessDescCount && params->accessDescs == NULL) ||
        params->accessDescCount > (size_t)driver.device_count)
        return CUDA_ERROR_INVALID_VALUE;
    if (pool->allocType != CU_MEM_ALLOCATION_TYPE_PINNED || pool->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_NOT_SUPPORTED;
    return driver_check_device(pool->location.id) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult fill_allocation(struct node *node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS_v2 *params = &node->params.alloc;
    CUresult result = check_properties(params);
    if (result)
        return result;
    struct graph_allocation *made = calloc(1, sizeof *made);
    CUmemAccessDesc *access = calloc(params->accessDescCount + 1, sizeof *access);
    node->work = made ? make_change(made, 0, 0) : NULL;
    int failed = node->work == NULL || access == NULL;
    if (!failed) {
        if (params->accessDescCount)
            memcpy(access, params->accessDescs, params->accessDescCount * sizeof *access);
        *made = (struct graph_allocation){.bytes = params->bytesize, .references = 1, .access = access,
                                          .physical = driver.physical[params->poolProps.location.id]};
        pthread_mutex_lock(&graph_memory_mutex);
        failed = place(made);
        if (!failed) {
            made->next = allocations.all;
            allocations.all = made;
        }
        pthread_mutex_unlock(&graph_memory_mutex);
    }
    if (failed) {
        work_drop(node->work);
        node->work = NULL;
        free(access);
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    params->accessDescs = params->accessDescCount ? access : NULL;
    params->dptr = made->address;
    node->allocation = made;
    return CUDA_SUCCESS;
}

CUresult graph_memory_fill(struct node *node)
{
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return fill_allocation(node);
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_allocation *allocation = find(node->params.free.dptr);
    CUresult result = allocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    node->work = allocation ? make_change(allocation, 1, 0) : NULL;
    if (node->work) {
        allocation->references++;
        node->allocation = allocation;
    } else if (allocation) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&graph_memory_mutex);
    return result;
}

/* An allocation is freed in its own graph, once, or elsewhere; never both. */
CUresult graph_memory_attach(struct graph *graph, struct node *node)
{
    struct graph_allocation *allocation = node->allocation;
    CUresult result = graph->owner ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_mutex);
    if (result == CUDA_SUCCESS && node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        allocation->graph_id = graph->id;
    } else if (result == CUDA_SUCCESS) {
        int is_inside = allocation->graph_id == graph->id;
        if (allocation->is_freed_inside || (is_inside && allocation->is_freed_outside))
            result = CUDA_ERROR_INVALID_VALUE;
        else if (is_inside)
            allocation->is_freed_inside = 1;
        else
            allocation->is_freed_outside = 1;
    }
    pthread_mutex_unlock(&graph_memory_mutex);
    return result;
}

void graph_memory_copy(struct node *to, const struct node *from)
{
    to->allocation = from->allocation;
    pthread_mutex_lock(&graph_memory_mutex);
    to->allocation->references++;
    pthread_mutex_unlock(&graph_memory_mutex);
}

void graph_memory_free(struct node *node)
{
    if (node->allocation == NULL)
        return;
    pthread_mutex_lock(&graph_memory_mutex);
    drop(node->allocation);
    pthread_mutex_unlock(&graph_memory_mutex);
}

/* Under the mutex: by the order of calls it is no more. The reference of being live passes to the
 * caller. */
static struct graph_allocation *take_live(CUdeviceptr address)
{
    struct graph_allocation *allocation = find(address);
    if (allocation == NULL || !allocation->is_live || allocation->is_freed_inside)
        return NULL;
    allocation->is_live = 0;
    return allocation;
}

CUresult graph_memory_free_now(CUdeviceptr address)
{
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_allocation *allocation = take_live(address);
    if (allocation) {
        let_go(allocation);
        drop(allocation);
    }
    pthread_mutex_unlock(&graph_memory_mutex);
    return allocation ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult graph_memory_free_async(CUdeviceptr address, struct stream *stream)
{
    pthread_mutex_lock(&graph_memory_mutex);
    struct graph_allocation *allocation = take_live(address);
    struct work_item *work = allocation ? make_change(allocation, 1, 1) : NULL;
    if (allocation && work == NULL)
        allocation->is_live = 1;
    pthread_mutex_unlock(&graph_memory_mutex);
    if (work == NULL)
        return allocation ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    work_hold(work);
    CUresult result = stream_enqueue_short(stream, work);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* not queued: nothing waits for the stream */
        uint64_t clock = 0;
        run_free(work, &clock);
    }
    work_drop(work);
    return result;
}

void graph_memory_close_device(unsigned physical)
{
    pthread_mutex_lock(&graph_memory_mutex);
    graph_reserve_reset(physical);
    for (struct graph_allocation *allocation = allocations.all, *next; allocation; allocation = next) {
        next = allocation->next;
        if (allocation->physical != physical)
            continue;
        set_present(allocation, 0);
        allocation->holds = 0;
        if (allocation->is_live) {
            allocation->is_live = 0;
            drop(allocation);
        }
    }
    pthread_mutex_unlock(&graph_memory_mutex);
}
