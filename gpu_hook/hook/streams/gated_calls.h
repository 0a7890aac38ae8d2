/* The slow ways of the generated forwarders. */
#ifndef ALIQUOT_GATED_CALLS_H
#define ALIQUOT_GATED_CALLS_H

#include <stdint.h>

/* Called by the forwarders; return where to go. The gate's calls, and is told after the return what it had noted. */
void *entry_gate(unsigned index, uint32_t *is_marked);
void entry_gate_leave(uint32_t is_marked);
void *entry_deny(unsigned index);

#endif
