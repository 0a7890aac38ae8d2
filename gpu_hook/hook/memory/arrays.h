/* Entry points of arrays and mipmapped arrays. Only the driver knows their layout, so the hook
 * queries it first: an array of the same shape with deferred memory takes none, and the driver
 * reports how much it would take. */
#ifndef ALIQUOT_ARRAYS_H
#define ALIQUOT_ARRAYS_H

/* Called in the child of a fork. */
void arrays_reset(void);

#endif
