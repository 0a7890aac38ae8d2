#include "compute/bursts.h"
#include "compute/burst_state.h"
#include "contexts/captures.h"

#include "base/cancellation.h"
#include "compute/samples.h"
#include "base/times.h"

#include "aliquot_protocol.h"

#include <stdlib.h>

#define SHARED_NANOSECONDS 20000ull /* a pause between launches that counts as work; longer ones cost a milestone */
#define MILESTONE_NANOSECONDS 50000ull   /* of the host's time that passes without a milestone, while launches come */
#define MEASURED_NANOSECONDS 250000ull   /* the same where launches are measured alone: nobody's turn waits for it */
#define LAUNCHES_PER_CLOCK 4u
#define UNKNOWN_NANOSECONDS 20000ull /* is expected of what was never measured */
#define UNKNOWN_MOST 4u              /* of these under way where time is short */

struct bursts *bursts_new(int device)
{
    struct bursts *bursts = calloc(1, sizeof *bursts);
    if (bursts) {
        bursts->mutex = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        bursts->calls_end = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        burst_words_begin(&bursts->words, device);
    }
    return bursts;
}

/* Calls the driver. */
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

/* Gives up the mutex. NULL: the stream cannot be measured. */
static struct track *take_track(struct bursts *bursts, const struct burst_launch *launch)
{
    unsigned int flags = CU_STREAM_NON_BLOCKING;
    struct left_events left;
    bursts_unlock(bursts);
    bool is_known = launch->stream == CU_STREAM_LEGACY ||
                    driver()->cuStreamGetFlags(launch->stream, &flags) == CUDA_SUCCESS;
    bursts_lock(bursts);
    if (!is_known || !bursts_are_touchable(bursts))
        return NULL;
    struct track *track = tracks_find(&bursts->tracks, launch->stream, launch->context); /* another thread's meanwhile */
    if (track)
        return track;
    track = tracks_take(&bursts->tracks, launch->stream, launch->context, flags, &left);
    if (track && left.count && burst_begin_questions(track)) { /* so that a context's end waits for it */
        bursts_unlock(bursts);
        left_events_end(&left);
        bursts_lock(bursts);
        burst_end_questions(bursts, track);
    }
    return track;
}

/* May give up the mutex. */
static struct track *find_track(struct bursts *bursts, const struct burst_launch *launch)
{
    if (launch->track && track_is_of(launch->track, launch->stream, launch->context))
        return launch->track;
    if (!bursts_are_touchable(bursts))
        return NULL;
    struct track *track = tracks_find(&bursts->tracks, launch->stream, launch->context);
    return track ? track : take_track(bursts, launch);
}

/* Behind a ring of milestones that none was seen to pass, a launch cannot be measured: the thread that looks may be late
 * on a busy machine. May give up the mutex. */
