#include "compute/baselines.h"

#include <string.h>

#define TURNED 3u          /* solo samples in a row on one side: the pair does something else now */
#define FASTER 4u          /* shared ones in a row below it: it was never the time alone */
#define SLACK_NANOSECONDS 2000u /* events are no more exact than this */

/* A change by a quarter or more, either way; the clocks of a device change by less. */
static int32_t side_of(uint64_t nanoseconds, uint64_t value)
{
    if (nanoseconds > value + value / 4 + SLACK_NANOSECONDS)
        return 1;
    return nanoseconds + nanoseconds / 4 + SLACK_NANOSECONDS < value ? -1 : 0;
}

static void forget_oldest(struct baseline *baseline, uint32_t kept)
{
    uint32_t dropped = baseline->count > kept ? baseline->count - kept : 0;
    baseline->count -= dropped;
    memmove(baseline->samples, baseline->samples + dropped,
            baseline->count * sizeof baseline->samples[0]);
}

/* The lower of two medians. Spread: more than half as much again between the second smallest and
 * the second largest; of fewer than four, between all. */
static void judge(struct baseline *baseline)
{
    uint64_t sorted[BASELINE_SAMPLES];
    uint32_t count = baseline->count, outliers = count >= 4;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at && sorted[at - 1] > baseline->samples[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = baseline->samples[i];
    }
    uint64_t small = sorted[outliers], large = sorted[count - 1 - outliers];
    baseline->median = sorted[(count - 1) / 2];
    baseline->is_spread = large > small + small / 2 + SLACK_NANOSECONDS;
}

void baseline_add_solo(struct baseline *baseline, uint64_t nanoseconds, uint64_t now)
{
    if (!baseline_is_known(baseline, now))
        *baseline = (struct baseline){0};
    int32_t side = baseline->count ? side_of(nanoseconds, baseline->median) : 0;
    baseline->on_side = side && side == baseline->side ? baseline->on_side + 1 : side != 0;
    baseline->side = side;
    forget_oldest(baseline, BASELINE_SAMPLES - 1);
    baseline->samples[baseline->count++] = nanoseconds;
    baseline->newest = now;
    baseline->faster = 0;
    if (baseline->on_side >= TURNED) {
        forget_oldest(baseline, TURNED);
        baseline->on_side = 0;
    }
    judge(baseline);
}

void baseline_add_shared(struct baseline *baseline, uint64_t nanoseconds)
{
    bool is_faster = baseline->count && side_of(nanoseconds, baseline->median) < 0;
    baseline->faster = is_faster ? baseline->faster + 1 : 0;
    if (baseline->faster >= FASTER)
        *baseline = (struct baseline){0};
}

bool baseline_is_known(const struct baseline *baseline, uint64_t now)
{
    bool is_old = now > baseline->newest && now - baseline->newest > BASELINE_LIFE_NANOSECONDS;
    return baseline->count && !is_old;
}

uint64_t baseline_value(const struct baseline *baseline, uint64_t now)
{
    return baseline_is_known(baseline, now) && !baseline->is_spread ? baseline->median : 0;
}
