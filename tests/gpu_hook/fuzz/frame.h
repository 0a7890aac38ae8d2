/* The parts of the frame that the main program alone uses. */
#ifndef ALIQUOT_FUZZ_FRAME_H
#define ALIQUOT_FUZZ_FRAME_H

#include <stdbool.h>
#include <stdint.h>

int frame_start(bool has_quota, bool is_modest, bool is_paced, bool is_verbose);
void frame_draw_from(uint64_t seed, unsigned number);
void frame_begin_sequence(uint64_t number);
void frame_end_sequence(void);
void frame_revive(void); /* makes device 0's primary context current */
/* In the first thread, or now and then in the second; one at a time. */
void frame_run(void (*call)(void *), void *argument);
void frame_begin_record(const char *name, unsigned number);
uint64_t frame_end_record(void);
uint64_t frame_calls(void);

#endif
