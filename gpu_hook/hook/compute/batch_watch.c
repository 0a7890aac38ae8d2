#include "compute/batches.h"
#include "compute/batch_state.h"

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

void batch_end(struct batches *batches, struct stream_timer *timer)
{
    struct timing_event *newest = timing_events_newest(&timer->events);
    if (!timer->has_batch || timer->is_open)
        return;
    timer->has_batch = false;
    if (newest)
        newest->ended_batches++;
    else
        batches->words.in_flight--;
}

/* Not where the stream may be captured by now, nor where the record would be a barrier:
 * close_late ends those. */
static bool may_close(const struct batches *batches, const struct stream_timer *timer,
                      CUcontext current)
{
    return batches_are_touchable(batches) && timer->is_taken && timer->is_open &&
           !stream_timer_entering(timer) && current == timer->events.context &&
           !captures_are_on() && !(stream_timer_is_legacy(timer) && batches->timers.has_blocking);
}

void batches_close(struct batches *batches, struct stream_timer *timer)
{
    struct batch_record record = {0};
    uint64_t now = times_now_nanoseconds();
    CUcontext current = NULL;
    DEFER_CANCELLATION;
    if (driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || !batches_lock(batches))
        return;
    bool stays_open = timer->work.is_sampled && !batch_is_sample_due(timer, now);
    if (may_close(batches, timer, current) && !stays_open)
        batch_close_last(timer, now, &record);
    batch_make_record(batches, &record);
    batches_unlock(batches);
}

/* The open work has ended, and no timing event tells when: it counts for as long as its launches
 * take alone, and at least until it was last seen running. */
static void end_unseen(struct batches *batches, struct stream_timer *timer, uint64_t now)
{
    uint64_t start = timing_events_last_passed(&timer->events);
    uint64_t end = start + timer->work.idle + timer->work.expected;
    end = end > timer->running_at ? end : timer->running_at;
    struct timing_event unseen = {.passed_at = end < now ? end : now, .work = timer->work};
    struct passed_timing_event passed = {
        &unseen, unseen.passed_at > start ? unseen.passed_at - start : 0, start != 0};
    unseen.work.function = NULL;
    timer->is_open = false;
    batch_words_take(&batches->words, &passed, true, now);
}

/* Close a timer late, whose launching threads record no more. Its work is over when the stream is
 * through; the end lies between then and the last time when the stream was not. Nothing is recorded
 * here: another thread may not wait for room in the stream, has another default stream, and would
 * make a barrier in the legacy one. Only its own thread can ask about a default stream, and may
 * have ended; and no thread asks about a stream that may be captured, while any capture lasts.
 * Releases the mutex meanwhile. */
static void close_late(struct batches *batches, struct stream_timer *timer, uint64_t now)
{
    bool is_anothers = timer->events.stream == CU_STREAM_PER_THREAD && timer->thread != threads_own;
    bool may_ask = !is_anothers && !captures_are_on();
    bool is_through = now - timer->launched_at > LOST_NANOSECONDS;
    if (may_ask) {
        CUstream stream = timer->events.stream;
        /* of which some leave launched_at as it is */
        uint32_t number = timer->number, launches = timer->work.launches;
        uint64_t launched_at = timer->launched_at;
        batches_unlock(batches);
        is_through = driver()->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
        batches_lock(batches);
        if (timer->number != number || timer->launched_at != launched_at ||
            timer->work.launches != launches || stream_timer_entering(timer) || !timer->is_open)
            return;
    }
    if (may_ask && !is_through)
        timer->running_at = now;
    else if (is_through && !timer->events.count)
        end_unseen(batches, timer, now);
}

/* No thread launches into the timer any more for now. */
static void close_stale(struct batches *batches, struct stream_timer *timer, uint64_t now)
{
    if (stream_timer_entering(timer) || now - timer->launched_at < STALE_NANOSECONDS)
        return;
    if (timer->is_open)
        close_late(batches, timer, now);
    batch_end(batches, timer);
}

/* Releases the mutex, and reads the clock each time that it has it back, so that launches in the
 * meantime are not in the future. */
