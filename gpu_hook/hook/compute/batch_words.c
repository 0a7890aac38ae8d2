#include "compute/batch_words.h"

#include "agent_link/activity_page.h"
#include "accounting/devices.h"
#include "base/log.h"
#include "compute/peers.h"
#include "agent_link/page.h"
#include "compute/samples.h"
#include "agent_link/session.h"

#define BATCH_MICROSECONDS 1000u /* where the agent gives no value */
#define LONGEST_BATCH_MICROSECONDS 100000u

void batch_words_begin(struct batch_words *words, int device)
{
    *words = (struct batch_words){.device = device, .index = devices_page_index(device)};
    words->connections = session_connections();
}

static uint32_t read_word(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

bool batch_words_read(struct batch_words *words, struct batch_terms *terms)
{
    uint32_t connections = session_connections();
    if (words->connections != connections) {
        words->index = devices_page_index(words->device);
        words->connections = connections;
    }
    if (words->index < 0)
        return false;
    const struct aliquot_agent_device *page = &page_agent()->devices[words->index];
    uint32_t batch = read_word(&page->batch_microseconds);
    terms->order = (struct pace_order){
        .pace = read_word(&page->pace),
        .in_flight_cap = read_word(&page->in_flight_cap),
        .allowed = page_read(&page->allowed),
        .allowed_with_busy_peers = page_read(&page->allowed_with_busy_peers),
        .idle_window_min = read_word(&page->idle_window_min),
        .idle_window_max = read_word(&page->idle_window_max),
        .idle_resume = read_word(&page->idle_resume),
    };
    batch = batch ? batch : BATCH_MICROSECONDS;
    terms->batch_nanoseconds =
        1000ull * (batch < LONGEST_BATCH_MICROSECONDS ? batch : LONGEST_BATCH_MICROSECONDS);
    terms->window = read_word(&page->solo_window);
    terms->is_sampled =
        terms->order.pace == ALIQUOT_PACE_MEASURE && read_word(&page->is_sampled) != 0;
    return terms->order.pace != ALIQUOT_PACE_OFF;
}

uint64_t batch_words_ask(const struct batch_words *words, const struct pace_order *order,
                         uint64_t now)
{
    struct pace_state state = {
        .occupied = words->meter.occupied,
        .expected = words->expected,
        .in_flight = words->in_flight,
        .unknown = (uint32_t)words->unknown,
    };
    peers_read(words->index, &state);
    return pace_wait(order, &state, now);
}

void batch_words_take_back(struct batch_words *words, const struct timed_work *work)
{
    words->expected -= work->expected < words->expected ? work->expected : words->expected;
    words->unknown -= work->was_unknown < words->unknown ? work->was_unknown : words->unknown;
}

static void take_sample(struct batch_words *words, const struct passed_timing_event *passed,
                        bool has_overlapped, uint64_t now)
{
    const struct timed_work *work = &passed->event->work;
    struct sample sample = {
        .function = work->function,
        .grid_class = work->grid_class,
        .has_overlapped = has_overlapped || work->has_overlapped,
        .nanoseconds = passed->nanoseconds,
        .window_before = work->window,
        .window_after =
            words->index < 0 ? 0 : read_word(&page_agent()->devices[words->index].solo_window),
    };
    if (!sample.has_overlapped || meter_longest(&words->meter, now) == 0)
        meter_add_launch(&words->meter, passed->nanoseconds, now);
    samples_take(words->index, &sample, now);
}

/* Return how much of the device's time since the timing event before was work. Idle time is an
 * estimate, so the work is at least what its launches are expected to take. */
static uint64_t worked_nanoseconds(const struct passed_timing_event *passed)
{
    uint64_t all = passed->nanoseconds, idle = passed->event->work.idle,
             expected = passed->event->work.expected;
    uint64_t least = !idle || expected > all ? all : expected;
    return all > idle && all - idle > least ? all - idle : least;
}

void batch_words_take(struct batch_words *words, const struct passed_timing_event *passed,
                      bool has_overlapped, uint64_t now)
{
    const struct timed_work *work = &passed->event->work;
    struct meter_span extents[METER_PIECES];
    batch_words_take_back(words, work);
    if (!passed->is_measured) {
        batch_words_note_unmeasured(words, 0);
        return;
    }
    uint64_t end = passed->event->passed_at, start = end - worked_nanoseconds(passed);
    unsigned count = meter_add(&words->meter, start, end, extents);
    for (unsigned i = 0; i < count; i++)
        activity_page_add_interval(words->index, extents[i].start, extents[i].end);
    if (work->function)
        take_sample(words, passed, has_overlapped, now);
}

/* Log it the first time, and ever less often. */
void batch_words_note_unmeasured(struct batch_words *words, int reason)
{
    words->unmeasured++;
    if ((words->unmeasured & (words->unmeasured - 1)) == 0)
        LOG("event=unmeasured device=%d times=%llu code=%d", words->device,
            (unsigned long long)words->unmeasured, reason);
}

static struct aliquot_hook_device *find_page(const struct batch_words *words)
{
    return words->index < 0 ? NULL : &page_hook()->devices[words->index];
}

void batch_words_show_active(struct batch_words *words, bool is_active)
{
    if (words->is_active == is_active)
        return;
    words->is_active = is_active;
    activity_page_set_active(words->index, is_active);
}

void batch_words_count_waiting(struct batch_words *words, int change, uint64_t now)
{
    struct aliquot_hook_device *page = find_page(words);
    if (words->waiting)
        words->throttled += now - words->waiting_since;
    words->waiting += (uint32_t)change;
    words->waiting_since = now;
    if (!page)
        return;
    __atomic_store_n(&page->waiting_launches, words->waiting, __ATOMIC_RELEASE);
    page_write(&page->throttled_nanoseconds, words->throttled);
}

void batch_words_publish(struct batch_words *words, uint64_t now)
{
    struct aliquot_hook_device *page = find_page(words);
    if (!page)
        return;
    page_write(&page->occupied_nanoseconds, words->meter.occupied);
    page_write(&page->longest_nanoseconds, meter_longest(&words->meter, now));
    __atomic_store_n(&page->in_flight, words->in_flight, __ATOMIC_RELEASE);
}
