/* How many captures are on their way in this process. Whoever waits for a context while a stream of it captures makes
 * that capture invalid. Not counted: captures in graphics contexts, and those into an existing graph anew. */
#ifndef ALIQUOT_CAPTURES_H
#define ALIQUOT_CAPTURES_H

#include "interpose/driver.h"

#include <stdbool.h>

bool captures_are_on(void);

/* Whether a capture forbids this thread the calls that CUDA names unsafe, allocations and frees among them. */
bool captures_forbid_unsafe_calls(void);

/* The context has ended, and with it the captures in its streams. */
void captures_forget_context(CUcontext context);

/* In the child of a fork. */
void captures_reset(void);

#endif
