/* The queue of events, the plant's life, and its interface to Python. */
#include <stdlib.h>
#include <string.h>

#include "plant.h"

static bool comes_before(const struct event *one, const struct event *other)
{
    return one->time != other->time ? one->time < other->time : one->number < other->number;
}

void event_add(struct plant *plant, uint64_t time, enum event_kind kind, uint32_t process, uint32_t version)
{
    if (plant->heap_count == plant->heap_room) {
        uint64_t room = plant->heap_room ? 2 * plant->heap_room : 1024;
        struct event *grown = realloc(plant->heap, room * sizeof *grown);
        if (!grown) {
            plant->has_failed = true;
            return;
        }
        plant->heap = grown;
        plant->heap_room = room;
    }
    struct event added = {time, plant->numbers++, kind, process, version};
    uint64_t place = plant->heap_count++;
    for (; place && comes_before(&added, &plant->heap[(place - 1) / 2]); place = (place - 1) / 2)
        plant->heap[place] = plant->heap[(place - 1) / 2];
    plant->heap[place] = added;
}

bool event_take(struct plant *plant, uint64_t until, struct event *taken)
{
    if (!plant->heap_count || plant->heap[0].time > until)
        return false;
    *taken = plant->heap[0];
    struct event moved = plant->heap[--plant->heap_count];
    uint64_t place = 0, child;
    while ((child = 2 * place + 1) < plant->heap_count) {
        if (child + 1 < plant->heap_count && comes_before(&plant->heap[child + 1], &plant->heap[child]))
            child++;
        if (!comes_before(&plant->heap[child], &moved))
            break;
        plant->heap[place] = plant->heap[child];
        place = child;
    }
    plant->heap[place] = moved;
    return true;
}

uint64_t random_below(struct process *process, uint64_t bound)
{
    uint64_t mixed = process->random += 0x9e3779b97f4a7c15ull; /* splitmix64 */
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebull;
    return bound ? (mixed ^ (mixed >> 31)) % bound : 0;
}

struct plant *plant_new(const struct settings *settings)
{
    struct plant *plant = calloc(1, sizeof *plant);
    if (plant) {
        plant->settings = *settings;
        plant->current = plant->last = -1;
    }
    return plant;
}

int plant_add(struct plant *plant, const struct op *ops, uint32_t op_count, int is_production, uint64_t begins,
              uint64_t ends)
{
    struct process *process = calloc(1, sizeof *process);
    if (!process || plant->process_count == MOST_PROCESSES)
        return free(process), -1;
    uint32_t number = plant->process_count++;
    *process = (struct process){.ops = ops, .op_count = op_count, .is_production = is_production, .ends_at = ends};
    process->random = plant->settings.seed * 1000003ull + number;
    process->until_sample = 1 + random_below(process, plant->settings.sample_every);
    process->bins = calloc(plant->settings.horizon / BIN_NANOSECONDS + 2, sizeof *process->bins);
    process->batch_nanoseconds = 1000000;
    process->allowed_blocks = NEVER;
    plant->has_failed |= !process->bins;
    plant->processes[number] = process;
    event_add(plant, begins, EV_BEGIN, number, 0);
    if (ends != NEVER)
        event_add(plant, ends, EV_END, number, 0);
    return (int)number;
}

static void end_process(struct plant *plant, uint32_t number)
{
    struct process *process = plant->processes[number];
    (plant->settings.side_by_side ? side_forget : engine_forget)(plant, number);
    if (process->state == WAITS_FOR_PACE)
        process->throttled += plant->now - process->waits_since;
    process->state = ENDED;
    process->is_active = false;
    process->in_flight = process->expected = 0;
}

