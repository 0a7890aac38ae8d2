/* Launches at the compute engine. Who waits for a launch of its own gives out the engine's time for all (turns.c or
 * beside.c), and sleeps between. What ends within LEAD_NANOSECONDS runs ahead of the wall clock: a thread cannot sleep for 5
 * microseconds, and events read the simulated time, not the wall's.
 *
 * A launch that is known to follow another, but whose thread has not woken, is waited for by the processes behind it: the
 * simulated time stands, and is made up for. A process that is stopped is waited for once, for GRACE_NANOSECONDS. */
#include "device/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "device/beside.h"
#include "device/slots.h"
#include "device/turns.h"

#define LEAD_NANOSECONDS 100000ull
#define GRACE_NANOSECONDS 20000000ull
#define SHORTEST_SLEEP 50000ull
#define LONGEST_SLEEP 20000000ull /* things change: a neighbour may be killed */
#define SWEEP_NANOSECONDS 2000000ull

static void sleep_until(uint64_t time)
{
    struct timespec until = {(time_t)(time / 1000000000ull), (long)(time % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

static void pace(uint64_t end)
{
    if (end > machine_now() + LEAD_NANOSECONDS)
        sleep_until(end);
}

/* Under the lock: processes that were killed leave the engine. */
static void sweep(struct seat *seat, struct engine *engine, uint64_t now)
{
    if (now - engine->swept < SWEEP_NANOSECONDS)
        return;
    engine->swept = now;
    for (int i = 0; i < MACHINE_REQUESTS; i++)
        if (engine->requests[i].state != REQUEST_FREE && slots_is_dead(seat, (int)engine->requests[i].slot)) {
            slots_reap_locked(seat);
            return;
        }
}

static uint32_t give_out(struct machine *machine, unsigned device, uint64_t until)
{
    return machine->is_side_by_side ? beside_advance(machine, device, until) : turns_advance(machine, device, until);
}

static uint64_t earliest_end(const struct machine *machine, const struct engine *engine, int index)
{
    return machine->is_side_by_side ? beside_earliest_end(machine, engine, index)
                                    : turns_earliest_end(machine, engine, index);
}

/* Under the lock. The slot that must be waited for, or REQUESTS_NOBODY. */
static uint32_t advance(struct seat *seat, unsigned device, uint64_t now)
{
    struct engine *engine = &seat->machine->devices[device].engine;
    sweep(seat, engine, now);
    for (;;) {
        uint32_t awaited = give_out(seat->machine, device, now + LEAD_NANOSECONDS);
        if (awaited == REQUESTS_NOBODY) {
            engine->awaited_since = 0;
            return awaited;
        }
        if (engine->awaited_since == 0 || engine->awaited != awaited) {
            engine->awaited = awaited;
            engine->awaited_since = now;
        }
        if (slots_is_dead(seat, (int)awaited))
            slots_reap_locked(seat);
        else if (now - engine->awaited_since < GRACE_NANOSECONDS)
            return awaited;
        else
            engine->is_absent[awaited] = 1;
    }
}

/* The awaited process has put its launch here: who waits for that goes on. */
static void wake(struct engine *engine)
{
    atomic_fetch_add(&engine->posts, 1);
    syscall(SYS_futex, &engine->posts, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

static void sleep_on_posts(struct engine *engine, uint32_t posts, uint64_t nanoseconds)
{
    struct timespec pause = {(time_t)(nanoseconds / 1000000000ull), (long)(nanoseconds % 1000000000ull)};
    syscall(SYS_futex, &engine->posts, FUTEX_WAIT, posts, &pause, NULL, 0);
}

void engine_expect(struct seat *seat, unsigned device)
{
    struct engine *engine = &seat->machine->devices[device].engine;
    atomic_fetch_add_explicit(&engine->expecting, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&engine->expected[seat->slot], 1, memory_order_release);
}

void engine_unexpect(struct seat *seat, unsigned device)
{
    struct engine *engine = &seat->machine->devices[device].engine;
    atomic_fetch_sub_explicit(&engine->expected[seat->slot], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&engine->expecting, 1, memory_order_release);
}

void engine_settle(struct seat *seat, unsigned device)
{
    if (machine_try_lock(seat->machine))
        return;
    advance(seat, device, machine_now());
    machine_unlock(seat->machine);
}

/* Under the lock, which is free while it waits for a place. The launch's index, or -1 when the lock cannot be had. */
static int post(struct seat *seat, unsigned device, const struct demand *demand)
{
    struct engine *engine = &seat->machine->devices[device].engine;
    struct request request = {.ready = demand->ready, .left = demand->nanoseconds, .slot = (uint32_t)seat->slot,
                              .priority = demand->priority, .sms = demand->sms, .most_sms = seat->most_sms};
    int index;
    while ((index = requests_post(engine, &request)) < 0) {
        machine_unlock(seat->machine);
        sleep_until(machine_now() + SWEEP_NANOSECONDS);
        if (machine_lock(seat->machine))
            return -1;
        advance(seat, device, machine_now());
    }
    return index;
}

/* Under the lock, which is free while it sleeps. 0 when the launch is done, -1 when the lock cannot be had. */
static int wait_for_end(struct seat *seat, unsigned device, int index)
{
    struct engine *engine = &seat->machine->devices[device].engine;
    for (;;) {
        uint64_t now = machine_now();
        uint32_t posts = atomic_load(&engine->posts), awaited = advance(seat, device, now);
        if (engine->requests[index].state == REQUEST_DONE)
            return 0;
        uint64_t end = earliest_end(seat->machine, engine, index);
        uint64_t grace = engine->awaited_since + GRACE_NANOSECONDS - now;
        machine_unlock(seat->machine);
        if (awaited != REQUESTS_NOBODY)
            sleep_on_posts(engine, posts, grace);
        else
            sleep_until(end < now + SHORTEST_SLEEP ? now + SHORTEST_SLEEP
                                                   : end < now + LONGEST_SLEEP ? end : now + LONGEST_SLEEP);
        if (machine_lock(seat->machine))
            return -1;
    }
}

static void clear_expectation(struct seat *seat, unsigned device, const struct demand *demand)
{
    if (*demand->is_expected)
        engine_unexpect(seat, device);
    *demand->is_expected = 0;
}

uint64_t engine_run(struct seat *seat, unsigned device_index, const struct demand *demand)
{
    struct device *device = &seat->machine->devices[device_index];
    struct engine *engine = &device->engine;
    uint64_t end = demand->ready + demand->nanoseconds;
    atomic_fetch_add_explicit(&device->launches, 1, memory_order_relaxed);
    if (machine_lock(seat->machine)) {
        clear_expectation(seat, device_index, demand);
        return end; /* the lock's holder is stopped: go on without the engine */
    }
    int index = post(seat, device_index, demand);
    clear_expectation(seat, device_index, demand);
    if (index < 0)
        return end;
    if (engine->awaited_since && engine->awaited == (uint32_t)seat->slot) {
        engine->awaited_since = 0;
        wake(engine);
    }
    if (wait_for_end(seat, device_index, index) != 0) {
        atomic_store_explicit(&engine->requests[index].is_given_up, 1, memory_order_relaxed);
        return end;
    }
    end = engine->requests[index].end;
    requests_collect(engine, index);
    machine_unlock(seat->machine);
    return end;
}

uint64_t engine_copy(struct seat *seat, unsigned device_index, enum copy_direction direction, uint64_t ready,
                     uint64_t bytes)
{
    struct machine *machine = seat->machine;
    uint64_t nanoseconds = (uint64_t)((double)bytes * 1e9 / (double)machine->link_bytes_per_second);
    pace(ready);
    if (machine_lock(machine))
        return ready + nanoseconds;
    uint64_t *until = &machine->devices[device_index].copy_until[direction];
    uint64_t start = *until > ready ? *until : ready;
    *until = start + nanoseconds;
    machine_unlock(machine);
    pace(start + nanoseconds);
    return start + nanoseconds;
}
