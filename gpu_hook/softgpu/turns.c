/* The order of launches on an engine. Time is given out piece by piece: a piece ends with a launch, a slice, or what is
 * asked for. An engine that nobody wants keeps its clock, so that a launch which comes late to it may still begin when it
 * was ready: threads wake late, and simulated time shall not show it. */
#include "turns.h"

#include <string.h>

#include "bins.h"

/* The first queued request from `index` on, or -1. */
static int queued_from(const struct engine *engine, int index)
{
    for (int word = index / 64; word < MACHINE_REQUESTS / 64; word++, index = word * 64) {
        uint64_t bits = engine->queued[word] >> (index % 64);
        if (bits)
            return index + __builtin_ctzll(bits);
    }
    return -1;
}

#define EACH_QUEUED(engine, i) (int i = queued_from(engine, 0); i >= 0; i = queued_from(engine, i + 1))

/* How many steps round the circle `next` comes behind `last`: from 0, and the same one at the end. */
static uint32_t steps_behind(uint32_t last, uint32_t next, uint32_t circle)
{
    return (next - last - 1) & (circle - 1);
}

/* The launch of a slot that runs next: by priority, then in turn. -1: none is ready. */
static int choose_launch(const struct engine *engine, uint32_t slot)
{
    int best = -1;
    for EACH_QUEUED (engine, i) {
        const struct request *request = &engine->requests[i], *other = &engine->requests[best < 0 ? i : best];
        if (request->slot != slot || request->ready > engine->clock)
            continue;
        if (best < 0 || request->priority < other->priority ||
            (request->priority == other->priority && steps_behind(engine->last, (uint32_t)i, MACHINE_REQUESTS) <
                                                         steps_behind(engine->last, (uint32_t)best, MACHINE_REQUESTS)))
            best = i;
    }
    return best;
}

/* The slot that is next in the circle among those with a launch that is ready by `time`, or NOBODY. */
static uint32_t next_slot(const struct engine *engine, uint64_t time)
{
    uint32_t best = TURNS_NOBODY;
    for EACH_QUEUED (engine, i) {
        const struct request *request = &engine->requests[i];
        if (request->ready <= time &&
            (best == TURNS_NOBODY || steps_behind(engine->turn, request->slot, MACHINE_SLOTS) <
                                         steps_behind(engine->turn, best, MACHINE_SLOTS)))
            best = request->slot;
    }
    return best;
}

static int has_queued(const struct engine *engine, uint32_t slot)
{
    for EACH_QUEUED (engine, i)
        if (engine->requests[i].slot == slot)
            return 1;
    return 0;
}

static uint32_t expected_of(const struct engine *engine, uint32_t slot)
{
    return slot == TURNS_NOBODY ? 0 : atomic_load_explicit(&engine->expected[slot], memory_order_acquire);
}

/* Its next launch follows one that is done, but its thread has not woken yet. */
static int is_awaited(const struct engine *engine, uint32_t slot)
{
    return slot != TURNS_NOBODY && !engine->is_absent[slot] && expected_of(engine, slot) && !has_queued(engine, slot);
}

/* Somebody to wait for before `slot` gets what would not be its: who still has its slice, or comes before it. NOBODY if
 * it is its own. `all`: the engine was idle, and any launch before this one could have used it. */
static uint32_t wait_before(const struct engine *engine, uint32_t slot, int all)
{
    uint32_t total = atomic_load_explicit(&engine->expecting, memory_order_acquire);
    if (total == expected_of(engine, slot))
        return TURNS_NOBODY;
    if (slot != engine->turn && (all || engine->slice_left) && is_awaited(engine, engine->turn))
        return engine->turn;
    for (uint32_t s = 0; s < MACHINE_SLOTS; s++)
        if (s != slot && expected_of(engine, s) && is_awaited(engine, s) &&
            (all || steps_behind(engine->turn, s, MACHINE_SLOTS) < steps_behind(engine->turn, slot, MACHINE_SLOTS)))
            return s;
    return TURNS_NOBODY;
}

static void begin_turn(const struct machine *machine, struct engine *engine, uint32_t slot)
{
    if (engine->ran != slot && engine->ran != TURNS_NOBODY)
        engine->clock += machine->switch_nanoseconds;
    engine->turn = engine->ran = slot;
    engine->slice_left = machine->slice_nanoseconds;
}

static void finish(struct engine *engine, int index)
{
    int is_given_up = atomic_load_explicit(&engine->requests[index].is_given_up, memory_order_relaxed) != 0;
    engine->requests[index].state = is_given_up ? REQUEST_FREE : REQUEST_DONE;
    engine->requests[index].end = engine->clock;
    engine->queued[index / 64] &= ~(1ull << (index % 64));
}

static void run(struct machine *machine, unsigned device_index, int index, uint64_t until)
{
    struct device *device = &machine->devices[device_index];
    struct engine *engine = &device->engine;
    struct request *request = &engine->requests[index];
    struct slot_device *own = &machine->slots[request->slot].devices[device_index];
    uint64_t piece = request->left < engine->slice_left ? request->left : engine->slice_left;
    uint64_t start = engine->clock;
    piece = piece < until - start ? piece : until - start;
    engine->last = (uint32_t)index;
    engine->clock += piece;
    engine->slice_left -= piece;
    request->left -= piece;
    if (piece) {
        atomic_fetch_add_explicit(&own->busy_nanoseconds, piece, memory_order_relaxed);
        bins_add(device->bins, start, engine->clock);
        bins_add(own->bins, start, engine->clock);
    }
    if (request->left == 0)
        finish(engine, index);
}

