/* One elastic allocation and its physical side: the driver's calls that make, map and release chunks. Keeps no table. */
#ifndef ALIQUOT_SWAPPABLE_CHUNKS_H
#define ALIQUOT_SWAPPABLE_CHUNKS_H

#include "accounting/allocations.h"
#include "interpose/driver.h"
#include "base/spans.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is changed under the table's lock alone, by elastic.c and pieces.c. */
struct elastic {
    struct span span;   /* all that is reserved, which is what the device loses; first */
    size_t asked_bytes; /* what the program knows of */
    int device;
    CUcontext context;
    uint64_t id;
    uint32_t staying;   /* bits of enum aliquot_staying that hold it on the device */
    bool syncs;         /* CU_POINTER_ATTRIBUTE_SYNC_MEMOPS */
    bool is_dying;      /* freed, and not let go yet */
    bool is_mapped;     /* false while it moves, and out */
    uint64_t opened;    /* bits of devices that may reach it, or have refused to, since it was mapped */
    bool is_out;
    uint64_t host_offset;
    struct allocation charge; /* of a dying one */
    CUevent done;             /* of one that was freed in stream order, */
    CUcontext done_context;   /* perhaps in another context than its own */
    struct elastic *next;     /* dying ones */
    size_t chunk_bytes;
    size_t chunk_count;
    CUmemGenericAllocationHandle chunks[];
};

/* What an allocation or a free would answer now, whatever it is of: no context, an ended or broken one, a capture that
 * forbids it. Waits for nothing. */
CUresult elastic_ask_context(void);

CUresult elastic_create_chunks(struct elastic *elastic);
CUresult elastic_map_chunks(struct elastic *elastic);
CUresult elastic_unmap_chunks(struct elastic *elastic);
void elastic_open_to_used(struct elastic *elastic); /* mapped memory, to devices that are used since it was mapped */
void elastic_release_chunks(struct elastic *elastic);

#endif
