/* Launches at the compute engine. A thread that waits for a launch of its own gives out the
 * engine's time for all (turns.c), and sleeps between. A launch that ends within
 * LEAD_NANOSECONDS runs ahead of the wall clock: a thread cannot sleep for 5 microseconds, and
 * events read simulated time. When a launch is known to follow another but its thread has not
 * woken, the processes behind it wait: simulated time stands still, and is made up for later. They
 * wait for a stopped process once, for GRACE_NANOSECONDS. */
#include "device/engine.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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
static void sweep(struct attachment *attachment, struct engine *engine, uint64_t now)
{
    if (now - engine->swept < SWEEP_NANOSECONDS)
        return;
    engine->swept = now;
    for (int i = 0; i < MACHINE_REQUESTS; i++)
        if (engine->requests[i].state != REQUEST_FREE && slots_is_dead(attachment, (int)engine->requests[i].slot)) {
            slots_reap_locked(attachment);
            return;
        }
}

/* Under the lock. The slot that must be waited for, or REQUESTS_NOBODY. */
static uint32_t advance(struct attachment *attachment, unsigned device, uint64_t now)
{
    struct engine *engine = &attachment->machine->devices[device].engine;
    sweep(attachment, engine, now);
    for (;;) {
        uint32_t awaited = turns_advance(attachment->machine, device, now + LEAD_NANOSECONDS);
        if (awaited == REQUESTS_NOBODY) {
            engine->awaited_since = 0;
            return awaited;
        }
        if (engine->awaited_since == 0 || engine->awaited != awaited) {
            engine->awaited = awaited;
            engine->awaited_since = now;
        }
        if (slots_is_dead(attachment, (int)awaited))
            slots_reap_locked(attachment);
        else if (now - engine->awaited_since < GRACE_NANOSECONDS)
            return awaited;
        else
            engine->is_absent[awaited] = 1;
    }
}

/* The awaited process has posted its launch: threads that wait for that go on. */
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

static struct engine *engine_of(struct attachment *attachment, unsigned device)
{
    return &attachment->machine->devices[slots_place(attachment, device)].engine;
}

void engine_expect(struct attachment *attachment, unsigned device)
{
    struct engine *engine = engine_of(attachment, device);
    atomic_fetch_add_explicit(&engine->expecting, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&engine->expected[attachment->slot], 1, memory_order_release);
}

void engine_unexpect(struct attachment *attachment, unsigned device)
{
    struct engine *engine = engine_of(attachment, device);
    atomic_fetch_sub_explicit(&engine->expected[attachment->slot], 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&engine->expecting, 1, memory_order_release);
}

void engine_settle(struct attachment *attachment, unsigned device)
{
    if (machine_try_lock(attachment->machine))
        return;
    advance(attachment, slots_place(attachment, device), machine_now());
    machine_unlock(attachment->machine);
}

/* Under the lock, which is free while it waits for a place; `device` is the machine's. The launch's index, or -1 when the lock
 * cannot be had. */
static int post(struct attachment *attachment, unsigned device, const struct demand *demand)
{
    struct engine *engine = &attachment->machine->devices[device].engine;
    struct request request = {.ready = demand->ready, .left = demand->nanoseconds, .slot = (uint32_t)attachment->slot,
                              .priority = demand->priority};
    int index;
    while ((index = requests_post(engine, &request)) < 0) {
        machine_unlock(attachment->machine);
        sleep_until(machine_now() + SWEEP_NANOSECONDS);
        if (machine_lock(attachment->machine))
            return -1;
        advance(attachment, device, machine_now());
    }
    return index;
}

/* Under the lock, which is free while it sleeps. 0 when the launch is done, -1 when the lock cannot
 * be had. */
static int wait_for_end(struct attachment *attachment, unsigned device, int index)
{
    struct engine *engine = &attachment->machine->devices[device].engine;
    for (;;) {
        uint64_t now = machine_now();
        uint32_t posts = atomic_load(&engine->posts), awaited = advance(attachment, device, now);
        if (engine->requests[index].state == REQUEST_DONE)
            return 0;
        uint64_t end = turns_earliest_end(attachment->machine, engine, index);
        uint64_t grace = engine->awaited_since + GRACE_NANOSECONDS - now;
        machine_unlock(attachment->machine);
        if (awaited != REQUESTS_NOBODY)
            sleep_on_posts(engine, posts, grace);
        else
            sleep_until(end < now + SHORTEST_SLEEP ? now + SHORTEST_SLEEP
                                                   : end < now + LONGEST_SLEEP ? end : now + LONGEST_SLEEP);
        if (machine_lock(attachment->machine))
            return -1;
    }
}

/* Here `device` is the process's. */
static void clear_expectation(struct attachment *attachment, unsigned device, const struct demand *demand)
{
    if (*demand->is_expected)
        engine_unexpect(attachment, device);
    *demand->is_expected = 0;
}

uint64_t engine_run(struct attachment *attachment, unsigned device_index, const struct demand *demand)
{
    unsigned place = slots_place(attachment, device_index);
    struct device *device = &attachment->machine->devices[place];
    struct engine *engine = &device->engine;
    uint64_t end = demand->ready + demand->nanoseconds;
    atomic_fetch_add_explicit(&device->launches, 1, memory_order_relaxed);
    if (machine_lock(attachment->machine)) {
        clear_expectation(attachment, device_index, demand);
        return end; /* the lock's holder is stopped: go on without the engine */
    }
    int index = post(attachment, place, demand);
    clear_expectation(attachment, device_index, demand);
    if (index < 0)
        return end;
    if (engine->awaited_since && engine->awaited == (uint32_t)attachment->slot) {
        engine->awaited_since = 0;
        wake(engine);
    }
    if (wait_for_end(attachment, place, index) != 0) {
        atomic_store_explicit(&engine->requests[index].is_given_up, 1, memory_order_relaxed);
        return end;
    }
    end = engine->requests[index].end;
    requests_collect(engine, index);
    machine_unlock(attachment->machine);
    return end;
}

uint64_t engine_copy(struct attachment *attachment, unsigned device_index, enum copy_direction direction, uint64_t ready,
                     uint64_t bytes)
{
    struct machine *machine = attachment->machine;
    uint64_t nanoseconds = (uint64_t)((double)bytes * 1e9 / (double)machine->link_bytes_per_second);
    pace(ready);
    if (machine_lock(machine))
        return ready + nanoseconds;
    uint64_t *until = &machine->devices[slots_place(attachment, device_index)].copy_until[direction];
    uint64_t start = *until > ready ? *until : ready;
    *until = start + nanoseconds;
    machine_unlock(machine);
    pace(start + nanoseconds);
    return start + nanoseconds;
}