/* When the first launch of all will be ready; UINT64_MAX without any. */
static uint64_t first_ready(const struct engine *engine)
{
    uint64_t first = UINT64_MAX;
    for EACH_QUEUED (engine, i)
        first = engine->requests[i].ready < first ? engine->requests[i].ready : first;
    return first;
}

uint32_t turns_advance(struct machine *machine, unsigned device, uint64_t until)
{
    struct engine *engine = &machine->devices[device].engine;
    for (;;) {
        int launch = engine->slice_left ? choose_launch(engine, engine->turn) : -1;
        if (launch >= 0 && engine->requests[launch].left == 0) {
            finish(engine, launch); /* it only wanted its turn */
        } else if (launch >= 0) {
            if (engine->clock >= until)
                return TURNS_NOBODY;
            run(machine, device, launch, until);
        } else {
            uint64_t ready = first_ready(engine);
            int was_idle = ready > engine->clock;
            uint64_t time = was_idle ? ready : engine->clock;
            if (time >= until)
                return TURNS_NOBODY;
            uint32_t slot = next_slot(engine, time), awaited = wait_before(engine, slot, was_idle);
            if (awaited != TURNS_NOBODY)
                return awaited;
            engine->clock = time;
            begin_turn(machine, engine, slot);
        }
    }
}

int turns_post(struct engine *engine, const struct request *request)
{
    for (int word = 0; word < MACHINE_REQUESTS / 64; word++)
        for (uint64_t rest = ~engine->queued[word]; rest; rest &= rest - 1) {
            int index = word * 64 + __builtin_ctzll(rest);
            const struct request *found = &engine->requests[index];
            if (found->state != REQUEST_FREE && !(found->state == REQUEST_DONE && found->is_given_up))
                continue;
            engine->requests[index] = *request;
            engine->requests[index].state = REQUEST_QUEUED;
            engine->queued[word] |= 1ull << (index % 64);
            engine->is_absent[request->slot] = 0;
            return index;
        }
    return -1;
}

void turns_collect(struct engine *engine, int index)
{
    engine->requests[index].state = REQUEST_FREE;
}

/* What another slot will take of the engine while this launch waits, at most. */
static uint64_t share_of(const struct machine *machine, const struct engine *engine, const struct request *other,
                         const struct request *own)
{
    uint64_t slice = machine->slice_nanoseconds, rounds = own->left ? (own->left - 1) / slice : 0;
    int is_before = steps_behind(engine->turn, other->slot, MACHINE_SLOTS) <
                    steps_behind(engine->turn, own->slot, MACHINE_SLOTS);
    uint64_t most = rounds * slice + (other->slot == engine->turn ? engine->slice_left : is_before ? slice : 0);
    return other->left < most && !expected_of(engine, other->slot) ? other->left : most;
}

uint64_t turns_earliest_end(const struct machine *machine, const struct engine *engine, int index)
{
    const struct request *own = &engine->requests[index];
    uint64_t end = (own->ready > engine->clock ? own->ready : engine->clock) + own->left;
    uint64_t seen[MACHINE_SLOTS / 64] = {0};
    for EACH_QUEUED (engine, i) {
        const struct request *other = &engine->requests[i];
        uint64_t bit = 1ull << (other->slot % 64);
        if (other->slot == own->slot || other->ready > engine->clock || seen[other->slot / 64] & bit)
            continue;
        seen[other->slot / 64] |= bit;
        end += share_of(machine, engine, other, own);
    }
    return end;
}

void turns_forget(struct engine *engine, uint32_t slot)
{
    for (int i = 0; i < MACHINE_REQUESTS; i++)
        if (engine->requests[i].state != REQUEST_FREE && engine->requests[i].slot == slot) {
            engine->requests[i].state = REQUEST_FREE;
            engine->queued[i / 64] &= ~(1ull << (i % 64));
        }
    uint32_t expected = atomic_exchange_explicit(&engine->expected[slot], 0, memory_order_relaxed);
    atomic_fetch_sub_explicit(&engine->expecting, expected, memory_order_relaxed);
    engine->is_absent[slot] = 0;
}

void turns_repair(struct engine *engine)
{
    uint32_t expecting = 0;
    memset(engine->queued, 0, sizeof engine->queued);
    for (int i = 0; i < MACHINE_REQUESTS; i++)
        if (engine->requests[i].state == REQUEST_QUEUED)
            engine->queued[i / 64] |= 1ull << (i % 64);
    for (uint32_t s = 0; s < MACHINE_SLOTS; s++)
        expecting += expected_of(engine, s);
    atomic_store_explicit(&engine->expecting, expecting, memory_order_relaxed);
}

void turns_reset(struct engine *engine)
{
    memset(engine, 0, sizeof *engine);
    engine->turn = engine->ran = TURNS_NOBODY;
}
