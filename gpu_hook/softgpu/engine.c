/* Booking device time. Work is cut into slices, so that a long launch does not shut out other processes; between
 * slices the worker sleeps. Work shorter than LEAD_NANOSECONDS runs ahead of the wall clock instead of sleeping: a
 * thread cannot sleep for 5 microseconds, and events read the booked time, not the wall's. */
#include "engine.h"

#include <errno.h>
#include <time.h>

#define SLICE_NANOSECONDS 2000000ull
#define LEAD_NANOSECONDS 100000ull

static void pace(uint64_t end)
{
    if (end <= machine_now() + LEAD_NANOSECONDS)
        return;
    struct timespec until = {(time_t)(end / 1000000000ull), (long)(end % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

/* Under the machine's lock. */
static void add_to_bins(struct bin bins[MACHINE_BINS], uint64_t start, uint64_t end)
{
    while (start < end) {
        uint64_t epoch = start / MACHINE_BIN_NANOSECONDS;
        uint64_t edge = (epoch + 1) * MACHINE_BIN_NANOSECONDS;
        uint64_t part = (end < edge ? end : edge) - start;
        struct bin *bin = &bins[epoch % MACHINE_BINS];
        if (atomic_load_explicit(&bin->epoch, memory_order_relaxed) != epoch) {
            atomic_store_explicit(&bin->busy_nanoseconds, 0, memory_order_relaxed);
            atomic_store_explicit(&bin->epoch, epoch, memory_order_release);
        }
        atomic_fetch_add_explicit(&bin->busy_nanoseconds, part, memory_order_relaxed);
        start += part;
    }
}

uint64_t engine_busy(const struct bin bins[MACHINE_BINS], uint64_t since, uint64_t until)
{
    uint64_t total = 0;
    for (int i = 0; i < MACHINE_BINS; i++) {
        uint64_t epoch = atomic_load_explicit(&bins[i].epoch, memory_order_acquire);
        uint64_t busy = atomic_load_explicit(&bins[i].busy_nanoseconds, memory_order_relaxed);
        uint64_t start = epoch * MACHINE_BIN_NANOSECONDS, end = start + MACHINE_BIN_NANOSECONDS;
        if (busy == 0 || end <= since || start >= until)
            continue;
        /* Within a bin, time is taken as evenly spread over the part that has already passed. */
        uint64_t known_end = end < until ? end : until, known = known_end - start;
        uint64_t from = start > since ? start : since;
        total += known ? (uint64_t)((double)busy * (double)(known_end - from) / (double)known) : 0;
    }
    return total < until - since ? total : until - since;
}

uint64_t engine_run(struct seat *seat, unsigned device_index, uint64_t ready, uint64_t nanoseconds)
{
    struct device *device = &seat->machine->devices[device_index];
    struct slot_device *own = &seat->machine->slots[seat->slot].devices[device_index];
    uint64_t clock = ready, left = nanoseconds;
    atomic_fetch_add_explicit(&device->launches, 1, memory_order_relaxed);
    do {
        uint64_t slice = left < SLICE_NANOSECONDS ? left : SLICE_NANOSECONDS;
        pace(clock); /* never book an engine that others could use meanwhile */
        if (machine_lock(seat->machine))
            return clock + left; /* the lock's holder is stopped: go on without the engine */
        uint64_t start = device->busy_until > clock ? device->busy_until : clock;
        clock = start + slice;
        if (slice) {
            device->busy_until = clock;
            atomic_fetch_add_explicit(&own->busy_nanoseconds, slice, memory_order_relaxed);
            add_to_bins(device->bins, start, clock);
            add_to_bins(own->bins, start, clock);
        }
        machine_unlock(seat->machine);
        left -= slice;
        pace(clock);
    } while (left);
    return clock;
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
