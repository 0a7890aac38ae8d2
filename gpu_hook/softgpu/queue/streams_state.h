/* What the files about streams share: the mutex of all queues, and what is known of the works in them. */
#ifndef SOFTGPU_STREAMS_STATE_H
#define SOFTGPU_STREAMS_STATE_H

#include "queue/streams.h"

void streams_lock(void);
void streams_unlock(void);
/* Under the mutex: whether all that the work comes after is done. */
int work_is_ready(const struct work *work);
/* Under the mutex: tells the engine of a launch that will follow the running one at once. */
void stream_expect_next(struct stream *stream);
/* A launch that was expected came to its end without reaching the engine. */
void stream_unexpect(struct stream *stream, struct work *work);

#endif
