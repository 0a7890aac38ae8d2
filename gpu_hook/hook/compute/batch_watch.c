#include "compute/bursts.h"
#include "compute/burst_state.h"

#include "base/cancellation.h"
#include "contexts/green_owners.h"
#include "gate/threads.h"
#include "base/times.h"
#include "contexts/captures.h"

#include <time.h>

/* without a launch: the hook records no more events behind the open work */
#define STALE_NANOSECONDS 300000ull
/* without a launch: work that the hook may not query is over */
#define LOST_NANOSECONDS 1000000000ull
/* a record that takes longer waits for room in its stream */
#define RECORD_NANOSECONDS 100000000ull
#define ENDING_NANOSECONDS 2000000000ull /* the same in a context that is about to end */
#define STOP_PAUSE_NANOSECONDS 1000000
#define STOP_TRIES 100

void burst_end(struct bursts *bursts, struct stream_timer *timer)
{
    struct timing_event *newest = timing_events_newest(&timer->events);
    if (!timer->has_burst || timer->is_open)
        return;
    timer->has_burst = false;
    if (newest)
        newest->ended_bursts++;
    else
        bursts->words.in_flight--;
}

/* Not where the stream may be captured by now, nor where the record would be a barrier:
 * close_late ends those. */
static bool may_close(const struct bursts *bursts, const struct stream_timer *timer,
                      CUcontext current)
{
    return bursts_are_touchable(bursts) && timer->is_taken && timer->is_open &&
           !stream_timer_entering(timer) && current == timer->events.context &&
           !captures_are_on() && !(stream_timer_is_legacy(timer) && bursts->timers.has_blocking);
}

void bursts_close(struct bursts *bursts, struct stream_timer *timer)
{
    struct burst_record record = {0};
    uint64_t now = times_now_nanoseconds();
    CUcontext current = NULL;
    DEFER_CANCELLATION;
    if (driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || !bursts_lock(bursts))
        return;
    if (may_close(bursts, timer, current))
        burst_close_last(timer, now, &record);
    burst_make_record(bursts, &record);
    bursts_unlock(bursts);
}

/* The open work has ended, and no timing event tells when: it counts for as long as its launches
 * take alone, and at least until it was last seen running. */
static void end_unseen(struct bursts *bursts, struct stream_timer *timer, uint64_t now)
{
    uint64_t start = timing_events_last_passed(&timer->events), end = start + timer->work.expected;
    end = end > timer->running_at ? end : timer->running_at;
    struct timing_event unseen = {.passed_at = end < now ? end : now, .work = timer->work};
    struct passed_timing_event passed = {
        &unseen, unseen.passed_at > start ? unseen.passed_at - start : 0, start != 0};
    unseen.work.function = NULL;
    timer->is_open = false;
    burst_words_take(&bursts->words, &passed, true, now);
}

/* Close a timer late, whose launching threads record no more. Its work is over when the stream is
 * through; the end lies between then and the last time when the stream was not. Nothing is recorded
 * here: another thread may not wait for room in the stream, has another default stream, and would
 * make a barrier in the legacy one. Only its own thread can ask about a default stream, and may
 * have ended; and no thread asks about a stream that may be captured, while any capture lasts.
 * Releases the mutex meanwhile. */
static void close_late(struct bursts *bursts, struct stream_timer *timer, uint64_t now)
{
    bool is_anothers = timer->events.stream == CU_STREAM_PER_THREAD && timer->thread != threads_own;
    bool may_ask = !is_anothers && !captures_are_on();
    bool is_through = now - timer->launched_at > LOST_NANOSECONDS;
    if (may_ask) {
        CUstream stream = timer->events.stream;
        /* of which some leave launched_at as it is */
        uint32_t number = timer->number, launches = timer->work.launches;
        uint64_t launched_at = timer->launched_at;
        bursts_unlock(bursts);
        is_through = driver()->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
        bursts_lock(bursts);
        if (timer->number != number || timer->launched_at != launched_at ||
            timer->work.launches != launches || stream_timer_entering(timer) || !timer->is_open)
            return;
    }
    if (may_ask && !is_through)
        timer->running_at = now;
    else if (is_through && !timer->events.count)
        end_unseen(bursts, timer, now);
}

