/* The state that the files about streams share: the mutex of all queues, and what is known of the
 * work items in them. */
#ifndef SOFTGPU_STREAMS_STATE_H
#define SOFTGPU_STREAMS_STATE_H

#include "queue/streams.h"

void streams_lock(void);
void streams_unlock(void);
/* Called under the mutex: whether all that the item comes after is done. */
int work_is_ready(const struct work_item *work);
/* Called under the mutex: announces to the engine a launch that follows the running one at once. */
void stream_expect_next(struct stream *stream);
/* Withdraws the announcement of a launch that ended without reaching the engine. */
void stream_unexpect(struct stream *stream, struct work_item *work);

#endif
