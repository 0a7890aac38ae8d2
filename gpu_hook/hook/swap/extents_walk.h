/* Walks over the memory that leaves, and the addresses that are made to copy through. Shared by the
 * two files of extents.h. Callers hold both locks. */
#ifndef ALIQUOT_EXTENTS_WALK_H
#define ALIQUOT_EXTENTS_WALK_H

#include "swappable/swappable.h"
#include "vmm/handles.h"

/* Take both locks, in the order in which entry points take them. */
struct spans *extents_lock(void);
void extents_unlock(void);

/* Whether all extents are out; they are always in one state. Written on the mover's thread
 * alone. */
bool extents_are_out(void);
void extents_set_out(bool is_out);

/* Return the next one that leaves after `before`; NULL: the first. */
struct swappable *extents_next_swappable(const struct spans *table, const struct swappable *before);
struct handle *extents_next_handle(const struct handle *before);
struct mapping *extents_next_mapping(const struct mapping *before);

CUresult extents_map_scratch(struct handle *handle);

#endif
