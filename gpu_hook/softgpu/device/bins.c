/* The bins of busy time. A bin is used again after 6.4 s: its epoch says which time it stands
 * for. */
#include "device/bins.h"

void bins_add(struct bin bins[MACHINE_BINS], uint64_t start, uint64_t end)
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

uint64_t bins_busy(const struct bin bins[MACHINE_BINS], uint64_t since, uint64_t until)
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
