/* Calls of the driver about the streams of one device, none of them with the mutex: what one thread has on its way, others
 * leave to it. Records may wait for room in their stream; questions wait for nothing.
 */
#include "compute/bursts.h"
#include "compute/burst_state.h"

#include "base/cancellation.h"
#include "base/times.h"
#include "contexts/captures.h"

#include <errno.h>
#include <time.h>

#define LOOK_NANOSECONDS 100000000 /* how soon a thread that waits sees that it is in the child of a fork */

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

void burst_give_up(struct bursts *bursts, struct track *track, CUresult reason)
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

bool burst_can_record(const struct track *track, const struct burst_record *record, unsigned places)
{
    return !record->track && !track->recorder && milestones_have_room(&track->milestones, places);
}

void burst_reserve(struct track *track, const struct timed_work *work, uint64_t now, struct burst_record *record)
{
    milestones_reserve(&track->milestones, work, now, &record->milestone);
    track->recorder = burst_self();
    record->track = track;
}

static void record_now(struct milestone_record *record)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED; /* or others' captures would mind it */
    bool is_relaxed = captures_are_on() && driver()->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
    milestone_record(record);
    if (is_relaxed)
        driver()->cuThreadExchangeStreamCaptureMode(&mode);
}

/* The program ended the stream while the record was on its way. Where a call may end the stream's context just now, the
 * stream goes with that, or is left until that call has returned. */
static void end_stream(struct bursts *bursts, struct track *track, CUstream stream)
{
    CUresult (*ends)(CUstream) = track->ends;
    track->left = ends && !bursts_are_touchable(bursts) ? stream : NULL;
    if (!ends || track->left)
        return;
    track->ends = NULL;
    bursts_unlock(bursts);
    ends(stream);
    bursts_lock(bursts);
}

void bursts_end_left_streams(struct bursts *bursts)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++) {
        struct track *track = &bursts->tracks.all[i];
        if (!track->left)
            continue;
        track->recorder = burst_self(); /* so that the next call that may end a context waits for it */
        end_stream(bursts, track, track->left);
        track->recorder = NULL;
        show_end_of_calls(bursts);
    }
}

void burst_make_record(struct bursts *bursts, struct burst_record *record)
{
    struct track *track = record->track;
    if (!track)
        return;
    DEFER_CANCELLATION;
    bursts_unlock(bursts);
    record_now(&record->milestone);
    bursts_lock(bursts);
    CUresult result = milestones_commit(&track->milestones, &record->milestone);
    if (result != CUDA_SUCCESS)
        burst_give_up(bursts, track, result);
    end_stream(bursts, track, record->milestone.stream);
    track->recorder = NULL;
    record->track = NULL;
    show_end_of_calls(bursts);
}

void burst_close_track(struct track *track, uint64_t now, struct burst_record *record)
{
    if (!track->is_open || !burst_can_record(track, record, 1))
        return;
    burst_reserve(track, &track->work, now, record);
    track->is_open = false;
}

void burst_close_last(struct track *track, uint64_t now, struct burst_record *record)
{
    const struct milestone *newest = milestones_newest(&track->milestones);
    burst_close_track(track, now, record);
    if (!track->is_open || record->track || track->recorder || !newest || !newest->work.launches)
        return;
    milestones_move_newest(&track->milestones, &track->work, now, &record->milestone);
    track->recorder = burst_self();
    record->track = track;
    track->is_open = false;
}

bool burst_begin_questions(struct track *track)
{
    if (track->asker)
        return false;
    track->asker = burst_self();
    return true;
}

void burst_end_questions(struct bursts *bursts, struct track *track)
{
    track->asker = NULL;
    show_end_of_calls(bursts);
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

/* What nothing was recorded behind. */
static void take_unseen(struct bursts *bursts, const struct milestone *before, uint64_t now)
{
    uint64_t end = before->passed_at + before->unseen;
    struct milestone unseen = {.passed_at = end < now ? end : now, .work = {.launches = 1}};
    if (before->unseen && unseen.passed_at > before->passed_at) {
        struct passed_milestone passed = {&unseen, unseen.passed_at - before->passed_at, true};
        burst_words_take(&bursts->words, &passed, true, now);
    }
}

static void take(struct bursts *bursts, struct track *track, const struct passed_milestone *passed, uint64_t now)
{
    const struct milestone *milestone = passed->milestone;
    uint32_t ended = milestone->ended_bursts;
    bursts->words.in_flight -= ended < bursts->words.in_flight ? ended : bursts->words.in_flight;
    if (milestone->work.launches)
        burst_words_take(&bursts->words, passed,
                         has_launched_since(bursts, track, milestone->passed_at - passed->nanoseconds), now);
    take_unseen(bursts, milestone, now);
}

void burst_take_passed(struct bursts *bursts, struct track *track, uint64_t now)
{
    enum milestones_outcome outcome = MILESTONES_PASSED;
    struct milestone_question question;
    struct passed_milestone passed;
    while (outcome == MILESTONES_PASSED && bursts_are_touchable(bursts) &&
           milestones_begin_question(&track->milestones, &question)) {
        bursts_unlock(bursts);
        milestone_ask(&question);
        bursts_lock(bursts);
        outcome = milestones_end_question(&track->milestones, &question, &passed);
        if (outcome == MILESTONES_PASSED)
            take(bursts, track, &passed, now);
        else if (outcome == MILESTONES_BROKEN)
            burst_give_up(bursts, track, CUDA_ERROR_UNKNOWN);
    }
}
