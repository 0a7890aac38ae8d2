/* A launch: a start in the stream, a work item for each step in its lane, and an end in the stream,
 * which waits for all. The end drops the launch's hold on the exec, so an exec that is destroyed
 * while it runs is freed at the end. */
#include <stdlib.h>
#include <string.h>

#include "queue/events.h"
#include "graphs/graph_execs.h"
#include "driver/handles.h"
#include "queue/work_items.h"

struct launch {
    struct graph_exec *exec;
    struct stream *stream, **streams; /* the stream of each item; the start first, the end last */
    struct work_item **items;
    size_t count; /* steps and two */
};

static CUresult run_end(struct work_item *work, uint64_t *clock)
{
    exec_drop(*(struct graph_exec **)work->payload);
    return CUDA_SUCCESS;
}

static struct work_item *make_end(struct graph_exec *exec)
{
    struct work_item *work = work_new(run_end, sizeof exec);
    if (work) {
        memcpy(work->payload, &exec, sizeof exec);
        work->runs_after_failure = 1;
        work->pace = WORK_AT_ONCE;
    }
    return work;
}

/* The stream of a lane, opened if it has none in the right context. */
static CUresult open_lane(struct lane *lane, int is_first, struct stream *stream, struct stream **found)
{
    struct context *context = lane->context ? lane->context : stream->context;
    if (is_first && context == stream->context) {
        *found = stream;
        return CUDA_SUCCESS;
    }
    CUresult result = context_check(context);
    if (result)
        return result;
    int is_open = handles_has(HANDLE_STREAM, lane->stream) && lane->stream->id == lane->stream_id;
    if (is_open && lane->stream->context != context && handles_remove(HANDLE_STREAM, lane->stream)) {
        stream_close(lane->stream);
        is_open = 0;
    }
    if (!is_open) {
        lane->stream = stream_open(context, STREAM_NON_BLOCKING, stream->priority, 1);
        if (lane->stream == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        lane->stream_id = lane->stream->id;
    }
    *found = lane->stream;
    return CUDA_SUCCESS;
}

static CUevent event_of(const struct node *node, CUgraphNodeType type)
{
    if (node == NULL || node->params.type != type)
        return NULL;
    return type == CU_GRAPH_NODE_TYPE_WAIT_EVENT ? node->params.eventWait.event : node->params.eventRecord.event;
}

/* An event's wait is for its latest record: by an earlier step of this launch, or what was recorded
 * before. */
static CUresult need_event(struct launch *launch, size_t index, CUevent event)
{
    struct graph_exec *exec = launch->exec;
    for (size_t i = index; i-- > 0;)
        if (event_of(exec->steps[i].node, CU_GRAPH_NODE_TYPE_EVENT_RECORD) == event)
            return work_needs(launch->items[index + 1], launch->items[i + 1]) ? CUDA_ERROR_OUT_OF_MEMORY
                                                                              : CUDA_SUCCESS;
    struct work_item *mark = event_hold_mark((struct event *)event);
    int failed = mark && work_needs(launch->items[index + 1], mark) != 0;
    work_drop(mark);
    return failed ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult make_step(struct launch *launch, size_t index)
{
    struct graph_exec *exec = launch->exec;
    const struct step *step = &exec->steps[index];
    const struct node *node = step->node;
    struct work_item *template = node && !node->is_disabled ? node->work : NULL;
    struct work_item *work = template ? work_again(template) : work_of_nothing();
    launch->items[index + 1] = work;
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = open_lane(&exec->lanes[step->lane], step->lane == 0, launch->stream, &launch->streams[index + 1]);
    if (result)
        return result;
    for (size_t i = 0; i < step->need_count; i++) {
        size_t need = exec->needs[step->first_need + i];
        if (exec->steps[need].lane != step->lane && work_needs(work, launch->items[need + 1]) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (step->need_count == 0 && work_needs(work, launch->items[0]) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int waits = 0; waits < 2; waits++) {
        CUevent event = event_of(node, waits ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        if (event && !handles_has(HANDLE_EVENT, event))
            return CUDA_ERROR_INVALID_HANDLE;
        if (event && waits)
            return need_event(launch, index, event);
    }
    return CUDA_SUCCESS;
}

static CUresult make_items(struct launch *launch)
{
    struct graph_exec *exec = launch->exec;
    size_t last = launch->count - 1;
    launch->streams[0] = launch->streams[last] = launch->stream;
    launch->items[0] = work_of_nothing();
    if (launch->items[0] == NULL || (exec->last && work_needs(launch->items[0], exec->last) != 0))
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; result == CUDA_SUCCESS && i < exec->step_count; i++)
        result = make_step(launch, i);
    if (result)
        return result;
    launch->items[last] = make_end(exec);
    if (launch->items[last] == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < exec->step_count; i++)
        if (!exec->steps[i].is_needed && work_needs(launch->items[last], launch->items[i + 1]) != 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

/* Publishes the events' new marks, and what the next launch comes after. */
static void publish(struct launch *launch)
{
    struct graph_exec *exec = launch->exec;
    for (size_t i = 0; i < exec->step_count; i++) {
        CUevent event = event_of(exec->steps[i].node, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
        if (event)
            event_set_mark((struct event *)event, launch->items[i + 1]);
    }
    work_drop(exec->last);
    exec->last = launch->items[launch->count - 1];
    work_hold(exec->last);
}

static CUresult enqueue(struct launch *launch)
{
    /* A queue takes the creator's reference: keep one for publishing. */
    for (size_t i = 0; i < launch->count; i++)
        work_hold(launch->items[i]);
    atomic_fetch_add_explicit(&launch->exec->references, 1, memory_order_relaxed);
    CUresult result = streams_enqueue(launch->streams, launch->items, launch->count);
    if (result)
        atomic_fetch_sub_explicit(&launch->exec->references, 1, memory_order_relaxed);
    else
        publish(launch);
    return result;
}

static CUresult run_locked(struct launch *launch)
{
    CUresult result = graph_memory_free_unfreed(launch->exec, launch->stream);
    result = result ? result : make_items(launch);
    result = result ? result : graph_memory_begin(launch->exec, launch->stream);
    if (result == CUDA_SUCCESS) {
        result = enqueue(launch);
        graph_memory_end(launch->exec, result);
    }
    for (size_t i = 0; i < launch->count; i++)
        work_drop(launch->items[i]);
    return result;
}

CUresult exec_launch(struct graph_exec *exec, struct stream *stream)
{
    struct launch launch = {.exec = exec, .stream = stream, .count = exec->step_count + 2};
    launch.items = calloc(launch.count, sizeof *launch.items);
    launch.streams = calloc(launch.count, sizeof *launch.streams);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    if (launch.items && launch.streams) {
        pthread_mutex_lock(&exec->mutex);
        result = run_locked(&launch);
        pthread_mutex_unlock(&exec->mutex);
    }
    free(launch.items);
    free(launch.streams);
    return result;
}

/* Nothing has to move to a software device; what an upload orders and the memory that it takes are
 * real. */
CUresult exec_upload(struct graph_exec *exec, struct stream *stream)
{
    struct work_item *work = work_of_nothing();
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&exec->mutex);
    CUresult result = exec->last && work_needs(work, exec->last) != 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    result = result ? result : graph_memory_upload(exec, stream);
    if (result)
        work_drop(work);
    else
        result = stream_enqueue_short(stream, work);
    pthread_mutex_unlock(&exec->mutex);
    return result;
}
