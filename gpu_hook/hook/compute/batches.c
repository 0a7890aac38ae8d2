#include "compute/batches.h"
#include "compute/batch_state.h"
#include "contexts/captures.h"

#include "base/cancellation.h"
#include "compute/samples.h"
#include "base/times.h"

#include "aliquot_protocol.h"

#include <stdlib.h>

/* of the host's time that passes without a timing event, while launches come */
#define TIMING_EVENT_NANOSECONDS 50000ull
/* the same where launches are only measured: no waiting launch depends on it */
#define MEASURED_NANOSECONDS 250000ull
/* a timing event that was recorded longer ago is no begin of sampled work */
#define OLD_NANOSECONDS 500000000ull
#define LAUNCHES_PER_CLOCK 4u
#define UNKNOWN_NANOSECONDS 20000ull /* is expected of what was never measured */
#define UNKNOWN_MOST 4u              /* of these under way where time is short */

struct batches *batches_new(int device)
{
    struct batches *batches = calloc(1, sizeof *batches);
    if (batches) {
        batches->mutex = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
        batches->calls_end = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
        batch_words_begin(&batches->words, device);
    }
    return batches;
}

/* Makes driver calls. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status;
    return captures_are_on() && (driver()->cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
                                 status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Return whether no other thread may query the driver about the timer's stream: another thread has
 * another default stream. */
static bool is_launchers_alone(const struct stream_timer *timer)
{
    return timer->events.stream == CU_STREAM_PER_THREAD || captures_are_on();
}

/* Return whether a launch is closed at once, because only the launching thread may record in its
 * stream: a record in the legacy one is a barrier between the streams that order themselves with
 * it. Sampled work needs no record there. */
static bool closes_at_once(const struct batches *batches, const struct stream_timer *timer)
{
    bool is_barrier = stream_timer_is_legacy(timer) && batches->timers.has_blocking;
    return is_launchers_alone(timer) || (is_barrier && !timer->work.is_sampled);
}

static bool is_anybody_else_busy(const struct batches *batches, const struct stream_timer *own)
{
    for (unsigned i = 0; i < batches->timers.count; i++)
        if (&batches->timers.all[i] != own && stream_timer_is_busy(&batches->timers.all[i]))
            return true;
    return false;
}

/* Return whether the stream's next work needs no timing event to begin with, although the stream
 * may have been idle: it begins at the timing event before, and the expected idle time is left out.
 * That moves work within some milliseconds, so it is not for several streams, whose intervals are
 * united. */
static bool may_be_sampled(const struct batches *batches, struct stream_timer *timer, uint64_t now)
{
    uint64_t recorded_at = timing_events_last_recorded(&timer->events);
    return recorded_at && now - recorded_at < OLD_NANOSECONDS && !is_launchers_alone(timer) &&
           !is_anybody_else_busy(batches, timer);
}

/* Releases the mutex. NULL: the stream cannot be measured. */
static struct stream_timer *take_timer(struct batches *batches, const struct batch_launch *launch)
{
    unsigned int flags = CU_STREAM_NON_BLOCKING;
    struct left_events left;
    batches_unlock(batches);
    bool is_known = launch->stream == CU_STREAM_LEGACY ||
                    driver()->cuStreamGetFlags(launch->stream, &flags) == CUDA_SUCCESS;
    batches_lock(batches);
    if (!is_known || !batches_are_touchable(batches))
        return NULL;
    /* another thread's in the meantime */
    struct stream_timer *timer =
        stream_timers_find(&batches->timers, launch->stream, launch->context);
    if (timer)
        return timer;
    timer = stream_timers_take(&batches->timers, launch->stream, launch->context, flags, &left);
    /* so that a context's end waits for it */
    if (timer && left.count && batch_begin_questions(timer)) {
        batches_unlock(batches);
        left_events_end(&left);
        batches_lock(batches);
        batch_end_questions(batches, timer);
    }
    return timer;
}

/* May release the mutex. */
static struct stream_timer *find_timer(struct batches *batches, const struct batch_launch *launch)
{
    if (launch->timer && stream_timer_is_of(launch->timer, launch->stream, launch->context))
        return launch->timer;
    if (!batches_are_touchable(batches))
        return NULL;
    struct stream_timer *timer =
        stream_timers_find(&batches->timers, launch->stream, launch->context);
    return timer ? timer : take_timer(batches, launch);
}

/* If none of a full ring of timing events was seen to pass, a launch cannot be measured: the
 * thread that looks may be late on a busy machine. May release the mutex. */
static void make_room(struct batches *batches, struct stream_timer *timer)
{
    if (timer->is_open || timing_events_have_room(&timer->events, 1) || captures_are_on() ||
        !batch_begin_questions(timer))
        return;
    batch_take_passed(batches, timer, times_now_nanoseconds());
    batch_end_questions(batches, timer);
}

