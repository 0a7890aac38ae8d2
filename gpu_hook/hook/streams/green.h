/* Streams on a part of a device's multiprocessors, where the agent wants that (ALIQUOT_ACT_GREEN_CONTEXT): in a green
 * context of the primary context, which the program never sees. Makes such contexts, and ends them with the primary one.
 *
 * Only streams that do not wait for the default stream can be there, so a program's others are left as they are, and so
 * are those of contexts that are not primary. Where the driver refuses, the stream is a plain one; said once.
 */
#ifndef ALIQUOT_GREEN_H
#define ALIQUOT_GREEN_H

#include "interpose/driver.h"

#include <stdbool.h>

/* True: made. False: the caller makes a plain one. */
bool green_make_stream(CUstream *stream, unsigned int flags, int priority);

/* The primary context behind one that a stream of ours tells; any other as it is. */
CUcontext green_context_shown(CUcontext context);
bool green_is_ours(CUgreenCtx green);

/* With contexts_hold. The program retained a primary context; it is about to release it, or (`is_reset`) to end it. With
 * the last use our green contexts go, which would keep it alive. */
void green_use_begins(CUdevice device);
void green_use_ends(CUdevice device, bool is_reset);

/* In the child of a fork, in the fork handler, and at its own cuInit. */
void green_reset(void);

#endif
