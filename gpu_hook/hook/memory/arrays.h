/* Entry points of arrays and mipmapped arrays. Their layout is the driver's secret, so it is asked first: an array of
 * the same shape whose memory is deferred takes none, and tells what it would take. */
#ifndef ALIQUOT_ARRAYS_H
#define ALIQUOT_ARRAYS_H

/* In the child of a fork. */
void arrays_reset(void);

#endif
