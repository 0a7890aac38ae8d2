/* Entry points that map handles into sparse arrays: a mapping is a use of the handle, as one at an address is. */
#ifndef ALIQUOT_SPARSE_H
#define ALIQUOT_SPARSE_H

#include <stdbool.h>

/* Whether anything is mapped into an array. One load. */
bool sparse_is_used(void);

/* With vmm_lock: an array is gone, or a context with all of its arrays. */
void sparse_forget_array(const void *array);
void sparse_forget_context(const void *context);

/* In the child of a fork. */
void sparse_reset(void);

#endif
