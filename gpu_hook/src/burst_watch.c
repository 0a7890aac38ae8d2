#include "burst_state.h"

#include "cancellation.h"
#include "green_owners.h"
#include "threads.h"
#include "times.h"

#include <time.h>

#define STALE_NANOSECONDS 300000ull /* without a launch: what is open is closed */
#define LOST_NANOSECONDS 1000000000ull /* without a launch: what may not be asked for is over */
#define STOP_PAUSE_NANOSECONDS 1000000
#define STOP_TRIES 100
#define LOCK_NANOSECONDS 100000000

bool bursts_lock_soon(struct bursts *bursts)
{
    struct timespec limit;
    if (__builtin_expect(pthread_mutex_trylock(&bursts->mutex) == 0, 1))
        return true;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += LOCK_NANOSECONDS;
    limit.tv_sec += limit.tv_nsec / TIMES_SECOND;
    limit.tv_nsec %= TIMES_SECOND;
    return pthread_mutex_timedlock(&bursts->mutex, &limit) == 0;
}

/* What the driver refused to measure: all that is under way in the track counts as done, and nobody is held back. */
static void give_up(struct bursts *bursts, struct track *track, CUresult reason)
{
    struct burst_words *words = &bursts->words;
    for (unsigned i = 0; i < track->milestones.count; i++) {
        const struct milestone *milestone = &track->milestones.ring[(track->milestones.first + i) % MILESTONES_MOST];
        burst_words_take_back(words, &milestone->work);
        words->in_flight -= milestone->ended_bursts;
    }
    if (track->is_open)
        burst_words_take_back(words, &track->work);
    words->in_flight -= track->has_burst;
    track->has_burst = track->is_open = false;
    milestones_drop(&track->milestones);
    burst_words_note_unmeasured(words, (int)reason);
}

bool burst_record(struct bursts *bursts, struct track *track, const struct timed_work *work, uint64_t now)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* or others' captures would mind it */
    bool is_relaxed = captures_are_on() && driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    DEFER_CANCELLATION;
    CUresult result = milestones_record(&track->milestones, work, now);
    if (is_relaxed)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
    if (result != CUDA_SUCCESS)
        give_up(bursts, track, result);
    return result == CUDA_SUCCESS;
}

void burst_close_track(struct bursts *bursts, struct track *track, uint64_t now, uint64_t at_most)
{
    if (!track->is_open || !milestones_have_room(&track->milestones))
        return;
    track->work.at_most = at_most;
    if (burst_record(bursts, track, &track->work, now))
        track->is_open = false;
}

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

void burst_close_tracks(struct bursts *bursts, bool (*is_wanted)(const struct track *track), uint64_t now)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        struct track *track = &bursts->tracks.all[i];
        bool is_pushed;
        if (!track->is_open || track_entering(track) || (is_wanted && !is_wanted(track)) ||
            !track_enter_context(track->milestones.context, &is_pushed))
            continue;
        burst_close_track(bursts, track, now, 0);
        track_leave_context(is_pushed);
    }
}

void bursts_close(struct bursts *bursts, struct track *track)
{
    uint64_t now = times_now_nanoseconds();
    if (!bursts_lock_soon(bursts))
        return;
    CUcontext current = NULL;
    if (bursts_are_touchable(bursts) && track->is_taken && track->is_open && !track_entering(track) &&
        driver()->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == track->milestones.context)
        burst_close_track(bursts, track, now, 0);
    pthread_mutex_unlock(&bursts->mutex);
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

/* Where the stream is through already, its work has ended between the last launch and now: that long the launches take
 * alone, at most. What may not be recorded late had no room when it was launched: it is over when the stream is through,
 * which of another thread's default stream nobody but that thread can ask, and that may have ended; and of no stream that
 * may be captured, for as long as any capture lasts. */
static void close_late(struct bursts *bursts, struct track *track, uint64_t now)
{
    bool is_barrier = track_is_legacy(track) && bursts->tracks.has_blocking;
    bool is_anothers = track->milestones.stream == CU_STREAM_PER_THREAD && track->thread != threads_own;
    bool may_ask = !is_anothers && !captures_are_on();
    bool is_through = may_ask ? driver()->cuStreamQuery(track->milestones.stream) != CUDA_ERROR_NOT_READY
                              : now - track->launched_at > LOST_NANOSECONDS;
    if (may_ask && !is_barrier)
        burst_close_track(bursts, track, now, is_through ? track->work.expected : 0);
    else if (may_ask && !is_through)
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

static bool has_launched_since(const struct bursts *bursts, const struct track *own, uint64_t since)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        const struct track *track = &bursts->tracks.all[i];
        if (track != own && (track->launched_at >= since || track_is_busy(track)))
            return true;
    }
    return false;
}

