/* Shared by the two files of pieces.h: walks over what leaves, and what is made to copy through. With both locks. */
#ifndef ALIQUOT_EXTENTS_WALK_H
#define ALIQUOT_EXTENTS_WALK_H

#include "swappable/swappable.h"
#include "vmm/handles.h"

/* In this order, as entry points take them. */
struct spans *pieces_lock(void);
void pieces_unlock(void);

/* Whether it is all out; all that leaves is in one state. Written on the mover's thread alone. */
bool pieces_are_out(void);
void pieces_set_out(bool is_out);

/* The next of what leaves after this one; NULL: the first. */
struct elastic *pieces_next_elastic(const struct spans *table, const struct elastic *before);
struct handle *pieces_next_handle(const struct handle *before);
struct mapping *pieces_next_mapping(const struct mapping *before);

CUresult pieces_map_scratch(struct handle *handle);

#endif
