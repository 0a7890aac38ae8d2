/* The order of launches on an engine. Time is given out in pieces: a piece ends with a launch, a
 * time slice, or the time asked for. An engine without launches keeps its clock, so that a late
 * launch may still begin when it was ready: threads wake late, and simulated time must not show
 * it. */
#include "device/turns.h"

#include "device/bins.h"

/* How many steps round the circle `next` comes behind `last`: from 0, and the same one at the
 * end. */
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

/* The next slot in the circle with a launch that is ready by `time`, or REQUESTS_NOBODY. */
static uint32_t next_slot(const struct engine *engine, uint64_t time)
{
    uint32_t best = REQUESTS_NOBODY;
    for EACH_QUEUED (engine, i) {
        const struct request *request = &engine->requests[i];
        if (request->ready <= time &&
            (best == REQUESTS_NOBODY || steps_behind(engine->turn, request->slot, MACHINE_SLOTS) <
                                         steps_behind(engine->turn, best, MACHINE_SLOTS)))
            best = request->slot;
    }
    return best;
}

/* The slot that the engine must wait for before `slot` takes time that is not its own: a slot that
 * still has its slice, or that comes before it. REQUESTS_NOBODY where the time is its own. `all`:
 * the engine was idle, and any launch before this one could have used it. */
static uint32_t wait_before(const struct engine *engine, uint32_t slot, int all)
{
    uint32_t total = atomic_load_explicit(&engine->expecting, memory_order_acquire);
    if (total == requests_expected(engine, slot))
        return REQUESTS_NOBODY;
    if (slot != engine->turn && (all || engine->slice_left) && requests_is_awaited(engine, engine->turn))
        return engine->turn;
    for (uint32_t s = 0; s < MACHINE_SLOTS; s++)
        if (s != slot && requests_expected(engine, s) && requests_is_awaited(engine, s) &&
            (all || steps_behind(engine->turn, s, MACHINE_SLOTS) < steps_behind(engine->turn, slot, MACHINE_SLOTS)))
            return s;
    return REQUESTS_NOBODY;
}

static void begin_turn(const struct machine *machine, struct engine *engine, uint32_t slot)
{
    if (engine->ran != slot && engine->ran != REQUESTS_NOBODY)
        engine->clock += machine->switch_nanoseconds;
    engine->turn = engine->ran = slot;
    engine->slice_left = machine->slice_nanoseconds;
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
        requests_finish(engine, index);
}

uint32_t turns_advance(struct machine *machine, unsigned device, uint64_t until)
{
    struct engine *engine = &machine->devices[device].engine;
    for (;;) {
        int launch = engine->slice_left ? choose_launch(engine, engine->turn) : -1;
        if (launch >= 0 && engine->requests[launch].left == 0) {
            requests_finish(engine, launch); /* it only wanted its turn */
        } else if (launch >= 0) {
            if (engine->clock >= until)
                return REQUESTS_NOBODY;
            run(machine, device, launch, until);
        } else {
            uint64_t ready = requests_first_ready(engine);
            int was_idle = ready > engine->clock;
            uint64_t time = was_idle ? ready : engine->clock;
            if (time >= until)
                return REQUESTS_NOBODY;
            uint32_t slot = next_slot(engine, time), awaited = wait_before(engine, slot, was_idle);
            if (awaited != REQUESTS_NOBODY)
                return awaited;
            engine->clock = time;
            begin_turn(machine, engine, slot);
        }
    }
}

/* The most that another slot takes of the engine while this launch waits. */
static uint64_t share_of(const struct machine *machine, const struct engine *engine, const struct request *other,
                         const struct request *own)
{
    uint64_t slice = machine->slice_nanoseconds, rounds = own->left ? (own->left - 1) / slice : 0;
    int is_before = steps_behind(engine->turn, other->slot, MACHINE_SLOTS) <
                    steps_behind(engine->turn, own->slot, MACHINE_SLOTS);
    uint64_t most = rounds * slice + (other->slot == engine->turn ? engine->slice_left : is_before ? slice : 0);
    return other->left < most && !requests_expected(engine, other->slot) ? other->left : most;
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
