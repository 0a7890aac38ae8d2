#include "milestones.h"

#include "meter.h"
#include "times.h"

#include <string.h>

/* A float has 24 bits: from a second on its steps are longer than an event's own precision. */
#define BASE_NANOSECONDS 1000000000ull
#define PLAY_NANOSECONDS 250000ull

static struct milestone *milestone_at(struct milestones *milestones, unsigned number)
{
    return &milestones->ring[number % MILESTONES_MOST];
}

struct milestone *milestones_newest(struct milestones *milestones)
{
    return milestones->count ? milestone_at(milestones, milestones->first + milestones->count - 1) : NULL;
}

uint64_t milestones_last_passed(const struct milestones *milestones)
{
    return milestones->has_last ? milestones->ring[(milestones->first + MILESTONES_MOST - 1) % MILESTONES_MOST].passed_at : 0;
}

CUresult milestones_record(struct milestones *milestones, const struct timed_work *work, uint64_t now)
{
    struct milestone *milestone = milestone_at(milestones, milestones->first + milestones->count);
    CUresult result = milestone->event ? CUDA_SUCCESS : driver()->cuEventCreate(&milestone->event, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = driver()->cuEventRecord(milestone->event, milestones->stream);
    else
        milestone->event = NULL;
    if (result != CUDA_SUCCESS)
        return result;
    milestone->recorded_at = now;
    milestone->work = *work;
    milestone->ended_bursts = 0;
    milestones->count++;
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
 * two the device's own clock counts on from the milestone before, so that neither delay adds up. At the end of work the upper
 * bound has some play, for what is moved back would be counted as the work before it. */
static uint64_t place(const struct milestone *last, const struct milestone *milestone, uint64_t nanoseconds, uint64_t now)
{
    uint64_t at = last ? last->passed_at + nanoseconds : milestone->recorded_at;
    uint64_t latest = milestone->work.launches ? now + PLAY_NANOSECONDS : now;
    if (at < milestone->recorded_at)
        at = milestone->recorded_at;
    return at < latest ? at : latest;
}

enum milestones_outcome milestones_next(struct milestones *milestones, struct passed_milestone *passed)
{
    if (!milestones->count)
        return MILESTONES_NONE;
    struct milestone *milestone = milestone_at(milestones, milestones->first);
    CUresult result = driver()->cuEventQuery(milestone->event);
    if (result == CUDA_ERROR_NOT_READY)
        return MILESTONES_NONE;
    if (result != CUDA_SUCCESS)
        return MILESTONES_BROKEN;
    uint64_t now = times_now_nanoseconds();
    const struct milestone *before = milestone_at(milestones, milestones->first + MILESTONES_MOST - 1);
    const struct milestone *last = milestones->has_last ? before : NULL;
    bool is_work = milestone->work.launches != 0;
    if (last && !is_work && milestone->recorded_at > last->passed_at + BASE_NANOSECONDS)
        last = NULL;
    uint64_t nanoseconds = 0;
    bool is_measured = last && measure(last->event, milestone->event, &nanoseconds);
    milestone->passed_at = place(is_measured ? last : NULL, milestone, nanoseconds, now);
    *passed = (struct passed_milestone){milestone, nanoseconds, is_measured};
    milestones->first = (milestones->first + 1) % MILESTONES_MOST;
    milestones->count--;
    milestones->has_last = true;
    return MILESTONES_PASSED;
}

void milestones_drop(struct milestones *milestones)
{
    milestones->count = 0;
    milestones->has_last = false;
}

void milestones_end(struct milestones *milestones)
{
    milestones_drop(milestones);
    for (unsigned i = 0; i < MILESTONES_MOST; i++)
        if (milestones->ring[i].event)
            driver()->cuEventDestroy_v2(milestones->ring[i].event);
    memset(milestones->ring, 0, sizeof milestones->ring);
}