static void poll_timer(struct batches *batches, struct stream_timer *timer)
{
    CUcontext context = timer->events.context;
    bool is_pushed;
    if (!batch_begin_questions(timer))
        return;
    batches_unlock(batches);
    bool is_there = stream_timer_enter_context(context, &is_pushed);
    batches_lock(batches);
    if (is_there) {
        batch_take_passed(batches, timer, times_now_nanoseconds());
        if (timer->events.stream && batches_are_touchable(batches))
            close_stale(batches, timer, times_now_nanoseconds());
        if (!stream_timer_is_busy(timer))
            batch_end(batches, timer);
        if (!stream_timer_is_busy(timer) && !timer->events.stream)
            timer->is_taken = false;
    }
    if (is_pushed) {
        batches_unlock(batches);
        stream_timer_leave_context(true);
        batches_lock(batches);
    }
    batch_end_questions(batches, timer);
}

bool batches_poll(struct batches *batches, bool is_relaxed)
{
    bool is_busy = false;
    DEFER_CANCELLATION;
    if (!batches_lock(batches))
        return true;
    for (unsigned i = 0; i < batches->timers.count; i++) {
        struct stream_timer *timer = &batches->timers.all[i];
        bool may_ask = batches_are_touchable(batches) && (is_relaxed || !captures_are_on());
        if (may_ask && timer->is_taken && (stream_timer_is_busy(timer) || timer->has_batch))
            poll_timer(batches, timer);
    }
    for (unsigned i = 0; i < batches->timers.count; i++)
        is_busy |= batches->timers.all[i].is_taken && stream_timer_is_busy(&batches->timers.all[i]);
    if (!is_busy)
        batch_words_show_active(&batches->words, false);
    batch_words_publish(&batches->words, times_now_nanoseconds());
    batches_unlock(batches);
    return is_busy;
}

bool batches_can_begin(struct batches *batches)
{
    struct batch_terms terms;
    if (pthread_mutex_trylock(&batches->mutex) != 0)
        return true; /* this thread queries, and learns */
    bool may_begin = batches->words.waiting &&
                     (!batch_words_read(&batches->words, &terms) ||
                      !batch_words_ask(&batches->words, &terms.order, times_now_nanoseconds()));
    batches_unlock(batches);
    return may_begin;
}

/* A look without a change is not worth a wait: the session's thread serves other work, too. */
void batches_count_waiting(struct batches *batches, int change)
{
    if (pthread_mutex_trylock(&batches->mutex) != 0) {
        if (change == 0)
            return;
        if (!batches_lock(batches))
            return;
    }
    batch_words_count_waiting(&batches->words, change, times_now_nanoseconds());
    batches_unlock(batches);
}

/* Return whether another thread is making driver calls about the stream, or any such calls for
 * NULL. */
static bool are_asking(const struct batches *batches, CUstream stream)
{
    for (unsigned i = 0; i < batches->timers.count; i++) {
        const struct stream_timer *timer = &batches->timers.all[i];
        if (timer->asker && timer->asker != batch_self() &&
            (!stream || timer->events.stream == stream))
            return true;
    }
    return false;
}

static bool are_recording(const struct batches *batches, CUstream stream)
{
    for (unsigned i = 0; i < batches->timers.count; i++) {
        const struct stream_timer *timer = &batches->timers.all[i];
        if (timer->recorder && timer->recorder != batch_self() &&
            (!stream || timer->events.stream == stream))
            return true;
    }
    return false;
}

/* Queries end soon. A record does not if its stream has no room, which the program may be about
 * to make. */
static void await_calls(struct batches *batches, CUstream questions_of, CUstream records_of)
{
    uint64_t until = times_now_nanoseconds() + RECORD_NANOSECONDS;
    while (!batches_are_abandoned(batches) &&
           (are_asking(batches, questions_of) ||
            (are_recording(batches, records_of) && times_now_nanoseconds() < until)))
        batches_await_calls(batches);
}

void batches_begin_capture(struct batches *batches, CUstream stream)
{
    DEFER_CANCELLATION;
    if (!batches_lock(batches))
        return;
    await_calls(batches, NULL, stream ? stream : CU_STREAM_LEGACY);
    batches_unlock(batches);
}

void batches_note_blocking(struct batches *batches)
{
    if (!batches_lock(batches))
        return;
    batches->timers.has_blocking = true;
    batches_unlock(batches);
}