static void make_room(struct bursts *bursts, struct track *track)
{
    if (track->is_open || milestones_have_room(&track->milestones, 1) || captures_are_on() ||
        !burst_begin_questions(track))
        return;
    burst_take_passed(bursts, track, times_now_nanoseconds());
    burst_end_questions(bursts, track);
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
 * for a milestone, for the stream has not passed the newest one, and one that comes while another thread records there. */
static bool open_track(struct track *track, struct burst_record *record, uint64_t now)
{
    const struct timed_work nothing = {0};
    struct milestone *newest = milestones_newest(&track->milestones);
    bool may_record = burst_can_record(track, record, 2); /* one to begin with, one to end with */
    bool is_shared = newest && (!may_record || now - newest->recorded_at < SHARED_NANOSECONDS);
    if (!is_shared && !may_record)
        return false;
    if (!is_shared)
        burst_reserve(track, &nothing, now, record);
    else if (track->recorder && track != record->track)
        newest->work.has_overlapped = true; /* this launch may be before it */
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
                 const struct burst_terms *terms, bool is_alone, uint64_t now, struct burst_record *record)
{
    uint64_t longest = terms->order.pace == ALIQUOT_PACE_MEASURE ? MEASURED_NANOSECONDS : MILESTONE_NANOSECONDS;
    if (is_alone)
        burst_close_track(track, now, record);
    if (!track->has_burst)
        track->burst_expected = 0;
    if (!track->is_open && !open_track(track, record, now))
        return false;
    add_work(bursts, track, launch, terms, is_alone);
    const struct milestone *newest = milestones_newest(&track->milestones);
    launch->ends_burst = launch->is_long || track->burst_expected >= terms->burst_nanoseconds;
    bool is_due = launch->ends_burst || is_alone || closes_at_once(bursts, track) ||
                  now - track->launched_at > SHARED_NANOSECONDS ||
                  (newest && now - newest->recorded_at > longest);
    launch->closes = is_due && milestones_have_room(&track->milestones, 1);
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

/* Where launches come so closely one after the other that several take less than a pause, three of four do without the
 * clock, which is most of what they cost. Elsewhere it would make pauses of launches. */
static uint64_t read_clock(struct track *track)
{
    if (track && track->is_open && track->is_dense && ++track->without_clock % LAUNCHES_PER_CLOCK)
        return track->launched_at;
    uint64_t now = times_now_nanoseconds();
    if (track)
        track->is_dense = now - track->launched_at <=
                          (track->is_dense ? SHARED_NANOSECONDS : SHARED_NANOSECONDS / LAUNCHES_PER_CLOCK);
    return now;
}

/* With the mutex, which it may give up; the launch is not captured. Returns as bursts_begin. What is to be recorded before
 * the launch is decided here, and made by the caller. */
static uint64_t begin(struct bursts *bursts, struct burst_launch *launch, const struct burst_terms *terms,
                      struct burst_record *record)
{
    struct track *track = find_track(bursts, launch);
    if (track && bursts_are_touchable(bursts))
        make_room(bursts, track);
    uint64_t now = read_clock(track);
    bool is_touchable = track && bursts_are_touchable(bursts) && track_is_of(track, launch->stream, launch->context);
    launch->track = NULL;
    describe(bursts, launch, terms);
    bool is_over = launch->is_long || (track && track->burst_expected >= terms->burst_nanoseconds);
    if (is_touchable && is_over && track->has_burst) {
        burst_close_track(track, now, record);
        burst_end(bursts, track);
    }
    uint64_t wait = launch->may_wait ? ask(bursts, track, launch, terms, now) : 0;
    if (wait)
        return wait;
    bool is_sample = samples_should_sample(bursts->words.index, launch->function, launch->grid_class);
    burst_words_add_blocks(&bursts->words, launch->blocks);
    if (is_touchable && plan(bursts, track, launch, terms, launch->is_long || is_sample, now, record))
        launch->track = track;
    else if (!track)
        burst_words_note_unmeasured(&bursts->words, 0);
    burst_words_publish(&bursts->words, now);
    return 0;
}

uint64_t bursts_begin(struct bursts *bursts, struct burst_launch *launch)
{
    struct burst_terms terms;
    struct burst_record record = {0};
    bool is_in_capture = is_captured(launch->stream);
    uint64_t wait = 0;
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts)) {
        launch->track = NULL;
        return 0;
    }
    if (!bursts->is_stopped && burst_words_read(&bursts->words, &terms) && !is_in_capture) {
        wait = begin(bursts, launch, &terms, &record);
        burst_make_record(bursts, &record);
    } else {
        launch->track = NULL;
    }
    bursts_unlock(bursts);
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

bool bursts_end(struct bursts *bursts, struct burst_launch *launch, CUresult result)
{
    struct track *track = launch->track;
    struct burst_record record = {0};
    uint64_t now = times_now_nanoseconds();
    DEFER_CANCELLATION;
    if (!bursts_lock(bursts)) {
        bursts_pass(track); /* what is open is closed later */
        return true;
    }
    bool is_last = __atomic_sub_fetch(&track->entering, 1, __ATOMIC_ACQ_REL) == 0;
    bool is_same = track->number == launch->track_number;
    if (is_same && result != CUDA_SUCCESS)
        undo(bursts, track, launch);
    else if (is_same && is_last && bursts_are_touchable(bursts)) {
        burst_close_track(track, now, &record);
        if (launch->ends_burst)
            burst_end(bursts, track);
    }
    bool is_open = is_same && track->is_open;
    burst_make_record(bursts, &record);
    bursts_unlock(bursts);
    return is_open;
}