/* No thread launches into the timer any more for now. */
static void close_stale(struct bursts *bursts, struct stream_timer *timer, uint64_t now)
{
    if (stream_timer_entering(timer) || now - timer->launched_at < STALE_NANOSECONDS)
        return;
    if (timer->is_open)
        close_late(bursts, timer, now);
    burst_end(bursts, timer);
}

/* Releases the mutex, and reads the clock each time that it has it back, so that launches in the
 * meantime are not in the future. */
static void poll_timer(struct bursts *bursts, struct stream_timer *timer)
{
    CUcontext context = timer->events.context;
    bool is_pushed;
    if (!burst_begin_questions(timer))
        return;
    bursts_unlock(bursts);
    bool is_there = stream_timer_enter_context(context, &is_pushed);
    bursts_lock(bursts);
    if (is_there) {
        burst_take_passed(bursts, timer, times_now_nanoseconds());
        if (timer->events.stream && bursts_are_touchable(bursts))
            close_stale(bursts, timer, times_now_nanoseconds());
        if (!stream_timer_is_busy(timer))
            burst_end(bursts, timer);
        if (!stream_timer_is_busy(timer) && !timer->events.stream)
            timer->is_taken = false;
    }
    if (is_pushed) {
        bursts_unlock(bursts);
        stream_timer_leave_context(true);
        bursts_lock(bursts);
    }
    burst_end_questions(bursts, timer);
}

bool bursts_poll(struct bursts *bursts, bool is_relaxed)
{
    bool is_busy = false;
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return true;
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        struct stream_timer *timer = &bursts->timers.all[i];
        bool may_ask = bursts_are_touchable(bursts) && (is_relaxed || !captures_are_on());
        if (may_ask && timer->is_taken && (stream_timer_is_busy(timer) || timer->has_burst))
            poll_timer(bursts, timer);
    }
    for (unsigned i = 0; i < bursts->timers.count; i++)
        is_busy |= bursts->timers.all[i].is_taken && stream_timer_is_busy(&bursts->timers.all[i]);
    if (!is_busy)
        burst_words_show_active(&bursts->words, false);
    burst_words_publish(&bursts->words, times_now_nanoseconds());
    bursts_unlock(bursts);
    return is_busy;
}

bool bursts_can_begin(struct bursts *bursts)
{
    struct burst_terms terms;
    if (pthread_mutex_trylock(&bursts->mutex) != 0)
        return true; /* this thread queries, and learns */
    bool may_begin = bursts->words.waiting &&
                     (!burst_words_read(&bursts->words, &terms) ||
                      !burst_words_ask(&bursts->words, &terms.order, times_now_nanoseconds()));
    bursts_unlock(bursts);
    return may_begin;
}

/* A look without a change is not worth a wait: the session's thread serves other work, too. */
void bursts_count_waiting(struct bursts *bursts, int change)
{
    if (pthread_mutex_trylock(&bursts->mutex) != 0) {
        if (change == 0)
            return;
        if (!bursts_lock(bursts))
            return;
    }
    burst_words_count_waiting(&bursts->words, change, times_now_nanoseconds());
    bursts_unlock(bursts);
}

/* Return whether another thread is making driver calls about the stream, or any such calls for
 * NULL. */
static bool are_asking(const struct bursts *bursts, CUstream stream)
{
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        const struct stream_timer *timer = &bursts->timers.all[i];
        if (timer->asker && timer->asker != burst_self() &&
            (!stream || timer->events.stream == stream))
            return true;
    }
    return false;
}

static bool are_recording(const struct bursts *bursts, CUstream stream)
{
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        const struct stream_timer *timer = &bursts->timers.all[i];
        if (timer->recorder && timer->recorder != burst_self() &&
            (!stream || timer->events.stream == stream))
            return true;
    }
    return false;
}

/* Queries end soon. A record does not if its stream has no room, which the program may be about
 * to make. */
static void await_calls(struct bursts *bursts, CUstream questions_of, CUstream records_of)
{
    uint64_t until = times_now_nanoseconds() + RECORD_NANOSECONDS;
    while (!bursts_are_abandoned(bursts) &&
           (are_asking(bursts, questions_of) ||
            (are_recording(bursts, records_of) && times_now_nanoseconds() < until)))
        bursts_await_calls(bursts);
}

void bursts_begin_capture(struct bursts *bursts, CUstream stream)
{
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return;
    await_calls(bursts, NULL, stream ? stream : CU_STREAM_LEGACY);
    bursts_unlock(bursts);
}

