/* The captures that are under way in this process. A wait for a context while a stream of it
 * captures makes that capture invalid. Not counted: captures in graphics contexts, and those that
 * continue an existing graph. */
#ifndef ALIQUOT_CAPTURES_H
#define ALIQUOT_CAPTURES_H

#include "interpose/driver.h"

#include <stdbool.h>

bool captures_are_on(void);

/* Return whether a capture forbids this thread the calls that CUDA names unsafe, allocations and
 * frees among them. */
bool captures_forbid_unsafe_calls(void);

/* Forget the captures in the streams of a context that has ended. */
void captures_forget_context(CUcontext context);

/* For the entry points of captures, in capture_calls.c. A record describes one capture; NULL stands
 * for one that there was no memory for. It is counted before the driver's call, so that no thread
 * waits for the context once it captures. */
struct capture;
struct capture *captures_describe(CUstream stream, CUstreamCaptureMode mode);
void captures_count(void);

/* Lists records, which are counted. */
void captures_put(struct capture *added);

/* Takes at most so many records of the stream's from the list. They stay counted. */
struct capture *captures_take(CUstream stream, unsigned most);

/* Ends one capture, with or without a record; or each of a list of records. */
void captures_uncount(struct capture *ended);
void captures_uncount_all(struct capture *ended);

/* Called in the child of a fork. */
void captures_reset(void);

#endif
