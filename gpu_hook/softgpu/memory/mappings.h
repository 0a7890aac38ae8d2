/* The mappings in reservations, and which device has which rights to them. All functions are called
 * under the window's lock. */
#ifndef SOFTGPU_MAPPINGS_H
#define SOFTGPU_MAPPINGS_H

#include "device/machine.h"
#include "memory/physical.h"
#include "memory/window.h"

#define MAPPING_HOST MACHINE_DEVICES /* the host's place among the devices */

struct mapping {
    uint64_t start, bytes, id;
    struct physical *physical;
    struct mapping *next; /* of those taken out together */
    uint8_t rights[MACHINE_DEVICES + 1]; /* by index in the machine: enum rights */
};

struct mapping_view {
    uint64_t reserved_start, reserved_bytes;
    int is_mapped; /* else the rest says nothing */
    struct mapping mapping;
    CUmemAllocationProp properties;
    uint64_t memory_id;
};

struct mapping *mappings_at(uint64_t address); /* or NULL */
/* 0, or -1 when something is mapped there, or without memory. Counts on the handle. */
int mappings_add(struct physical *physical, uint64_t start, uint64_t bytes);
/* 1 when whole mappings fill [start, start + bytes) without a gap. */
int mappings_fill(uint64_t start, uint64_t bytes);
/* 1 when nothing is mapped in it. */
int mappings_are_none(uint64_t start, uint64_t bytes);
/* Removes the mappings that fill [start, start + bytes). A list; the caller drops its handles. */
struct mapping *mappings_remove(uint64_t start, uint64_t bytes);
/* Fill in the facts about an address in a reservation: 0, or -1 outside of all. */
int mappings_describe(uint64_t address, struct mapping_view *view);
/* The memory as an allocation: 0, or -1 when nothing is mapped there. */
int mappings_find(uint64_t address, struct allocation *found);
int mappings_allow(uint64_t address, uint64_t bytes, unsigned device, enum rights rights);

#endif
