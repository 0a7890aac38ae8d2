/* Entry points that make, change and end contexts: an ended context takes its linear allocations with it. */
#ifndef ALIQUOT_CONTEXTS_H
#define ALIQUOT_CONTEXTS_H

/* In the child of a fork. */
void contexts_reset(void);

#endif
