/* Waits for all work of a stream, or of the streams of a context. */
#include <stdlib.h>

#include "queue/streams_state.h"

static void (*wait_listener)(void); /* written at cuInit alone */

void streams_on_wait(void (*listener)(void))
{
    wait_listener = listener;
}

void streams_tell_wait(void)
{
    wait_listener();
}

CUresult stream_drain(struct stream *stream)
{
    struct context *context = stream->context;
    struct work_item *last = stream_last(stream);
    if (last) {
        work_wait(last);
        work_drop(last);
    }
    return (CUresult)atomic_load(&context->sticky);
}

static int is_busy(const struct stream *stream, enum stream_kind last_kind)
{
    return stream->kind <= last_kind && stream->last && !stream->last->is_done;
}

/* Called under the streams' mutex: the latest unfinished work item of each stream, of all kinds up
 * to `last_kind`, held. */
static CUresult collect_last(struct context *context, enum stream_kind last_kind, struct work_item ***items,
                             size_t *count)
{
    size_t busy = 0;
    *count = 0;
    *items = NULL;
    for (struct stream *stream = context->streams; stream; stream = stream->next)
        busy += (size_t)is_busy(stream, last_kind);
    if (busy && (*items = calloc(busy, sizeof **items)) == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (struct stream *stream = context->streams; busy && stream; stream = stream->next)
        if (is_busy(stream, last_kind)) {
            work_hold(stream->last);
            (*items)[(*count)++] = stream->last;
        }
    return CUDA_SUCCESS;
}

static CUresult drain(struct context *context, enum stream_kind last_kind)
{
    size_t count;
    struct work_item **items;
    streams_lock();
    CUresult result = collect_last(context, last_kind, &items, &count);
    streams_unlock();
    if (result)
        return result;
    for (size_t i = 0; i < count; i++) {
        work_wait(items[i]);
        work_drop(items[i]);
    }
    free(items);
    return (CUresult)atomic_load(&context->sticky);
}

CUresult streams_drain(struct context *context)
{
    return drain(context, STREAM_NON_BLOCKING);
}

CUresult streams_drain_blocking(struct context *context)
{
    return drain(context, STREAM_BLOCKING);
}
