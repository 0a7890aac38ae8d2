/* The words of the pages about one device's batches: the agent's orders, and the counts for the
 * hook's page and the activity page. The mutex of the batches guards them; both pages are written
 * while it is held, so that words go forward. */
#ifndef ALIQUOT_BATCH_WORDS_H
#define ALIQUOT_BATCH_WORDS_H

#include "compute/timing_events.h"
#include "compute/meter.h"
#include "compute/pace_rule.h"

struct batch_words {
    int device, index; /* of the driver's, of the page's; -1: not granted */
    uint32_t connections; /* when the index was looked up */
    bool is_active;
    uint32_t in_flight, unknown; /* batches; launches whose length is not known */
    uint64_t expected;           /* nanoseconds, of what is under way */
    uint64_t unmeasured; /* times that something could not be measured */
    uint32_t waiting;    /* threads */
    uint64_t waiting_since, throttled;
    struct meter meter;
};

struct batch_terms {
    struct pace_order order;
    uint64_t batch_nanoseconds;
    uint32_t window;
    bool is_sampled; /* few timing events are enough */
};

void batch_words_begin(struct batch_words *words, int device);

/* Read the agent's order. False: the device's pace is OFF, or it is not granted. */
bool batch_words_read(struct batch_words *words, struct batch_terms *terms);

uint64_t batch_words_ask(const struct batch_words *words, const struct pace_order *order,
                         uint64_t now);

/* Take back work that was begun and is not under way any more. */
void batch_words_take_back(struct batch_words *words, const struct timed_work *work);

/* Take a timing event that was passed at the end of work. */
void batch_words_take(struct batch_words *words, const struct passed_timing_event *passed,
                      bool has_overlapped, uint64_t now);

void batch_words_note_unmeasured(struct batch_words *words, int reason);
void batch_words_show_active(struct batch_words *words, bool is_active);
void batch_words_count_waiting(struct batch_words *words, int change, uint64_t now);

/* Write the page's words that no other module writes. */
void batch_words_publish(struct batch_words *words, uint64_t now);

#endif
