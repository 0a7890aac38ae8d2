/* Calls of the driver about the streams of one device, none of them with the mutex: other
 * threads leave the calls that one thread is making to that thread. Records may wait for room in
 * their stream; queries wait for nothing. */
#include "compute/batches.h"
#include "compute/batch_state.h"

#include "base/cancellation.h"
#include "base/times.h"
#include "contexts/captures.h"

#include <errno.h>
#include <time.h>

/* how soon a waiting thread sees that it is in the child of a fork */
#define LOOK_NANOSECONDS 100000000

static __thread char self __attribute__((tls_model("initial-exec")));

const void *batch_self(void)
{
    return &self;
}

bool batches_are_abandoned(const struct batches *batches)
{
    return __atomic_load_n(&batches->is_abandoned, __ATOMIC_ACQUIRE);
}

static struct timespec lock_limit(void)
{
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += LOOK_NANOSECONDS;
    limit.tv_sec += limit.tv_nsec / TIMES_SECOND;
    limit.tv_nsec %= TIMES_SECOND;
    return limit;
}

bool batches_lock(struct batches *batches)
{
    int code = pthread_mutex_trylock(&batches->mutex);
    while (__builtin_expect(code != 0 && code != EDEADLK && !batches_are_abandoned(batches), 0)) {
        struct timespec limit = lock_limit();
        code = pthread_mutex_timedlock(&batches->mutex, &limit);
    }
    return code != EDEADLK;
}

void batches_unlock(struct batches *batches)
{
    pthread_mutex_unlock(&batches->mutex);
}

void batches_abandon(struct batches *batches)
{
    __atomic_store_n(&batches->is_abandoned, true, __ATOMIC_RELEASE);
}

void batches_await_calls(struct batches *batches)
{
    struct timespec limit = lock_limit();
    batches->awaiting++;
    pthread_cond_timedwait(&batches->calls_end, &batches->mutex, &limit);
    batches->awaiting--;
}

static void show_end_of_calls(struct batches *batches)
{
    if (batches->awaiting)
        pthread_cond_broadcast(&batches->calls_end);
}

void batch_give_up(struct batches *batches, struct stream_timer *timer, CUresult reason)
{
    struct batch_words *words = &batches->words;
    for (unsigned i = 0; i < timer->events.count; i++) {
        const struct timing_event *event =
            &timer->events.ring[(timer->events.first + i) % TIMING_EVENTS_MAX];
        batch_words_take_back(words, &event->work);
        words->in_flight -= event->ended_batches;
    }
    if (timer->is_open)
        batch_words_take_back(words, &timer->work);
    words->in_flight -= timer->has_batch;
    timer->has_batch = timer->is_open = false;
    timing_events_drop(&timer->events);
    batch_words_note_unmeasured(words, (int)reason);
}

bool batch_can_record(const struct stream_timer *timer, const struct batch_record *record,
                      unsigned places)
{
    return !record->timer && !timer->recorder && timing_events_have_room(&timer->events, places);
}

