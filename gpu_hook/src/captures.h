/* How many captures are on their way in this process. Whoever waits for a context while a stream of it captures makes
 * that capture invalid. Not counted: captures in graphics contexts, and those into an existing graph anew. */
#ifndef ALIQUOT_CAPTURES_H
#define ALIQUOT_CAPTURES_H

#include <stdbool.h>

/* Also true for ever after a stream was destroyed in the middle of its capture. */
bool captures_are_on(void);

/* In the child of a fork. */
void captures_reset(void);

#endif
