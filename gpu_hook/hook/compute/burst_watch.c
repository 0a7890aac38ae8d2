#include "compute/bursts.h"
#include "compute/burst_state.h"

#include "base/cancellation.h"
#include "contexts/green_owners.h"
#include "gate/threads.h"
#include "base/times.h"
#include "contexts/captures.h"

#include <time.h>

#define STALE_NANOSECONDS 300000ull /* without a launch: nothing is recorded any more behind what is open */
#define LOST_NANOSECONDS 1000000000ull /* without a launch: what may not be asked for is over */
#define RECORD_NANOSECONDS 100000000ull /* a record that takes longer waits for room in its stream */
#define ENDING_NANOSECONDS 2000000000ull /* the same in a context that is about to end */
#define STOP_PAUSE_NANOSECONDS 1000000
#define STOP_TRIES 100

void burst_end(struct bursts *bursts, struct track *track)
{
    struct milestone *newest = milestones_newest(&track->milestones);
    if (!track->has_burst || track->is_open)
        return;
    track->has_burst = false;
    if (newest)
        newest->ended_bursts++;
    else
        bursts->words.in_flight--;
}

/* Not where the stream may be captured by now, nor where the record would be a barrier: close_late ends those. */
static bool may_close(const struct bursts *bursts, const struct track *track, CUcontext current)
{
    return bursts_are_touchable(bursts) && track->is_taken && track->is_open && !track_entering(track) &&
           current == track->milestones.context && !captures_are_on() &&
           !(track_is_legacy(track) && bursts->tracks.has_blocking);
}

void bursts_close(struct bursts *bursts, struct track *track)
{
    struct burst_record record = {0};
    uint64_t now = times_now_nanoseconds();
    CUcontext current = NULL;
    DEFER_CANCELLATION;
    if (driver()->cuCtxGetCurrent(&current) != CUDA_SUCCESS || !bursts_lock(bursts))
        return;
    if (may_close(bursts, track, current))
        burst_close_last(track, now, &record);
    burst_make_record(bursts, &record);
    bursts_unlock(bursts);
}

/* The open work has ended, and no milestone tells when: it counts for as long as its launches take alone, and at least
 * until it was last seen running. */
static void end_unseen(struct bursts *bursts, struct track *track, uint64_t now)
{
    uint64_t start = milestones_last_passed(&track->milestones), end = start + track->work.expected;
    end = end > track->running_at ? end : track->running_at;
    struct milestone unseen = {.passed_at = end < now ? end : now, .work = track->work};
    struct passed_milestone passed = {&unseen, unseen.passed_at > start ? unseen.passed_at - start : 0, start != 0};
    unseen.work.function = NULL;
    track->is_open = false;
    burst_words_take(&bursts->words, &passed, true, now);
}

/* Its launching threads record no more behind it: it is over when the stream is through, and has ended between then and the
 * time when that was last not so. Nothing is recorded here, for another thread may not wait for room in the stream, has
 * another default stream, and would make a barrier in the legacy one. Of another thread's default stream nobody but that
 * thread can ask, and it may have ended; and of no stream that may be captured, for as long as any capture lasts. Gives
 * up the mutex. */
static void close_late(struct bursts *bursts, struct track *track, uint64_t now)
{
    bool is_anothers = track->milestones.stream == CU_STREAM_PER_THREAD && track->thread != threads_own;
    bool may_ask = !is_anothers && !captures_are_on();
    bool is_through = now - track->launched_at > LOST_NANOSECONDS;
    if (may_ask) {
        CUstream stream = track->milestones.stream;
        uint32_t number = track->number, launches = track->work.launches; /* of which some leave launched_at as it is */
        uint64_t launched_at = track->launched_at;
        bursts_unlock(bursts);
        is_through = driver()->cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
        bursts_lock(bursts);
        if (track->number != number || track->launched_at != launched_at || track->work.launches != launches ||
            track_entering(track) || !track->is_open)
            return;
    }
    if (may_ask && !is_through)
        track->running_at = now;
    else if (is_through && !track->milestones.count)
        end_unseen(bursts, track, now);
}

/* Nobody launches into the track any more, for now. */
static void close_stale(struct bursts *bursts, struct track *track, uint64_t now)
{
    if (track_entering(track) || now - track->launched_at < STALE_NANOSECONDS)
        return;
    if (track->is_open)
        close_late(bursts, track, now);
    burst_end(bursts, track);
}

