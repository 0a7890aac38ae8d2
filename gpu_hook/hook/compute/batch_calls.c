/* Calls of the driver about the streams of one device, none of them with the mutex: other
 * threads leave the calls that one thread is making to that thread. Records may wait for room in
 * their stream; queries wait for nothing. */
#include "compute/bursts.h"
#include "compute/burst_state.h"

#include "base/cancellation.h"
#include "base/times.h"
#include "contexts/captures.h"

#include <errno.h>
#include <time.h>

/* how soon a waiting thread sees that it is in the child of a fork */
#define LOOK_NANOSECONDS 100000000

static __thread char self __attribute__((tls_model("initial-exec")));

const void *burst_self(void)
{
    return &self;
}

bool bursts_are_abandoned(const struct bursts *bursts)
{
    return __atomic_load_n(&bursts->is_abandoned, __ATOMIC_ACQUIRE);
}

static struct timespec next_look(void)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += LOOK_NANOSECONDS;
    limit.tv_sec += limit.tv_nsec / TIMES_SECOND;
    limit.tv_nsec %= TIMES_SECOND;
    return limit;
}

bool bursts_lock(struct bursts *bursts)
{
    int code = pthread_mutex_trylock(&bursts->mutex);
    while (__builtin_expect(code != 0 && code != EDEADLK && !bursts_are_abandoned(bursts), 0)) {
        struct timespec limit = next_look();
        code = pthread_mutex_timedlock(&bursts->mutex, &limit);
    }
    return code != EDEADLK;
}

void bursts_unlock(struct bursts *bursts)
{
    pthread_mutex_unlock(&bursts->mutex);
}

void bursts_abandon(struct bursts *bursts)
{
    __atomic_store_n(&bursts->is_abandoned, true, __ATOMIC_RELEASE);
}

void bursts_await_calls(struct bursts *bursts)
{
    struct timespec limit = next_look();
    bursts->awaiting++;
    pthread_cond_timedwait(&bursts->calls_end, &bursts->mutex, &limit);
    bursts->awaiting--;
}

static void show_end_of_calls(struct bursts *bursts)
{
    if (bursts->awaiting)
        pthread_cond_broadcast(&bursts->calls_end);
}

void burst_give_up(struct bursts *bursts, struct stream_timer *timer, CUresult reason)
{
    struct burst_words *words = &bursts->words;
    for (unsigned i = 0; i < timer->events.count; i++) {
        const struct timing_event *event =
            &timer->events.ring[(timer->events.first + i) % TIMING_EVENTS_MAX];
        burst_words_take_back(words, &event->work);
        words->in_flight -= event->ended_bursts;
    }
    if (timer->is_open)
        burst_words_take_back(words, &timer->work);
    words->in_flight -= timer->has_burst;
    timer->has_burst = timer->is_open = false;
    timing_events_drop(&timer->events);
    burst_words_note_unmeasured(words, (int)reason);
}

bool burst_can_record(const struct stream_timer *timer, const struct burst_record *record,
                      unsigned places)
{
    return !record->timer && !timer->recorder && timing_events_have_room(&timer->events, places);
}

void burst_reserve(struct stream_timer *timer, const struct timed_work *work, uint64_t now,
                   struct burst_record *record)
{
    timing_events_reserve(&timer->events, work, now, &record->event);
    timer->recorder = burst_self();
    record->timer = timer;
}

static void record_now(struct timing_event_record *record)
{
    /* or other threads' captures would become invalid */
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool is_relaxed =
        captures_are_on() && driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    timing_event_record(record);
    if (is_relaxed)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
}

/* The program ended the stream while the record was on its way. If a call may be ending the
 * stream's context just now, the context takes the stream with it, or the stream is left until
 * that call has returned. */
static void end_stream(struct bursts *bursts, struct stream_timer *timer, CUstream stream)
{
    CUresult (*ends)(CUstream) = timer->ends;
    timer->left = ends && !bursts_are_touchable(bursts) ? stream : NULL;
    if (!ends || timer->left)
        return;
    timer->ends = NULL;
    bursts_unlock(bursts);
    ends(stream);
    bursts_lock(bursts);
}

