/* Stream capture, for cuInit: the answers to the functions that put work into streams. */
#ifndef SOFTGPU_CAPTURE_H
#define SOFTGPU_CAPTURE_H

#include "queue/captures.h"

extern const struct captures capture_answers;

#endif
