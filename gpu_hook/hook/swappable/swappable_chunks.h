/* One swappable allocation and its physical side: the driver's calls that make, map and release
 * chunks. Keeps no table. */
#ifndef ALIQUOT_SWAPPABLE_CHUNKS_H
#define ALIQUOT_SWAPPABLE_CHUNKS_H

#include "accounting/allocations.h"
#include "interpose/driver.h"
#include "base/spans.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Changed under the table's lock alone, by swappable.c and extents.c. */
struct swappable {
    struct span span;   /* all that is reserved, which is what the device loses; first */
    size_t asked_bytes; /* the part that the program knows */
    int device;
    CUcontext context;
    uint64_t id;
    uint32_t pin_reasons;   /* bits of enum aliquot_pin_reason that hold it on the device */
    bool syncs;         /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    bool is_free_pending;      /* freed by the program; its memory is not released yet */
    bool is_mapped;     /* false while it moves, and out */
    /* bits of devices that may reach it, or have refused to, since it was mapped */
    uint64_t opened;
    bool is_out;
    uint64_t host_offset;
    struct allocation charge; /* of one whose free is pending */
    CUevent done;             /* of one that was freed in stream order, */
    CUcontext done_context;   /* perhaps in another context than its own */
    struct swappable *next;     /* pending frees */
    size_t chunk_bytes;
    size_t chunk_count;
    CUmemGenericAllocationHandle chunks[];
};

/* Return what an allocation or a free would answer now, whatever its argument: no context, an ended
 * or broken one, a capture that forbids it. Waits for nothing. */
CUresult swappable_ask_context(void);

CUresult swappable_create_chunks(struct swappable *swappable);
CUresult swappable_map_chunks(struct swappable *swappable);
CUresult swappable_unmap_chunks(struct swappable *swappable);
/* Open mapped memory to devices that the program uses since it was mapped. */
void swappable_open_to_used(struct swappable *swappable);
void swappable_release_chunks(struct swappable *swappable);

#endif
