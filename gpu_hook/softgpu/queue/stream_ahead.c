/* Looking ahead in a queue: a launch behind a running one runs next, however late its thread wakes. The engine must know
 * of it, or the processes behind would get what is this one's. */
#include "driver/driver.h"
#include "device/engine.h"
#include "queue/streams_state.h"

int work_is_ready(const struct work *work)
{
    for (const struct dependency *d = work->dependencies; d; d = d->next)
        if (!d->work->is_done)
            return 0;
    return 1;
}

void stream_expect_next(struct stream *stream)
{
    struct work *head = stream->head, *next = head && head->is_started && head->pace == WORK_ON_ENGINE ? head->next : NULL;
    while (next && next->pace == WORK_AT_ONCE && work_is_ready(next))
        next = next->next;
    if (next == NULL || next->pace != WORK_ON_ENGINE || next->is_expected || !work_is_ready(next))
        return;
    next->is_expected = 1;
    engine_expect(&driver.seat, stream->context->physical);
}

void stream_unexpect(struct stream *stream, struct work *work)
{
    if (work->is_expected)
        engine_unexpect(&driver.seat, stream->context->physical);
    work->is_expected = 0;
}
