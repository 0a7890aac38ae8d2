/* The bytes of a process that could leave each device, and the reasons why the others stay. The
 * sums are kept as memory is charged and refunded. */
#ifndef ALIQUOT_PIN_REASONS_H
#define ALIQUOT_PIN_REASONS_H

#include "aliquot_protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define PIN_NONE 0u /* in place of a bit of enum aliquot_pin_reason: it can leave */

/* Add bytes to one sum; `reason`: one bit of enum aliquot_pin_reason, or PIN_NONE. */
void pin_reasons_change(int device, uint32_t reason, int64_t bytes);

/* Return the bytes of one reason. */
uint64_t pin_reasons_bytes(int device, uint32_t reason);

/* Return all reasons, as bits, and the sum of their bytes. */
uint32_t pin_reasons_of(int device, uint64_t *bytes);

/* Add bytes that can leave and are swapped out. */
void pin_reasons_change_out(int device, int64_t bytes);
uint64_t pin_reasons_out(int device);

/* Note that memory of this process is shared by legacy IPC: one more pin reason. */
void pin_reasons_note_ipc(void);
bool pin_reasons_has_ipc(void);

/* Called in the child of a fork. */
void pin_reasons_reset(void);

#endif