void burst_take_passed(struct bursts *bursts, struct track *track, uint64_t now)
{
    enum milestones_outcome outcome;
    struct passed_milestone passed;
    while ((outcome = milestones_next(&track->milestones, &passed)) == MILESTONES_PASSED) {
        uint32_t ended = passed.milestone->ended_bursts;
        bursts->words.in_flight -= ended < bursts->words.in_flight ? ended : bursts->words.in_flight;
        if (passed.milestone->work.launches)
            burst_words_take(&bursts->words, &passed,
                             has_launched_since(bursts, track, passed.milestone->passed_at - passed.nanoseconds), now);
    }
    if (outcome == MILESTONES_BROKEN)
        give_up(bursts, track, CUDA_ERROR_UNKNOWN);
}

/* Its context is current. */
static void poll_track(struct bursts *bursts, struct track *track, uint64_t now)
{
    burst_take_passed(bursts, track, now);
    if (track->milestones.stream)
        close_stale(bursts, track, now);
    if (!track_is_busy(track))
        burst_end(bursts, track);
    if (!track_is_busy(track) && !track->milestones.stream)
        track->is_taken = false;
}

bool bursts_poll(struct bursts *bursts, bool is_relaxed)
{
    bool is_busy = false;
    DEFER_CANCELLATION;
    if (!bursts_lock_soon(bursts))
        return true;
    uint64_t now = times_now_nanoseconds();
    bool may_ask = bursts_are_touchable(bursts) && (is_relaxed || !captures_are_on());
    for (unsigned i = 0; i < bursts->tracks.count && may_ask; i++) {
        struct track *track = &bursts->tracks.all[i];
        bool is_pushed;
        if (!track->is_taken || (!track_is_busy(track) && !track->has_burst) ||
            !track_enter_context(track->milestones.context, &is_pushed))
            continue;
        poll_track(bursts, track, now);
        track_leave_context(is_pushed);
    }
    for (unsigned i = 0; i < bursts->tracks.count; i++)
        is_busy |= bursts->tracks.all[i].is_taken && track_is_busy(&bursts->tracks.all[i]);
    if (!is_busy)
        burst_words_show_active(&bursts->words, false);
    burst_words_publish(&bursts->words, now);
    pthread_mutex_unlock(&bursts->mutex);
    return is_busy;
}

bool bursts_let_on(struct bursts *bursts)
{
    struct burst_terms terms;
    if (pthread_mutex_trylock(&bursts->mutex) != 0)
        return true; /* it asks, and learns */
    bool may_begin = bursts->words.waiting && (!burst_words_read(&bursts->words, &terms) ||
                                               !burst_words_ask(&bursts->words, &terms.order, times_now_nanoseconds()));
    pthread_mutex_unlock(&bursts->mutex);
    return may_begin;
}

/* A look without a change is not worth a wait: the session's thread has others to serve. */
void bursts_count_waiting(struct bursts *bursts, int change)
{
    if (pthread_mutex_trylock(&bursts->mutex) != 0) {
        if (change == 0)
            return;
        pthread_mutex_lock(&bursts->mutex);
    }
    burst_words_count_waiting(&bursts->words, change, times_now_nanoseconds());
    pthread_mutex_unlock(&bursts->mutex);
}

