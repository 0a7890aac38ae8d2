/* Looks ahead in a queue: a launch behind a running one runs next, however late its thread wakes.
 * The engine must know of it, or the processes behind it would get its time. */
#include "driver/driver.h"
#include "device/engine.h"
#include "queue/streams_state.h"

int work_is_ready(const struct work_item *work)
{
    for (const struct dependency *d = work->dependencies; d; d = d->next)
        if (!d->work->is_done)
            return 0;
    return 1;
}

void stream_expect_next(struct stream *stream)
{
    struct work_item *head = stream->head;
    struct work_item *next = head && head->is_started && head->pace == WORK_ON_ENGINE ? head->next : NULL;
    while (next && next->pace == WORK_AT_ONCE && work_is_ready(next))
        next = next->next;
    if (next == NULL || next->pace != WORK_ON_ENGINE || next->is_expected || !work_is_ready(next))
        return;
    next->is_expected = 1;
    engine_expect(&driver.attachment, stream->context->physical);
}

void stream_unexpect(struct stream *stream, struct work_item *work)
{
    if (work->is_expected)
        engine_unexpect(&driver.attachment, stream->context->physical);
    work->is_expected = 0;
}