/* Return the nanoseconds to wait; 0: it may go on. */
static uint64_t ask(struct batches *batches, const struct stream_timer *timer,
                    const struct batch_launch *launch, const struct batch_terms *terms,
                    uint64_t now)
{
    bool is_within =
        timer && timer->has_batch && timer->batch_expected < terms->batch_nanoseconds;
    if (is_within || terms->order.pace != ALIQUOT_PACE_TIME)
        return 0;
    if (launch->is_unknown && batches->words.unknown >= UNKNOWN_MOST)
        return PACE_LOOK_NANOSECONDS;
    if (timer && timer->events.count + 3 > TIMING_EVENTS_MAX)
        return PACE_LOOK_NANOSECONDS;
    return batch_words_ask(&batches->words, &terms->order, now);
}

/* False: it cannot be measured. A launch right behind another begins where that one ends. So
 * does a launch that finds no room for a timing event, since the stream has not passed the
 * newest one, and a launch that comes while another thread records there. */
static bool open_timer(struct stream_timer *timer, struct batch_record *record, bool is_sampled,
                       uint64_t now)
{
    const struct timed_work nothing = {0};
    struct timing_event *newest = timing_events_newest(&timer->events);
    bool may_record = batch_can_record(timer, record, 2); /* one to begin with, one to end with */
    bool is_shared = is_sampled || (newest && (!may_record || now - newest->recorded_at <
                                                                  SHARED_NANOSECONDS));
    if (!is_shared && !may_record)
        return false;
    if (!is_shared)
        batch_reserve(timer, &nothing, now, record);
    else if (newest && timer->recorder && timer != record->timer)
        newest->work.has_overlapped = true; /* this launch may be before it */
    uint64_t idle = is_sampled ? batch_idle_before(timer, now) : 0;
    timer->work = (struct timed_work){.idle = idle, .is_sampled = is_sampled};
    timer->opened_at = now;
    timer->is_open = true;
    return true;
}

static void add_work(struct batches *batches, struct stream_timer *timer,
                     struct batch_launch *launch, const struct batch_terms *terms, bool is_alone,
                     uint64_t now)
{
    struct timed_work *work = &timer->work;
    timer->through_at = (timer->through_at > now ? timer->through_at : now) + launch->expected;
    if (!work->launches++)
        work->window = terms->window;
    work->function = is_alone && work->launches == 1 ? launch->function : NULL;
    work->grid_class = launch->grid_class;
    work->expected += launch->expected;
    work->was_unknown += launch->is_unknown;
    work->has_overlapped = is_alone && is_anybody_else_busy(batches, timer);
    timer->batch_expected += launch->expected;
    batches->words.expected += launch->expected;
    batches->words.unknown += launch->is_unknown;
    batches->words.in_flight += !timer->has_batch;
    timer->has_batch = true;
}

/* Return whether the last timing event, or the last launch, was long enough ago for another timing
 * event. */
static bool is_event_due(struct stream_timer *timer, const struct batch_terms *terms, uint64_t now)
{
    const struct timing_event *newest = timing_events_newest(&timer->events);
    uint64_t longest =
        terms->order.pace == ALIQUOT_PACE_MEASURE ? MEASURED_NANOSECONDS : TIMING_EVENT_NANOSECONDS;
    if (timer->work.is_sampled)
        return batch_is_sample_due(timer, now);
    return now - timer->launched_at > SHARED_NANOSECONDS ||
           (newest && now - newest->recorded_at > longest);
}

/* The launch goes into the stream timer; false: unmeasured. */
static bool plan(struct batches *batches, struct stream_timer *timer, struct batch_launch *launch,
                 const struct batch_terms *terms, bool is_alone, uint64_t now,
                 struct batch_record *record)
{
    if (is_alone)
        batch_close_timer(timer, now, record);
    if (!timer->has_batch)
        timer->batch_expected = 0;
    bool is_sampled = terms->is_sampled && !timer->is_open && !is_alone &&
                      may_be_sampled(batches, timer, now);
    if (timer->is_open)
        batch_note_idle(timer, now);
    else if (!open_timer(timer, record, is_sampled, now))
        return false;
    timer->work.is_sampled &= terms->is_sampled;
    add_work(batches, timer, launch, terms, is_alone, now);
    launch->ends_batch = launch->is_long || timer->batch_expected >= terms->batch_nanoseconds;
    bool is_due = launch->ends_batch || is_alone || closes_at_once(batches, timer) ||
                  is_event_due(timer, terms, now);
    launch->closes = is_due && timing_events_have_room(&timer->events, 1);
    timer->launched_at = now;
    launch->timer_number = timer->number;
    __atomic_fetch_add(&timer->entering, 1, __ATOMIC_ACQ_REL);
    batch_words_show_active(&batches->words, true);
    return true;
}

