/* Entry points that map handles into sparse arrays: a mapping is a use of the handle, as one at an
 * address is. */
#ifndef ALIQUOT_SPARSE_H
#define ALIQUOT_SPARSE_H

#include <stdbool.h>

/* Return whether anything is mapped into an array. One load. */
bool sparse_is_used(void);

/* Forget an array that is freed, or all arrays of a context that ended. Called with vmm_lock. */
void sparse_forget_array(const void *array);
void sparse_forget_context(const void *context);

/* Called in the child of a fork. */
void sparse_reset(void);

#endif
