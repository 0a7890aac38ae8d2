/* The inside of the address window, for the files that reserve addresses and map memory to them. All under its lock. */
#ifndef SOFTGPU_WINDOW_STATE_H
#define SOFTGPU_WINDOW_STATE_H

#include "window.h"

/* An address range that holds no memory of its own: at `hint` if that is free, else at a multiple of `alignment`. Whole
 * units of 2 MiB. The start, or 0 without room. */
uint64_t window_take_addresses(uint64_t bytes, uint64_t alignment, uint64_t hint);
/* The range, taken so, that holds `address`: 0, or -1. */
int window_find_addresses(uint64_t address, uint64_t *start, uint64_t *bytes);
void window_give_addresses(uint64_t start);
/* Makes the alias of a range forget what was mapped there. */
void window_clear(uint64_t start, uint64_t bytes);

#endif