void bursts_note_blocking(struct bursts *bursts)
{
    if (!bursts_lock(bursts))
        return;
    bursts->timers.has_blocking = true;
    bursts_unlock(bursts);
}

/* No event is recorded behind the open work: it counts for as long as its launches take alone. */
static void end_timer(struct bursts *bursts, struct stream_timer *timer, uint64_t now)
{
    struct timing_event *newest = timing_events_newest(&timer->events);
    if (timer->is_open && newest) {
        newest->unseen += timer->work.expected;
        burst_words_take_back(&bursts->words, &timer->work);
        timer->is_open = false;
    } else if (timer->is_open) {
        end_unseen(bursts, timer, now);
    }
    burst_end(bursts, timer);
    stream_timer_let_go(timer);
    timer->is_taken = stream_timer_is_busy(timer);
}

bool bursts_end_stream(struct bursts *bursts, CUstream stream, CUresult (*real)(CUstream))
{
    uint64_t now = times_now_nanoseconds();
    bool is_left = false;
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return false;
    while (are_asking(bursts, stream) && !bursts_are_abandoned(bursts))
        bursts_await_calls(bursts);
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        struct stream_timer *timer = &bursts->timers.all[i];
        if (!timer->is_taken || timer->events.stream != stream)
            continue;
        if (timer->recorder) {
            timer->ends = real;
            is_left = true;
        }
        end_timer(bursts, timer, now);
    }
    bursts_unlock(bursts);
    return is_left;
}

static bool is_in(const struct stream_timer *timer, CUcontext context)
{
    CUcontext own = timer->events.context;
    return own && (own == context || green_owner(own) == context);
}

static bool are_recording_in(const struct bursts *bursts, CUcontext context)
{
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        const struct stream_timer *timer = &bursts->timers.all[i];
        if (timer->recorder && timer->recorder != burst_self() && is_in(timer, context))
            return true;
    }
    return false;
}

void bursts_suspend(struct bursts *bursts, CUcontext ending)
{
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return;
    bursts->suspended++;
    await_calls(bursts, NULL, NULL);
    uint64_t until = times_now_nanoseconds() + ENDING_NANOSECONDS;
    while (!bursts_are_abandoned(bursts) && are_recording_in(bursts, ending) &&
           times_now_nanoseconds() < until)
        bursts_await_calls(bursts);
    bursts_unlock(bursts);
}

static void forget_context(struct bursts *bursts, CUcontext context)
{
    for (unsigned i = 0; i < bursts->timers.count; i++) {
        struct stream_timer *timer = &bursts->timers.all[i];
        if (is_in(timer, context)) {
            burst_give_up(bursts, timer, CUDA_SUCCESS);
            stream_timer_forget(timer);
        }
    }
}

void bursts_resume(struct bursts *bursts, CUcontext ended)
{
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return;
    /* 0 of a device that is newer than the suspension */
    bursts->suspended -= bursts->suspended > 0;
    if (ended && !bursts->is_stopped)
        forget_context(bursts, ended);
    bursts_end_left_streams(bursts);
    bursts_unlock(bursts);
}

void bursts_registered(struct bursts *bursts)
{
    struct burst_terms terms;
    uint64_t now = times_now_nanoseconds();
    if (!bursts_lock(bursts))
        return; /* later words go to the new page */
    burst_words_read(&bursts->words, &terms);
    burst_words_add_blocks(&bursts->words, 0);
    burst_words_count_waiting(&bursts->words, 0, now);
    burst_words_publish(&bursts->words, now);
    bursts_unlock(bursts);
}

/* A signal's handler may end the program while its own thread holds the mutex, or is in a driver
 * call. */
void bursts_stop(struct bursts *bursts)
{
    const struct timespec pause = {0, STOP_PAUSE_NANOSECONDS};
    bool is_quiet = false;
    for (int tries = 0; tries < STOP_TRIES && !is_quiet; tries++) {
        if (pthread_mutex_trylock(&bursts->mutex) == 0) {
            bursts->is_stopped = true;
            is_quiet = !are_asking(bursts, NULL) && !are_recording(bursts, NULL);
            bursts_unlock(bursts);
        }
        if (!is_quiet)
            nanosleep(&pause, NULL);
    }
}
