#include "compute/timing_events.h"

#include "compute/meter.h"
#include "base/times.h"

/* A float has 24 bits: from a second on its steps are longer than an event's own precision. */
#define BASE_NANOSECONDS 1000000000ull
#define PLAY_NANOSECONDS 250000ull

static struct timing_event *timing_event_at(struct timing_events *events, unsigned number)
{
    return &events->ring[number % TIMING_EVENTS_MAX];
}

struct timing_event *timing_events_newest(struct timing_events *events)
{
    return events->count ? timing_event_at(events, events->first + events->count - 1) : NULL;
}

static const struct timing_event *last_passed(const struct timing_events *events)
{
    unsigned place = (events->first + TIMING_EVENTS_MAX - 1) % TIMING_EVENTS_MAX;
    return events->has_last ? &events->ring[place] : NULL;
}

uint64_t timing_events_last_passed(const struct timing_events *events)
{
    const struct timing_event *last = last_passed(events);
    return last ? last->passed_at : 0;
}

uint64_t timing_events_last_recorded(struct timing_events *events)
{
    const struct timing_event *newest = timing_events_newest(events);
    newest = newest ? newest : last_passed(events);
    return newest ? newest->recorded_at : 0;
}

static struct timing_event *begin_record(struct timing_events *events, unsigned number,
                                         uint64_t now, struct timing_event_record *record)
{
    struct timing_event *event = timing_event_at(events, number);
    *record = (struct timing_event_record){
        .context = events->context,
        .stream = events->stream,
        .event = event->event,
        .place = number % TIMING_EVENTS_MAX,
        .drops = events->drops,
    };
    event->is_recorded = false;
    event->recorded_at = now;
    return event;
}

void timing_events_reserve(struct timing_events *events, const struct timed_work *work,
                           uint64_t now, struct timing_event_record *record)
{
    struct timing_event *event = begin_record(events, events->first + events->count, now, record);
    event->work = *work;
    event->ended_batches = 0;
    event->unseen = 0;
    events->count++;
}

void timing_events_move_newest(struct timing_events *events, const struct timed_work *work,
                               uint64_t now, struct timing_event_record *record)
{
    struct timing_event *event =
        begin_record(events, events->first + events->count - 1, now, record);
    event->work.function = NULL;
    event->work.expected += work->expected;
    event->work.idle += work->idle;
    event->work.launches += work->launches;
    event->work.was_unknown += work->was_unknown;
}

void timing_event_record(struct timing_event_record *record)
{
    record->result =
        record->event ? CUDA_SUCCESS : driver()->cuEventCreate(&record->event, CU_EVENT_DEFAULT);
    if (record->result == CUDA_SUCCESS)
        record->result = driver()->cuEventRecord(record->event, record->stream);
    else
        record->event = NULL;
}

CUresult timing_events_commit(struct timing_events *events,
                              const struct timing_event_record *record)
{
    struct timing_event *event = &events->ring[record->place];
    if (events->context == record->context && !event->event)
        event->event = record->event;
    if (events->drops != record->drops)
        return CUDA_SUCCESS;
    event->is_recorded = record->result == CUDA_SUCCESS;
    return record->result;
}

/* Measure the device time between two events; false: the answer is no time. Drivers since 12.8 know
 * the second name. */
static bool measure(CUevent from, CUevent to, uint64_t *nanoseconds)
{
    float milliseconds = -1;
    CUresult result = driver()->cuEventElapsedTime_v2(&milliseconds, from, to);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        result = driver()->cuEventElapsedTime(&milliseconds, from, to);
    return result == CUDA_SUCCESS && meter_read(milliseconds, nanoseconds);
}

/* The host's clock bounds the moment on both sides: after the query to the driver, before its
 * answer. Between the two the device's own clock counts on from the timing event before, so that
 * neither delay adds up. At the end of work the upper bound has some play, since time that is
 * moved back would count as the work before it. */
static uint64_t place(const struct timing_event *last, const struct timing_event *event,
                      uint64_t nanoseconds, uint64_t now)
{
    uint64_t at = last ? last->passed_at + nanoseconds : event->recorded_at;
    uint64_t latest = event->work.launches ? now + PLAY_NANOSECONDS : now;
    if (at < event->recorded_at)
        at = event->recorded_at;
    return at < latest ? at : latest;
}

bool timing_events_begin_question(const struct timing_events *events,
                                  struct timing_event_question *question)
{
    const struct timing_event *event = &events->ring[events->first % TIMING_EVENTS_MAX];
    const struct timing_event *last =
        &events->ring[(events->first + TIMING_EVENTS_MAX - 1) % TIMING_EVENTS_MAX];
    if (!events->count || !event->is_recorded)
        return false;
    bool has_last = events->has_last && (event->work.launches != 0 ||
                                         event->recorded_at <= last->passed_at + BASE_NANOSECONDS);
    *question = (struct timing_event_question){
        .event = event->event,
        .last = has_last ? last->event : NULL,
        .drops = events->drops,
    };
    return true;
}

void timing_event_ask(struct timing_event_question *question)
{
    question->result = driver()->cuEventQuery(question->event);
    if (question->result != CUDA_SUCCESS)
        return;
    question->now = times_now_nanoseconds();
    question->is_measured =
        question->last && measure(question->last, question->event, &question->nanoseconds);
}

enum timing_events_outcome timing_events_end_question(struct timing_events *events,
                                                      const struct timing_event_question *question,
                                                      struct passed_timing_event *passed)
{
    if (events->drops != question->drops || question->result == CUDA_ERROR_NOT_READY)
        return TIMING_EVENTS_NONE;
    if (question->result != CUDA_SUCCESS)
        return TIMING_EVENTS_BROKEN;
    struct timing_event *event = timing_event_at(events, events->first);
    const struct timing_event *last =
        timing_event_at(events, events->first + TIMING_EVENTS_MAX - 1);
    event->passed_at =
        place(question->is_measured ? last : NULL, event, question->nanoseconds, question->now);
    *passed = (struct passed_timing_event){event, question->nanoseconds, question->is_measured};
    events->first = (events->first + 1) % TIMING_EVENTS_MAX;
    events->count--;
    events->has_last = true;
    return TIMING_EVENTS_PASSED;
}

void timing_events_drop(struct timing_events *events)
{
    events->count = 0;
    events->has_last = false;
    events->drops++;
}

unsigned timing_events_forget(struct timing_events *events, CUevent forgotten[TIMING_EVENTS_MAX])
{
    unsigned count = 0;
    timing_events_drop(events);
    events->context = NULL;
    events->stream = NULL;
    for (unsigned i = 0; i < TIMING_EVENTS_MAX; i++) {
        if (events->ring[i].event)
            forgotten[count++] = events->ring[i].event;
        events->ring[i].event = NULL;
    }
    return count;
}
