#include "marks.h"

#include "meter.h"
#include "times.h"

#include <string.h>

/* A float has 24 bits: from a second on its steps are longer than an event's own precision. */
#define BASE_NANOSECONDS 1000000000ull
#define PLAY_NANOSECONDS 250000ull

static struct mark *mark_at(struct marks *marks, unsigned number)
{
    return &marks->ring[number % MARKS_MOST];
}

struct mark *marks_newest(struct marks *marks)
{
    return marks->count ? mark_at(marks, marks->first + marks->count - 1) : NULL;
}

CUresult marks_record(struct marks *marks, const struct marked_work *work, uint64_t now)
{
    struct mark *mark = mark_at(marks, marks->first + marks->count);
    CUresult result = mark->event ? CUDA_SUCCESS : driver()->cuEventCreate(&mark->event, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = driver()->cuEventRecord(mark->event, marks->stream);
    else
        mark->event = NULL;
    if (result != CUDA_SUCCESS)
        return result;
    mark->recorded_at = now;
    mark->work = *work;
    mark->ended_bursts = 0;
    marks->count++;
    return CUDA_SUCCESS;
}

/* Of device time between two events; false: no time. Drivers since 12.8 know the second name. */
static bool measure(CUevent from, CUevent to, uint64_t *nanoseconds)
{
    float milliseconds = -1;
    CUresult result = driver()->cuEventElapsedTime_v2(&milliseconds, from, to);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = driver()->cuEventElapsedTime(&milliseconds, from, to);
    return result == CUDA_SUCCESS && meter_read(milliseconds, nanoseconds);
}

/* The host's clock bounds the moment on both sides: after the driver was asked, before the answer was seen. Between the
 * two the device's own clock counts on from the mark before, so that neither delay adds up. At the end of work the upper
 * bound has some play, for what is moved back would be counted as the work before it. */
static uint64_t place(const struct mark *last, const struct mark *mark, uint64_t nanoseconds, uint64_t now)
{
    uint64_t at = last ? last->passed_at + nanoseconds : mark->recorded_at;
    uint64_t latest = mark->work.launches ? now + PLAY_NANOSECONDS : now;
    if (at < mark->recorded_at)
        at = mark->recorded_at;
    return at < latest ? at : latest;
}

enum marks_outcome marks_next(struct marks *marks, struct passed_mark *passed)
{
    if (!marks->count)
        return MARKS_NONE;
    struct mark *mark = mark_at(marks, marks->first);
    CUresult result = driver()->cuEventQuery(mark->event);
    if (result == CUDA_ERROR_NOT_READY)
        return MARKS_NONE;
    if (result != CUDA_SUCCESS)
        return MARKS_BROKEN;
    uint64_t now = times_now_nanoseconds();
    const struct mark *last = marks->has_last ? mark_at(marks, marks->first + MARKS_MOST - 1) : NULL;
    bool is_work = mark->work.launches != 0;
    if (last && !is_work && mark->recorded_at > last->passed_at + BASE_NANOSECONDS)
        last = NULL;
    uint64_t nanoseconds = 0;
    bool is_measured = last && measure(last->event, mark->event, &nanoseconds);
    mark->passed_at = place(is_measured ? last : NULL, mark, nanoseconds, now);
    *passed = (struct passed_mark){mark, nanoseconds, is_measured};
    marks->first = (marks->first + 1) % MARKS_MOST;
    marks->count--;
    marks->has_last = true;
    return MARKS_PASSED;
}

void marks_drop(struct marks *marks)
{
    marks->count = 0;
    marks->has_last = false;
}

void marks_end(struct marks *marks)
{
    marks_drop(marks);
    for (unsigned i = 0; i < MARKS_MOST; i++)
        if (marks->ring[i].event)
            driver()->cuEventDestroy_v2(marks->ring[i].event);
    memset(marks->ring, 0, sizeof marks->ring);
}
