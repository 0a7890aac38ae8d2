/* The words of the pages about one device's bursts: the agent's orders, and the counts for the
 * hook's page and the activity page. The mutex of the bursts guards them; both pages are written
 * while it is held, so that words go forward. */
#ifndef ALIQUOT_BURST_WORDS_H
#define ALIQUOT_BURST_WORDS_H

#include "compute/timing_events.h"
#include "compute/meter.h"
#include "compute/pace_rule.h"

struct burst_words {
    int device, index; /* of the driver's, of the page's; -1: not granted */
    uint32_t connections; /* when the index was looked up */
    bool is_active;
    uint32_t in_flight, unknown; /* bursts; launches whose length is not known */
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

/* Read the agent's order. False: the device's pace is OFF, or it is not granted. */
bool burst_words_read(struct burst_words *words, struct burst_terms *terms);

uint64_t burst_words_ask(const struct burst_words *words, const struct pace_order *order,
                         uint64_t now);

/* Take back work that was begun and is not under way any more. */
void burst_words_take_back(struct burst_words *words, const struct timed_work *work);

/* Take a timing event that was passed at the end of work. */
void burst_words_take(struct burst_words *words, const struct passed_timing_event *passed,
                      bool has_overlapped, uint64_t now);

void burst_words_note_unmeasured(struct burst_words *words, int reason);
void burst_words_add_blocks(struct burst_words *words, uint64_t blocks);
void burst_words_show_active(struct burst_words *words, bool is_active);
void burst_words_count_waiting(struct burst_words *words, int change, uint64_t now);

/* Write the page's words that no other module writes. */
void burst_words_publish(struct burst_words *words, uint64_t now);

#endif