/* No event is recorded behind the open work: it counts for as long as its launches take alone. */
static void end_timer(struct batches *batches, struct stream_timer *timer, uint64_t now)
{
    struct timing_event *newest = timing_events_newest(&timer->events);
    if (timer->is_open && newest) {
        newest->unseen += timer->work.expected;
        batch_words_take_back(&batches->words, &timer->work);
        timer->is_open = false;
    } else if (timer->is_open) {
        end_unseen(batches, timer, now);
    }
    batch_end(batches, timer);
    stream_timer_let_go(timer);
    timer->is_taken = stream_timer_is_busy(timer);
}

bool batches_end_stream(struct batches *batches, CUstream stream, CUresult (*real)(CUstream))
{
    uint64_t now = times_now_nanoseconds();
    bool is_left = false;
    DEFER_CANCELLATION;
    if (!batches_lock(batches))
        return false;
    while (are_asking(batches, stream) && !batches_are_abandoned(batches))
        batches_await_calls(batches);
    for (unsigned i = 0; i < batches->timers.count; i++) {
        struct stream_timer *timer = &batches->timers.all[i];
        if (!timer->is_taken || timer->events.stream != stream)
            continue;
        if (timer->recorder) {
            timer->ends = real;
            is_left = true;
        }
        end_timer(batches, timer, now);
    }
    batches_unlock(batches);
    return is_left;
}

static bool is_in(const struct stream_timer *timer, CUcontext context)
{
    CUcontext own = timer->events.context;
    return own && (own == context || green_owner(own) == context);
}

static bool are_recording_in(const struct batches *batches, CUcontext context)
{
    for (unsigned i = 0; i < batches->timers.count; i++) {
        const struct stream_timer *timer = &batches->timers.all[i];
        if (timer->recorder && timer->recorder != batch_self() && is_in(timer, context))
            return true;
    }
    return false;
}

void batches_suspend(struct batches *batches, CUcontext ending)
{
    DEFER_CANCELLATION;
    if (!batches_lock(batches))
        return;
    batches->suspended++;
    await_calls(batches, NULL, NULL);
    uint64_t until = times_now_nanoseconds() + ENDING_NANOSECONDS;
    while (!batches_are_abandoned(batches) && are_recording_in(batches, ending) &&
           times_now_nanoseconds() < until)
        batches_await_calls(batches);
    batches_unlock(batches);
}

static void forget_context(struct batches *batches, CUcontext context)
{
    for (unsigned i = 0; i < batches->timers.count; i++) {
        struct stream_timer *timer = &batches->timers.all[i];
        if (is_in(timer, context)) {
            if (timer->is_open && timer->work.is_sampled && !timer->events.count)
                end_unseen(batches, timer, times_now_nanoseconds());
            batch_give_up(batches, timer, CUDA_SUCCESS);
            stream_timer_forget(timer);
        }
    }
}

void batches_resume(struct batches *batches, CUcontext ended)
{
    DEFER_CANCELLATION;
    if (!batches_lock(batches))
        return;
    /* 0 of a device that is newer than the suspension */
    batches->suspended -= batches->suspended > 0;
    if (ended && !batches->is_stopped)
        forget_context(batches, ended);
    batches_end_left_streams(batches);
    batches_unlock(batches);
}

void batches_registered(struct batches *batches)
{
    struct batch_terms terms;
    uint64_t now = times_now_nanoseconds();
    if (!batches_lock(batches))
        return; /* later words go to the new page */
    batch_words_read(&batches->words, &terms);
    batch_words_count_waiting(&batches->words, 0, now);
    batch_words_publish(&batches->words, now);
    batches_unlock(batches);
}

/* A signal's handler may end the program while its own thread holds the mutex, or is in a driver
 * call. */
void batches_stop(struct batches *batches)
{
    const struct timespec pause = {0, STOP_PAUSE_NANOSECONDS};
    bool is_quiet = false;
    for (int tries = 0; tries < STOP_TRIES && !is_quiet; tries++) {
        if (pthread_mutex_trylock(&batches->mutex) == 0) {
            batches->is_stopped = true;
            is_quiet = !are_asking(batches, NULL) && !are_recording(batches, NULL);
            batches_unlock(batches);
        }
        if (!is_quiet)
            nanosleep(&pause, NULL);
    }
}