static void describe(const struct batches *batches, struct batch_launch *launch,
                     const struct batch_terms *terms)
{
    launch->grid_class = launch->is_graph ? 0 : samples_grid_class(launch->blocks);
    launch->expected = samples_expect(batches->words.index, launch->function, launch->grid_class);
    launch->is_unknown = !launch->expected;
    launch->expected = launch->is_unknown ? UNKNOWN_NANOSECONDS : launch->expected;
    bool is_any_graph = launch->is_graph && !terms->is_sampled; /* its nodes may be changed */
    launch->is_long =
        is_any_graph || launch->is_unknown || launch->expected >= terms->batch_nanoseconds;
}

/* Read the clock. Where launches follow each other so closely that several take less than a pause,
 * three of four do without the clock, which is most of what they cost. Elsewhere that would turn
 * launches into pauses. */
static uint64_t read_clock(struct stream_timer *timer)
{
    if (timer && timer->is_open && timer->is_dense && ++timer->without_clock % LAUNCHES_PER_CLOCK)
        return timer->launched_at;
    uint64_t now = times_now_nanoseconds();
    if (timer)
        timer->is_dense =
            now - timer->launched_at <=
            (timer->is_dense ? SHARED_NANOSECONDS : SHARED_NANOSECONDS / LAUNCHES_PER_CLOCK);
    return now;
}

/* Called with the mutex, which it may release; the launch is not captured. Returns as
 * batches_begin. This function decides the record before the launch; the caller makes it. */
static uint64_t begin(struct batches *batches, struct batch_launch *launch,
                      const struct batch_terms *terms, struct batch_record *record)
{
    struct stream_timer *timer = find_timer(batches, launch);
    if (timer && batches_are_touchable(batches))
        make_room(batches, timer);
    uint64_t now = read_clock(timer);
    bool is_touchable = timer && batches_are_touchable(batches) &&
                        stream_timer_is_of(timer, launch->stream, launch->context);
    launch->timer = NULL;
    describe(batches, launch, terms);
    bool is_over = launch->is_long || (timer && timer->batch_expected >= terms->batch_nanoseconds);
    if (is_touchable && is_over && timer->has_batch) {
        batch_close_timer(timer, now, record);
        batch_end(batches, timer);
    }
    uint64_t wait = launch->may_wait ? ask(batches, timer, launch, terms, now) : 0;
    if (wait)
        return wait;
    bool is_sample =
        samples_should_sample(batches->words.index, launch->function, launch->grid_class);
    if (is_touchable &&
        plan(batches, timer, launch, terms, launch->is_long || is_sample, now, record))
        launch->timer = timer;
    else if (!timer)
        batch_words_note_unmeasured(&batches->words, 0);
    batch_words_publish(&batches->words, now);
    return 0;
}

uint64_t batches_begin(struct batches *batches, struct batch_launch *launch)
{
    struct batch_terms terms;
    struct batch_record record = {0};
    bool is_in_capture = is_captured(launch->stream);
    uint64_t wait = 0;
    DEFER_CANCELLATION;
    if (!batches_lock(batches)) {
        launch->timer = NULL;
        return 0;
    }
    if (!batches->is_stopped && batch_words_read(&batches->words, &terms) && !is_in_capture) {
        wait = begin(batches, launch, &terms, &record);
        batch_make_record(batches, &record);
    } else {
        launch->timer = NULL;
    }
    batches_unlock(batches);
    return wait;
}

void batches_pass(struct stream_timer *timer)
{
    __atomic_fetch_sub(&timer->entering, 1, __ATOMIC_ACQ_REL);
}

/* The launch is not on the device. */
static void undo(struct batches *batches, struct stream_timer *timer,
                 const struct batch_launch *launch)
{
    if (!timer->is_open || !timer->work.launches)
        return;
    struct timed_work undone = {
        .expected = launch->expected, .was_unknown = launch->is_unknown, .launches = 1};
    batch_words_take_back(&batches->words, &undone);
    timer->work.expected -=
        undone.expected < timer->work.expected ? undone.expected : timer->work.expected;
    timer->work.was_unknown -= timer->work.was_unknown && undone.was_unknown;
    timer->is_open = --timer->work.launches != 0;
}

bool batches_end(struct batches *batches, struct batch_launch *launch, CUresult result)
{
    struct stream_timer *timer = launch->timer;
    struct batch_record record = {0};
    uint64_t now = times_now_nanoseconds();
    DEFER_CANCELLATION;
    if (!batches_lock(batches)) {
        batches_pass(timer); /* the open work is closed later */
        return true;
    }
    bool is_last = __atomic_sub_fetch(&timer->entering, 1, __ATOMIC_ACQ_REL) == 0;
    bool is_same = timer->number == launch->timer_number;
    if (is_same && result != CUDA_SUCCESS)
        undo(batches, timer, launch);
    else if (is_same && is_last && batches_are_touchable(batches)) {
        batch_close_timer(timer, now, &record);
        if (launch->ends_batch)
            batch_end(batches, timer);
    }
    bool is_open = is_same && timer->is_open;
    batch_make_record(batches, &record);
    batches_unlock(batches);
    return is_open;
}