void batch_reserve(struct stream_timer *timer, const struct timed_work *work, uint64_t now,
                   struct batch_record *record)
{
    timing_events_reserve(&timer->events, work, now, &record->event);
    timer->recorder = batch_self();
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
static void end_stream(struct batches *batches, struct stream_timer *timer, CUstream stream)
{
    CUresult (*ends)(CUstream) = timer->ends;
    timer->left = ends && !batches_are_touchable(batches) ? stream : NULL;
    if (!ends || timer->left)
        return;
    timer->ends = NULL;
    batches_unlock(batches);
    ends(stream);
    batches_lock(batches);
}

void batches_end_left_streams(struct batches *batches)
{
    for (unsigned i = 0; i < batches->timers.count; i++) {
        struct stream_timer *timer = &batches->timers.all[i];
        if (!timer->left)
            continue;
        /* so that the next call that may end a context waits for it */
        timer->recorder = batch_self();
        end_stream(batches, timer, timer->left);
        timer->recorder = NULL;
        show_end_of_calls(batches);
    }
}

void batch_make_record(struct batches *batches, struct batch_record *record)
{
    struct stream_timer *timer = record->timer;
    if (!timer)
        return;
    DEFER_CANCELLATION;
    batches_unlock(batches);
    record_now(&record->event);
    batches_lock(batches);
    CUresult result = timing_events_commit(&timer->events, &record->event);
    if (result != CUDA_SUCCESS)
        batch_give_up(batches, timer, result);
    end_stream(batches, timer, record->event.stream);
    timer->recorder = NULL;
    record->timer = NULL;
    show_end_of_calls(batches);
}

uint64_t batch_idle_before(struct stream_timer *timer, uint64_t now)
{
    const struct timing_event *newest = timing_events_newest(&timer->events);
    uint64_t since = timer->through_at;
    if (!timer->is_open && !newest)
        since = timing_events_last_passed(&timer->events);
    else if (!timer->is_open && newest->recorded_at > since)
        since = newest->recorded_at;
    return now > since + SHARED_NANOSECONDS ? now - since : 0;
}

void batch_note_idle(struct stream_timer *timer, uint64_t now)
{
    if (!timer->work.is_sampled)
        return;
    timer->work.idle += batch_idle_before(timer, now);
    timer->through_at = timer->through_at > now ? timer->through_at : now;
}

void batch_close_timer(struct stream_timer *timer, uint64_t now, struct batch_record *record)
{
    if (!timer->is_open || !batch_can_record(timer, record, 1))
        return;
    batch_note_idle(timer, now);
    batch_reserve(timer, &timer->work, now, record);
    timer->is_open = false;
}

void batch_close_last(struct stream_timer *timer, uint64_t now, struct batch_record *record)
{
    const struct timing_event *newest = timing_events_newest(&timer->events);
    batch_close_timer(timer, now, record);
    if (!timer->is_open || record->timer || timer->recorder || !newest || !newest->work.launches)
        return;
    batch_note_idle(timer, now);
    timing_events_move_newest(&timer->events, &timer->work, now, &record->event);
    timer->recorder = batch_self();
    record->timer = timer;
    timer->is_open = false;
}

bool batch_begin_questions(struct stream_timer *timer)
{
    if (timer->asker)
        return false;
    timer->asker = batch_self();
    return true;
}

void batch_end_questions(struct batches *batches, struct stream_timer *timer)
{
    timer->asker = NULL;
    show_end_of_calls(batches);
}

static bool has_launched_since(const struct batches *batches, const struct stream_timer *own,
                               uint64_t since)
{
    for (unsigned i = 0; i < batches->timers.count; i++) {
        const struct stream_timer *timer = &batches->timers.all[i];
        if (timer != own && (timer->launched_at >= since || stream_timer_is_busy(timer)))
            return true;
    }
    return false;
}

/* Take the work behind which no timing event was recorded. */
static void take_unseen(struct batches *batches, const struct timing_event *before, uint64_t now)
{
    uint64_t end = before->passed_at + before->unseen;
    struct timing_event unseen = {.passed_at = end < now ? end : now, .work = {.launches = 1}};
    if (before->unseen && unseen.passed_at > before->passed_at) {
        struct passed_timing_event passed = {&unseen, unseen.passed_at - before->passed_at, true};
        batch_words_take(&batches->words, &passed, true, now);
    }
}

static void take(struct batches *batches, struct stream_timer *timer,
                 const struct passed_timing_event *passed, uint64_t now)
{
    const struct timing_event *event = passed->event;
    uint32_t ended = event->ended_batches;
    batches->words.in_flight -= ended < batches->words.in_flight ? ended : batches->words.in_flight;
    if (event->work.launches)
        batch_words_take(&batches->words, passed,
                         has_launched_since(batches, timer, event->passed_at - passed->nanoseconds),
                         now);
    take_unseen(batches, event, now);
}

void batch_take_passed(struct batches *batches, struct stream_timer *timer, uint64_t now)
{
    enum timing_events_outcome outcome = TIMING_EVENTS_PASSED;
    struct timing_event_question question;
    struct passed_timing_event passed;
    while (outcome == TIMING_EVENTS_PASSED && batches_are_touchable(batches) &&
           timing_events_begin_question(&timer->events, &question)) {
        batches_unlock(batches);
        timing_event_ask(&question);
        batches_lock(batches);
        outcome = timing_events_end_question(&timer->events, &question, &passed);
        if (outcome == TIMING_EVENTS_PASSED)
            take(batches, timer, &passed, now);
        else if (outcome == TIMING_EVENTS_BROKEN)
            batch_give_up(batches, timer, CUDA_ERROR_UNKNOWN);
    }
}
