/* Events that several processes share: a page of memory that counts records and says which of them
 * are done. */
#ifndef SOFTGPU_EVENT_SHARES_H
#define SOFTGPU_EVENT_SHARES_H

#include "queue/streams.h"

struct event_share;

struct event_place {
    uint64_t identity;
    int descriptor; /* in this process */
};

/* NULL without memory or descriptors */
struct event_share *event_share_new(struct event_place *place);
/* Opens the event behind a descriptor of the process that joined with this number; NULL when there
 * is none. */
struct event_share *event_share_open(uint64_t joined, const struct event_place *place);
void event_share_drop(struct event_share *share);
/* Begins a record: returns its number, for the work items below. */
uint64_t event_share_record(struct event_share *share);
/* The number of the latest record, of any process; 0: none. */
uint64_t event_share_latest(const struct event_share *share);
int event_share_is_done(const struct event_share *share, uint64_t number);
/* Waits until the record is done, or the process that made it is gone. The device's clock of its
 * end. */
uint64_t event_share_wait(struct event_share *share, uint64_t number);
/* Work items that end a record, and that wait for it. NULL without memory. */
struct work_item *event_share_end(struct event_share *share, uint64_t number);
struct work_item *event_share_await(struct event_share *share, uint64_t number);
/* Ends a record that found no place in a stream. */
void event_share_give_up(struct event_share *share, uint64_t number);

#endif
