/* The model: a launch wants as many multiprocessors as its grid can fill, and no more than its
 * process may have. The highest priority is served first; within one, all are cut by the same
 * factor when they want more than is left. A launch that gets a part of what its grid can fill
 * takes longer by that. */
#include "device/concurrent.h"

#include "device/bins.h"

struct shares {
    double rate[MACHINE_REQUESTS]; /* of each queued launch: 1 is as fast as alone */
    double most[MACHINE_SLOTS];    /* of each slot's launches, the highest */
};

static int is_running(const struct engine *engine, int index)
{
    return engine->requests[index].ready <= engine->clock;
}

/* Cuts the wants of a slot's launches to what its process may have. */
static double wanted_sms(const struct engine *engine, int index)
{
    const struct request *own = &engine->requests[index];
    double sum = 0;
    for EACH_QUEUED (engine, i)
        if (engine->requests[i].slot == own->slot && is_running(engine, i))
            sum += engine->requests[i].sms;
    return sum > own->most_sms ? own->sms * (own->most_sms / sum) : own->sms;
}

/* Serves all launches of one priority out of `left` multiprocessors. Returns the rest. */
static double serve_priority(const struct engine *engine, int32_t priority, double left, struct shares *shares)
{
    double sum = 0;
    for EACH_QUEUED (engine, i)
        if (engine->requests[i].priority == priority && is_running(engine, i))
            sum += shares->rate[i] = wanted_sms(engine, i);
    double factor = sum > left ? left / sum : 1;
    for EACH_QUEUED (engine, i) {
        const struct request *request = &engine->requests[i];
        if (request->priority != priority || !is_running(engine, i))
            continue;
        shares->rate[i] *= factor / request->sms;
        if (shares->rate[i] > shares->most[request->slot])
            shares->most[request->slot] = shares->rate[i];
    }
    return left - sum * factor;
}

/* The next lower priority (a greater number) that a running launch has; 0: there is none. */
static int next_priority(const struct engine *engine, int64_t after, int32_t *priority)
{
    int is_found = 0;
    for EACH_QUEUED (engine, i) {
        int32_t own = engine->requests[i].priority;
        if (is_running(engine, i) && own > after && (!is_found || own < *priority)) {
            *priority = own;
            is_found = 1;
        }
    }
    return is_found;
}

static struct shares share_out(const struct machine *machine, const struct engine *engine)
{
    struct shares shares = {0};
    double left = machine->sm_count;
    int32_t priority = 0;
    for (int64_t after = INT64_MIN; next_priority(engine, after, &priority); after = priority)
        left = serve_priority(engine, priority, left, &shares);
    return shares;
}

/* Until the first launch ends or a new one is ready, at most up to `until`. */
static uint64_t end_of_piece(const struct engine *engine, const struct shares *shares, uint64_t until)
{
    uint64_t end = until;
    for EACH_QUEUED (engine, i) {
        const struct request *request = &engine->requests[i];
        if (!is_running(engine, i)) {
            end = request->ready < end ? request->ready : end;
        } else if (shares->rate[i] > 0) {
            double length = (double)request->left / shares->rate[i];
            uint64_t whole = (uint64_t)length + ((double)(uint64_t)length < length);
            end = whole < end - engine->clock ? engine->clock + whole : end;
        }
    }
    return end;
}

/* The own time of a slot is what the work would have taken alone: its fastest launch says which
 * part of the piece that is. */
static void account(struct machine *machine, unsigned device_index, const struct shares *shares, uint64_t end)
{
    struct device *device = &machine->devices[device_index];
    uint64_t start = device->engine.clock;
    for (int s = 0; s < MACHINE_SLOTS; s++) {
        struct slot_device *own = &machine->slots[s].devices[device_index];
        uint64_t piece = (uint64_t)((double)(end - start) * shares->most[s] + 0.5);
        if (piece == 0)
            continue;
        atomic_fetch_add_explicit(&own->busy_nanoseconds, piece, memory_order_relaxed);
        bins_add(own->bins, start, start + piece);
    }
    bins_add(device->bins, start, end);
}

static void run(struct machine *machine, unsigned device, uint64_t until)
{
    struct engine *engine = &machine->devices[device].engine;
    struct shares shares = share_out(machine, engine);
    uint64_t end = end_of_piece(engine, &shares, until), length = end - engine->clock;
    account(machine, device, &shares, end);
    for EACH_QUEUED (engine, i) {
        uint64_t done = (uint64_t)((double)length * shares.rate[i] + 0.5);
        engine->requests[i].left -= done < engine->requests[i].left ? done : engine->requests[i].left;
    }
    engine->clock = end;
    for EACH_QUEUED (engine, i)
        if (engine->requests[i].left == 0 && engine->requests[i].ready <= end)
            requests_finish(engine, i);
}

/* A slot whose next launch would run concurrently with the others now. */
static uint32_t find_awaited(const struct engine *engine)
{
    if (atomic_load_explicit(&engine->expecting, memory_order_acquire) == 0)
        return REQUESTS_NOBODY;
    for (uint32_t s = 0; s < MACHINE_SLOTS; s++)
        if (requests_is_awaited(engine, s))
            return s;
    return REQUESTS_NOBODY;
}

uint32_t concurrent_advance(struct machine *machine, unsigned device, uint64_t until)
{
    struct engine *engine = &machine->devices[device].engine;
    for (;;) {
        uint64_t ready = requests_first_ready(engine), time = ready > engine->clock ? ready : engine->clock;
        if (time >= until)
            return REQUESTS_NOBODY;
        uint32_t awaited = find_awaited(engine);
        if (awaited != REQUESTS_NOBODY)
            return awaited;
        engine->clock = time;
        run(machine, device, until);
    }
}

uint64_t concurrent_earliest_end(const struct machine *machine, const struct engine *engine, int index)
{
    const struct request *own = &engine->requests[index];
    uint64_t start = own->ready > engine->clock ? own->ready : engine->clock;
    double least = own->sms > own->most_sms ? (double)own->sms / own->most_sms : 1;
    return start + (uint64_t)((double)own->left * least);
}
