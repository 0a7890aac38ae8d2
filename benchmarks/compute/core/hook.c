/* A model of a process's hook: batches with an event on either side, a poll that sees their ends
 * late, the activity page, samples against solo baselines, and waits by pace_rule.c, or by thread
 * blocks. See gpu_hook/hook for the real one. */
#include "../../../gpu_hook/protocol/aliquot_protocol.h"
#include "plant.h"

#define LONGEST_WINDOW 2000000000ull
#define SOLO_SAMPLES 4 /* in a solo window each batch of this many is a sample until there is a baseline */

static struct batch *open_batch(struct process *process)
{
    return &process->batches[(process->batch_tail - 1) % RING];
}

static bool is_sample(struct plant *plant, struct process *process, uint32_t function)
{
    bool lacks = process->solo_window % 2 && !process->functions[function].baseline;
    if (--process->until_sample && !(lacks && process->until_sample % SOLO_SAMPLES == 0))
        return false;
    if (!process->until_sample)
        process->until_sample = (uint32_t)plant->settings.sample_every;
    return true;
}

void hook_open(struct plant *plant, struct process *process, bool is_alone, uint32_t function)
{
    if (process->batch_tail - process->batch_head >= RING) {
        plant->has_failed = true;
        return;
    }
    struct batch *batch = &process->batches[process->batch_tail++ % RING];
    *batch = (struct batch){.function = function, .solo_window = process->solo_window};
    batch->follows = process->item_head != process->item_tail;
    batch->is_measured = process->order.pace != ALIQUOT_PACE_OFF;
    batch->is_sample = batch->is_measured && (is_sample(plant, process, function) || is_alone);
    process->has_open = true;
    if (batch->is_measured) {
        process->in_flight++;
        if (!process->is_active) {
            process->is_active = true;
            process->since = plant->now;
        }
    }
}

void hook_close(struct plant *plant, struct process *process)
{
    if (!process->has_open)
        return;
    struct batch *batch = open_batch(process);
    batch->is_closed = true;
    process->has_open = false;
    if (!batch->items_left) /* its second event came after the work */
        batch->end = plant->now;
}

void hook_started(struct process *process, uint64_t at)
{
    struct batch *batch = &process->batches[process->items[process->item_head % RING].batch % RING];
    if (batch->has_started)
        return;
    batch->has_started = true;
    batch->start = batch->follows ? process->device_end : at; /* they share the event between them */
}

void hook_item_done(struct plant *plant, uint32_t number)
{
    struct process *process = plant->processes[number];
    const struct item *item = &process->items[(process->item_head - 1) % RING];
    struct batch *batch = &process->batches[item->batch % RING];
    process->pending_launches -= item->launches;
    process->device_end = batch->end = plant->now;
    batch->items_left--;
    host_wake(plant, number, WAITS_FOR_QUEUE, plant->settings.wake);
    if (process->item_head == process->item_tail)
        host_wake(plant, number, WAITS_FOR_DEVICE, plant->settings.wake);
}

static void add_piece(struct process *process, uint64_t start, uint64_t end)
{
    start = start > process->last_end ? start : process->last_end;
    if (end <= start)
        return;
    process->occupied += end - start;
    process->last_end = end;
    uint64_t count = process->piece_count;
    if (count && process->pieces[count - 1][1] == start) {
        process->pieces[count - 1][1] = end;
        return;
    }
    if (count == MOST_PIECES) { /* the ring goes round */
        process->lost += process->pieces[0][1] - process->pieces[0][0];
        for (uint64_t place = 1; place < count; place++) {
            process->pieces[place - 1][0] = process->pieces[place][0];
            process->pieces[place - 1][1] = process->pieces[place][1];
        }
        process->piece_count = --count;
    }
    process->pieces[count][0] = start;
    process->pieces[count][1] = end;
    process->piece_count++;
}

void hook_longest(struct process *process, uint64_t time, uint64_t now)
{
    if (now - process->longest_since >= LONGEST_WINDOW) {
        process->longest[1] = now - process->longest_since < 2 * LONGEST_WINDOW ? process->longest[0] : 0;
        process->longest[0] = 0;
        process->longest_since = now;
    }
    process->longest[0] = time > process->longest[0] ? time : process->longest[0];
}

static void learn(struct process *process, const struct batch *batch)
{
    if (batch->function >= MOST_FUNCTIONS)
        return;
    struct function *function = &process->functions[batch->function];
    uint64_t measured = (batch->end - batch->start) / batch->launches;
    measured = measured ? measured : 1;
    function->expected = function->expected ? function->expected - function->expected / 8 + measured / 8 : measured;
    function->expected = function->expected ? function->expected : 1;
    if (!batch->is_sample)
        return;
    function->was_sampled = true;
    if (batch->solo_window % 2 && batch->solo_window == process->solo_window)
        function->baseline = function->baseline ? function->baseline - function->baseline / 4 + measured / 4 : measured;
    if (function->baseline) {
        process->sampled += measured;
        process->sampled_solo += function->baseline;
        process->samples++;
    }
}

void hook_notice(struct plant *plant, struct process *process)
{
    while (process->batch_head != process->batch_tail) {
        const struct batch *batch = &process->batches[process->batch_head % RING];
        if (!batch->is_closed || batch->items_left)
            break;
        process->batch_head++;
        process->expected -= batch->expected;
        process->unknown -= batch->is_unknown;
        if (!batch->is_measured)
            continue;
        process->in_flight--;
        add_piece(process, batch->start, batch->end);
        hook_longest(process, (batch->end - batch->start) / batch->launches, plant->now);
        learn(process, batch);
    }
    if (!process->in_flight && process->is_active) {
        process->is_active = false;
        process->since = plant->now;
    }
}

/* The pacer thread: it looks again and again while something is in flight. */
void hook_poll(struct plant *plant, uint32_t number)
{
    struct process *process = plant->processes[number];
    hook_notice(plant, process);
    const struct settings *settings = &plant->settings;
    process->polls = process->batch_head != process->batch_tail;
    if (process->polls)
        event_add(plant,
                  plant->now + settings->notice_least +
                      random_below(process, settings->notice_most - settings->notice_least + 1),
                  EV_NOTICE, number, 0);
}

static bool is_peer(const struct process *process)
{
    return process->is_production && process->state != NOT_YET && process->state != ENDED &&
           process->order.pace != ALIQUOT_PACE_OFF;
}

/* Returns 0 if a batch may begin, otherwise the time after which to try again. */
uint64_t hook_wait(struct plant *plant, struct process *process)
{
    if (process->gate != ALIQUOT_GATE_PACED)
        return process->gate == ALIQUOT_GATE_CLOSED ? PACE_LOOK_NANOSECONDS : 0;
    if (process->blocks >= process->allowed_blocks)
        return PACE_LOOK_NANOSECONDS;
    struct pace_state state = {.occupied = process->occupied, .expected = process->expected,
                               .in_flight = (uint32_t)process->in_flight,
                               .unknown = (uint32_t)process->unknown};
    for (uint32_t number = 0; !process->is_production && number < plant->process_count; number++) {
        const struct process *other = plant->processes[number];
        if (!is_peer(other))
            continue;
        state.has_peers = 1;
        state.are_active |= other->is_active;
        if (!other->is_active && other->since > state.idle_since)
            state.idle_since = other->since;
    }
    return pace_wait(&process->order, &state, plant->now);
}
