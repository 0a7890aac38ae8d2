#include "compute/timing_events.h"

#include "compute/meter.h"
#include "base/times.h"

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

static struct milestone *begin_record(struct milestones *milestones, unsigned number, uint64_t now,
                                      struct milestone_record *record)
{
    struct milestone *milestone = milestone_at(milestones, number);
    *record = (struct milestone_record){
        .context = milestones->context,
        .stream = milestones->stream,
        .event = milestone->event,
        .place = number % MILESTONES_MOST,
        .drops = milestones->drops,
    };
    milestone->is_recorded = false;
    milestone->recorded_at = now;
    return milestone;
}

void milestones_reserve(struct milestones *milestones, const struct timed_work *work, uint64_t now,
                        struct milestone_record *record)
{
    struct milestone *milestone = begin_record(milestones, milestones->first + milestones->count, now, record);
    milestone->work = *work;
    milestone->ended_bursts = 0;
    milestone->unseen = 0;
    milestones->count++;
}

void milestones_move_newest(struct milestones *milestones, const struct timed_work *work, uint64_t now,
                            struct milestone_record *record)
{
    struct milestone *milestone = begin_record(milestones, milestones->first + milestones->count - 1, now, record);
    milestone->work.function = NULL;
    milestone->work.expected += work->expected;
    milestone->work.launches += work->launches;
    milestone->work.was_unknown += work->was_unknown;
}

void milestone_record(struct milestone_record *record)
{
    record->result = record->event ? CUDA_SUCCESS : driver()->cuEventCreate(&record->event, CU_EVENT_DEFAULT);
    if (record->result == CUDA_SUCCESS)
        record->result = driver()->cuEventRecord(record->event, record->stream);
    else
        record->event = NULL;
}

CUresult milestones_commit(struct milestones *milestones, const struct milestone_record *record)
{
    struct milestone *milestone = &milestones->ring[record->place];
    if (milestones->context == record->context && !milestone->event)
        milestone->event = record->event;
    if (milestones->drops != record->drops)
        return CUDA_SUCCESS;
    milestone->is_recorded = record->result == CUDA_SUCCESS;
    return record->result;
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

bool milestones_begin_question(const struct milestones *milestones, struct milestone_question *question)
{
    const struct milestone *milestone = &milestones->ring[milestones->first % MILESTONES_MOST];
    const struct milestone *last = &milestones->ring[(milestones->first + MILESTONES_MOST - 1) % MILESTONES_MOST];
    if (!milestones->count || !milestone->is_recorded)
        return false;
    bool has_last = milestones->has_last && (milestone->work.launches != 0 ||
                                             milestone->recorded_at <= last->passed_at + BASE_NANOSECONDS);
    *question = (struct milestone_question){
        .event = milestone->event,
        .last = has_last ? last->event : NULL,
        .drops = milestones->drops,
    };
    return true;
}

void milestone_ask(struct milestone_question *question)
{
    question->result = driver()->cuEventQuery(question->event);
    if (question->result != CUDA_SUCCESS)
        return;
    question->now = times_now_nanoseconds();
    question->is_measured = question->last && measure(question->last, question->event, &question->nanoseconds);
}

enum milestones_outcome milestones_end_question(struct milestones *milestones, const struct milestone_question *question,
                                                struct passed_milestone *passed)
{
    if (milestones->drops != question->drops || question->result == CUDA_ERROR_NOT_READY)
        return MILESTONES_NONE;
    if (question->result != CUDA_SUCCESS)
        return MILESTONES_BROKEN;
    struct milestone *milestone = milestone_at(milestones, milestones->first);
    const struct milestone *last = milestone_at(milestones, milestones->first + MILESTONES_MOST - 1);
    milestone->passed_at = place(question->is_measured ? last : NULL, milestone, question->nanoseconds, question->now);
    *passed = (struct passed_milestone){milestone, question->nanoseconds, question->is_measured};
    milestones->first = (milestones->first + 1) % MILESTONES_MOST;
    milestones->count--;
    milestones->has_last = true;
    return MILESTONES_PASSED;
}

void milestones_drop(struct milestones *milestones)
{
    milestones->count = 0;
    milestones->has_last = false;
    milestones->drops++;
}

unsigned milestones_forget(struct milestones *milestones, CUevent forgotten[MILESTONES_MOST])
{
    unsigned count = 0;
    milestones_drop(milestones);
    milestones->context = NULL;
    milestones->stream = NULL;
    for (unsigned i = 0; i < MILESTONES_MOST; i++) {
        if (milestones->ring[i].event)
            forgotten[count++] = milestones->ring[i].event;
        milestones->ring[i].event = NULL;
    }
    return count;
}