static void apply(struct plant *plant, const struct event *event)
{
    struct process *process = plant->processes[event->process];
    switch ((enum event_kind)event->kind) {
    case EV_BEGIN:
        process->state = RUNNING;
        process->step_began = process->due = process->since = plant->now;
        host_run(plant, event->process);
        break;
    case EV_END: end_process(plant, event->process); break;
    case EV_THREAD:
        if (process->state == RUNNING)
            host_run(plant, event->process);
        break;
    case EV_LOOK: host_wake(plant, event->process, WAITS_FOR_PACE, 0); break;
    case EV_STALE:
        if (process->state != ENDED && process->has_open && process->batch_tail == event->version)
            hook_close(plant, process);
        break;
    case EV_NOTICE:
        if (process->state != ENDED)
            hook_poll(plant, event->process);
        break;
    case EV_DEVICE: (plant->settings.side_by_side ? side_event : engine_event)(plant, event->version); break;
    }
}

/* Runs up to and including this time. Returns 0, or -1 when a ring or memory ran out. */
int plant_run(struct plant *plant, uint64_t until)
{
    struct event event;
    while (!plant->has_failed && event_take(plant, until, &event)) {
        plant->now = event.time;
        apply(plant, &event);
    }
    plant->now = until;
    (plant->settings.side_by_side ? side_settle : engine_settle)(plant);
    return plant->has_failed ? -1 : 0;
}

void plant_order(struct plant *plant, uint32_t number, uint32_t gate, const struct pace_order *order,
                 uint64_t batch_nanoseconds, uint64_t solo_window, uint64_t allowed_blocks)
{
    struct process *process = plant->processes[number];
    process->gate = gate;
    process->order = *order;
    process->batch_nanoseconds = batch_nanoseconds;
    process->solo_window = solo_window;
    process->allowed_blocks = allowed_blocks;
}

/* Empties the list of pieces: the agent has read the activity page. */
void plant_look(struct plant *plant, uint32_t number, struct process_look *look)
{
    struct process *process = plant->processes[number];
    hook_longest(process, 0, plant->now);
    *look = (struct process_look){
        .piece_count = process->piece_count, .lost = process->lost, .occupied = process->occupied,
        .is_active = process->is_active, .since = process->since, .in_flight = process->in_flight,
        .waiting_launches = process->state == WAITS_FOR_PACE, .launches = process->launches, .blocks = process->blocks,
        .longest = process->longest[0] > process->longest[1] ? process->longest[0] : process->longest[1],
        .throttled = process->throttled, .sampled = process->sampled, .sampled_solo = process->sampled_solo,
        .samples = process->samples,
    };
    memcpy(look->pieces, process->pieces, sizeof process->pieces);
    if (process->state == WAITS_FOR_PACE)
        look->throttled += plant->now - process->waits_since;
    for (uint32_t function = 0; function < MOST_FUNCTIONS; function++)
        look->without_baseline +=
            process->functions[function].was_sampled && !process->functions[function].baseline;
    process->piece_count = process->lost = 0;
}

uint64_t plant_own(const struct plant *plant, uint32_t number) { return plant->processes[number]->own; }
uint64_t plant_switched(const struct plant *plant) { return plant->switched; }
uint64_t plant_occupied(const struct plant *plant, uint32_t number) { return plant->processes[number]->occupied; }
uint64_t plant_throttled(const struct plant *plant, uint32_t number) { return plant->processes[number]->throttled; }
uint64_t plant_launches(const struct plant *plant, uint32_t number) { return plant->processes[number]->launches; }
uint64_t plant_step_count(const struct plant *plant, uint32_t number) { return plant->processes[number]->step_count; }
const uint64_t *plant_steps(const struct plant *plant, uint32_t number) { return plant->processes[number]->steps; }
const uint64_t *plant_bins(const struct plant *plant, uint32_t number) { return plant->processes[number]->bins; }

void plant_free(struct plant *plant)
{
    for (uint32_t number = 0; number < plant->process_count; number++) {
        free(plant->processes[number]->bins);
        free(plant->processes[number]->steps);
        free(plant->processes[number]);
    }
    free(plant->heap);
    free(plant);
}
