/* How long launches take, by function and grid class: how long the next one will take, when one is
 * to be measured alone, and how much longer launches take beside opportunistic peers (stretch).
 * Measures nothing itself. Each device has one table of a fixed size; a graph's launch goes by its
 * CUgraphExec. Devices are indices of the agent's page. */
#ifndef ALIQUOT_SAMPLES_H
#define ALIQUOT_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

/* The base-2 logarithm of the number of thread blocks. Of a graph: 0. */
static inline unsigned samples_grid_class(uint64_t blocks)
{
    unsigned class = 63u - (unsigned)__builtin_clzll(blocks | 1);
    return class < 31 ? class : 31;
}

/* One launch that had events right before and right behind it on its stream. */
struct sample {
    const void *function; /* CUfunction, CUkernel or CUgraphExec */
    unsigned grid_class;
    /* Other work of this process was on the device meanwhile: the time is not this launch's alone,
     * and is only taken where nothing else is known of it. */
    bool has_overlapped;
    uint64_t nanoseconds;
    /* The agent page's solo_window before the first event was recorded, and after the last one had
     * come. The launch was alone if both are the same odd number. The agent alone knows which
     * processes are peers. */
    uint32_t window_before, window_after;
};

/* Return the expected nanoseconds; 0: nothing is known. Lock-free, from any thread. */
uint64_t samples_expect(int page_device, const void *function, unsigned grid_class);

/* Count a launch, and return whether it is to be measured alone: the first ones, then one in 64,
 * and three in each solo window. Called by any thread; never waits. */
bool samples_should_sample(int page_device, const void *function, unsigned grid_class);

/* Take a measurement and its time (CLOCK_MONOTONIC). Called by any thread. */
void samples_take(int page_device, const struct sample *sample, uint64_t now);

/* Forget a graph that ended, because the next one may get its handle. (Functions that share a
 * handle are told apart by how long they take.) */
void samples_forget(const void *graph);

/* Write the words again to new pages. */
void samples_registered(void);

/* Called in the child of a fork. */
void samples_reset(void);

#endif
