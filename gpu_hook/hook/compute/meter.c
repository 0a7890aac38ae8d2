#include "compute/meter.h"

#include <string.h>

#define LONGEST_MILLISECONDS 3.6e6f

/* Return the first span that ends after `start`. */
static unsigned find_after(const struct meter *meter, uint64_t start)
{
    unsigned first = 0;
    while (first < meter->count && meter->spans[first].end < start)
        first++;
    return first;
}

static void remove_oldest(struct meter *meter)
{
    meter->floor = meter->spans[0].end;
    memmove(meter->spans, meter->spans + 1, --meter->count * sizeof *meter->spans);
}

/* Puts the interval in place of the spans [first, last), which it touches. */
static void replace(struct meter *meter, unsigned first, unsigned last, struct meter_span merged)
{
    struct meter_span *spans = meter->spans;
    if (first == last && meter->count == METER_SPANS) {
        if (first == 0) { /* older than all remembered spans */
            meter->floor = merged.end;
            return;
        }
        remove_oldest(meter);
        first = last = first - 1;
    }
    memmove(spans + first + 1, spans + last, (meter->count - last) * sizeof *spans);
    meter->count += 1 - (last - first);
    spans[first] = merged;
}

unsigned meter_add(struct meter *meter, uint64_t start, uint64_t end,
                   struct meter_span pieces[METER_PIECES])
{
    start = start > meter->floor ? start : meter->floor;
    if (end <= start)
        return 0;
    struct meter_span merged = {start, end};
    unsigned first = find_after(meter, start), last = first, count = 0;
    uint64_t at = start;
    for (; last < meter->count && meter->spans[last].start <= end; last++) {
        const struct meter_span *span = &meter->spans[last];
        if (span->start > at)
            pieces[count++] = (struct meter_span){at, span->start};
        at = span->end > at ? span->end : at;
        merged.start = span->start < merged.start ? span->start : merged.start;
        merged.end = span->end > merged.end ? span->end : merged.end;
    }
    if (end > at)
        pieces[count++] = (struct meter_span){at, end};
    for (unsigned i = 0; i < count; i++)
        meter->occupied += pieces[i].end - pieces[i].start;
    replace(meter, first, last, merged);
    return count;
}

static void turn_period(struct meter *meter, uint64_t now)
{
    uint64_t period = now / METER_LONGEST_NANOSECONDS;
    if (period == meter->period)
        return;
    meter->longest[1] = period == meter->period + 1 ? meter->longest[0] : 0;
    meter->longest[0] = 0;
    meter->period = period;
}

void meter_add_launch(struct meter *meter, uint64_t nanoseconds, uint64_t now)
{
    turn_period(meter, now);
    if (nanoseconds > meter->longest[0])
        meter->longest[0] = nanoseconds;
}

uint64_t meter_longest(struct meter *meter, uint64_t now)
{
    turn_period(meter, now);
    return meter->longest[0] > meter->longest[1] ? meter->longest[0] : meter->longest[1];
}

bool meter_read(float milliseconds, uint64_t *nanoseconds)
{
    if (!(milliseconds >= 0 && milliseconds <= LONGEST_MILLISECONDS)) /* of NaN, too */
        return false;
    *nanoseconds = (uint64_t)((double)milliseconds * 1e6 + 0.5);
    return true;
}
