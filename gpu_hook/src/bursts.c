#include "burst_state.h"

#include "samples.h"
#include "times.h"

#include "aliquot_protocol.h"

#include <stdlib.h>

#define SHARED_NANOSECONDS 20000ull /* a pause between launches that counts as work; longer ones cost a milestone */
#define MILESTONE_NANOSECONDS 50000ull   /* of the host's time that passes without a milestone, while launches come */
#define LAUNCHES_PER_CLOCK 4u
#define UNKNOWN_NANOSECONDS 20000ull /* is expected of what was never measured */
#define UNKNOWN_MOST 4u              /* of these under way where time is short */

struct bursts *bursts_new(int device)
{
    struct bursts *bursts = calloc(1, sizeof *bursts);
    if (bursts) {
        pthread_mutex_init(&bursts->mutex, NULL);
        burst_words_begin(&bursts->words, device);
    }
    return bursts;
}

static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status;
    return captures_are_on() && (driver()->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
                                 status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Nobody but the launching thread may record there later: another thread has another default stream, and a record in
 * the legacy one is a barrier between the streams that order themselves with it. */
static bool closes_at_once(const struct bursts *bursts, const struct track *track)
{
    return track->milestones.stream == CU_STREAM_PER_THREAD || (track_is_legacy(track) && bursts->tracks.has_blocking) ||
           captures_are_on();
}

static struct track *find_track(struct bursts *bursts, const struct burst_launch *launch)
{
    if (launch->track && track_is_of(launch->track, launch->stream, launch->context))
        return launch->track;
    bool had_blocking = bursts->tracks.has_blocking;
    struct track *track = NULL;
    if (bursts_are_touchable(bursts))
        track = tracks_find(&bursts->tracks, launch->stream, launch->context);
    if (bursts->tracks.has_blocking && !had_blocking)
        burst_close_tracks(bursts, track_is_legacy, times_now_nanoseconds());
    return track;
}

/* Nanoseconds to wait; 0: it may go on. */
static uint64_t ask(struct bursts *bursts, const struct track *track, const struct burst_launch *launch,
                    const struct burst_terms *terms, uint64_t now)
{
    bool is_within = track && track->has_burst && terms->order.pace == ALIQUOT_PACE_TIME &&
                     track->burst_expected < terms->burst_nanoseconds;
    if (is_within || (terms->order.pace != ALIQUOT_PACE_TIME && terms->order.pace != ALIQUOT_PACE_BLOCKS))
        return 0;
    if (launch->is_unknown && bursts->words.unknown >= UNKNOWN_MOST)
        return PACE_LOOK_NANOSECONDS;
    if (track && track->milestones.count + 3 > MILESTONES_MOST)
        return PACE_LOOK_NANOSECONDS;
    return burst_words_ask(&bursts->words, &terms->order, now);
}

/* False: it cannot be measured. A launch right behind another begins where that one ends; so does one that finds no room
 * for a milestone, for the stream has not passed the newest one. The thread that looks may be late on a busy machine. */
static bool open_track(struct bursts *bursts, struct track *track, uint64_t now)
{
    const struct timed_work nothing = {0};
    if (!milestones_have_room(&track->milestones) && !captures_are_on())
        burst_take_passed(bursts, track, now);
    struct milestone *newest = milestones_newest(&track->milestones);
    bool has_room = milestones_have_room(&track->milestones);
    bool is_shared = newest && (!has_room || now - newest->recorded_at < SHARED_NANOSECONDS);
    if (!is_shared && !burst_record(bursts, track, &nothing, now))
        return false;
    track->work = nothing;
    track->is_open = true;
    return true;
}

static bool is_anybody_else_busy(const struct bursts *bursts, const struct track *own)
{
    for (unsigned i = 0; i < bursts->tracks.count; i++)
        if (&bursts->tracks.all[i] != own && track_is_busy(&bursts->tracks.all[i]))
            return true;
    return false;
}

static void add_work(struct bursts *bursts, struct track *track, struct burst_launch *launch,
                     const struct burst_terms *terms, bool is_alone)
{
    struct timed_work *work = &track->work;
    if (!work->launches++)
        work->window = terms->window;
    work->function = is_alone && work->launches == 1 ? launch->function : NULL;
    work->grid_class = launch->grid_class;
    work->expected += launch->expected;
    work->was_unknown += launch->is_unknown;
    work->has_overlapped = is_alone && is_anybody_else_busy(bursts, track);
    track->burst_expected += launch->expected;
    bursts->words.expected += launch->expected;
    bursts->words.unknown += launch->is_unknown;
    bursts->words.in_flight += !track->has_burst;
    track->has_burst = true;
}

/* The launch goes into the track; false: unmeasured. */
static bool plan(struct bursts *bursts, struct track *track, struct burst_launch *launch,
                 const struct burst_terms *terms, bool is_alone, uint64_t now)
{
    if (is_alone)
        burst_close_track(bursts, track, now, 0);
    if (!track->has_burst)
        track->burst_expected = 0;
    if (!track->is_open && !open_track(bursts, track, now))
        return false;
    add_work(bursts, track, launch, terms, is_alone);
    const struct milestone *newest = milestones_newest(&track->milestones);
    launch->ends_burst = launch->is_long || track->burst_expected >= terms->burst_nanoseconds;
    bool is_due = launch->ends_burst || is_alone || closes_at_once(bursts, track) ||
                  now - track->launched_at > SHARED_NANOSECONDS ||
                  (newest && now - newest->recorded_at > MILESTONE_NANOSECONDS);
    launch->closes = is_due && milestones_have_room(&track->milestones);
    track->launched_at = now;
    launch->track_number = track->number;
    __atomic_fetch_add(&track->entering, 1, __ATOMIC_ACQ_REL);
    burst_words_show_active(&bursts->words, true);
    return true;
}

static void describe(const struct bursts *bursts, struct burst_launch *launch, const struct burst_terms *terms)
{
    launch->grid_class = launch->is_graph ? 0 : samples_grid_class(launch->blocks);
    launch->expected = samples_expect(bursts->words.index, launch->function, launch->grid_class);
    launch->is_unknown = !launch->expected;
    launch->expected = launch->is_unknown ? UNKNOWN_NANOSECONDS : launch->expected;
    launch->is_long = launch->is_graph || launch->is_unknown || launch->expected >= terms->burst_nanoseconds;
}

/* Where launches come closely one after the other, three of four do without the clock, which is most of what they cost. */
static uint64_t read_clock(struct track *track)
{
    if (track && track->is_open && ++track->without_clock % LAUNCHES_PER_CLOCK)
        return track->launched_at;
    return times_now_nanoseconds();
}

/* With the mutex; the launch is not captured. Returns as bursts_begin. */
static uint64_t begin(struct bursts *bursts, struct burst_launch *launch, const struct burst_terms *terms)
{
    struct track *track = find_track(bursts, launch);
    uint64_t now = read_clock(track);
    bool is_touchable = track && bursts_are_touchable(bursts);
    launch->track = NULL;
    describe(bursts, launch, terms);
    bool is_over = launch->is_long || (track && track->burst_expected >= terms->burst_nanoseconds);
    if (is_touchable && is_over && track->has_burst) {
        burst_close_track(bursts, track, now, 0);
        burst_end(bursts, track);
    }
    uint64_t wait = launch->may_wait ? ask(bursts, track, launch, terms, now) : 0;
    if (wait)
        return wait;
    bool is_sample = samples_should_sample(bursts->words.index, launch->function, launch->grid_class);
    burst_words_add_blocks(&bursts->words, launch->blocks);
    if (is_touchable && plan(bursts, track, launch, terms, launch->is_long || is_sample, now))
        launch->track = track;
    else if (!track)
        burst_words_note_unmeasured(&bursts->words, 0);
    burst_words_publish(&bursts->words, now);
    return 0;
}

uint64_t bursts_begin(struct bursts *bursts, struct burst_launch *launch)
{
    struct burst_terms terms;
    uint64_t wait = 0;
    if (!bursts_lock_soon(bursts)) {
        launch->track = NULL;
        return 0;
    }
    bool is_paced = !bursts->is_stopped && burst_words_read(&bursts->words, &terms) && !is_captured(launch->stream);
    if (is_paced)
        wait = begin(bursts, launch, &terms);
    else
        launch->track = NULL;
    pthread_mutex_unlock(&bursts->mutex);
    return wait;
}

void bursts_pass(struct track *track)
{
    __atomic_fetch_sub(&track->entering, 1, __ATOMIC_ACQ_REL);
}

/* It is not on the device. */
static void undo(struct bursts *bursts, struct track *track, const struct burst_launch *launch)
{
    if (!track->is_open || !track->work.launches)
        return;
    struct timed_work undone = {.expected = launch->expected, .was_unknown = launch->is_unknown, .launches = 1};
    burst_words_take_back(&bursts->words, &undone);
    track->work.expected -= undone.expected < track->work.expected ? undone.expected : track->work.expected;
    track->work.was_unknown -= track->work.was_unknown && undone.was_unknown;
    track->is_open = --track->work.launches != 0;
}

void bursts_end(struct bursts *bursts, struct burst_launch *launch, CUresult result)
{
    struct track *track = launch->track;
    uint64_t now = times_now_nanoseconds();
    if (!bursts_lock_soon(bursts)) {
        bursts_pass(track); /* what is open is closed later */
        return;
    }
    bool is_last = __atomic_sub_fetch(&track->entering, 1, __ATOMIC_ACQ_REL) == 0;
    if (track->number == launch->track_number) {
        if (result != CUDA_SUCCESS)
            undo(bursts, track, launch);
        else if (is_last && bursts_are_touchable(bursts)) {
            burst_close_track(bursts, track, now, 0);
            if (launch->ends_burst)
                burst_end(bursts, track);
        }
    }
    pthread_mutex_unlock(&bursts->mutex);
}
