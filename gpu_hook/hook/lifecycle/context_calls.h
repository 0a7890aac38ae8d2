/* Entry points that make, change and end contexts: an ended context takes its linear allocations
 * with it. */
#ifndef ALIQUOT_CONTEXT_CALLS_H
#define ALIQUOT_CONTEXT_CALLS_H

/* In the child of a fork. */
void context_calls_reset(void);

#endif
