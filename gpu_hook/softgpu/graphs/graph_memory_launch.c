/* The allocations of a graph during a launch. The memory for all of them is reserved before any
 * work is queued, so that a launch that cannot have it fails as a whole. */
#include "driver/driver.h"
#include "graphs/graph_execs.h"
#include "graphs/graph_memory_state.h"
#include "pools/pools.h"
#include "queue/work_items.h"

static struct graph_allocation *allocation_of(const struct step *step, CUgraphNodeType type)
{
    return step->node && step->node->params.type == type ? step->node->allocation : NULL;
}

/* The most that the graph's own allocations take at once. In a chain, what was freed serves again;
 * where branches may run side by side, each has memory of its own. */
static void measure(struct graph_exec *exec)
{
    uint64_t now[MACHINE_DEVICES] = {0};
    for (unsigned d = 0; d < MACHINE_DEVICES; d++)
        exec->lease.within[d] = exec->lease.beyond[d] = 0;
    for (size_t i = 0; i < exec->step_count; i++) {
        const struct graph_allocation *made = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        const struct graph_allocation *freed = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_FREE);
        if (made && made->is_freed_inside)
            now[made->physical] += graph_memory_round(made->bytes);
        for (unsigned d = 0; d < MACHINE_DEVICES; d++)
            if (now[d] > exec->lease.within[d])
                exec->lease.within[d] = now[d];
        if (freed && freed->is_freed_inside && exec->lane_count == 1)
            now[freed->physical] -= graph_memory_round(freed->bytes);
    }
}

/* Called under the mutex: allocations that outlive the launch must not be left over from the one
 * before; allocations that it frees must be there. */
static CUresult check(const struct graph_exec *exec)
{
    for (size_t i = 0; i < exec->step_count; i++) {
        const struct graph_allocation *made = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        const struct graph_allocation *freed = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_FREE);
        if ((made && made->is_live) || (freed && !freed->is_freed_inside && !freed->is_live))
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

/* Called under the mutex: from now on the launch's allocations are live, and those that it frees
 * are not; or the reverse. */
static void apply(struct graph_exec *exec, int direction)
{
    for (size_t i = 0; i < exec->step_count; i++) {
        struct graph_allocation *made = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        struct graph_allocation *freed = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_FREE);
        if (made && !made->is_freed_inside) {
            made->is_live = direction > 0;
            made->references += direction;
            if ((direction > 0 ? made->holds++ : --made->holds) == 0)
                graph_reserve_count(made->physical, direction * (int64_t)graph_memory_round(made->bytes));
        }
        if (freed && !freed->is_freed_inside) {
            freed->is_live = direction < 0;
            /* the exec's node names it until the launch has ended */
            freed->references -= direction;
        }
    }
}

/* Under the mutex. */
static CUresult grow(struct graph_exec *exec, struct stream *stream)
{
    graph_lease_map(&exec->lease, stream->id);
    CUresult result = CUDA_SUCCESS;
    for (unsigned d = 0; result == CUDA_SUCCESS && d < driver.attachment.machine->device_count; d++)
        result = graph_reserve_grow(d);
    if (result)
        exec->lease.is_mapped = 0;
    else if (exec->last)
        graph_lease_set_end(&exec->lease, exec->last);
    return result;
}

static CUresult try_begin(struct graph_exec *exec, struct stream *stream)
{
    pthread_mutex_lock(&graph_memory_mutex);
    measure(exec);
    CUresult result = check(exec);
    if (result == CUDA_SUCCESS) {
        apply(exec, 1);
        exec->lease.is_pinned = 1;
        result = grow(exec, stream);
        if (result) {
            exec->lease.is_pinned = 0;
            apply(exec, -1);
        }
    }
    pthread_mutex_unlock(&graph_memory_mutex);
    return result;
}

/* Room may come from frees that wait in streams, and from what pools hold unused. */
static int make_room(const struct graph_exec *exec)
{
    int has_more = 0;
    for (unsigned d = 0; d < MACHINE_DEVICES; d++) {
        int is_used = exec->lease.within[d] || exec->lease.beyond[d];
        for (size_t i = 0; i < exec->step_count; i++) {
            const struct graph_allocation *made = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
            is_used |= made && made->physical == d;
        }
        if (is_used)
            has_more |= pools_make_room(d);
    }
    return has_more;
}

CUresult graph_memory_begin(struct graph_exec *exec, struct stream *stream)
{
    if (exec->graph->memory_nodes == 0)
        return CUDA_SUCCESS;
    CUresult result = try_begin(exec, stream);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && make_room(exec))
        result = try_begin(exec, stream);
    return result;
}

void graph_memory_end(struct graph_exec *exec, CUresult result)
{
    if (exec->graph->memory_nodes == 0)
        return;
    pthread_mutex_lock(&graph_memory_mutex);
    if (result)
        apply(exec, -1);
    else
        graph_lease_set_end(&exec->lease, exec->last);
    exec->lease.is_pinned = 0;
    pthread_mutex_unlock(&graph_memory_mutex);
}

CUresult graph_memory_free_unfreed(struct graph_exec *exec, struct stream *stream)
{
    if (!(exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) || exec->graph->memory_nodes == 0)
        return CUDA_SUCCESS;
    struct work_item *behind = exec->last ? work_of_nothing() : NULL;
    CUresult result = CUDA_SUCCESS;
    if (behind && work_needs(behind, exec->last) == 0)
        result = stream_enqueue_short(stream, behind);
    else
        work_drop(behind);
    for (size_t i = 0; result == CUDA_SUCCESS && i < exec->step_count; i++) {
        const struct graph_allocation *made = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        if (made == NULL || made->is_freed_inside)
            continue;
        result = graph_memory_free_async(made->address, stream);
        if (result == CUDA_ERROR_INVALID_VALUE) /* nothing was left of it */
            result = CUDA_SUCCESS;
    }
    return result;
}

CUresult graph_memory_upload(struct graph_exec *exec, struct stream *stream)
{
    if (exec->graph->memory_nodes == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&graph_memory_mutex);
    measure(exec);
    for (size_t i = 0; i < exec->step_count; i++) {
        const struct graph_allocation *made = allocation_of(&exec->steps[i], CU_GRAPH_NODE_TYPE_MEM_ALLOC);
        if (made && !made->is_freed_inside && made->holds == 0)
            exec->lease.beyond[made->physical] += graph_memory_round(made->bytes);
    }
    CUresult result = grow(exec, stream);
    pthread_mutex_unlock(&graph_memory_mutex);
    return result;
}

void graph_memory_close(struct graph_exec *exec)
{
    pthread_mutex_lock(&graph_memory_mutex);
    graph_lease_drop(&exec->lease);
    pthread_mutex_unlock(&graph_memory_mutex);
}