void bursts_end_left_streams(struct bursts *bursts)
{
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        struct stream_timer *timer = &bursts->timers.all[i];
        if (!timer->left)
            continue;
        /* so that the next call that may end a context waits for it */
        timer->recorder = burst_self();
        end_stream(bursts, timer, timer->left);
        timer->recorder = NULL;
        show_end_of_calls(bursts);
    }
}

void burst_make_record(struct bursts *bursts, struct burst_record *record)
{
    struct stream_timer *timer = record->timer;
    if (!timer)
        return;
    DEFER_CANCELLATION;
    bursts_unlock(bursts);
    record_now(&record->event);
    bursts_lock(bursts);
    CUresult result = timing_events_commit(&timer->events, &record->event);
    if (result != CUDA_SUCCESS)
        burst_give_up(bursts, timer, result);
    end_stream(bursts, timer, record->event.stream);
    timer->recorder = NULL;
    record->timer = NULL;
    show_end_of_calls(bursts);
}

void burst_close_timer(struct stream_timer *timer, uint64_t now, struct burst_record *record)
{
    if (!timer->is_open || !burst_can_record(timer, record, 1))
        return;
    burst_reserve(timer, &timer->work, now, record);
    timer->is_open = false;
}

void burst_close_last(struct stream_timer *timer, uint64_t now, struct burst_record *record)
{
    const struct timing_event *newest = timing_events_newest(&timer->events);
    burst_close_timer(timer, now, record);
    if (!timer->is_open || record->timer || timer->recorder || !newest || !newest->work.launches)
        return;
    timing_events_move_newest(&timer->events, &timer->work, now, &record->event);
    timer->recorder = burst_self();
    record->timer = timer;
    timer->is_open = false;
}

bool burst_begin_questions(struct stream_timer *timer)
{
    if (timer->asker)
        return false;
    timer->asker = burst_self();
    return true;
}

void burst_end_questions(struct bursts *bursts, struct stream_timer *timer)
{
    timer->asker = NULL;
    show_end_of_calls(bursts);
}

static bool has_launched_since(const struct bursts *bursts, const struct stream_timer *own,
                               uint64_t since)
{
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        const struct stream_timer *timer = &bursts->timers.all[i];
        if (timer != own && (timer->launched_at >= since || stream_timer_is_busy(timer)))
            return true;
    }
    return false;
}

/* Take the work behind which no timing event was recorded. */
static void take_unseen(struct bursts *bursts, const struct timing_event *before, uint64_t now)
{
    uint64_t end = before->passed_at + before->unseen;
    struct timing_event unseen = {.passed_at = end < now ? end : now, .work = {.launches = 1}};
    if (before->unseen && unseen.passed_at > before->passed_at) {
        struct passed_timing_event passed = {&unseen, unseen.passed_at - before->passed_at, true};
        burst_words_take(&bursts->words, &passed, true, now);
    }
}

static void take(struct bursts *bursts, struct stream_timer *timer,
                 const struct passed_timing_event *passed, uint64_t now)
{
    const struct timing_event *event = passed->event;
    uint32_t ended = event->ended_bursts;
    bursts->words.in_flight -= ended < bursts->words.in_flight ? ended : bursts->words.in_flight;
    if (event->work.launches)
        burst_words_take(&bursts->words, passed,
                         has_launched_since(bursts, timer, event->passed_at - passed->nanoseconds),
                         now);
    take_unseen(bursts, event, now);
}

void burst_take_passed(struct bursts *bursts, struct stream_timer *timer, uint64_t now)
{
    enum timing_events_outcome outcome = TIMING_EVENTS_PASSED;
    struct timing_event_question question;
    struct passed_timing_event passed;
    while (outcome == TIMING_EVENTS_PASSED && bursts_are_touchable(bursts) &&
           timing_events_begin_question(&timer->events, &question)) {
        bursts_unlock(bursts);
        timing_event_ask(&question);
        bursts_lock(bursts);
        outcome = timing_events_end_question(&timer->events, &question, &passed);
        if (outcome == TIMING_EVENTS_PASSED)
            take(bursts, timer, &passed, now);
        else if (outcome == TIMING_EVENTS_BROKEN)
            burst_give_up(bursts, timer, CUDA_ERROR_UNKNOWN);
    }
}