/* Gives up the mutex, and reads the clock each time that it has it back: launches of meanwhile are not in the future. */
static void poll_track(struct bursts *bursts, struct track *track)
{
    CUcontext context = track->milestones.context;
    bool is_pushed;
    if (!burst_begin_questions(track))
        return;
    bursts_unlock(bursts);
    bool is_there = track_enter_context(context, &is_pushed);
    bursts_lock(bursts);
    if (is_there) {
        burst_take_passed(bursts, track, times_now_nanoseconds());
        if (track->milestones.stream && bursts_are_touchable(bursts))
            close_stale(bursts, track, times_now_nanoseconds());
        if (!track_is_busy(track))
            burst_end(bursts, track);
        if (!track_is_busy(track) && !track->milestones.stream)
            track->is_taken = false;
    }
    if (is_pushed) {
        bursts_unlock(bursts);
        track_leave_context(true);
        bursts_lock(bursts);
    }
    burst_end_questions(bursts, track);
}

bool bursts_poll(struct bursts *bursts, bool is_relaxed)
{
    bool is_busy = false;
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return true;
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        struct track *track = &bursts->tracks.all[i];
        bool may_ask = bursts_are_touchable(bursts) && (is_relaxed || !captures_are_on());
        if (may_ask && track->is_taken && (track_is_busy(track) || track->has_burst))
            poll_track(bursts, track);
    }
    for (unsigned i = 0; i < bursts->tracks.count; i++)
        is_busy |= bursts->tracks.all[i].is_taken && track_is_busy(&bursts->tracks.all[i]);
    if (!is_busy)
        burst_words_show_active(&bursts->words, false);
    burst_words_publish(&bursts->words, times_now_nanoseconds());
    bursts_unlock(bursts);
    return is_busy;
}

bool bursts_let_on(struct bursts *bursts)
{
    struct burst_terms terms;
    if (pthread_mutex_trylock(&bursts->mutex) != 0)
        return true; /* it asks, and learns */
    bool may_begin = bursts->words.waiting && (!burst_words_read(&bursts->words, &terms) ||
                                               !burst_words_ask(&bursts->words, &terms.order, times_now_nanoseconds()));
    bursts_unlock(bursts);
    return may_begin;
}

/* A look without a change is not worth a wait: the session's thread has others to serve. */
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

/* Whether another thread has driver calls on its way about the stream, or any for NULL. */
static bool are_asking(const struct bursts *bursts, CUstream stream)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        const struct track *track = &bursts->tracks.all[i];
        if (track->asker && track->asker != burst_self() && (!stream || track->milestones.stream == stream))
            return true;
    }
    return false;
}

static bool are_recording(const struct bursts *bursts, CUstream stream)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        const struct track *track = &bursts->tracks.all[i];
        if (track->recorder && track->recorder != burst_self() && (!stream || track->milestones.stream == stream))
            return true;
    }
    return false;
}

/* Questions end soon. A record does not where its stream has no room, which the program may be about to make. */
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
    bursts->tracks.has_blocking = true;
    bursts_unlock(bursts);
}

/* Nothing is recorded behind what is open: it counts for as long as its launches take alone. */
static void end_track(struct bursts *bursts, struct track *track, uint64_t now)
{
    struct milestone *newest = milestones_newest(&track->milestones);
    if (track->is_open && newest) {
        newest->unseen += track->work.expected;
        burst_words_take_back(&bursts->words, &track->work);
        track->is_open = false;
    } else if (track->is_open) {
        end_unseen(bursts, track, now);
    }
    burst_end(bursts, track);
    track_let_go(track);
    track->is_taken = track_is_busy(track);
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
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        struct track *track = &bursts->tracks.all[i];
        if (!track->is_taken || track->milestones.stream != stream)
            continue;
        if (track->recorder) {
            track->ends = real;
            is_left = true;
        }
        end_track(bursts, track, now);
    }
    bursts_unlock(bursts);
    return is_left;
}

static bool is_in(const struct track *track, CUcontext context)
{
    CUcontext own = track->milestones.context;
    return own && (own == context || green_owner(own) == context);
}

static bool are_recording_in(const struct bursts *bursts, CUcontext context)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        const struct track *track = &bursts->tracks.all[i];
        if (track->recorder && track->recorder != burst_self() && is_in(track, context))
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
    while (!bursts_are_abandoned(bursts) && are_recording_in(bursts, ending) && times_now_nanoseconds() < until)
        bursts_await_calls(bursts);
    bursts_unlock(bursts);
}

static void forget_context(struct bursts *bursts, CUcontext context)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        struct track *track = &bursts->tracks.all[i];
        if (is_in(track, context)) {
            burst_give_up(bursts, track, CUDA_SUCCESS);
            track_forget(track);
        }
    }
}

void bursts_resume(struct bursts *bursts, CUcontext ended)
{
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts))
        return;
    bursts->suspended -= bursts->suspended > 0; /* 0 of a device that is newer than the suspension */
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
        return; /* what comes next writes to the new page */
    burst_words_read(&bursts->words, &terms);
    burst_words_add_blocks(&bursts->words, 0);
    burst_words_count_waiting(&bursts->words, 0, now);
    burst_words_publish(&bursts->words, now);
    bursts_unlock(bursts);
}

/* A signal's handler may end the program while its own thread holds the mutex, or is in a driver call. */
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