void bursts_close_all(struct bursts *bursts)
{
    pthread_mutex_lock(&bursts->mutex);
    if (bursts_are_touchable(bursts))
        burst_close_tracks(bursts, NULL, times_now_nanoseconds());
    pthread_mutex_unlock(&bursts->mutex);
}

void bursts_note_blocking(struct bursts *bursts)
{
    pthread_mutex_lock(&bursts->mutex);
    bool is_news = !bursts->tracks.has_blocking;
    bursts->tracks.has_blocking = true;
    if (is_news && bursts_are_touchable(bursts) && !captures_are_on())
        burst_close_tracks(bursts, track_is_legacy, times_now_nanoseconds());
    pthread_mutex_unlock(&bursts->mutex);
}

/* Nobody asks for the stream afterwards, also where another thread ends a context just now. */
static void end_track(struct bursts *bursts, struct track *track, uint64_t now)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    bool is_pushed = false;
    bool is_there = bursts_are_touchable(bursts) && track_enter_context(track->milestones.context, &is_pushed);
    if (is_there && captures_are_on() &&
        driver()->cuStreamIsCapturing(track->milestones.stream, &status) != CUDA_SUCCESS)
        status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    bool can_close = is_there && status == CU_STREAM_CAPTURE_STATUS_NONE && milestones_have_room(&track->milestones);
    if (track->is_open && !can_close)
        give_up(bursts, track, CUDA_SUCCESS);
    burst_close_track(bursts, track, now, 0);
    burst_end(bursts, track);
    track_let_go(track);
    track->is_taken = track_is_busy(track);
    track_leave_context(is_pushed);
}

void bursts_end_stream(struct bursts *bursts, CUstream stream)
{
    uint64_t now = times_now_nanoseconds();
    pthread_mutex_lock(&bursts->mutex);
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        struct track *track = &bursts->tracks.all[i];
        if (track->is_taken && track->milestones.stream == stream)
            end_track(bursts, track, now);
    }
    pthread_mutex_unlock(&bursts->mutex);
}

void bursts_suspend(struct bursts *bursts)
{
    pthread_mutex_lock(&bursts->mutex);
    bursts->suspended++;
    pthread_mutex_unlock(&bursts->mutex);
}

void bursts_resume(struct bursts *bursts, CUcontext ended)
{
    pthread_mutex_lock(&bursts->mutex);
    bursts->suspended -= bursts->suspended > 0; /* 0 of a device that is newer than the suspension */
    for (unsigned i = 0; i < bursts->tracks.count && ended && !bursts->is_stopped; i++) {
        struct track *track = &bursts->tracks.all[i];
        if (track->milestones.context != ended && green_owner(track->milestones.context) != ended)
            continue;
        give_up(bursts, track, CUDA_SUCCESS);
        track_forget(track);
    }
    pthread_mutex_unlock(&bursts->mutex);
}

void bursts_registered(struct bursts *bursts)
{
    struct burst_terms terms;
    uint64_t now = times_now_nanoseconds();
    if (!bursts_lock_soon(bursts))
        return; /* what comes next writes to the new page */
    burst_words_read(&bursts->words, &terms);
    burst_words_add_blocks(&bursts->words, 0);
    burst_words_count_waiting(&bursts->words, 0, now);
    burst_words_publish(&bursts->words, now);
    pthread_mutex_unlock(&bursts->mutex);
}

/* A signal's handler may end the program while its own thread holds the mutex. */
void bursts_stop(struct bursts *bursts)
{
    const struct timespec pause = {0, STOP_PAUSE_NANOSECONDS};
    for (int tries = 0; tries < STOP_TRIES; tries++) {
        if (pthread_mutex_trylock(&bursts->mutex) == 0) {
            bursts->is_stopped = true;
            pthread_mutex_unlock(&bursts->mutex);
            return;
        }
        nanosleep(&pause, NULL);
    }
}
