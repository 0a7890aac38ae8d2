/* The inside of the address window, for the files that reserve addresses and map memory to them.
 * All functions are called under its lock. */
#ifndef SOFTGPU_WINDOW_STATE_H
#define SOFTGPU_WINDOW_STATE_H

#include "device/backing.h"
#include "memory/window.h"

/* An allocation, or a pool's reservation; NULL. */
struct allocation *window_look_up_whole(uint64_t address);
/* Called by cuInit, once: the listener is told, under the lock, which range was given back, and in
 * which free range it lies. */
typedef void (*window_release_listener)(uint64_t start, uint64_t end, uint64_t free_start, uint64_t free_end);
void window_on_release(window_release_listener listener);
struct ranges *window_addresses(void); /* the taken and free ranges; owners are struct allocation */
/* Takes an address range without memory, in whole units of 2 MiB: at `hint` if that is free, else
 * at a multiple of `alignment`. The start, or 0 without room. */
uint64_t window_take_addresses(uint64_t bytes, uint64_t alignment, uint64_t hint);
/* The range, taken so, that holds `address`: 0, or -1. */
int window_find_addresses(uint64_t address, uint64_t *start, uint64_t *bytes);
void window_give_addresses(uint64_t start);
/* Small allocations lie in a part of their own. */
int window_is_small(uint64_t address);
uint64_t window_small_bytes(void);
uint64_t window_small_offset(uint64_t address);
/* Maps another process's memory at addresses of this one; `backing` names file and place. The
 * allocation begins `inset` bytes into it; *address is where. 0, or -1 without room. */
int window_import(const struct allocation *imported, const struct backing *backing, uint64_t inset, uint64_t *address);
/* Unmaps it again: 0, or -1 when none starts there. Called without the lock. */
int window_give_import(uint64_t address);
/* Makes the alias of a range empty again. */
void window_clear(uint64_t start, uint64_t bytes);

#endif
