/* What the pages say of one device's bursts: what the agent orders, and what is counted for the hook's page and the
 * board. Guarded by the mutex of the bursts that it belongs to; page and board are written while it is held, so that
 * words go forward.
 */
#ifndef ALIQUOT_BURST_WORDS_H
#define ALIQUOT_BURST_WORDS_H

#include "compute/timing_events.h"
#include "compute/meter.h"
#include "compute/pace_rule.h"

struct burst_words {
    int device, index; /* of the driver's, of the page's; -1: not granted */
    uint32_t connections; /* when the index was looked up */
    bool is_active;
    uint32_t in_flight, unknown; /* bursts; launches of which nobody knows how long they take */
    uint64_t expected;           /* nanoseconds, of what is under way */
    uint64_t blocks;
    uint64_t unmeasured; /* times that something could not be measured */
    uint32_t waiting;    /* threads */
    uint64_t waiting_since, throttled;
    struct meter meter;
};

struct burst_terms {
    struct pace_order order;
    uint64_t burst_nanoseconds;
    uint32_t window;
};

void burst_words_begin(struct burst_words *words, int device);

/* False: the device's pace is OFF, or it is not granted. */
bool burst_words_read(struct burst_words *words, struct burst_terms *terms);

uint64_t burst_words_ask(const struct burst_words *words, const struct pace_order *order, uint64_t now);

/* Work that was begun is not under way any more. */
void burst_words_take_back(struct burst_words *words, const struct timed_work *work);

/* A milestone was passed at the end of work. */
void burst_words_take(struct burst_words *words, const struct passed_milestone *passed, bool has_overlapped, uint64_t now);

void burst_words_note_unmeasured(struct burst_words *words, int reason);
void burst_words_add_blocks(struct burst_words *words, uint64_t blocks);
void burst_words_show_active(struct burst_words *words, bool is_active);
void burst_words_count_waiting(struct burst_words *words, int change, uint64_t now);

/* Writes the page's words, but for those that others write. */
void burst_words_publish(struct burst_words *words, uint64_t now);

#endif
