/* A process's thread: its program of launches, waits and work without the device, in a loop. It
 * runs ahead of the device as far as the launch queue allows, and launches when the hook allows. */
#include <stdlib.h>

#include "plant.h"

#define OVERSLEEP 60000ull /* of a thread that sleeps for a short time */
#define STALE_LEAST 500000ull
#define PATIENCE 10000000ull /* a launch that waited so long looks less often, as in gpu_hook/hook/compute/pacing.c */
#define STALE_MOST 1000000ull /* the hook closes a batch to which nothing came for so long */

static void record_step(struct plant *plant, struct process *process, uint32_t kind)
{
    if (process->step_count == process->step_room) {
        uint64_t room = process->step_room ? 2 * process->step_room : 256;
        uint64_t *grown = realloc(process->steps, STEP_WORDS * room * sizeof *grown);
        if (!grown) {
            plant->has_failed = true;
            return;
        }
        process->steps = grown;
        process->step_room = room;
    }
    uint64_t *step = &process->steps[STEP_WORDS * process->step_count++];
    step[0] = plant->now;
    step[1] = plant->now - process->step_began;
    step[2] = kind;
    process->step_began = plant->now;
}

static void next_op(struct process *process)
{
    process->next_op = process->next_op + 1 == process->op_count ? 0 : process->next_op + 1;
    process->done_of_op = 0;
}

static void continue_at(struct plant *plant, uint32_t number, uint64_t time)
{
    event_add(plant, time, EV_THREAD, number, 0);
}

/* Sends a part of the operation's launches to the device as one item of the open batch. */
static uint64_t issue(struct plant *plant, uint32_t number, const struct op *op, uint64_t each_expected, bool is_alone)
{
    struct process *process = plant->processes[number];
    struct batch *batch = &process->batches[(process->batch_tail - 1) % RING];
    uint64_t room = process->batch_nanoseconds > batch->expected ? process->batch_nanoseconds - batch->expected : 0;
    uint64_t launches = is_alone || batch->is_sample ? 1 : (room + each_expected - 1) / each_expected;
    uint64_t left = op->count - process->done_of_op, queue = LAUNCH_QUEUE - process->pending_launches;
    launches = launches < left ? launches : left;
    launches = launches < queue ? launches : queue;
    launches = launches ? launches : 1;
    process->items[process->item_tail++ % RING] = (struct item){
        .left = launches * op->each, .host_until = plant->now + launches * op->host_each + op->each,
        .batch = process->batch_tail - 1, .launches = (uint32_t)launches};
    if (batch->launches && batch->function != op->function)
        batch->function = MOST_FUNCTIONS;
    batch->launches += (uint32_t)launches;
    batch->items_left++;
    batch->expected += launches * each_expected;
    process->expected += launches * each_expected;
    process->pending_launches += (uint32_t)launches;
    process->launches += launches;
    process->blocks += launches * op->blocks;
    process->done_of_op += launches;
    (plant->settings.side_by_side ? side_submit : engine_submit)(plant, number);
    if (is_alone || batch->is_sample || batch->expected >= process->batch_nanoseconds)
        hook_close(plant, process);
    return launches;
}

static void hold(struct plant *plant, uint32_t number, uint64_t wait)
{
    struct process *process = plant->processes[number];
    process->state = WAITS_FOR_PACE;
    process->waits_since = plant->now;
    process->held_since = process->held_since ? process->held_since : plant->now;
    uint64_t held = plant->now - process->held_since, least = held < PATIENCE ? 0 : held / 100;
    least = least < PACE_REST_NANOSECONDS ? least : PACE_REST_NANOSECONDS;
    wait = wait > least ? wait : least;
    event_add(plant, plant->now + wait + random_below(process, OVERSLEEP), EV_LOOK, number, 0);
}

/* Returns true if the program goes on at once. */
static bool launch(struct plant *plant, uint32_t number, const struct op *op)
{
    struct process *process = plant->processes[number];
    if (process->pending_launches >= LAUNCH_QUEUE) {
        process->state = WAITS_FOR_QUEUE;
        return false;
    }
    uint64_t expected = process->order.pace ? process->functions[op->function].expected : op->each;
    bool is_alone = op->kind == OP_GRAPH || !expected; /* its length is not known yet */
    if (is_alone)
        hook_close(plant, process);
    if (!process->has_open) {
        uint64_t wait = hook_wait(plant, process);
        if (wait) {
            hold(plant, number, wait);
            return false;
        }
        process->held_since = 0;
        hook_open(plant, process, is_alone, op->function);
        if (!expected) {
            process->batches[(process->batch_tail - 1) % RING].is_unknown = true;
            process->unknown++;
        }
        if (!process->polls)
            hook_poll(plant, number);
    }
    uint64_t launches = issue(plant, number, op, expected ? expected : 1, is_alone);
    if (process->done_of_op >= op->count)
        next_op(process);
    if (!op->host_each)
        return true;
    continue_at(plant, number, plant->now + launches * op->host_each);
    return false;
}

static bool synchronise(struct plant *plant, struct process *process)
{
    hook_close(plant, process);
    if (process->item_head != process->item_tail) {
        process->state = WAITS_FOR_DEVICE;
        return false;
    }
    hook_notice(plant, process);
    next_op(process);
    return true;
}

static bool stay_away(struct plant *plant, uint32_t number, uint64_t until)
{
    struct process *process = plant->processes[number];
    if (process->has_open)
        event_add(plant, plant->now + STALE_LEAST + random_below(process, STALE_MOST - STALE_LEAST), EV_STALE, number,
                  process->batch_tail);
    next_op(process);
    if (until <= plant->now)
        return true;
    continue_at(plant, number, until);
    return false;
}

void host_run(struct plant *plant, uint32_t number)
{
    struct process *process = plant->processes[number];
    bool goes_on = !plant->has_failed;
    while (goes_on && !plant->has_failed) {
        const struct op *op = &process->ops[process->next_op];
        switch ((enum op_kind)op->kind) {
        case OP_LAUNCH:
        case OP_GRAPH: goes_on = launch(plant, number, op); break;
        case OP_SYNC: goes_on = synchronise(plant, process); break;
        case OP_HOST: goes_on = stay_away(plant, number, plant->now + op->each); break;
        case OP_ARRIVE:
            process->step_began = process->due += op->each;
            goes_on = stay_away(plant, number, process->due);
            break;
        case OP_BEGIN:
            process->step_began = plant->now;
            next_op(process);
            break;
        case OP_STEP:
            record_step(plant, process, op->function);
            next_op(process);
            break;
        }
    }
}

/* If the thread waits for this, it goes on, after so long. */
void host_wake(struct plant *plant, uint32_t number, enum thread_state awaited, uint64_t after)
{
    struct process *process = plant->processes[number];
    if (process->state != awaited)
        return;
    if (awaited == WAITS_FOR_PACE)
        process->throttled += plant->now - process->waits_since;
    process->state = RUNNING;
    if (after)
        continue_at(plant, number, plant->now + after);
    else
        host_run(plant, number);
}
